package login

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
)

const dockerConfig = "/home/u/.docker/config.json"

// users returns the user names of the logins for the repository, in order of
// preference. It shows a helper as the helper's name in brackets.
func users(t *testing.T, c *Logins, repository string) string {
	t.Helper()
	a, err := c.For(mustRepository(t, repository))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range a.logins {
		if l.helper != "" {
			out = append(out, "["+l.helper+"]")
		} else {
			out = append(out, l.cred.reveal().Username)
		}
	}
	return strings.Join(out, " ")
}

// TestPrecedence shows the order of logins in blocks, variables and files. The most
// specific prefix comes first. Among equal prefixes, blocks come before variables, and
// variables before discovered files. Among equal prefixes of one kind, the earlier login
// comes first.
func TestPrecedence(t *testing.T) {
	variables := func(prefix string) map[string]string {
		return map[string]string{"OCIBRIDGE_REGISTRY": prefix, "OCIBRIDGE_REGISTRY_USERNAME": "variable", "OCIBRIDGE_REGISTRY_PASSWORD": "p"}
	}
	const repository = "ghcr.io/acme/null"
	tests := []struct {
		name     string
		blocks   []Login
		vars     map[string]string
		file     string // the content of docker's login file
		defaults *Defaults
		want     string
	}{
		{name: "all for the registry", blocks: []Login{block("ghcr.io", "block:p")}, vars: variables("ghcr.io"), file: loginfiles.JSON("ghcr.io=file:p"),
			want: "block variable file"},
		{name: "all for a prefix", blocks: []Login{block("ghcr.io/acme", "block:p")}, vars: variables("ghcr.io/acme"), file: loginfiles.JSON("ghcr.io/acme=file:p"),
			want: "block variable file"},
		{name: "file more specific", blocks: []Login{block("ghcr.io", "block:p")}, vars: variables("ghcr.io/acme"), file: loginfiles.JSON("ghcr.io/acme/null=file:p"),
			want: "file variable block"},
		{name: "variable more specific", blocks: []Login{block("ghcr.io", "block:p")}, vars: variables("ghcr.io/acme"), file: loginfiles.JSON("ghcr.io=file:p"),
			want: "variable block file"},
		{name: "variable for another registry", vars: variables("quay.io"), file: loginfiles.JSON("ghcr.io=file:p"), want: "file"},
		{name: "variable for another prefix", vars: variables("ghcr.io/other"), file: loginfiles.JSON("ghcr.io=file:p"), want: "file"},
		{name: "block for a longer prefix", blocks: []Login{block("ghcr.io/acme/null/more", "block:p")}, file: loginfiles.JSON("ghcr.io=file:p"), want: "file"},
		{name: "block for half a segment", blocks: []Login{block("ghcr.io/ac", "block:p")}, want: ""},
		{name: "blocks: specific before general", blocks: []Login{block("ghcr.io", "host:p"), block("ghcr.io/acme/null", "repo:p"), block("ghcr.io/acme", "team:p")},
			want: "repo team host"},
		{name: "blocks: ours before those of the CLI configuration", blocks: []Login{block("ghcr.io", "ours:p"), block("ghcr.io", "clients:p")},
			want: "ours clients"},
		{name: "host in capitals", blocks: []Login{block("GHCR.io", "block:p")}, want: "block"},
		{name: "block with a helper", blocks: []Login{block("ghcr.io", "helper:keychain")}, file: loginfiles.JSON("ghcr.io=file:p"), want: "[keychain] file"},
		{name: "helper for all before credsStore, after all else", defaults: &Defaults{Discover: true, Helper: "mine"},
			file: fmt.Sprintf(`{"auths": {"ghcr.io": {"auth": %q}}, "credsStore": "store"}`, base64.StdEncoding.EncodeToString([]byte("file:p"))),
			want: "file [mine] [store]"},
		{name: "credHelpers before auths", file: `{"auths": {"ghcr.io": {"auth": "ZmlsZTpw"}, "ghcr.io/acme": {"auth": "dGVhbTpw"}}, "credHelpers": {"ghcr.io": "own"}}`,
			want: "team [own] file"},
		{name: "no discovery", blocks: []Login{block("ghcr.io", "block:p")}, vars: variables("ghcr.io"), file: loginfiles.JSON("ghcr.io=file:p"),
			defaults: &Defaults{}, want: "block variable"},
		{name: "no discovery, but a helper", file: loginfiles.JSON("ghcr.io=file:p"), defaults: &Defaults{Helper: "mine"}, want: "[mine]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{Explicit: tt.blocks, Defaults: tt.defaults, Environment: environment("linux", tt.vars, map[string]string{dockerConfig: tt.file})})
			if got := users(t, c, repository); got != tt.want {
				t.Errorf("users = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDefaultsChooseFiles shows which login files are read for each
// oci_default_credentials block.
func TestDefaultsChooseFiles(t *testing.T) {
	files := map[string]string{
		"/named.json": loginfiles.JSON("ghcr.io=named:p"), dockerConfig: loginfiles.JSON("ghcr.io=docker:p"),
		"/a.json": loginfiles.JSON("ghcr.io=a:p"), "/b.json": loginfiles.JSON("ghcr.io=b:p", "ghcr.io/acme=team:p"),
	}
	vars := map[string]string{"REGISTRY_AUTH_FILE": "/named.json"}
	tests := []struct {
		name     string
		defaults *Defaults
		want     string
	}{
		{"no block", nil, "named docker"},
		{"discovery", &Defaults{Discover: true}, "named docker"},
		{"files in the place of the usual ones", &Defaults{Discover: true, Files: []string{"/b.json", "/a.json"}}, "team b a"},
		{"no files", &Defaults{Discover: true, Files: []string{}}, ""},
		{"no discovery", &Defaults{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{Defaults: tt.defaults, Environment: environment("linux", vars, files)})
			if got := users(t, c, "ghcr.io/acme/null"); got != tt.want {
				t.Errorf("users = %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("a file that is not there", func(t *testing.T) {
		c := New(Options{Defaults: &Defaults{Discover: true, Files: []string{"/a.json", "/gone.json"}, Origin: "/home/u/.tofurc:2"}, Environment: environment("linux", vars, files)})
		_, err := c.For(mustRepository(t, "ghcr.io/acme/null"))
		if err == nil || !strings.Contains(err.Error(), "/gone.json") || !strings.Contains(hint.Of(err), "at /home/u/.tofurc:2") {
			t.Errorf("%v (hint %q)", err, hint.Of(err))
		}
	})
}

// TestContentInVariable shows when a login in the variable DOCKER_AUTH_CONFIG is used. CI
// systems set this variable.
func TestContentInVariable(t *testing.T) {
	client := func(content string, vars map[string]string, d *Defaults) *Logins {
		all := map[string]string{"DOCKER_AUTH_CONFIG": content, "XDG_RUNTIME_DIR": "/run"}
		for name, v := range vars {
			all[name] = v
		}
		return New(Options{Defaults: d, Environment: environment("linux", all, map[string]string{
			"/run/containers/auth.json": loginfiles.JSON("ghcr.io=podman:p"), dockerConfig: loginfiles.JSON("ghcr.io=docker:p", "quay.io=docker:p"), "/own/config.json": loginfiles.JSON("ghcr.io=own:p"),
		})})
	}
	content := loginfiles.JSON("ghcr.io=variable:p")
	for _, tt := range []struct {
		name, content string
		vars          map[string]string
		defaults      *Defaults
		repository    string
		want          string
	}{
		{"before docker's file, after podman's", content, nil, nil, "ghcr.io/a/b", "podman variable docker"},
		{"beside a file of one's own", content, map[string]string{"DOCKER_CONFIG": "/own"}, nil, "ghcr.io/a/b", "podman variable own"},
		{"the file for others", content, nil, nil, "quay.io/a/b", "docker"},
		{"not set", "", nil, nil, "ghcr.io/a/b", "podman docker"},
		{"damaged", content[:20], nil, nil, "ghcr.io/a/b", "podman docker"},
		{"files of a block", content, nil, &Defaults{Discover: true, Files: []string{dockerConfig}}, "ghcr.io/a/b", "docker"},
		{"no discovery", content, nil, &Defaults{}, "ghcr.io/a/b", ""},
	} {
		if got := users(t, client(tt.content, tt.vars, tt.defaults), tt.repository); got != tt.want {
			t.Errorf("%s: users = %q, want %q", tt.name, got, tt.want)
		}
	}
	considered := fmt.Sprint(client("MARK-x", nil, nil).Considered(t.Context(), mustRepository(t, "ghcr.io/a/b")))
	if !strings.Contains(considered, "{the variable DOCKER_AUTH_CONFIG false it does not parse: line 1: it is not JSON ") || strings.Contains(considered, "MARK-") {
		t.Errorf("considered: %s", considered)
	}
}

// TestDollarsInNames shows that every source of logins accepts a user name with a dollar
// sign. The names of Harbor's robots contain dollar signs.
func TestDollarsInNames(t *testing.T) {
	const name, password = "robot$acme+push", "$HOME${x}$$"
	want := auth.Credential{Username: name, Password: password}
	loginfiles.Helper(t, "robot", `printf '{"Username": "robot$acme+push", "Secret": "$HOME${x}$$"}'`)
	login := Login{Prefix: "harbor.test", Username: NewSecret(name), Password: NewSecret(password)}
	for kind, opts := range map[string]Options{
		"block": {Explicit: []Login{login}},
		"variables": {Environment: environment("linux", map[string]string{
			"OCIBRIDGE_REGISTRY": "harbor.test", "OCIBRIDGE_REGISTRY_USERNAME": name, "OCIBRIDGE_REGISTRY_PASSWORD": password}, nil)},
		"login file":        {Environment: environment("linux", nil, map[string]string{dockerConfig: loginfiles.JSON("harbor.test=" + name + ":" + password)})},
		"fields of a file":  {Environment: environment("linux", nil, map[string]string{dockerConfig: `{"auths": {"harbor.test": {"username": "robot$acme+push", "password": "$HOME${x}$$"}}}`})},
		"credential helper": {Defaults: &Defaults{Helper: "robot"}},
	} {
		c := New(opts)
		a, err := c.For(mustRepository(t, "harbor.test/a/b"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := a.Credential(t.Context()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
}

// considered is a [Candidate] without the error, for comparison with ==.
type considered struct {
	Source string
	Chosen bool
	Reason string
}

func TestConsidered(t *testing.T) {
	loginfiles.Helper(t, "none", `echo "credentials not found in native keychain"; exit 1`)
	loginfiles.Helper(t, "broken", `echo "vault is sealed" >&2; exit 1`)
	notSet := considered{"the variables OCIBRIDGE_REGISTRY and OCIBRIDGE_REGISTRY_...", false, "not set"}
	missing := func(names ...string) (out []considered) {
		for _, n := range names {
			out = append(out, considered{"the login file " + n, false, "it does not exist"})
		}
		return out
	}
	usual := []string{"/run/containers/1000/auth.json", "/home/u/.config/containers/auth.json", dockerConfig, "/home/u/.dockercfg", "/home/u/.config/helm/registry/config.json"}
	tests := []struct {
		name string
		opts Options
		vars map[string]string
		file string
		want []considered
	}{
		{name: "nothing", want: append([]considered{notSet}, missing(usual...)...)},
		{
			name: "the most specific one", opts: Options{Explicit: []Login{block("ghcr.io", "u:p"), block("quay.io", "u:p")}},
			file: `{"auths": {"ghcr.io/acme": {"auth": "dTpw"}, "ghcr.io": {"auth": "dTpw"}, "https://ghcr.io/v1/": {}, "gcr.io": {}}, "credsStore": "none"}`,
			want: append(append([]considered{
				{"the login for ghcr.io/acme in " + dockerConfig, true, "it is for ghcr.io/acme"},
				{`the block oci_credentials "ghcr.io" at /etc/x.hcl:7`, false, "it is for ghcr.io, which is less specific"},
				{"the login for ghcr.io in " + dockerConfig, false, "it is for ghcr.io, which is less specific"},
				{"the helper docker-credential-none (credsStore in " + dockerConfig + ")", false, "it is for every registry, which is less specific"},
				{`the block oci_credentials "quay.io" at /etc/x.hcl:7`, false, "it is for quay.io"},
				notSet,
			}, missing(usual[0], usual[1])...),
				considered{"the login for https://ghcr.io/v1/ in " + dockerConfig, false, "it is empty, as logging in with a helper leaves it"},
				missing(usual[3])[0], missing(usual[4])[0],
			),
		},
		{
			name: "of equals the first", opts: Options{Explicit: []Login{block("ghcr.io", "u:p")}, Defaults: &Defaults{Origin: "/f:1"}},
			vars: map[string]string{"OCIBRIDGE_REGISTRY": "ghcr.io", "OCIBRIDGE_REGISTRY_TOKEN": "t"},
			want: []considered{
				{`the block oci_credentials "ghcr.io" at /etc/x.hcl:7`, true, "it is for ghcr.io"},
				{"the variables OCIBRIDGE_REGISTRY=ghcr.io, OCIBRIDGE_REGISTRY_TOKEN", false, "it is for ghcr.io, but an earlier login is equally specific"},
				{"login files of docker and compatible tools", false, "not looked for, as the oci_default_credentials block at /f:1 says"},
			},
		},
		{
			name: "a helper that knows nothing", opts: Options{Explicit: []Login{block("ghcr.io", "helper:none")}, Defaults: &Defaults{Discover: true, Files: []string{dockerConfig}}},
			file: `{"auths": {"https://ghcr.io/elsewhere": {"auth": "dTpw"}}}`,
			want: []considered{
				{`the helper docker-credential-none (oci_credentials "ghcr.io" at /etc/x.hcl:7)`, false, "it is for ghcr.io, but the helper knows nothing of ghcr.io"},
				{"the login for https://ghcr.io/elsewhere in " + dockerConfig, true, "it is for ghcr.io, as docker reads a URL with a path"},
				notSet,
			},
		},
		{
			name: "a helper that fails", opts: Options{Explicit: []Login{block("ghcr.io", "helper:broken")}, Defaults: &Defaults{Discover: true, Files: []string{dockerConfig}}},
			file: `{}`,
			want: []considered{
				{`the helper docker-credential-broken (oci_credentials "ghcr.io" at /etc/x.hcl:7)`, true, "it is for ghcr.io, and fails: exit status 1: vault is sealed"},
				notSet, {"the login file " + dockerConfig, false, "it holds no login"},
			},
		},
		{
			name: "a file that does not parse", opts: Options{Explicit: []Login{block("ghcr.io", "u:p")}, Defaults: &Defaults{Discover: true}},
			vars: map[string]string{"XDG_RUNTIME_DIR": "/none", "XDG_CONFIG_HOME": "/none"}, file: `{"auths": {"other.io": {"auth": 123}}}`,
			want: append(append([]considered{{`the block oci_credentials "ghcr.io" at /etc/x.hcl:7`, true, "it is for ghcr.io"}, notSet},
				missing("/none/containers/auth.json")...), considered{"the login file " + dockerConfig, false, "it does not parse: line 1: a value is of another type than in a login file"}, missing(usual[3])[0], missing("/none/helm/registry/config.json")[0]),
		},
		{
			name: "what is wrong", opts: Options{Explicit: []Login{block("ghcr.io", "u:")}},
			want: []considered{{"the configured logins", false, `the oci_credentials block "ghcr.io" at /etc/x.hcl:7 has only one of username and password`}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			if tt.file != "" {
				files[dockerConfig] = tt.file
			}
			tt.opts.Environment = environment("linux", tt.vars, files)
			var got []considered
			for _, c := range New(tt.opts).Considered(t.Context(), mustRepository(t, "ghcr.io/acme/null")) {
				got = append(got, considered{c.Source, c.Chosen, c.Reason})
				wrong := strings.Contains(c.Reason, "fails: ") || strings.Contains(c.Reason, "has only one") || strings.Contains(c.Reason, "does not parse")
				if (hint.Of(c.Err) != "") != wrong {
					t.Errorf("%s: error %v, hint %q", c.Source, c.Err, hint.Of(c.Err))
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("considered:\n%s\nwant:\n%s", lines(got), lines(tt.want))
			}
		})
	}
}

func lines[T any](list []T) string {
	var out strings.Builder
	for _, v := range list {
		fmt.Fprintf(&out, "  %+v\n", v)
	}
	return out.String()
}
