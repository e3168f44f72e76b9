package login

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
)

// environment returns an environment with the given variables and files, all in memory. The
// home folder is /home/u, or C:\Users\u on Windows.
func environment(goos string, vars, files map[string]string) Environment {
	home := "/home/u"
	if goos == "windows" {
		home = `C:\Users\u`
	}
	return Environment{
		Getenv:   func(name string) string { return vars[name] },
		ReadFile: loginfiles.Read(files),
		Home:     home,
		GOOS:     goos,
		UID:      "1000",
	}
}

// parseLoginFile returns the sources in a login file that have a login.
func parseLoginFile(f loginFile, src []byte) ([]*source, error) {
	sources, err := f.parse(src)
	return slices.DeleteFunc(sources, func(l *source) bool { return l.absent != "" }), err
}

func TestLoginFilePlaces(t *testing.T) {
	tests := []struct {
		name string
		goos string
		vars map[string]string
		want []string
	}{
		{
			"Linux", "linux", nil,
			[]string{"/run/containers/1000/auth.json", "/home/u/.config/containers/auth.json", "/home/u/.docker/config.json", "/home/u/.dockercfg", "/home/u/.config/helm/registry/config.json"},
		},
		{
			"Linux, everything set", "linux",
			map[string]string{"REGISTRY_AUTH_FILE": "my.json", "XDG_RUNTIME_DIR": "/run/user/1000", "XDG_CONFIG_HOME": "/xdg/", "DOCKER_CONFIG": "/docker"},
			[]string{"my.json", "/run/user/1000/containers/auth.json", "/xdg/containers/auth.json", "/docker/config.json", "/home/u/.dockercfg", "/xdg/helm/registry/config.json"},
		},
		{
			"a place named twice", "linux",
			map[string]string{"REGISTRY_AUTH_FILE": "/home/u/.docker/config.json", "XDG_RUNTIME_DIR": "/home/u/.config"},
			[]string{"/home/u/.docker/config.json", "/home/u/.config/containers/auth.json", "/home/u/.dockercfg", "/home/u/.config/helm/registry/config.json"},
		},
		{
			"macOS", "darwin", map[string]string{"XDG_RUNTIME_DIR": "/ignored", "XDG_CONFIG_HOME": "/xdg"},
			[]string{"/home/u/.config/containers/auth.json", "/xdg/containers/auth.json", "/home/u/.docker/config.json", "/home/u/.dockercfg", "/xdg/helm/registry/config.json"},
		},
		{
			"macOS, nothing set", "darwin", nil,
			[]string{"/home/u/.config/containers/auth.json", "/home/u/.docker/config.json", "/home/u/.dockercfg", "/home/u/Library/Preferences/helm/registry/config.json"},
		},
		{
			"Windows, everything set", "windows",
			map[string]string{"REGISTRY_AUTH_FILE": `D:\my.json`, "XDG_RUNTIME_DIR": `D:\ignored`, "XDG_CONFIG_HOME": `D:\xdg`, "DOCKER_CONFIG": `D:\docker`},
			[]string{`D:\my.json`, `C:\Users\u\.config\containers\auth.json`, `D:\xdg\containers\auth.json`, `D:\docker\config.json`, `C:\Users\u\.dockercfg`, `D:\xdg\helm\registry\config.json`},
		},
		{
			"Windows", "windows", map[string]string{"APPDATA": `C:\Users\u\AppData\Roaming`},
			[]string{`C:\Users\u\.config\containers\auth.json`, `C:\Users\u\.docker\config.json`, `C:\Users\u\.dockercfg`, `C:\Users\u\AppData\Roaming\helm\registry\config.json`},
		},
		{
			"FreeBSD", "freebsd", nil,
			[]string{"/home/u/.config/containers/auth.json", "/home/u/.docker/config.json", "/home/u/.dockercfg", "/home/u/.config/helm/registry/config.json"},
		},
		{
			"helm's folder", "freebsd", map[string]string{"HELM_CONFIG_HOME": "/helm", "XDG_CONFIG_HOME": "/xdg"},
			[]string{"/xdg/containers/auth.json", "/home/u/.docker/config.json", "/home/u/.dockercfg", "/helm/registry/config.json"},
		},
		{
			"helm's file", "freebsd", map[string]string{"HELM_REGISTRY_CONFIG": "/my.json", "HELM_CONFIG_HOME": "/helm"},
			[]string{"/home/u/.config/containers/auth.json", "/home/u/.docker/config.json", "/home/u/.dockercfg", "/my.json"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, f := range environment(tt.goos, tt.vars, nil).loginFiles() {
				if !f.skip {
					got = append(got, f.name)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("files = %q\nwant %q", got, tt.want)
			}
		})
	}
	if got := (Environment{GOOS: "linux"}).loginFiles(); len(got) > 0 {
		t.Errorf("an empty environment has files %v", got)
	}
}

func TestSearchOrder(t *testing.T) {
	const (
		named   = "/named.json"
		runtime = "/run/user/1000/containers/auth.json"
		config  = "/home/u/.config/containers/auth.json"
		docker  = "/home/u/.docker/config.json"
		old     = "/home/u/.dockercfg"
	)
	vars := map[string]string{"REGISTRY_AUTH_FILE": named, "XDG_RUNTIME_DIR": "/run/user/1000"}
	oldFile := fmt.Sprintf(`{"https://ghcr.io/v1/": {"auth": %q, "email": "u@example.com"}}`, base64.StdEncoding.EncodeToString([]byte("old:p")))
	tests := []struct {
		name  string
		files map[string]string
		want  string // the user names in order of preference
	}{
		{"earlier file before later", map[string]string{
			named: loginfiles.JSON("ghcr.io=named:p"), runtime: loginfiles.JSON("ghcr.io=runtime:p"), config: loginfiles.JSON("ghcr.io=config:p"),
			docker: loginfiles.JSON("ghcr.io=docker:p"), old: oldFile,
		}, "named runtime config docker old"},
		{"more specific before earlier", map[string]string{
			named: loginfiles.JSON("ghcr.io=named:p"), docker: loginfiles.JSON("ghcr.io/acme=docker:p"), old: loginfiles.JSON("ghcr.io/acme/null=old:p"),
		}, "old docker named"},
		{"host before URL with a path, in one file", map[string]string{
			docker: loginfiles.JSON("https://ghcr.io/elsewhere=url:p", "ghcr.io=host:p", "https://ghcr.io=plainurl:p"),
		}, "host plainurl url"},
		{"nothing that matches", map[string]string{docker: loginfiles.JSON("gcr.io=other:p", "ghcr.io/other=other:p")}, ""},
		{"empty entries", map[string]string{docker: `{"auths": {"ghcr.io": {}, "https://ghcr.io": null, "ghcr.io/acme": {"auth": "", "email": "x"}, "http://ghcr.io": {"auth": "Og=="}}}`}, ""},
		{"empty files", map[string]string{docker: "", config: "\xef\xbb\xbf{}", old: " \n"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := findSources(Options{Environment: environment("linux", vars, tt.files), Log: discard})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range rank(found, mustRepository(t, "ghcr.io/acme/null")) {
				got = append(got, l.cred.reveal().Username)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("users = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEntryForms(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := []struct {
		name, entry string
		want        auth.Credential
	}{
		{"user and password", `{"auth": "` + b64("u:p") + `"}`, auth.Credential{Username: "u", Password: "p"}},
		{"colons in the password", `{"auth": "` + b64("u:p:q:") + `"}`, auth.Credential{Username: "u", Password: "p:q:"}},
		{"dollar in the user name", `{"auth": "` + b64("robot$project+name:$HOME") + `"}`, auth.Credential{Username: "robot$project+name", Password: "$HOME"}},
		{"fields", `{"username": "robot$x", "password": "p"}`, auth.Credential{Username: "robot$x", Password: "p"}},
		{"auth before fields", `{"username": "a", "password": "b", "auth": "` + b64("u:p") + `"}`, auth.Credential{Username: "u", Password: "p"}},
		{"without padding", `{"auth": "` + strings.TrimRight(b64("u:pp"), "=") + `"}`, auth.Credential{Username: "u", Password: "pp"}},
		{"line end, as of the program base64", `{"auth": "` + b64("u:pp") + `\r\n"}`, auth.Credential{Username: "u", Password: "pp"}},
		{"docker's trailing zeros", `{"auth": "` + b64("u:p\x00\x00") + `"}`, auth.Credential{Username: "u", Password: "p"}},
		{"refresh token, as ACR leaves it", `{"auth": "` + b64("00000000-0000-0000-0000-000000000000:") + `", "identitytoken": "r"}`,
			auth.Credential{Username: "00000000-0000-0000-0000-000000000000", RefreshToken: "r"}},
		{"refresh token alone", `{"identitytoken": "r"}`, auth.Credential{RefreshToken: "r"}},
		{"access token", `{"registrytoken": "t"}`, auth.Credential{AccessToken: "t"}},
		{"more than we know", `{"auth": "` + b64("u:p") + `", "email": "e", "extra": {"x": [1]}}`, auth.Credential{Username: "u", Password: "p"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			logins, err := parseLoginFile(loginFile{name: "f"}, []byte(`{"auths": {"ghcr.io": `+tt.entry+`}, "HttpHeaders": {}}`))
			if err != nil || len(logins) != 1 {
				t.Fatalf("%d logins, %v", len(logins), err)
			}
			got, err := logins[0].get(t.Context(), nil, "ghcr.io")
			if err != nil || got.reveal() != tt.want {
				t.Errorf("credential %+v, %v", got.reveal(), err)
			}
		})
	}
}

func TestHelpersInFiles(t *testing.T) {
	src := `{
		"auths": {"ghcr.io": {"auth": "dTpw"}, "ghcr.io/acme": {"auth": "dTpw"}, "https://index.docker.io/v1/": {}},
		"credHelpers": {"ghcr.io": "own", "other.io": "", "https://index.docker.io/v1/": "hub"},
		"credsStore": "all"
	}`
	logins, err := parseLoginFile(loginFile{name: "/f"}, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string][]string{
		"ghcr.io/acme/null": {
			"the login for ghcr.io/acme in /f", `the helper docker-credential-own (credHelpers "ghcr.io" in /f)`,
			"the login for ghcr.io in /f", "the helper docker-credential-all (credsStore in /f)",
		},
		"docker.io/acme/null": {
			`the helper docker-credential-hub (credHelpers "https://index.docker.io/v1/" in /f)`, "the helper docker-credential-all (credsStore in /f)",
		},
		"another.io/acme/null": {"the helper docker-credential-all (credsStore in /f)"},
		"other.io/acme/null":   nil, // the name of the helper is empty
	} {
		var got []string
		for _, l := range rank(logins, mustRepository(t, repository)) {
			got = append(got, l.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q\nwant %q", repository, got, want)
		}
	}
}

func TestLoginFileErrors(t *testing.T) {
	const file = "/home/u/.docker/config.json"
	tests := []struct {
		name, src, want string
	}{
		{"no JSON", "{\n\"auths\": s3cr3t}", "it does not parse: line 2: it is not JSON"},
		{"cut off", "{\"auths\": {\n\"ghcr.io\": {\"auth\": \"s3cr3t", "line 2: it ends too early"},
		{"password as a number", "{\"auths\": {\n\n\"ghcr.io\": {\"password\": 53273}}}", "line 3: a value is of another type"},
		{"a list", `["s3cr3t"]`, "line 1: a value is of another type"},
		{"entry as a string", `{"auths": {"ghcr.io": "s3cr3t"}}`, "line 1: a value is of another type"},
		{"helper as an object", `{"credsStore": {"s3cr3t": 1}}`, "line 1: a value is of another type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := mustRepository(t, "registry.test/a/b")
			var log bytes.Buffer
			opts := Options{
				Environment: environment("linux", nil, map[string]string{file: tt.src}),
				Log:         slog.New(slog.NewTextHandler(&log, nil)),
			}
			shown := func(text string) {
				t.Helper()
				if !strings.Contains(text, tt.want) || !strings.Contains(text, file) {
					t.Errorf("%s, want %q", text, tt.want)
				}
				if strings.Contains(text, "s3cr3t") || strings.Contains(text, "53273") {
					t.Errorf("the file is quoted: %s", text)
				}
			}
			// An invalid file at a usual location is skipped with a warning. The hint for a
			// missing login names the file.
			c := New(opts)
			if _, err := c.For(r); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("log: %s", &log)
			}
			shown(log.String())
			shown(c.ExplainNone(r))
			// An invalid file that a block names is an error.
			opts.Defaults = &Defaults{Discover: true, Files: []string{file}}
			_, err := New(opts).For(r)
			if hint.Of(err) == "" {
				t.Fatalf("%v has no hint", err)
			}
			shown(err.Error() + hint.Of(err))
		})
	}
}

func TestUnusableEntryMattersOnlyWhenChosen(t *testing.T) {
	src := `{"auths": {"bad.test": {"auth": "s3cr3t!"}, "nocolon.test": {"auth": "czNjcjN0"}}, "credHelpers": {"helper.test": "../x"}}`
	logins, err := parseLoginFile(loginFile{name: "/f"}, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"bad.test", "nocolon.test", "helper.test"} {
		matching := rank(logins, mustRepository(t, host+"/a/b"))
		if len(matching) != 1 {
			t.Fatalf("%s: %d logins", host, len(matching))
		}
		c := New(Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": src})})
		a, err := c.For(mustRepository(t, host+"/a/b"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Credential(t.Context())
		if err == nil || hint.Of(err) == "" || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestUnreadableLoginFiles(t *testing.T) {
	env := environment("linux", map[string]string{"REGISTRY_AUTH_FILE": "/gone.json"}, nil)
	readFile := func(err error) func(string) ([]byte, error) {
		return func(name string) ([]byte, error) {
			if name == "/gone.json" {
				err = fs.ErrNotExist
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	var out bytes.Buffer
	env.ReadFile = readFile(fs.ErrNotExist)
	found, err := findSources(Options{Environment: env, Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil || len(rank(found, mustRepository(t, "ghcr.io/a/b"))) > 0 || !strings.Contains(out.String(), "/gone.json") {
		t.Errorf("missing files: %v, log %q", err, &out)
	}
	env = environment("linux", nil, nil)
	env.ReadFile = readFile(syscall.ENOTDIR)
	if _, err := findSources(Options{Environment: env, Log: discard}); err != nil {
		t.Errorf("a file in the place of a folder: %v", err)
	}
	for _, cause := range []error{fs.ErrPermission, syscall.EISDIR} {
		env.ReadFile = readFile(cause)
		found, err := findSources(Options{Environment: env, Log: discard, Explicit: []Login{block("ghcr.io", "u:p")}})
		if err != nil || len(rank(found, mustRepository(t, "ghcr.io/a/b"))) != 1 || !errors.Is(found.fault(), cause) || hint.Of(found.fault()) == "" {
			t.Errorf("%v: %v, fault %v", cause, err, found.fault())
		}
		_, err = findSources(Options{Environment: env, Log: discard, Defaults: &Defaults{Discover: true, Files: []string{"/x.json"}}})
		if !errors.Is(err, cause) || strings.Count(err.Error(), "x.json") != 1 || hint.Of(err) == "" {
			t.Errorf("%v, in a block: %v", cause, err)
		}
	}
}

func TestLoginFilesAreReadOnceAndLate(t *testing.T) {
	var reads atomic.Int32
	env := environment("linux", nil, nil)
	read := env.ReadFile
	env.ReadFile = func(name string) ([]byte, error) {
		reads.Add(1)
		return read(name)
	}
	c := New(Options{Environment: env})
	if reads.Load() != 0 {
		t.Error("New reads files")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := c.For(mustRepository(t, "registry.test/a/b")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, want := int(reads.Load()), len(env.loginFiles()); got != want {
		t.Errorf("%d reads of %d files", got, want)
	}
}

var discard = slog.New(slog.DiscardHandler)

func FuzzParseLoginFile(f *testing.F) {
	for _, seed := range []string{
		loginfiles.JSON("ghcr.io=u:marked-secret", "https://index.docker.io/v1/=u:marked-secret"),
		`{"auths": {"ghcr.io/acme": {"identitytoken": "marked-secret"}}, "credHelpers": {"x": "y"}, "credsStore": "z"}`,
		`{"https://ghcr.io/v1/": {"auth": "marked-secret"}}`,
		`{"auths": {"ghcr.io": {"username": "u", "password": "marked-secret"}}, "marked-secret": marked-secret}`,
		`{"auths": {"ghcr.io": {"password": 7777777777}}}`,
		`{"auths": null, "credsStore": ["marked-secret"]}`,
		"\xef\xbb\xbf{\"auths\": {\"\": {\"auth\": \"!\"}}}",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, src string, legacy bool) {
		logins, err := parseLoginFile(loginFile{name: "/f", legacy: legacy}, []byte(src))
		if err != nil {
			if s := err.Error(); strings.Contains(s, "marked-secret") || strings.Contains(s, "7777777777") {
				t.Errorf("error %q", s)
			}
			return
		}
		r := mustRepository(t, "ghcr.io/acme/null")
		for _, l := range rank(logins, r) {
			if l.helper != "" {
				continue
			}
			cred, err := l.get(t.Context(), nil, r.Registry)
			if err == nil == cred.empty() {
				t.Errorf("%s: neither credential nor error, or both", l)
			}
			if s := fmt.Sprintf("%v %+v %#v", l.cred, *l, err); strings.Contains(s, "marked-secret") && !strings.Contains(l.name, "marked-secret") {
				t.Errorf("a secret shows in %q", s)
			}
		}
	})
}
