package cliconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// machine is an environment in memory. vars maps names to values, and files maps paths to
// contents.
type machine struct {
	goos, home string
	vars       map[string]string
	files      map[string]string
	unreadable map[string]error
}

func (m machine) environment() Environment {
	home := m.home
	if home == "" {
		home = "/home/u"
	}
	return Environment{
		Home:   home,
		GOOS:   m.goos,
		Getenv: func(name string) string { return m.vars[name] },
		Environ: func() []string {
			var out []string
			for name, v := range m.vars {
				out = append(out, name+"="+v)
			}
			return append(out, "=weird", "nothing")
		},
		ReadFile: func(name string) ([]byte, error) {
			if err := m.unreadable[name]; err != nil {
				return nil, &fs.PathError{Op: "open", Path: name, Err: err}
			}
			if s, ok := m.files[name]; ok {
				return []byte(s), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
		ReadDir: func(name string) ([]fs.DirEntry, error) {
			tree := fstest.MapFS{}
			for file := range m.files {
				file = strings.ReplaceAll(file, `\`, "/")
				if rest, ok := strings.CutPrefix(file, strings.ReplaceAll(name, `\`, "/")+"/"); ok {
					tree[rest] = &fstest.MapFile{}
				}
			}
			if len(tree) == 0 {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return tree.ReadDir(".")
		},
	}
}

func mustLoad(t *testing.T, m machine) *Config {
	t.Helper()
	c, err := Load(m.environment())
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// TestPassedOver shows that a warning names the blocks in a main file that was not read, unless the files that were
// read have such blocks, too.
func TestPassedOver(t *testing.T) {
	const (
		tofu      = "/home/u/.tofurc"
		terraform = "/home/u/.terraformrc"
		all       = `host "a.example" {
  services = {}
}
credentials "b.example" {
  token = "s3cret"
}
oci_credentials "c.example/x" {
  username = "u"
  password = "s3cret"
}
oci_default_credentials {
}
provider_installation {
  oci_mirror {
    repository_template = "c.example/${type}"
  }
}
plugin_cache_dir = "/cache"
`
		warning = `credentials "b.example", host "a.example", oci_credentials "c.example/x", oci_default_credentials, oci_mirror in ` +
			terraform + ": without effect, because ocibridge reads " + tofu + " instead, as OpenTofu does. Copy the blocks that ocibridge needs, or name the file in TF_CLI_CONFIG_FILE"
	)
	for name, tt := range map[string]struct {
		machine machine
		want    []string
	}{
		"a helper": {machine{files: map[string]string{tofu: "", terraform: `credentials_helper "store" {}`}},
			[]string{`credentials_helper "store" in ` + terraform + ": without effect, because ocibridge reads " + tofu + " instead, as OpenTofu does. Copy the blocks that ocibridge needs, or name the file in TF_CLI_CONFIG_FILE"}},
		"all blocks":         {machine{files: map[string]string{tofu: "", terraform: all}}, []string{warning}},
		"the same blocks":    {machine{files: map[string]string{tofu: all, terraform: all}}, nil},
		"blocks for clients": {machine{files: map[string]string{tofu: "", terraform: `plugin_cache_dir = "/cache"`}}, nil},
		"another host":       {machine{files: map[string]string{tofu: `credentials "B.example" {}`, terraform: `credentials "b.example" {}`}}, nil},
		"in the folder":      {machine{files: map[string]string{tofu: "", "/home/u/.terraform.d/credentials.tfrc.json": `{"credentials": {"b.example": {"token": "x"}}}`, terraform: `credentials "b.example" {}`}}, nil},
		"a damaged file":     {machine{files: map[string]string{tofu: "", terraform: "credentials {{"}}, nil},
		"only Terraform's":   {machine{files: map[string]string{terraform: all}}, nil},
		"another file named": {machine{vars: map[string]string{"TF_CLI_CONFIG_FILE": "/ci"}, files: map[string]string{"/ci": "", tofu: "", terraform: all}}, nil},
		"XDG": {machine{vars: map[string]string{"XDG_CONFIG_HOME": "/xdg"}, files: map[string]string{terraform: "", "/xdg/opentofu/tofurc": `credentials "b.example" {}`}},
			[]string{`credentials "b.example" in /xdg/opentofu/tofurc: without effect, because ocibridge reads ` + terraform + " instead, as OpenTofu does. Copy the blocks that ocibridge needs, or name the file in TF_CLI_CONFIG_FILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustLoad(t, tt.machine).Warnings; !slices.Equal(got, tt.want) {
				t.Errorf("warnings:\n%q\nwant:\n%q", got, tt.want)
			}
		})
	}
}

func TestLoadPlaces(t *testing.T) {
	windows := func(m machine) machine {
		m.goos, m.home = "windows", `C:\Users\u`
		return m
	}
	const appData = `C:\Users\u\AppData\Roaming`
	tests := []struct {
		name    string
		machine machine
		want    []string
		warn    string
	}{
		{name: "nothing anywhere"},
		{
			name:    "tofurc before terraformrc",
			machine: machine{files: map[string]string{"/home/u/.tofurc": "", "/home/u/.terraformrc": ""}},
			want:    []string{"/home/u/.tofurc"},
		},
		{
			name:    "terraformrc alone",
			machine: machine{files: map[string]string{"/home/u/.terraformrc": ""}},
			want:    []string{"/home/u/.terraformrc"},
		},
		{
			name: "home before XDG",
			machine: machine{
				vars:  map[string]string{"XDG_CONFIG_HOME": "/xdg"},
				files: map[string]string{"/home/u/.terraformrc": "", "/xdg/opentofu/tofurc": ""},
			},
			want: []string{"/home/u/.terraformrc"},
		},
		{
			name: "XDG when home has none",
			machine: machine{
				vars:  map[string]string{"XDG_CONFIG_HOME": "/xdg/"},
				files: map[string]string{"/xdg/opentofu/tofurc": "", "/xdg/opentofu/a.tfrc": ""},
			},
			want: []string{"/xdg/opentofu/tofurc", "/xdg//opentofu/a.tfrc"},
		},
		{
			name: "folder in home before XDG's",
			machine: machine{
				vars:  map[string]string{"XDG_CONFIG_HOME": "/xdg"},
				files: map[string]string{"/home/u/.terraform.d/b.tfrc": "", "/xdg/opentofu/a.tfrc": ""},
			},
			want: []string{"/home/u/.terraform.d/b.tfrc"},
		},
		{
			name: "files of the folder by name, after the main file",
			machine: machine{files: map[string]string{
				"/home/u/.tofurc": "", "/home/u/.terraform.d/credentials.tfrc.json": "{}", "/home/u/.terraform.d/a.tfrc": "",
				"/home/u/.terraform.d/README": "=", "/home/u/.terraform.d/x.tfrc.bak": "=", "/home/u/.terraform.d/dir.tfrc/x": "=",
			}},
			want: []string{"/home/u/.tofurc", "/home/u/.terraform.d/a.tfrc", "/home/u/.terraform.d/credentials.tfrc.json"},
		},
		{
			name: "override replaces all",
			machine: machine{
				vars:  map[string]string{"TF_CLI_CONFIG_FILE": "ci.rc", "TERRAFORM_CONFIG": "/old"},
				files: map[string]string{"ci.rc": "", "/old": "", "/home/u/.tofurc": "", "/home/u/.terraform.d/a.tfrc": ""},
			},
			want: []string{"ci.rc"},
		},
		{
			name:    "the older override",
			machine: machine{vars: map[string]string{"TERRAFORM_CONFIG": "/old"}, files: map[string]string{"/old": "", "/home/u/.tofurc": ""}},
			want:    []string{"/old"},
		},
		{
			name:    "override without a file",
			machine: machine{vars: map[string]string{"TF_CLI_CONFIG_FILE": "/gone"}, files: map[string]string{"/home/u/.tofurc": ""}},
			warn:    "the CLI configuration file /gone does not exist",
		},
		{
			name:    "main file without permission",
			machine: machine{unreadable: map[string]error{"/home/u/.tofurc": fs.ErrPermission}},
			warn:    "the CLI configuration file /home/u/.tofurc was not read: permission denied",
		},
		{
			name: "Windows",
			machine: windows(machine{files: map[string]string{
				appData + `\tofu.rc`: "", appData + `\terraform.rc`: "", appData + `\terraform.d\a.tfrc`: "",
			}}),
			want: []string{appData + `\tofu.rc`, appData + `\terraform.d\a.tfrc`},
		},
		{
			name: "Windows with APPDATA elsewhere",
			machine: windows(machine{
				vars:  map[string]string{"APPDATA": `D:\data`, "XDG_CONFIG_HOME": `D:\xdg`},
				files: map[string]string{`D:\data\terraform.rc`: "", appData + `\tofu.rc`: ""},
			}),
			want: []string{`D:\data\terraform.rc`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.machine.goos == "" {
				tt.machine.goos = "linux"
			}
			c := mustLoad(t, tt.machine)
			var got, want []string
			for _, f := range c.Files {
				got = append(got, path.Clean(f))
			}
			for _, f := range tt.want {
				want = append(want, path.Clean(f))
			}
			if !slices.Equal(got, want) {
				t.Errorf("files = %q, want %q", got, want)
			}
			if warnings := strings.Join(c.Warnings, "\n"); warnings != tt.warn {
				t.Errorf("warnings = %q, want %q", warnings, tt.warn)
			}
		})
	}
}

// TestSubstitute shows that ocibridge reads the user's files if a program has put another file in their place, unless
// somebody has named yet another file since.
func TestSubstitute(t *testing.T) {
	files := map[string]string{"/home/u/.terraformrc": "", "/mine": "", "/private": "", "/later": ""}
	for name, tc := range map[string]struct {
		vars  map[string]string
		later string // the value of TF_CLI_CONFIG_FILE that the command sets itself
		want  string
	}{
		"standard files":     {nil, "", "[/home/u/.terraformrc]"},
		"an override":        {map[string]string{"TF_CLI_CONFIG_FILE": "/mine"}, "", "[/mine]"},
		"the other variable": {map[string]string{"TERRAFORM_CONFIG": "/mine"}, "", "[/mine]"},
		"another file since": {map[string]string{"TF_CLI_CONFIG_FILE": "/mine"}, "/later", "[/later]"},
	} {
		m := machine{goos: "linux", vars: map[string]string{}, files: files}
		maps.Copy(m.vars, tc.vars)
		for range 2 { // one program within the other
			for _, v := range m.environment().Substitute("/private") {
				key, value, _ := strings.Cut(v, "=")
				m.vars[key] = value
			}
		}
		if got := m.vars["TF_CLI_CONFIG_FILE"]; got != "/private" {
			t.Errorf("%s: clients read %s", name, got)
		}
		if tc.later != "" {
			m.vars["TF_CLI_CONFIG_FILE"] = tc.later
		}
		c, err := Load(m.environment())
		if err != nil || fmt.Sprint(c.Files) != tc.want {
			t.Errorf("%s: read %v, want %s: %v", name, c.Files, tc.want, err)
		}
	}
}

func TestLoadEmptyEnvironment(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		env := machine{goos: goos}.environment()
		env.Home = ""
		if c, err := Load(env); err != nil || len(c.Files)+len(c.Warnings) > 0 {
			t.Errorf("%s: Load = %+v, %v", goos, c, err)
		}
	}
}

func TestOCIMirrors(t *testing.T) {
	native := `
# A file as its owner has it, with settings of both clients.
plugin_cache_dir = "$HOME/.cache"
disable_checkpoint = true
some_future_setting "x" { y = [1, { z = 2 }] }
oci_mirror {
  repository_template = "ghcr.io/acme/${namespace}-${type}"
}
provider_installation {
  dev_overrides { "acme/x" = "/tmp/x" }
  oci_mirror {
    repository_template = "harbor.example:8443/p/${type}"
    include = ["example.com/acme/*"]
    exclude = ["example.com/acme/old", "example.com/acme/older"]
  }
  network_mirror { url = "https://m.example/" }
  some_future_method { a = 1 }
  direct {}
}
oci_mirror { repository_template = "last.example/${hostname}/${namespace}/${type}" }
`
	inJSON := `{"provider_installation": [{"direct": {}}, {"oci_mirror": {"repository_template": "a.example/${type}", "include": ["example.com/acme/*"]}}],
	"oci_mirror": [{"repository_template": "b.example/${type}"}, {"repository_template": "c.example/${type}"}]}`
	folded := `{"provider_installation": {"oci_mirror": {"repository_template": "d.example/${type}"}}}`

	c := mustLoad(t, machine{goos: "linux", files: map[string]string{
		"/home/u/.tofurc": native, "/home/u/.terraform.d/1.tfrc.json": inJSON, "/home/u/.terraform.d/2.tfrc.json": folded,
	}})
	want := []OCIMirror{
		{"ghcr.io/acme/${namespace}-${type}", nil, nil, "/home/u/.tofurc:6"},
		{"harbor.example:8443/p/${type}", []string{"example.com/acme/*"}, []string{"example.com/acme/old", "example.com/acme/older"}, "/home/u/.tofurc:11"},
		{"last.example/${hostname}/${namespace}/${type}", nil, nil, "/home/u/.tofurc:20"},
		{"b.example/${type}", nil, nil, "/home/u/.terraform.d/1.tfrc.json"},
		{"c.example/${type}", nil, nil, "/home/u/.terraform.d/1.tfrc.json"},
		{"a.example/${type}", []string{"example.com/acme/*"}, nil, "/home/u/.terraform.d/1.tfrc.json"},
		{"d.example/${type}", nil, nil, "/home/u/.terraform.d/2.tfrc.json"},
	}
	if !reflect.DeepEqual(c.OCIMirrors, want) {
		t.Errorf("OCIMirrors =\n%+v, want\n%+v", c.OCIMirrors, want)
	}
}

func TestServices(t *testing.T) {
	c := mustLoad(t, machine{goos: "linux", files: map[string]string{
		"/home/u/.tofurc": `
host "Registry.OpenTofu.org" {
  services = {
    "providers.v1" = "https://gateway.example/hosts/registry.opentofu.org/v1/providers/"
    "login.v1" = { client = "cli" }
  }
}
host "later.example" { services = { "providers.v1" = "https://first.example/" } }
host "none.example" {}`,
		"/home/u/.terraform.d/a.tfrc.json": `{"host": {"later.example": {"services": {"providers.v1": "https://second.example/"}}}}`,
	}})
	got := c.Services()
	if hosts := slices.Sorted(maps.Keys(got)); !slices.Equal(hosts, []svchost.Hostname{"later.example", "none.example", "registry.opentofu.org"}) {
		t.Fatalf("hosts = %q", hosts)
	}

	d := disco.New()
	for host, services := range got {
		d.ForceHostServices(host, services)
	}
	for host, want := range map[svchost.Hostname]string{
		"registry.opentofu.org": "https://gateway.example/hosts/registry.opentofu.org/v1/providers/",
		"later.example":         "https://second.example/",
	} {
		if u, err := d.DiscoverServiceURL(t.Context(), host, "providers.v1"); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v, want %s", host, u, err, want)
		}
	}
}

// authorization returns the Authorization header that a request to the host gets from the
// configuration, or "" if there is no token.
func authorization(t *testing.T, c *Config, host string) string {
	t.Helper()
	h, err := svchost.ForComparison(host)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := c.CredentialsSource().ForHost(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if creds == nil {
		return ""
	}
	req := &http.Request{}
	creds.PrepareRequest(req)
	return req.Header.Get("Authorization")
}

func TestCredentialsSource(t *testing.T) {
	c := mustLoad(t, machine{
		goos: "linux",
		vars: map[string]string{
			"TF_TOKEN_env_example":           "from-env",
			"TF_TOKEN_both_example":          "env-wins",
			"TF_TOKEN_my__host_example":      "dashes",
			"TF_TOKEN_my-other-host.example": "plain",
			"TF_TOKEN_localhost:8443":        "port",
			"TF_TOKEN_xn____caf__dma_fr":     "punycode",
			"TF_TOKEN_über_example":          "unicode",
			"TF_TOKEN_EMPTY_example":         "",
			"TF_TOKEN_":                      "nowhere",
			"TF_TOKEN_not ok":                "nowhere",
		},
		files: map[string]string{
			"/home/u/.tofurc": `
credentials "file.example" { token = "from-file" }
credentials "both.example" { token = "file-loses" }
credentials "empty.example" { token = "still-there" }
credentials "twice.example" { token = "first" }
credentials "gone.example" { token = "first" }
credentials "other.example" { username = "u" }`,
			"/home/u/.terraform.d/credentials.tfrc.json": `{"credentials": {"Twice.example": {"token": "second"}, "json.example:8443": {"token": "from-json"}}}`,
			"/home/u/.terraform.d/z.tfrc":                `credentials "gone.example" { other = 1 }`,
		},
	})
	for host, want := range map[string]string{
		"env.example":           "Bearer from-env",
		"both.example":          "Bearer env-wins",
		"my-host.example":       "Bearer dashes",
		"my-other-host.example": "Bearer plain",
		"localhost:8443":        "Bearer port",
		"localhost":             "",
		"café.fr":               "Bearer punycode",
		"über.example":          "Bearer unicode",
		"empty.example":         "Bearer still-there",
		"file.example":          "Bearer from-file",
		"twice.example":         "Bearer second",
		"json.example:8443":     "Bearer from-json",
		"json.example":          "",
		"gone.example":          "",
		"other.example":         "",
		"unknown.example":       "",
	} {
		if got := authorization(t, c, host); got != want {
			t.Errorf("%s: Authorization = %q, want %q", host, got, want)
		}
	}
}

func TestTokensStaySecret(t *testing.T) {
	const secret = "s3cr3t-t0k3n"
	c := mustLoad(t, machine{
		goos:  "linux",
		vars:  map[string]string{"TF_TOKEN_env_example": secret},
		files: map[string]string{"/home/u/.tofurc": `credentials "file.example" { token = "` + secret + `" }`},
	})
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, nil))
	for _, host := range []svchost.Hostname{"env.example", "file.example"} {
		creds, _ := c.CredentialsSource().ForHost(t.Context(), host)
		for _, v := range []any{creds, c, *c, c.CredentialsSource(), struct{ creds any }{creds}} {
			fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
			logger.Info("x", "v", v)
			_ = json.NewEncoder(&out).Encode(v)
		}
	}
	if strings.Contains(out.String(), secret) || strings.Contains(out.String(), fmt.Sprintf("%x", secret)) {
		t.Errorf("a token is shown: %s", out.String())
	}
	if !strings.Contains(out.String(), "[redacted]") {
		t.Errorf("nothing is shown in place of a token: %s", out.String())
	}
}

func TestLoadErrors(t *testing.T) {
	const secret = "s3cr3t"
	tests := []struct {
		name, src, want string
	}{
		{"unquoted token", "credentials \"a\" {\n  token = s3cr3t\n}", "/home/u/.tofurc:2:11 does not parse"},
		{"forgotten equals sign", "credentials \"a\" {\n  token \"s3cr3t\"\n}", "/home/u/.tofurc:3:1 does not parse"},
		{"open quote", "credentials \"a\" {\n  token = \"s3cr3t\n}", "/home/u/.tofurc:2:18 does not parse: literal not terminated"},
		{"huge number", "credentials \"a\" { token = 99999999999999999999999 }", "/home/u/.tofurc does not parse"},
		{"open brace", "oci_mirror {", "/home/u/.tofurc:1:14 does not parse: object expected closing RBRACE got: EOF"},
		{"set twice", "oci_mirror {\n include = []\n include = []\n}", `The argument "include" at 3:2 was already set`},
		{"JSON without quotes", `{"credentials": {"a": {"token": s3cr3t}}}`, "does not parse"},
		{"credentials of a wrong shape", `credentials = "s3cr3t"`, "does not parse"},
		{"host name as URL", `host "https://example.com" {}`, `/home/u/.tofurc: the host block "https://example.com" has an invalid host name`},
		{"host name in Punycode", `credentials "xn--caf-dma.fr" { token = "s3cr3t" }`, `/home/u/.tofurc: the credentials block "xn--caf-dma.fr" has an invalid host name`},
		{"mirror without template", "\noci_mirror { include = [] }", "/home/u/.tofurc:2: the oci_mirror block has no repository_template"},
		{"mirror with a label", `oci_mirror "ghcr.io" { repository_template = "x" }`, "/home/u/.tofurc:1: oci_mirror is a block without a label"},
		{"mirror that is no block", `oci_mirror = "x"`, "/home/u/.tofurc:1: oci_mirror is a block without a label"},
		{"patterns that are no list", `oci_mirror { repository_template = "x", include = 5 }`, "/home/u/.tofurc:1: invalid oci_mirror block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": tt.src}}.environment())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Load: %v, want %q", err, tt.want)
			}
			if hint.Of(err) == "" {
				t.Error("the error has no hint")
			}
			if strings.Contains(err.Error()+hint.Of(err), secret) {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
}

func TestLoadUnreadableFolder(t *testing.T) {
	errDisk := errors.New("disk on fire")
	m := machine{goos: "linux", files: map[string]string{"/home/u/.terraform.d/a.tfrc": ""}, unreadable: map[string]error{"/home/u/.terraform.d/a.tfrc": errDisk}}
	if _, err := Load(m.environment()); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "/home/u/.terraform.d/a.tfrc") {
		t.Errorf("file: %v", err)
	}
	env := m.environment()
	env.ReadDir = func(string) ([]fs.DirEntry, error) { return nil, errDisk }
	if _, err := Load(env); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "/home/u/.terraform.d") {
		t.Errorf("folder: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		`host "x" { services = { "providers.v1" = "https://x/" } }`,
		`credentials "x" { token = "marked-secret" }`,
		`credentials "x" { token = marked-secret }`,
		`{"credentials": {"x": {"token": "marked-secret"}}}`,
		`{"host": {"x": null}, "oci_mirror": [{"repository_template": "a"}], "provider_installation": {"oci_mirror": {}}}`,
		"provider_installation {\n oci_mirror {\n repository_template = <<E\nx\nE\n }\n}",
		`x = "${a["b"]}"`,
		`credentials_helper "x" { args = ["marked-secret"] }`,
		"oci_credentials \"ghcr.io/a\" {\n username = \"robot$a\"\n password = \"marked-secret\"\n}\noci_default_credentials {\n docker_style_config_files = [\"x\"]\n}",
		`oci_credentials "ghcr.io" { access_token = "marked-secret", refresh_token = ["marked-secret"] }`,
		`{"oci_credentials": {"ghcr.io": {"username": "u", "password": "marked-secret"}, "quay.io": {}}, "oci_default_credentials": [{}, {}]}`,
		`{"oci_credentials": {"ghcr.io": {"password": {"a": "marked-secret"}}}}`,
	} {
		f.Add(seed)
	}
	names := regexp.MustCompile(`(block|helper|prefix: invalid \w+) "(\\.|[^"\\])*"|credentials_helper block: .*`)
	f.Fuzz(func(t *testing.T, src string) {
		c, err := Load(machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": src}}.environment())
		if err != nil {
			// An error may quote the names of blocks and helpers.
			if strings.Contains(names.ReplaceAllString(err.Error(), ""), "marked-secret") {
				t.Errorf("the error quotes the file: %v", err)
			}
			return
		}
		for _, m := range c.OCIMirrors {
			if m.Template == "" || !strings.HasPrefix(m.Source, "/home/u/.tofurc") {
				t.Errorf("incomplete mirror %+v", m)
			}
		}
		c.Services()
		blocks, defaults := c.OCICredentials()
		for _, b := range blocks {
			if err := login.Login(b).Validate(); err != nil || !strings.HasPrefix(b.Origin, "/home/u/.tofurc") {
				t.Errorf("%+v: %v", b, err)
			}
		}
		if defaults != nil && !defaults.Discover && defaults.Files != nil {
			t.Errorf("contradictory %+v", defaults)
		}
	})
}

// TestFileForFolder shows that Load ignores a file at the path of the configuration folder, as the clients do.
func TestFileForFolder(t *testing.T) {
	env := machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": ""}}.environment()
	env.ReadDir = func(name string) ([]fs.DirEntry, error) {
		return nil, &fs.PathError{Op: "readdirent", Path: name, Err: syscall.ENOTDIR}
	}
	if c, err := Load(env); err != nil || len(c.Files) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}
