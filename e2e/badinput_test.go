package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// front starts a recorder in front of a stand-alone registry. The recorder serves plain HTTP. front returns the
// recorder, the recorder's host, and the template of the registry's repositories at this host.
func front(t *testing.T, r *registry.Registry) (rec *recorder.Recorder, host, template string) {
	t.Helper()
	handler, err := r.Handler()
	if err != nil {
		t.Fatal(err)
	}
	rec = recorder.New(handler)
	server := httptest.NewServer(rec)
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	return rec, host, host + "/providers/${hostname}/${namespace}/${type}"
}

// tagsOnDisk lists the tags in all repositories of a registry.
func tagsOnDisk(t *testing.T, r *registry.Registry) []string {
	t.Helper()
	var out []string
	for _, name := range filesUnder(t, r.Dir, "/_manifests/tags/") {
		if strings.HasSuffix(filepath.ToSlash(name), "/current/link") {
			out = append(out, name)
		}
	}
	return out
}

// checkRefused checks the exit status of a run, and that the run printed one error with one hint. The output
// must contain want.
func checkRefused(t *testing.T, got result, status int, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	if got.status != status || len(lines) != 2 || !strings.HasPrefix(lines[0], "error: ") || !strings.HasPrefix(lines[1], "hint: ") {
		t.Errorf("status %d, want %d, and an error and a hint:\n%s", got.status, status, got.stderr)
	}
	if !strings.Contains(got.stderr, want) {
		t.Errorf("no %q in: %s", want, got.stderr)
	}
}

// TestBadInput shows that the program refuses every kind of wrong input from a user, an origin or a registry.
// It prints an error and a hint, and stores no tag.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	_, _, right := front(t, r)
	null := world.Null + "@" + nullVersion
	for name, tc := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"address without a hostname":    {[]string{"hashicorp/null@3.2.4"}, 2, "registry.terraform.io/hashicorp/null"},
		"address that does not parse":   {[]string{"a/b/c/d@1.0.0"}, 2, "invalid provider address"},
		"no version":                    {[]string{world.Null}, 2, "no version given"},
		"version with a v":              {[]string{world.Null + "@v3.2.4"}, 2, "write it as 3.2.4"},
		"version of four numbers":       {[]string{world.Null + "@3.2.4.1"}, 2, "too many numbered portions"},
		"version with a large number":   {[]string{world.Null + "@9223372036854775808.0.0"}, 2, "larger than"},
		"constraint":                    {[]string{world.Null + "@>> 3"}, 2, "invalid version constraint"},
		"constraint that nothing meets": {[]string{world.Null + "@> 100.0"}, 1, "offers " + nullVersion},
		"platform":                      {[]string{null, "--platform", "linux-amd64"}, 2, "OS_ARCH"},
		"platform that is not there":    {[]string{null, "--platform", "plan9_mips"}, 1, "linux_amd64"},
		"version that is not there":     {[]string{world.Null + "@9.9.9"}, 1, nullVersion},
		"provider that is not there":    {[]string{world.Host + "/acme/nothing@1.0.0"}, 1, "provider not found"},
		"template that does not parse":  {[]string{null, "--template", "ghcr.io/${type"}, 2, "invalid repository_template"},
		"template without a symbol":     {[]string{null, "--include", "*/*/*", "--template", "ghcr.io/${namespace}/${type}"}, 2, "${hostname}"},
		"template that yields none":     {[]string{null, "--template", "ghcr.io/Acme/${hostname}/${namespace}/${type}"}, 2, "lower case"},
		"template for other providers":  {[]string{null, "--include", "registry.other.example/*/*", "--template", right}, 1, "no repository template"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"push"}, tc.args...)
			if !strings.Contains(strings.Join(args, " "), "--template") {
				args = append(args, "--template", right)
			}
			got := s.run(args...)
			checkRefused(t, got, tc.status, tc.want)
			if tags := tagsOnDisk(t, r); len(tags) != 0 {
				t.Errorf("tags: %v", tags)
			}
		})
	}
}

// TestBadModule shows that the program refuses every kind of wrong input to a push of a module. It prints an error and a
// hint, and stores no tag.
func TestBadModule(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	_, host, _ := front(t, r)
	right := host + "/modules/${hostname}/${namespace}/${name}/${system}"
	folder := func(prepare func(dir string) error) string {
		dir := t.TempDir()
		clients.Must(t, os.WriteFile(filepath.Join(dir, "main.tf"), nil, 0o600))
		clients.Must(t, prepare(dir))
		return dir
	}
	good := folder(func(string) error { return nil })
	const vpc = "registry.acme.example/acme/vpc/aws@1.0.0"
	for name, tc := range map[string]struct {
		folder, as, template string
		status               int
		want                 string
	}{
		"address of a provider":        {good, "registry.acme.example/acme/vpc@1.0.0", right, 2, "it may be the address of a provider"},
		"address without a hostname":   {good, "acme/vpc/aws@1.0.0", right, 2, "registry.terraform.io/acme/vpc/aws"},
		"folder inside a module":       {good, "registry.acme.example/acme/vpc/aws//subnet@1.0.0", right, 2, "name the whole module"},
		"no version":                   {good, "registry.acme.example/acme/vpc/aws", right, 2, "names no version"},
		"version with a v":             {good, "registry.acme.example/acme/vpc/aws@v1.0.0", right, 2, "write it as 1.0.0"},
		"version of two numbers":       {good, "registry.acme.example/acme/vpc/aws@1.0", right, 2, "write it as 1.0.0"},
		"constraint":                   {good, "registry.acme.example/acme/vpc/aws@~> 1.0", right, 2, "an exact version is required"},
		"template for providers":       {good, vpc, host + "/${hostname}/${namespace}/${type}", 2, "only hostname, namespace, name and system are available"},
		"template that yields no name": {good, vpc, host + "/Acme/${hostname}/${namespace}/${name}/${system}", 2, "lower case"},
		"no folder":                    {filepath.Join(good, "absent"), vpc, right, 1, "name the folder that has the module's .tf files"},
		"file":                         {filepath.Join(good, "main.tf"), vpc, right, 1, "name the folder that has the module's .tf files"},
		"empty folder":                 {t.TempDir(), vpc, right, 1, "it has no files"},
		"link that leaves the folder": {folder(func(dir string) error { return os.Symlink("/etc/hosts", filepath.Join(dir, "hosts.tf")) }), vpc, right, 1,
			"hosts.tf is a link that leaves the folder"},
		"files of more than 2 GiB": {folder(func(dir string) error { return os.Truncate(filepath.Join(dir, "main.tf"), 3<<30) }), vpc, right, 1, "its files have more than"},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, s.run("module", "push", tc.folder, "--as", tc.as, "--template", tc.template), tc.status, tc.want)
			if tags := tagsOnDisk(t, r); len(tags) != 0 {
				t.Errorf("tags: %v", tags)
			}
		})
	}
}

// TestBadOrigin shows that the program refuses each kind of invalid release from an origin.
func TestBadOrigin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*scene)
		want  string
	}{
		"SHA256SUMS without the file": {func(s *scene) {
			s.null.SHA256SUMS = []byte(strings.ReplaceAll(string(s.null.SHA256SUMS), "windows_amd64", "windows_mips"))
			sign(s, s.null, s.Signer)
		}, "not listed in SHA256SUMS"},
		"package that does not match": {func(s *scene) {
			s.null.SHA256SUMS = []byte(strings.ReplaceAll(string(s.null.SHA256SUMS), hostPackage(s.t, s.null).SHA256, strings.Repeat("0", 64)))
			sign(s, s.null, s.Signer)
		}, "checksum mismatch"},
		"package truncated": {func(s *scene) { s.answer(".zip", 1000, "the beginning") }, "truncated"},
		"package longer than announced": {func(s *scene) {
			s.answer(".zip", len("longer than it is")+int(hostPackage(s.t, s.null).Size), strings.Repeat("x", len("longer than it is")+int(hostPackage(s.t, s.null).Size)))
		}, "checksum mismatch"},
		"package that is no zip": {func(s *scene) {
			pkg := hostPackage(s.t, s.null)
			clients.Must(s.t, s.null.Repack(pkg.OS, pkg.Arch, []byte("<html>log in</html>"), s.Signer))
		}, "not a zip"},
		"signature by another key": {func(s *scene) { sign(s, s.null, pgp.For(s.t, "Mallory")) }, "signature refused"},
		"no signature":             {func(s *scene) { s.answerStatus(".sig", http.StatusNotFound) }, "not signed"},
		"no key":                   {func(s *scene) { s.null.Keys = nil }, "--allow-unsigned"},
		"HTML for JSON":            {func(s *scene) { s.answer("/versions", -1, "<html>log in</html>") }, "HTML"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			r := registry.For(t, registry.Options{})
			_, _, fronted := front(t, r)
			tc.spoil(s)
			checkRefused(t, s.run("push", "--quiet", "--template", fronted, world.Null+"@"+nullVersion), 1, tc.want)
			if tags := tagsOnDisk(t, r); len(tags) != 0 {
				t.Errorf("tags: %v", tags)
			}
		})
	}
}

func sign(s *scene, r *release.Release, by *pgp.Signer) {
	s.t.Helper()
	keys := r.Keys
	if err := r.Sign(by); err != nil {
		s.t.Fatal(err)
	}
	r.Keys = keys // the offered keys stay
}

// answer makes the origin return body for paths that end in suffix. If size is not negative, the origin sends
// size as the Content-Length.
func (s *scene) answer(suffix string, size int, body string) {
	s.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		if size >= 0 {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		} else {
			w.Header().Set("Content-Type", "text/html")
		}
		io.WriteString(w, body)
		if size > len(body) {
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		return true
	})
}

func (s *scene) answerStatus(suffix string, status int) {
	s.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		w.WriteHeader(status)
		return true
	})
}

// TestBadRegistry shows the errors for registries that refuse credentials, are down or return HTML. It also
// shows the error for a tag that does not name a version.
func TestBadRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	null := world.Null + "@" + nullVersion
	t.Run("refuses credentials", func(t *testing.T) {
		r := registry.For(t, registry.Options{Users: map[string]string{"alice": "right"}})
		checkRefused(t, s.run("push", null, "--template", template(r)), 1, "docker login "+r.Host)
		s.login(r, "alice", "wr0ng-passw0rd")
		got := s.run("push", null, "--template", template(r))
		checkRefused(t, got, 1, "config.json")
		if strings.Contains(got.stderr, "wr0ng-passw0rd") {
			t.Errorf("a secret in %s", got.stderr)
		}
		if tags := tagsOnDisk(t, r); len(tags) != 0 {
			t.Errorf("tags: %v", tags)
		}
		s.login(r, "alice", "right")
		s.pushTo(r, null)
	})
	t.Run("is not there", func(t *testing.T) {
		checkRefused(t, s.run("push", null, "--template", freeAddress(t)+"/${hostname}/${namespace}/${type}"), 1, "nothing listens")
	})
	t.Run("answers HTML", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>Welcome</html>")
		}))
		defer server.Close()
		checkRefused(t, s.run("push", null, "--template", strings.TrimPrefix(server.URL, "http://")+"/${hostname}/${namespace}/${type}"), 1, "HTML")
	})
	t.Run("has the tag for something else", func(t *testing.T) {
		r := registry.For(t, registry.Options{})
		ws := s.workspace("")
		if err := os.WriteFile(filepath.Join(ws.Dir, "notes.txt"), []byte("notes"), 0o600); err != nil {
			t.Fatal(err)
		}
		repo := r.Host + "/providers/" + world.Null
		ws.MustRun(t, clients.ORAS(t), "push", "--plain-http", "--artifact-type", "text/plain", repo+":"+nullVersion, "notes.txt")
		before := ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http", repo+":"+nullVersion)
		checkRefused(t, s.run("push", null, "--template", template(r)), 1, "repository in use")
		if after := ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http", repo+":"+nullVersion); after != before {
			t.Errorf("the tag named %s, and names %s", before, after)
		}
	})
}

// login creates a docker login for a registry.
func (s *scene) login(r *registry.Registry, user, password string) {
	s.t.Helper()
	ws := s.ws
	dir := filepath.Join(ws.Home, ".docker")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	config := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, r.Host, user, password)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// TestInterrupt shows that the program stops promptly on Ctrl-C during the upload of a package. It stores no
// tag, and another run completes the push.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	_, _, fronted := front(t, r)
	reached, release := make(chan struct{}), make(chan struct{})
	first := true
	s.Origin.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, ".zip") {
			return false
		}
		if first {
			first = false
			close(reached)
		}
		select {
		case <-release:
		case <-req.Context().Done():
		}
		return false
	})
	cmd := s.ws.Command(t.Context(), s.bridge, "push", "--jobs", "1", "--template", fronted, world.Null+"@"+nullVersion)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if _, ok := err.(*exec.ExitError); !ok || !strings.Contains(stderr.String(), "error: interrupted") {
			t.Errorf("it ended with %v: %s", err, stderr.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("the program continues after Ctrl-C")
		cmd.Process.Kill()
	}
	close(release)
	if tags := tagsOnDisk(t, r); len(tags) != 0 {
		t.Errorf("tags: %v", tags)
	}
	s.Origin.Intercept(nil)
	if got := s.run("push", "--template", fronted, world.Null+"@"+nullVersion); got.status != 0 || !strings.Contains(got.stdout, "pushed") {
		t.Errorf("again: status %d: %s%s", got.status, got.stdout, got.stderr)
	}
}

// TestSecondPushSendsNothing shows that a second push of a version uploads nothing to a stand-alone registry.
//
//testrun:scene
func TestSecondPushSendsNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := registry.For(t, registry.Options{})
	rec, _, fronted := front(t, r)
	args := []string{"push", "--output", "json", "--template", fronted, world.Null + "@" + nullVersion}
	first := s.run(args...)
	if first.status != 0 {
		t.Fatal(first.stderr)
	}
	rec.Reset()
	s.Origin.Reset()
	second := s.run(args...)
	if second.status != 0 || !strings.Contains(second.stdout, `"unchanged"`) {
		t.Errorf("status %d: %s%s", second.status, second.stdout, second.stderr)
	}
	if n := rec.Count(recorder.Writes()); n != 0 {
		t.Errorf("requests that write: %v", rec.Requests(recorder.Writes()))
	}
	if n := s.Origin.Count(recorder.PathSuffix(".zip")); n != 0 {
		t.Errorf("%d packages downloaded", n)
	}
	// Another, empty registry gets the same index.
	other := registry.For(t, registry.Options{})
	third := s.run("push", "--output", "json", "--template", template(other), world.Null+"@"+nullVersion)
	if d1, d2 := indexDigest(t, first.stdout), indexDigest(t, third.stdout); d1 != d2 {
		t.Errorf("index %s in one registry, %s in another", d1, d2)
	}
}

// indexDigest returns the digest of the one pushed version in the program's JSON output.
func indexDigest(t *testing.T, output string) string {
	t.Helper()
	var doc struct{ Results []struct{ Digest string } }
	if err := json.Unmarshal([]byte(output), &doc); err != nil || len(doc.Results) != 1 || doc.Results[0].Digest == "" {
		t.Fatalf("%v in %s", err, output)
	}
	return doc.Results[0].Digest
}
