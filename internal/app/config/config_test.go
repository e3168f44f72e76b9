package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

var update = flag.Bool("update", false, "write the golden parts of testdata")

// machine is an environment in memory. files maps paths to contents, and vars maps the names of variables to their
// values.
type machine struct {
	goos, home string
	vars       map[string]string
	files      map[string]string
	unreadable map[string]error
	above      []string
	foreign    string // a file of another user
}

func (m machine) environment() Environment {
	return Environment{
		GOOS:  m.goos,
		Home:  m.home,
		Above: m.above,
		IsOwn: func(name string) (bool, error) {
			if _, ok := m.files[name]; !ok {
				return false, fs.ErrNotExist
			}
			return name != m.foreign, nil
		},
		LookupEnv: func(name string) (string, bool) {
			v, ok := m.vars[name]
			return v, ok
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
	}
}

const (
	testDir  = "/etc/ocibridge"
	testFile = testDir + "/ocibridge.hcl"
)

// parse parses src as the configuration file of the machine m.
func parse(src string, m machine) (*Config, error) {
	return Parse(m.environment(), testFile, []byte(src))
}

func mustParse(t *testing.T, src string, m machine) *Config {
	t.Helper()
	c, err := parse(src, m)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// testMachine creates a machine from an archive. The file env of the archive contains the variables. All other files
// of the archive are in the folder of the configuration file.
func testMachine(a *txtar.Archive) machine {
	m := machine{goos: "linux", home: "/home/u", vars: map[string]string{}, files: map[string]string{}}
	for _, f := range a.Files {
		if f.Name != "env" {
			m.files[testDir+"/"+f.Name] = string(f.Data)
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			name, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			m.vars[name] = v
		}
	}
	return m
}

// TestFiles loads the configuration in each archive of testdata, and compares the result with the file want of the
// archive. The result of an invalid configuration is its diagnostics. The result of a valid configuration is its
// warnings and all settings in effect.
func TestFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "want" })
			if i < 0 {
				a.Files = append(a.Files, txtar.File{Name: "want"})
				i = len(a.Files) - 1
			}
			got := describe(t, testMachine(a))
			if got == string(a.Files[i].Data) {
				return
			}
			if !*update {
				t.Errorf("result\n%s\nwant\n%s", got, a.Files[i].Data)
				return
			}
			a.Files[i].Data = []byte(got)
			if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func describe(t *testing.T, m machine) string {
	t.Helper()
	var out bytes.Buffer
	c, err := Load(m.environment(), testFile)
	var invalid *Error
	switch {
	case errors.As(err, &invalid):
		if err := Report(&out, invalid.Diagnostics, 100, false); err != nil {
			t.Fatal(err)
		}
		return out.String()
	case err != nil:
		t.Fatal(err)
	}
	if err := Report(&out, c.Warnings, 100, false); err != nil {
		t.Fatal(err)
	}
	out.Write(c.Effective(Surroundings{}).HCL())
	return out.String()
}

func TestLoadPlaces(t *testing.T) {
	gateway := func(listen string) string { return fmt.Sprintf("gateway {\n  listen = %q\n}\n", listen) }
	const xdg, home, etc = "/xdg/ocibridge/ocibridge.hcl", "/home/u/.config/ocibridge/ocibridge.hcl", "/etc/ocibridge/ocibridge.hcl"
	const roaming = `C:\Users\u\AppData\Roaming`
	all := map[string]string{
		"ocibridge.hcl": "", xdg: "", home: "", etc: "", "/ci.hcl": "", "/flag.hcl": "",
		roaming + `\ocibridge\ocibridge.hcl`: "",
	}
	without := func(names ...string) map[string]string {
		out := maps.Clone(all)
		for _, n := range names {
			delete(out, n)
		}
		return out
	}
	with := func(names ...string) map[string]string {
		out := without("ocibridge.hcl")
		for _, n := range names {
			out[n] = ""
		}
		return out
	}
	tests := []struct {
		name    string
		machine machine
		flag    string
		want    string // the file, or "" for no file
		err     string
	}{
		{name: "nothing anywhere", machine: machine{goos: "linux", home: "/home/u"}},
		{name: "the working folder first", machine: machine{goos: "linux", home: "/home/u", files: all}, want: "ocibridge.hcl"},
		{name: "then home", machine: machine{goos: "linux", home: "/home/u", files: without("ocibridge.hcl")}, want: home},
		{name: "above the working folder before home", machine: machine{goos: "linux", home: "/home/u", above: []string{"..", "../.."}, files: with("../../ocibridge.hcl")}, want: "../../ocibridge.hcl"},
		{name: "the nearest first", machine: machine{goos: "linux", above: []string{"..", "../.."}, files: with("../ocibridge.hcl", "../../ocibridge.hcl")}, want: "../ocibridge.hcl"},
		{name: "above on Windows", machine: machine{goos: "windows", above: []string{".."}, files: with(`..\ocibridge.hcl`)}, want: `..\ocibridge.hcl`},
		{
			name:    "another user's is not passed over",
			machine: machine{goos: "linux", home: "/home/u", above: []string{".."}, foreign: "../ocibridge.hcl", files: with("../ocibridge.hcl")},
			err:     "the configuration file ../ocibridge.hcl belongs to another user",
		},
		{
			name:    "another user's that is named",
			machine: machine{goos: "linux", vars: map[string]string{"OCIBRIDGE_CONFIG": "../ocibridge.hcl"}, above: []string{".."}, foreign: "../ocibridge.hcl", files: with("../ocibridge.hcl")},
			want:    "../ocibridge.hcl",
		},
		{name: "on macOS too", machine: machine{goos: "darwin", home: "/home/u", files: without("ocibridge.hcl")}, want: home},
		{
			name:    "or XDG's place, not both",
			machine: machine{goos: "linux", home: "/home/u", vars: map[string]string{"XDG_CONFIG_HOME": "/xdg/"}, files: without("ocibridge.hcl", xdg)},
			want:    etc,
		},
		{
			name:    "XDG's place",
			machine: machine{goos: "linux", home: "/home/u", vars: map[string]string{"XDG_CONFIG_HOME": "/xdg/"}, files: without("ocibridge.hcl")},
			want:    xdg,
		},
		{
			name:    "a relative XDG place is none",
			machine: machine{goos: "linux", home: "/home/u", vars: map[string]string{"XDG_CONFIG_HOME": "xdg"}, files: without("ocibridge.hcl")},
			want:    home,
		},
		{name: "the system's last", machine: machine{goos: "linux", home: "/home/u", files: without("ocibridge.hcl", home)}, want: etc},
		{name: "no home", machine: machine{goos: "linux", files: without("ocibridge.hcl")}, want: etc},
		{
			name:    "Windows",
			machine: machine{goos: "windows", home: `C:\Users\u`, vars: map[string]string{"APPDATA": roaming}, files: without("ocibridge.hcl")},
			want:    roaming + `\ocibridge\ocibridge.hcl`,
		},
		{name: "Windows without APPDATA", machine: machine{goos: "windows", home: `C:\Users\u`, files: without("ocibridge.hcl")}},
		{
			name:    "the variable before all places",
			machine: machine{goos: "linux", home: "/home/u", vars: map[string]string{"OCIBRIDGE_CONFIG": "/ci.hcl"}, files: all},
			want:    "/ci.hcl",
		},
		{
			name:    "the flag before the variable",
			machine: machine{goos: "linux", vars: map[string]string{"OCIBRIDGE_CONFIG": "/ci.hcl"}, files: all},
			flag:    "/flag.hcl", want: "/flag.hcl",
		},
		{
			name:    "what the variable names must be there",
			machine: machine{goos: "linux", vars: map[string]string{"OCIBRIDGE_CONFIG": "/gone.hcl"}, files: all},
			err:     "the configuration file /gone.hcl, which OCIBRIDGE_CONFIG names: file does not exist",
		},
		{name: "what the flag names must be there", machine: machine{goos: "linux", files: all}, flag: "/gone.hcl", err: "the configuration file /gone.hcl: file does not exist"},
		{
			name:    "one that cannot be read is not passed over",
			machine: machine{goos: "linux", files: all, unreadable: map[string]error{"ocibridge.hcl": fs.ErrPermission}},
			err:     "the configuration file ocibridge.hcl: permission denied",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for name := range tt.machine.files {
				files[name] = gateway(":1")
			}
			tt.machine.files = files
			c, err := Load(tt.machine.environment(), tt.flag)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err || hint.Of(err) == "" {
					t.Fatalf("error %v (hint %q), want %s", err, hint.Of(err), tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.File != tt.want || (c.Gateway.Listen == ":1") != (tt.want != "") {
				t.Errorf("read %q, want %q", c.File, tt.want)
			}
		})
	}
}

func TestZeroConfig(t *testing.T) {
	c, err := Load(machine{}.environment(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, &Config{}) {
		t.Errorf("no file gives %+v", c)
	}
	if c.Templates() != nil || len(c.RegistrySettings()) != 0 || c.FlagValues(func(string) bool { return false }) != nil {
		t.Error("a configuration without a file has settings")
	}
}

func denies(c *Config, a, version string) bool {
	_, denied := c.Gateway.Denies(module.MustParseAddress(a), provider.MustParseVersion(version), "")
	return denied
}

func TestValues(t *testing.T) {
	ca := tlsca.For(t)
	cert, err := ca.IssueClient("robot")
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, `
data = "data"
oci_mirror {
  repository_template = "ghcr.io/${hostname}/${namespace}/${type}"
}
module_mirror {
  repository_template = "ghcr.io/m/${namespace}/${name}/${system}"
  include             = ["registry.acme.example/*/*/*"]
  exclude             = ["registry.acme.example/acme/secret/*"]
  fall_through        = true
}
module_mirror {
  repository_template = "ghcr.io/m/${hostname}/${namespace}/${name}/${system}"
  direct              = true
}
registry "Harbor.example:8443" {
  ca_file             = "ca.pem"
  client_cert_file    = "robot.pem"
  client_key_file     = "/run/robot.key"
  requests_per_second = 0.5
  max_concurrent      = 3
  timeout             = "90s"
  mirrors_blobs_by_redirect = true
}
trust "registry.opentofu.org/hashicorp/*" {
  keys = ["c874 011f 0ab4 0511 0d02  1055 3436 5d94 72d7 468f"]
}
provider "registry.opentofu.org/hashicorp/null" {
  latest = 2
  from   = "https://mirror.example/a/"
}
provider "registry.opentofu.org/hashicorp/random" {
  versions = "~> 3.2"
  from     = "../mirror"
  cooldown = "168h"
}
pull_through {
  max_size  = "1GiB"
  max_spool = "2GiB"
}
gateway {
  listen = "[::1]:0"
  stale_if_error = "0s"
  deny   = ["registry.opentofu.org/acme/*", { match = "registry.opentofu.org/acme/widget@1.4.0", reason = " CVE-2026-1 " }, "registry.acme.example/acme/net/aws@< 2.0"]
  cache {
    directory = "/var/cache/ocibridge"
  }
  token "ci" {
    sha256  = "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08"
    expires = "2030-01-31T12:00:00+02:00"
  }
  token "modules" {
    sha256  = "1F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08"
    include = ["registry.acme.example/acme/*/*", "registry.acme.example/acme/*"]
    exclude = ["registry.acme.example/acme/secret/*"]
  }
}
`, machine{files: map[string]string{testDir + "/ca.pem": string(ca.CertPEM()), testDir + "/robot.pem": string(cert.CertPEM), "/run/robot.key": string(cert.KeyPEM)}})
	s := c.RegistrySettings()["Harbor.example:8443"]
	for name, check := range map[string]bool{
		"data":        strings.Contains(string(c.Effective(Surroundings{}).HCL()), "data = \""+testDir+"/data\""),
		"templates":   len(c.Templates().Of(subject.Provider)) == 1 && c.mirrors[0].Source == testFile+":3",
		"registry":    s.ClientCert != nil && string(s.CAs) == string(ca.CertPEM()) && s.RequestsPerSecond == 0.5 && s.MaxConcurrent == 3 && s.Timeout.String() == "1m30s" && s.Origin == testFile+":16",
		"redirect":    s.RedirectsBlobs,
		"fingerprint": c.Trust[0].Policy.Keys[0] == "C874011F0AB405110D02105534365D9472D7468F",
		"mirror URL":  c.Providers[0].From == Source{MirrorURL: "https://mirror.example/a/"} && c.Providers[0].Latest == 2,
		"folder":      c.Providers[1].From == Source{Folder: testDir + "/../mirror"} && c.Providers[1].Cooldown.Hours() == 168,
		"modules": len(c.Templates().Of(subject.Module)) == 2 && c.ModuleMirrors()[0].FallThrough && !c.ModuleMirrors()[1].FallThrough && !c.ModuleMirrors()[0].Direct && c.ModuleMirrors()[1].Direct &&
			c.ModuleMirror(module.MustParseAddress("registry.acme.example/acme/net/aws")).FallThrough && !c.ModuleMirror(module.MustParseAddress("registry.acme.example/acme/secret/aws")).FallThrough,
		"pull":     c.PullThrough.Enabled && c.PullThrough.MaxSize == 1<<30 && c.PullThrough.MaxSpool == 2<<30,
		"listen":   c.Gateway.Listen == "[::1]:0",
		"defaults": c.Gateway.TagTTL == 0 && c.Gateway.StaleIfError == -1 && c.Gateway.Cache.Enabled && c.Gateway.Cache.MaxSize == 0,
		"deny": c.Gateway.Deny[0].Versions.String() == "" && c.Gateway.Deny[1].Versions.Has(provider.MustParseVersion("1.4.0")) &&
			c.Gateway.Deny[0].Reason == "" && c.Gateway.Deny[1].Reason == "CVE-2026-1",
		"deny of modules": denies(c, "registry.acme.example/acme/net/aws", "1.9.0") && !denies(c, "registry.acme.example/acme/net/aws", "2.0.0") &&
			!denies(c, "registry.acme.example/acme/vpc/aws", "1.9.0") && c.Gateway.Deny[2].Pattern == module.MustParsePattern("registry.acme.example/acme/net/aws"),
		"token of modules": reflect.DeepEqual(c.Gateway.Tokens[1].Selector, subject.Selector{
			Include: []subject.Pattern{module.MustParsePattern("registry.acme.example/acme/*/*"), provider.MustParsePattern("registry.acme.example/acme/*")},
			Exclude: []subject.Pattern{module.MustParsePattern("registry.acme.example/acme/secret/*")},
		}),
		"token": c.Gateway.Tokens[0].SHA256[0] == 0x9f && c.Gateway.Tokens[0].Expires.UTC().Hour() == 10,
	} {
		if !check {
			t.Errorf("%s is not as written: %+v", name, c)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "0s": 0, "12h30m": 12*time.Hour + 30*time.Minute,
		"7d": 7 * day, "1w": 7 * day, "1w2d": 9 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, ".5w": 84 * time.Hour, "0d": 0, "106751d": 106751 * day,
		"": -1, "7": -1, "d": -1, "7 d": -1, "7D": -1, "-7d": -1, "1d-2h": -1, "7d12": -1, "7days": -1, "1..5d": -1, "1.2.3d": -1, "106752d": -1, strings.Repeat("9", 400) + "w": -1,
	} {
		c, err := parse(fmt.Sprintf("provider \"registry.opentofu.org/hashicorp/null\" {\n  latest = 1\n  cooldown = %q\n}\n", text), machine{})
		if (err != nil) != (want < 0) || err == nil && c.Providers[0].Cooldown != want {
			t.Errorf("%q: %v, %v, want %v", text, c, err, want)
		}
	}
}

// TestNullIsTheDefault shows that an argument with the value null gets its default.
func TestNullIsTheDefault(t *testing.T) {
	c := mustParse(t, `
oci_default_credentials {
  discover_ambient_credentials = null
}
pull_through {
  enabled        = null
  include        = null
  max_concurrent = null
}
gateway {
  tls {
    acme {
      accept_terms  = true
      domains       = ["providers.example.com"]
      directory_url = null
    }
  }
  cache {
    enabled   = null
    directory = null
    max_size  = null
  }
}
`, machine{})
	for name, check := range map[string]bool{
		"discover_ambient_credentials": c.Defaults.Discover,
		"enabled":                      c.PullThrough.Enabled,
		"max_concurrent":               c.PullThrough.MaxConcurrent == 0,
		"directory_url":                strings.Contains(c.Gateway.TLS.ACME.DirectoryURL, "letsencrypt"),
		"cache":                        c.Gateway.Cache.Enabled && c.Gateway.Cache.Directory == "" && c.Gateway.Cache.MaxSize == 0,
	} {
		if !check {
			t.Errorf("%s is not the default", name)
		}
	}
}

// TestRepositoryTemplateIsUntouched shows that the expressions in a repository_template are not evaluated. Therefore
// ocibridge and OpenTofu read the same template from the same text. A value that is not a template in one quoted
// string is refused.
func TestRepositoryTemplateIsUntouched(t *testing.T) {
	for written, want := range map[string]string{
		`"ghcr.io/acme/${hostname}/${namespace}/${type}"`:                                                 "ghcr.io/acme/${hostname}/${namespace}/${type}",
		`"${hostname}/${namespace}/${type}"`:                                                              "${hostname}/${namespace}/${type}",
		`"ghcr.io/${hostname == "registry.opentofu.org" ? "t" : "o"}/${hostname}/${namespace}/${ type }"`: `ghcr.io/${hostname == "registry.opentofu.org" ? "t" : "o"}/${hostname}/${namespace}/${ type }`,
		`"ghcr.io/%{ if type == "null" }n%{ else }o%{ endif }/${hostname}/${namespace}/${type}"`:          `ghcr.io/%{ if type == "null" }n%{ else }o%{ endif }/${hostname}/${namespace}/${type}`,
		`"\u0067hcr.io/${hostname}/${namespace}/${type}"`:                                                 "ghcr.io/${hostname}/${namespace}/${type}",
		`"\u0024{hostname}/${namespace}/${type}"`:                                                         "${hostname}/${namespace}/${type}",
		`"ghcr.io/${"${hostname}"}/${namespace}/${type}"`:                                                 `ghcr.io/${"${hostname}"}/${namespace}/${type}`,
	} {
		c, err := parse("oci_mirror {\n  repository_template = "+written+"\n}\n", machine{})
		if err != nil {
			t.Errorf("%s: %v", written, err)
			continue
		}
		if got := c.Templates()[0].Source(); got != want {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
	for _, written := range []string{
		`env("T")`, `"a/${env("T")}"`, "<<E\nghcr.io/${hostname}/${namespace}/${type}\nE", `("ghcr.io/${hostname}/${namespace}/${type}")`,
		`true ? "a" : "b"`, `["a"]`, "null", `"a" "b"`, `hostname`, `"$${hostname}/${namespace}/${type}"`,
	} {
		_, err := parse("oci_mirror {\n  repository_template = "+written+"\n}\n", machine{vars: map[string]string{"T": "ghcr.io/${hostname}/${namespace}/${type}"}})
		if err == nil {
			t.Errorf("%s is accepted", written)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"ghcr.io/${hostname}", "a\"b\\c\n\t\r", "%{if true}a%{endif}", "$${a}", "${\"${a}\"}", "${", "%{", "\x00\u2028", "${a /* } */ }", "é$"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := templateText([]byte(QuoteTemplate(s)))
		if err != nil || !strings.Contains(s, "{") && text != s {
			// QuoteTemplate can write every template except an invalid template, such as an open ${.
			if !strings.Contains(s, "{") && strings.ToValidUTF8(s, "") == s {
				t.Fatalf("%q is written as %s, which is %q, %v", s, QuoteTemplate(s), text, err)
			}
			return
		}
		again, err := templateText([]byte(QuoteTemplate(text)))
		if err != nil || again != text {
			t.Fatalf("%q becomes %q, then %q, %v", s, text, again, err)
		}
	})
}

func TestFunctions(t *testing.T) {
	m := machine{
		goos: "linux",
		vars: map[string]string{"ADDRESS": "127.0.0.1:1", "EMPTY": "", "BINARY": "\xff", "HOME": "/home/u"},
		files: map[string]string{
			testDir + "/listen": "localhost:2\n", testDir + "/dos": "localhost:3\r\n", "/abs": "localhost:4",
			testDir + "/large": strings.Repeat("a", maxValueFile+1), testDir + "/binary": "\xff",
		},
		unreadable: map[string]error{testDir + "/locked": fs.ErrPermission},
	}
	for expr, want := range map[string]string{
		`env("ADDRESS")`:       "127.0.0.1:1",
		`"${env("ADDRESS")}0"`: "127.0.0.1:10",
		`file("listen")`:       "localhost:2",
		`file("dos")`:          "localhost:3",
		`file("/abs")`:         "localhost:4",
	} {
		c, err := parse("gateway {\n  listen = "+expr+"\n}\n", m)
		if err != nil || c.Gateway.Listen != want {
			t.Errorf("%s: %+v, %v; want %s", expr, c, err, want)
		}
	}
	for expr, want := range map[string]string{
		`env("GONE")`:    "The environment variable GONE is not set",
		`env("BINARY")`:  "The environment variable BINARY is not UTF-8",
		`env("EMPTY")`:   `"" is no address`,
		`file("gone")`:   "The file /etc/ocibridge/gone does not exist",
		`file("locked")`: "Read /etc/ocibridge/locked: permission denied",
		`file("large")`:  "has more than 64 KiB",
		`file("binary")`: "is not UTF-8",
		`upper("a")`:     `There is no function named "upper"`,
		`gone`:           "Variables may not be used here",
	} {
		_, err := parse("gateway {\n  listen = "+expr+"\n}\n", m)
		var invalid *Error
		if !errors.As(err, &invalid) || len(invalid.Diagnostics) != 1 || !strings.Contains(invalid.Diagnostics[0].Detail, want) || invalid.Diagnostics[0].Line != 2 {
			t.Errorf("%s: %v, want %s", expr, err, want)
		}
	}
}

// TestUse shows which values of the gateway block may be missing for each [Use].
func TestUse(t *testing.T) {
	for src, uses := range map[string]map[Use]bool{ // true: the value must be there
		`listen = %s`:                    {Serve: true, OwnGateway: true, NoGateway: true},
		`public_url = %s`:                {Serve: true, OwnGateway: true, NoGateway: true},
		`verify = %s`:                    {Serve: true, OwnGateway: true, NoGateway: true},
		`deny = [%s]`:                    {Serve: true, OwnGateway: true, NoGateway: true},
		`tag_ttl = %s`:                   {Serve: true, OwnGateway: true, NoGateway: false},
		"cache {\n directory = %s\n}":    {Serve: true, OwnGateway: true, NoGateway: false},
		`capability_key_file = %s`:       {Serve: true, OwnGateway: false, NoGateway: false},
		"token \"a\" {\n sha256 = %s\n}": {Serve: true, OwnGateway: false, NoGateway: false},
		"token \"a\" {\n sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n include = [%s]\n}": {Serve: true, OwnGateway: false, NoGateway: false},
		"tls {\n cert_file = %s\n key_file = \"k\"\n}":                         {Serve: true, OwnGateway: false, NoGateway: false},
		"tls {\n acme {\n accept_terms = %s\n domains = [\"a.example\"]\n}\n}": {Serve: true, OwnGateway: false, NoGateway: false},
	} {
		for use, needed := range uses {
			for _, missing := range []string{`env("GONE")`, `file("gone")`} {
				env := machine{}.environment()
				env.Use = use
				_, err := Parse(env, testFile, []byte("gateway {\n"+fmt.Sprintf(src, missing)+"\n}\n"))
				if (err != nil) != needed {
					t.Errorf("%s in %q, use %d: %v", missing, src, use, err)
				}
			}
		}
	}
	env := machine{}.environment()
	env.Use = NoGateway
	c, err := Parse(env, testFile, []byte("gateway {\n  token \"a\" {\n    sha256 = env(\"GONE\")\n  }\n}\n"))
	if err != nil || !c.Gateway.AsksForTokens() {
		t.Errorf("the gateway asks for no token: %v", err)
	}
	if _, err = Parse(env, testFile, []byte("gateway {\n  token \"a\" {\n    sha256 = \"1\"\n  }\n}\n")); err == nil {
		t.Error("an invalid value is accepted")
	}
}

func TestSuggestions(t *testing.T) {
	for src, want := range map[string]string{
		"lisen = 1":                         `Did you mean "listen"? It belongs in the block gateway.`,
		"listen = 1":                        "It belongs in the block gateway.",
		"gateway {\n  lsiten = 1\n}":        `Did you mean "listen"?`,
		"gateway {\n  cahce {}\n}":          `Did you mean "cache"?`,
		"gateway {\n  jobs = 1\n}":          "It belongs outside of all blocks.",
		"gatway {}":                         `Did you mean "gateway"?`,
		"cache {}":                          "It belongs in the block gateway.",
		"oci_mirrors {}":                    `Did you mean "oci_mirror"?`,
		"gateway = 1":                       `Did you mean to define a block of type "gateway"?`,
		"data {}":                           `Did you mean to define argument "data"?`,
		"host \"x\" {}":                     "It belongs in the CLI configuration",
		"frobnicate = 1":                    "",
		strings.Repeat("a", 1000) + " = 1":  "",
		"gateway {\n  ca_file = \"x\"\n}":   "It belongs outside of all blocks, or in the block registry or gateway.tls.acme.",
		"gateway {\n  include = [\"x\"]\n}": "It belongs in the block oci_mirror or provider_installation.oci_mirror or module_mirror or pull_through or gateway.token or gateway.oidc.rule.",
	} {
		_, err := parse(src+"\n", machine{})
		var invalid *Error
		if !errors.As(err, &invalid) || len(invalid.Diagnostics) != 1 {
			t.Errorf("%s: %v", src, err)
			continue
		}
		_, got, _ := strings.Cut(invalid.Diagnostics[0].Detail, "expected here.")
		if got = strings.TrimSpace(got); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}

// TestBounds shows that a file that would overload the parser or the report is refused, and that its diagnostics stay
// short.
func TestBounds(t *testing.T) {
	n, deep, most := maxFile/4, maxDepth+1, maxOperators+1 // the parser can read each of them
	for name, src := range map[string]string{
		"too large":      strings.Repeat("#", maxFile+1),
		"brackets":       "data = " + strings.Repeat("[", deep) + strings.Repeat("]", deep) + "\n",
		"parentheses":    "data = " + strings.Repeat("(", deep) + "1" + strings.Repeat(")", deep) + "\n",
		"blocks":         strings.Repeat("gateway {\n", deep) + strings.Repeat("}\n", deep),
		"negations":      "data = " + strings.Repeat("!", most) + "true\n",
		"minus":          "data = " + strings.Repeat("-", most) + "1\n",
		"conditions":     "data = " + strings.Repeat("true?1:", most) + "1\n",
		"sums":           "data = 1" + strings.Repeat("+1", most) + "\n",
		"templates":      "data = " + strings.Repeat(`"${`, deep) + "1" + strings.Repeat(`}"`, deep) + "\n",
		"indexes":        "data = [1]" + strings.Repeat("[0]", most) + "\n",
		"loops":          "data = [for a in [1, 2]: [for b in [1, 2]: a]]\n",
		"open quotes":    strings.Repeat("data = \"\n", n/10),
		"many mistakes":  strings.Repeat("x {}\n", n/5),
		"no UTF-8":       "data = \"\xff\xfe\"\n",
		"zero bytes":     "data = \"a\x00b\"\n",
		"a long mistake": "data = " + strings.Repeat("a b ", n/5) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(src, machine{})
			var invalid *Error
			if !errors.As(err, &invalid) {
				t.Fatalf("error %v", err)
			}
			var out bytes.Buffer
			if err := Report(&out, invalid.Diagnostics, 80, false); err != nil {
				t.Fatal(err)
			}
			if out.Len() > 16<<10 || len(invalid.Diagnostics) > maxDiagnostics {
				t.Errorf("%d diagnostics, %d bytes", len(invalid.Diagnostics), out.Len())
			}
		})
	}
}

// TestManyBlocks shows that a file with hundreds of blocks is decoded completely.
func TestManyBlocks(t *testing.T) {
	testkit.LeaveToAll(t) // it decodes very many blocks in one goroutine
	for name, block := range map[string]string{
		"logins":     "oci_credentials \"a.io/p%d\" {\n  access_token = \"t\"\n}\n",
		"registries": "registry \"r%d.io\" {\n}\n",
		"providers":  "provider \"registry.opentofu.org/a/p%d\" {\n  latest = 1\n}\n",
	} {
		var src strings.Builder
		for i := 0; src.Len() < maxFile/4; i++ {
			fmt.Fprintf(&src, block, i)
		}
		c := mustParse(t, src.String(), machine{})
		if len(c.Effective(Surroundings{}).HCL()) < maxFile/4 || len(c.Logins)+len(c.RegistrySettings())+len(c.Providers) < 500 {
			t.Errorf("%s: some blocks are missing", name)
		}
	}
}

func TestReportKeepsToItsWidth(t *testing.T) {
	src := "gateway {\n\tlisten = \"" + strings.Repeat("x", 300) + "\" # \x1b[31mred\n  verify = " + strings.Repeat(" ", 200) + "\"on\"\n}\n"
	_, err := parse(src, machine{})
	var invalid *Error
	if !errors.As(err, &invalid) || len(invalid.Diagnostics) != 2 {
		t.Fatalf("error %v", err)
	}
	for i := range invalid.Diagnostics {
		invalid.Diagnostics[i].Detail = "What was found. What to do instead, in a sentence that is longer than the width."
	}
	for _, width := range []int{0, 40, 60, 100} {
		var out bytes.Buffer
		if err := Report(&out, invalid.Diagnostics, width, false); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "  on ") {
				continue // file names are not shortened
			}
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > max(width, minWidth) {
				t.Errorf("width %d: a line has %d: %s", width, n, line)
			}
		}
		if strings.ContainsAny(out.String(), "\x1b\t") || !strings.Contains(out.String(), `"on"`) {
			t.Errorf("width %d:\n%s", width, out.String())
		}
	}
	var out bytes.Buffer
	if err := Report(&out, invalid.Diagnostics, 80, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\x1b[31mError\x1b[0m") || !strings.Contains(out.String(), "\x1b[1;4m\"on\"\x1b[0m") {
		t.Errorf("no colours:\n%q", out.String())
	}
}

func TestErrorText(t *testing.T) {
	_, err := parse("gateway {\n  listen = \"x\"\n  verify = \"y\"\n}\n", machine{})
	if want := testFile + `:2: invalid listen: "x" is no address to listen on. Write HOST:PORT, such as localhost:8443, or :8443 for every interface (and 1 more)`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestCheckFiles(t *testing.T) {
	ca := tlsca.For(t)
	one, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	other, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, "gateway {\n  tls {\n    cert_file = \"c.pem\"\n    key_file = \"k.pem\"\n  }\n}\n", machine{})
	for name, tc := range map[string]struct {
		files map[string]string
		want  string // "LINE: DETAIL"
	}{
		"a pair":        {map[string]string{"c.pem": string(one.CertPEM), "k.pem": string(one.KeyPEM)}, ""},
		"no pair":       {map[string]string{"c.pem": string(one.CertPEM), "k.pem": string(other.KeyPEM)}, "4: /etc/ocibridge/k.pem: Private key does not match public key. Both are PEM files"},
		"no key":        {map[string]string{"c.pem": string(one.CertPEM)}, "4: /etc/ocibridge/k.pem: File does not exist."},
		"neither":       {nil, "3: /etc/ocibridge/c.pem: File does not exist."},
		"nothing in it": {map[string]string{"c.pem": "", "k.pem": string(one.KeyPEM)}, "4: "},
	} {
		m := machine{files: map[string]string{}}
		for f, s := range tc.files {
			m.files[testDir+"/"+f] = s
		}
		got := ""
		if diags := c.CheckFiles(m.environment()); len(diags) > 0 {
			got = fmt.Sprintf("%d: %s", diags[0].Line, diags[0].Detail)
		}
		if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestCheckExpiredCertificate shows that CheckFiles reports a certificate that has expired, at the file of the certificate.
func TestCheckExpiredCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, err := tlsca.For(t).Issue()
		if err != nil {
			t.Fatal(err)
		}
		c := mustParse(t, "gateway {\n  tls {\n    cert_file = \"c.pem\"\n    key_file = \"k.pem\"\n  }\n}\n", machine{})
		time.Sleep(48 * time.Hour) // test certificates are valid for a day
		diags := c.CheckFiles(machine{files: map[string]string{testDir + "/c.pem": string(cert.CertPEM), testDir + "/k.pem": string(cert.KeyPEM)}}.environment())
		if len(diags) != 1 || diags[0].Line != 3 || !strings.HasPrefix(diags[0].Detail, "/etc/ocibridge/c.pem: The certificate has expired on ") {
			t.Errorf("%+v", diags)
		}
	})
}

// TestCheckKeyFile shows that CheckFiles reports a file of link keys that serve would refuse.
func TestCheckKeyFile(t *testing.T) {
	c := mustParse(t, "gateway {\n  capability_key_file = \"keys\"\n}\n", machine{})
	for text, want := range map[string]string{strings.Repeat("a", 64): "", "short": "2: /etc/ocibridge/keys: Line 1 is no key"} {
		got := ""
		for _, d := range c.CheckFiles(machine{files: map[string]string{testDir + "/keys": text}}.environment()) {
			got += fmt.Sprintf("%d: %s", d.Line, d.Detail)
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestCheckModes shows that CheckFiles reports key files that other users can read. The file of link keys is an
// error, as it is for serve. The key of the certificate is only a warning.
func TestCheckModes(t *testing.T) {
	cert, err := tlsca.For(t).Issue()
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, "gateway {\n  capability_key_file = \"keys\"\n  tls {\n    cert_file = \"c.pem\"\n    key_file = \"k.pem\"\n  }\n}\n", machine{})
	for mode, want := range map[fs.FileMode]string{
		0o600: "", 0o440: "",
		0o644: "error 2: /etc/ocibridge/keys: Other users can use /etc/ocibridge/keys: its mode is 0644. Its readers can read every provider: run chmod o-rwx /etc/ocibridge/keys, or set defaultMode = 0440 of the Kubernetes secret.\n" +
			"warning 5: /etc/ocibridge/k.pem: Its mode is 0644, so other users can read the key. Run chmod o-rwx /etc/ocibridge/k.pem.\n",
	} {
		env := machine{files: map[string]string{testDir + "/keys": strings.Repeat("a", 64), testDir + "/c.pem": string(cert.CertPEM), testDir + "/k.pem": string(cert.KeyPEM)}}.environment()
		env.Mode = func(string) (fs.FileMode, error) { return mode, nil }
		got := ""
		for _, d := range c.CheckFiles(env) {
			got += fmt.Sprintf("%s %d: %s\n", d.Severity, d.Line, d.Detail)
		}
		if got != want {
			t.Errorf("%04o: %q, want %q", mode, got, want)
		}
	}
}

// TestCheckLoginFiles shows that CheckFiles reports login files that are missing or invalid.
func TestCheckLoginFiles(t *testing.T) {
	c := mustParse(t, "oci_default_credentials {\n  docker_style_config_files = [\n    \"a.json\",\n    \"b.json\",\n  ]\n}\n", machine{})
	for want, files := range map[string]map[string]string{
		"": {"a.json": "{}", "b.json": `{"auths": {}}`},
		"3: /etc/ocibridge/a.json: File does not exist.":      {"b.json": "{}"},
		"4: /etc/ocibridge/b.json: File does not exist.":      {"a.json": "{}"},
		"4: /etc/ocibridge/b.json: It does not parse: line 1": {"a.json": "{}", "b.json": "s3cr3t"},
	} {
		m := machine{files: map[string]string{}}
		for f, s := range files {
			m.files[testDir+"/"+f] = s
		}
		got := ""
		for _, d := range c.CheckFiles(m.environment()) {
			got += fmt.Sprintf("%d: %s", d.Line, d.Detail)
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Contains(got, "s3cr3t") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestMissingSecretIsOneError shows that an unreadable secret causes only one error.
func TestMissingSecretIsOneError(t *testing.T) {
	for argument, want := range map[string]string{
		`env("PW")`: "PW", `file("gone")`: "gone", `["x"]`: "it is not text", `""`: "it is empty",
	} {
		_, err := Parse(machine{}.environment(), testDir+"/ocibridge.hcl", []byte("oci_credentials \"ghcr.io\" {\n  username = \"u\"\n  password = "+argument+"\n}\n"))
		var invalid *Error
		if !errors.As(err, &invalid) || len(invalid.Diagnostics) != 1 || !strings.Contains(strings.ToLower(invalid.Diagnostics[0].Detail), strings.ToLower(want)) {
			t.Errorf("password = %s: %+v", argument, err)
		}
	}
}

// userConfig parses text as a CLI configuration, in an environment with the given variables.
func userConfig(t *testing.T, text string, variables ...string) *cliconfig.Config {
	t.Helper()
	c, err := cliconfig.Load(cliconfig.Environment{
		GOOS: "linux", Home: "/home/u", Getenv: func(string) string { return "" }, Environ: func() []string { return variables },
		ReadFile: machine{files: map[string]string{"/home/u/.tofurc": text}}.environment().ReadFile,
		ReadDir:  func(string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPrecedence shows which source takes effect if several sources set the same argument.
func TestPrecedence(t *testing.T) {
	file := `
data = "/file"
jobs = 2
oci_mirror {
  repository_template = "file.io/${hostname}/${namespace}/${type}"
}
oci_credentials "shared.io" {
  docker_credentials_helper = "file"
}
gateway {
  listen = ":2"
  tls {
    cert_file = "/file.pem"
    key_file  = "/file.key"
  }
}
`
	flags := map[string]FlagValue{
		"listen":   {"listen", ":1", "OCIBRIDGE_LISTEN"},
		"jobs":     {"jobs", "1", "flag"},
		"tls-cert": {"tls-cert", "/flag.pem", "flag"},
		"output":   {"output", "json", "flag"},
	}
	cli := userConfig(t, `oci_mirror { repository_template = "cli.io/${hostname}/${namespace}/${type}" }

oci_credentials "shared.io" { docker_credentials_helper = "cli" }
oci_credentials "cli.io" {
  username = "u"
  password = "p"
}
oci_default_credentials {
  docker_credentials_helper   = "cli"
  docker_style_config_files   = []
}
host "registry.example" { services = { "providers.v1" = "https://x/" } }
`, "TF_TOKEN_registry_example=t")
	defaults := map[string]string{"data": "/default"}
	tests := []struct {
		name string
		src  string
		s    Surroundings
		want map[string]string // path: "value (source)", or "" if the argument is not set
	}{
		{"nothing", "", Surroundings{Defaults: defaults}, map[string]string{
			"data": "/default (default)", "log_format": "", "gateway.metrics_listen": "", "jobs": "4 (default)", "gateway.listen": "localhost:8443 (default)", "log_level": "",
			"oci_mirror[0].repository_template": "", "gateway.tls.cert_file": "", "gateway.tag_ttl": "30s (default)", "gateway.cache.max_size": "", "gateway.capability_key_file": "", "oci_default_credentials.discover_ambient_credentials": "",
		}},
		{"the file before defaults and the CLI configuration", file, Surroundings{Defaults: defaults, CLI: cli}, map[string]string{
			"data": "/file (F:2)", "jobs": "2 (F:3)", "gateway.listen": ":2 (F:11)", "gateway.tls.cert_file": "/file.pem (F:13)",
			"oci_mirror[0].repository_template": "file.io/${hostname}/${namespace}/${type} (F:4)", "oci_mirror[1].repository_template": "",
			`oci_credentials["shared.io"].docker_credentials_helper`: "file (F:8)",
			`oci_credentials["cli.io"].password`:                     "[redacted] (/home/u/.tofurc:4)",
			"oci_default_credentials.docker_credentials_helper":      "cli (/home/u/.tofurc:8)",
			"oci_default_credentials.docker_style_config_files":      "[] (/home/u/.tofurc:8)",
			`host["registry.example"].services`:                      "map[providers.v1:https://x/] (/home/u/.tofurc)",
			`credentials["registry.example"].token`:                  "[redacted] (TF_TOKEN_registry_example)",
		}},
		{"the CLI configuration without blocks in the file", "jobs = 2\n", Surroundings{CLI: cli}, map[string]string{
			"oci_mirror[0].repository_template":                      "cli.io/${hostname}/${namespace}/${type} (/home/u/.tofurc:1)",
			`oci_credentials["shared.io"].docker_credentials_helper`: "cli (/home/u/.tofurc:3)",
		}},
		{"flags and variables before the file", file, Surroundings{Flags: flags, Defaults: defaults, CLI: cli}, map[string]string{
			"gateway.listen": ":1 (OCIBRIDGE_LISTEN)", "jobs": "1 (flag)", "data": "/file (F:2)",
			"gateway.tls.cert_file": "/flag.pem (flag)", "gateway.tls.key_file": "", // the key in the file belongs to another certificate
		}},
		{"--template before all", file, Surroundings{CLI: cli, Template: &MirrorText{Template: "flag.io/${type}", Include: []string{"*/*/*"}, Source: "flag"}}, map[string]string{
			"oci_mirror[0].repository_template": "flag.io/${type} (flag)", "oci_mirror[0].include": "[*/*/*] (flag)", "oci_mirror[1].repository_template": "",
		}},
		{"a block before the CLI configuration's", "oci_default_credentials {\n  docker_style_config_files = [\"a.json\"]\n}\n", Surroundings{CLI: cli}, map[string]string{
			"oci_default_credentials.docker_credentials_helper":    "",
			"oci_default_credentials.docker_style_config_files":    "[/etc/ocibridge/a.json] (F:2)",
			"oci_default_credentials.discover_ambient_credentials": "true (default)",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			effective := mustParse(t, tt.src, machine{}).Effective(tt.s)
			b, err := json.Marshal(effective)
			if err != nil {
				t.Fatal(err)
			}
			var list []struct {
				Path, Source string
				Value        any
			}
			if err := json.Unmarshal(b, &list); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, s := range list {
				if _, ok := got[s.Path]; ok {
					t.Errorf("the path %s occurs twice", s.Path)
				}
				got[s.Path] = fmt.Sprintf("%v (%s)", s.Value, strings.ReplaceAll(s.Source, testFile, "F"))
			}
			for path, want := range tt.want {
				if got[path] != want {
					t.Errorf("%s: %q, want %q", path, got[path], want)
				}
			}
		})
	}
}

func TestFlagValues(t *testing.T) {
	c := mustParse(t, "jobs = 2\ndata = \"d\"\nlog_level = \"WARN\"\nlog_format = \"json\"\ngateway {\n  metrics_listen = \":9090\"\n  tls {\n    self_signed = true\n  }\n}\n", machine{})
	for given, want := range map[string]string{
		"":          "data=/etc/ocibridge/d jobs=2 log-level=WARN log-format=json metrics-listen=:9090 tls-self-signed=true",
		"jobs":      "data=/etc/ocibridge/d log-level=WARN log-format=json metrics-listen=:9090 tls-self-signed=true",
		"tls-cert":  "data=/etc/ocibridge/d jobs=2 log-level=WARN log-format=json metrics-listen=:9090",
		"log-level": "data=/etc/ocibridge/d jobs=2 log-format=json metrics-listen=:9090 tls-self-signed=true",
	} {
		var got []string
		for _, v := range c.FlagValues(func(flag string) bool { return flag == given }) {
			got = append(got, v.Flag+"="+v.Value)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("with --%s given: %v, want %s", given, got, want)
		}
	}
}

// marked is a secret that must not appear in any output.
const marked = "s3cr3t"

// TestSecretsStaySecret shows that no output contains a secret. The secret may be the value of an argument for
// secrets, or it may be in a place where a user put it by mistake.
func TestSecretsStaySecret(t *testing.T) {
	vars := map[string]string{"SECRET": marked}
	valid := `
oci_credentials "a.io" {
  username = "` + marked + `"
  password = "` + marked + `"
}
oci_credentials "b.io" {
  access_token  = env("SECRET")
  refresh_token = file("secret")
}
`
	m := machine{vars: vars, files: map[string]string{testDir + "/secret": marked + "\n"}}
	c := mustParse(t, valid, m)
	if got := c.Logins[0].Password.Reveal() + c.Logins[1].RefreshToken.Reveal(); got != marked+marked {
		t.Fatalf("the secrets are %q", got)
	}
	shown := c.Effective(Surroundings{
		CLI:           userConfig(t, "credentials \"h.io\" { token = \""+marked+"\" }\noci_credentials \"d.io\" {\n  username = \""+marked+"\"\n  password = \""+marked+"\"\n}\n"),
		VariableLogin: &login.Login{Prefix: "c.io", Username: login.NewSecret(marked), Password: login.NewSecret(marked)},
	})
	var out bytes.Buffer
	out.Write(shown.HCL())
	log := slog.New(slog.NewJSONHandler(&out, nil))
	text := slog.New(slog.NewTextHandler(&out, nil))
	for _, v := range []any{c, *c, c.Logins, shown, *shown, c.tree, *c.tree, struct{ c any }{c}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
		log.Info("x", "v", v)
		text.Info("x", "v", v)
		_ = json.NewEncoder(&out).Encode(v)
	}
	broken := []string{
		`password = ` + marked,
		`password = "` + marked,
		`password = '` + marked + `'`,
		`password = "a" ` + marked,
		`password = "` + marked + `" + 1`,
		`password = ["` + marked + `"]`,
		`password = ` + marked + `("x")`,
		`password = "${` + marked + `}"`,
		`password = "${` + marked,
		`password = "\q` + marked + `"`,
		`password: "` + marked + `"`,
		`password "` + marked + `"`,
		`password "` + marked + `" {}`,
		`passwrod = "` + marked + `"`,
		`pw = "` + marked + `"`,
		"password = <<E\n" + marked + "\nE",
		"password = <<E\n" + marked,
		"username = \"open\n password = \"" + marked + "\"",
		`docker_credentials_helper = "x", password = "` + marked + `"`,
		`username = "u"` + "\n" + `password = "` + marked + `"` + "\n" + `password = "` + marked + `"`,
		`access_token = "` + marked + `"` + "\n" + `password = "` + marked + `"`,
		`refresh_token = "` + marked + `"`,
		`password = ""` + "\n" + `username = "` + marked + `"`,
		`password = env("SECRET") env("` + marked + `")`,
	}
	var files []string
	for _, b := range broken {
		files = append(files, "oci_credentials \"a.io\" {\n  "+b+"\n}\n", "oci_credentials \"a.io\" { "+b+" }\n", b+"\n")
	}
	files = append(files,
		"gateway {\n  token \"ci\" {\n    sha256 = \""+marked+"\"\n  }\n}\n",
		"gateway {\n  token \"ci\" {\n    token = \""+marked+"\"\n  }\n}\n",
		"gateway {\n  public_url = \"https://u:"+marked+"@example.com/\"\n}\n",
		"provider \"registry.opentofu.org/a/b\" {\n  latest = 1\n  from = \"http://u:"+marked+"@example.com/\"\n}\n",
	)
	for _, src := range files {
		_, err := parse(src, m)
		var invalid *Error
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", src, err)
			continue
		}
		var here bytes.Buffer
		for _, d := range invalid.Diagnostics {
			fmt.Fprintf(&here, "%v %+v %#v\n", d, d, d)
		}
		fmt.Fprintf(&here, "%v %+v %#v %s\n", err, err, err, hint.Of(err))
		_ = Report(&here, invalid.Diagnostics, 200, true)
		_ = json.NewEncoder(&here).Encode(invalid.Diagnostics)
		if strings.Contains(here.String(), marked) {
			t.Errorf("a secret of\n%s\nis shown:\n%s", src, here.String())
		}
	}
	if s := strings.ToLower(out.String()); strings.Contains(s, marked) || strings.Contains(s, fmt.Sprintf("%x", marked)) {
		t.Errorf("a secret is shown: %s", s)
	}
}

// example returns the example file of the documentation.
func example(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../../docs/reference/ocibridge.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func exampleMachine(t *testing.T) machine {
	t.Helper()
	ca := tlsca.For(t)
	return machine{
		vars: map[string]string{"CI_TOKEN_SHA256": strings.Repeat("ab", 32), "OPERATOR_TOKEN_SHA256": strings.Repeat("cd", 32)},
		files: map[string]string{
			testDir + "/harbor-password": "p\n", testDir + "/harbor-ca.pem": string(ca.CertPEM()), testDir + "/platform.pub": string(approvals.NewKey(t, approvals.P256).PEM()),
		},
	}
}

func TestExampleIsValid(t *testing.T) {
	m := exampleMachine(t)
	text := example(t)
	c := mustParse(t, text, m)
	if len(c.Warnings) > 0 {
		t.Errorf("the example causes warnings: %+v", c.Warnings)
	}
	for _, kind := range subject.Kinds {
		if len(c.Templates().Of(kind)) == 0 {
			t.Errorf("no template of the example is for %s", kind.Traits().Plural)
		}
	}
	eachField(Schema(), func(in string, f Field) {
		if f.IsBlock && !strings.HasPrefix(in, "provider_installation") && f.Name != "provider_installation" && !strings.Contains(text, f.Name+" ") {
			t.Errorf("the example has no block %s", joinPath(in, f.Name))
		}
	})
	// The output of Effective is itself a configuration file with the same settings.
	again := mustParse(t, strings.NewReplacer("abababab...", strings.Repeat("ab", 32), "cdcdcdcd...", strings.Repeat("cd", 32)).
		Replace(string(c.Effective(Surroundings{}).HCL())), m)
	if got, want := settings(t, again), settings(t, c); !reflect.DeepEqual(got, want) {
		t.Errorf("the output, parsed again, has the settings\n%v\nwant\n%v", got, want)
	}
}

func settings(t *testing.T, c *Config) map[string]any {
	t.Helper()
	b, err := json.Marshal(c.Effective(Surroundings{}))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Path  string
		Value any
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, s := range list {
		out[s.Path] = s.Value
	}
	return out
}

// TestFlagOfTheOpposite shows that the flag --no-pull-through and the argument enabled have opposite values.
func TestFlagOfTheOpposite(t *testing.T) {
	const flag = "no-pull-through"
	for enabled, want := range map[string]string{"true": "false", "false": "true"} {
		c := mustParse(t, "pull_through {\n  enabled = "+enabled+"\n}\n", machine{})
		got := c.FlagValues(func(string) bool { return false })
		if len(got) != 1 || got[0] != (FlagValue{flag, want, testFile + ":2"}) {
			t.Errorf("enabled = %s: %+v", enabled, got)
		}
		for _, given := range []string{"true", "false"} {
			s := Surroundings{Flags: map[string]FlagValue{flag: {flag, given, "flag"}}}
			shown := string(c.Effective(s).HCL())
			if want := "enabled        = " + map[string]string{"true": "false", "false": "true"}[given] + " "; !strings.Contains(shown, want) {
				t.Errorf("--%s=%s shows\n%s", flag, given, shown)
			}
		}
	}
	none := new(Config)
	if shown := string(none.Effective(Surroundings{}).HCL()); strings.Contains(shown, "pull_through") {
		t.Errorf("without a block:\n%s", shown)
	}
	if shown := string(none.Effective(Surroundings{Flags: map[string]FlagValue{flag: {flag, "true", "OCIBRIDGE_NO_PULL_THROUGH"}}}).HCL()); !strings.Contains(shown, "enabled        = false  # OCIBRIDGE_NO_PULL_THROUGH\n") {
		t.Errorf("without a block, and with the variable:\n%s", shown)
	}
}

// TestSchema checks that the types and tags of the schema have the form that the code requires.
func TestSchema(t *testing.T) {
	flags := map[string]bool{}
	eachField(Schema(), func(in string, f Field) {
		path := joinPath(in, f.Name)
		switch {
		case f.IsBlock:
			if f.Type.Kind() != reflect.Struct {
				t.Fatalf("%s: the block has an unexpected type", path)
			}
			for i := 1; i < f.Type.NumField(); i++ {
				if strings.HasSuffix(f.Type.Field(i).Tag.Get("hcl"), ",label") {
					t.Errorf("%s has a label that is not its first field", path)
				}
			}
		case f.Kind == "":
			t.Errorf("%s does not describe its value", path)
		case strings.Contains(f.Default, "Default"):
			t.Errorf("%s: no constant is named %s", path, f.Default)
		}
		if f.Flag != "" && f.Kind != "template" && f.Kind != "patterns" {
			if flags[f.Flag] {
				t.Errorf("%s: another argument also has the flag --%s", path, f.Flag)
			}
			flags[f.Flag] = true
		}
	})
	if got := slices.Sorted(maps.Keys(flags)); !slices.Equal(got, slices.Sorted(slices.Values(Flags()))) {
		t.Errorf("flags %v are not all found", got)
	}
}

func FuzzLoad(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			if file.Name == "ocibridge.hcl" {
				f.Add(string(file.Data), "")
				f.Add("", string(file.Data))
			}
		}
	}
	f.Add("data = \"${", "}\"")
	f.Add("data = <<E\n", "\nE\n")
	f.Add("/*", "*/")
	m := machine{goos: "linux", vars: map[string]string{"A": "b"}, files: map[string]string{testDir + "/a": "b"}}
	f.Fuzz(func(t *testing.T, before, after string) {
		src := before + "\noci_credentials \"fuzz.io\" {\n  username = \"u\"\n  password = \"" + marked + "\"\n}\n" + after
		if strings.Contains(before+after, marked) {
			return
		}
		var out bytes.Buffer
		c, err := parse(src, m)
		var invalid *Error
		switch {
		case errors.As(err, &invalid):
			for _, d := range invalid.Diagnostics {
				if d.Line < 1 || d.Summary == "" || d.Severity == "" {
					t.Errorf("incomplete diagnostic %+v", d)
				}
			}
			fmt.Fprintf(&out, "%v %+v\n", err, invalid.Diagnostics)
			_ = Report(&out, invalid.Diagnostics, 80, false)
		case err != nil:
			t.Fatalf("error %v", err)
		case !slices.ContainsFunc(c.Logins, func(l login.Login) bool { return l.Prefix == "fuzz.io" }):
			return // the line became part of another construct, such as a comment
		default:
			fmt.Fprintf(&out, "%+v\n%s", c, c.Effective(Surroundings{}).HCL())
			if _, err := json.Marshal(c.Effective(Surroundings{})); err != nil {
				t.Error(err)
			}
		}
		if strings.Contains(out.String(), marked) {
			t.Errorf("a secret is shown: %s", out.String())
		}
	})
}

// TestRevokedKeyFile shows that a key file with a revoked key is refused. If the fingerprint of this key were pinned,
// an older copy of the key without the revocation would be accepted.
func TestRevokedKeyFile(t *testing.T) {
	key, err := pgp.NewSigner("Acme", pgp.Compromised())
	if err != nil {
		t.Fatal(err)
	}
	m := machine{goos: "linux", home: "/home/u", files: map[string]string{testDir + "/acme.asc": key.ArmoredPublicKey()}}
	_, err = parse("trust \"registry.acme.example/*/*\" {\n  key_files = [\"acme.asc\"]\n}\n", m)
	if err == nil || !strings.Contains(err.Error(), "key "+key.Fingerprint()+" is revoked") {
		t.Errorf("a key file with a revoked key: %v", err)
	}
}

func TestChanges(t *testing.T) {
	services := func(url string) Surroundings {
		return Surroundings{CLI: userConfig(t, fmt.Sprintf("host \"h.example\" { services = { \"login.v1\" = { client = \"c\", authz = %q } } }\n", url))}
	}
	before := mustParse(t, "jobs = 2\ndata = \"/a\"\n", machine{}).Effective(services("https://a/"))
	after := mustParse(t, "\ndata = \"/a\"\ngateway {\n  metrics_listen = \":1\"\n}\n", machine{}).Effective(services("https://b/"))
	if got := before.Changes(before); len(got) > 0 {
		t.Errorf("changes %v without a change", got)
	}
	want := []string{"gateway.metrics_listen", `host["h.example"].services`, "jobs"}
	if got := after.Changes(before); !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
}

// TestPullThroughOfModules shows that the pull_through block takes patterns of both kinds, and which hosts of modules it names.
func TestPullThroughOfModules(t *testing.T) {
	const repositories = "oci_mirror {\n  repository_template = \"registry.acme.example/${hostname}/${namespace}/${type}\"\n}\n"
	const moduleRepositories = "module_mirror {\n  repository_template = \"registry.acme.example/${hostname}/${namespace}/${name}/${system}\"\n}\n"
	provided, called := provider.MustParseAddress("registry.opentofu.org/acme/widget"), module.MustParseAddress("registry.opentofu.org/acme/net/aws")
	for name, tc := range map[string]struct {
		before, text           string
		ofProviders, ofModules bool
		names                  bool
		hosts                  string
	}{
		"no block":                    {"", "", false, false, false, "[]"},
		"no patterns":                 {"", "pull_through {\n}\n", true, false, false, "[]"},
		"providers":                   {"", "pull_through {\n  include = [\"registry.opentofu.org/*/*\"]\n}\n", true, false, true, "[]"},
		"modules":                     {"", "pull_through {\n  include = [\"registry.opentofu.org/acme/*/*\", \"a.example/*/*/*\"]\n}\n", false, true, true, "[{a.example true} {registry.opentofu.org false}]"},
		"both":                        {"", "pull_through {\n  include = [\"registry.opentofu.org/*/*\", \"registry.opentofu.org/*/*/*\"]\n}\n", true, true, true, "[{registry.opentofu.org true}]"},
		"all hosts":                   {"", "pull_through {\n  include = [\"registry.opentofu.org/*/*\", \"*/*/*/*\"]\n}\n", true, true, false, "[]"},
		"excluded":                    {"", "pull_through {\n  include = [\"registry.opentofu.org/*/*\", \"registry.opentofu.org/*/*/*\"]\n  exclude = [\"registry.opentofu.org/acme/net/*\"]\n}\n", true, false, true, "[{registry.opentofu.org false}]"},
		"off":                         {"", "pull_through {\n  enabled = false\n  include = [\"registry.opentofu.org/*/*/*\"]\n}\n", false, true, true, "[]"},
		"no repositories for modules": {repositories, "pull_through {\n  include = [\"registry.opentofu.org/*/*/*\"]\n}\n", false, true, true, "[]"},
		"repositories for modules":    {repositories + moduleRepositories, "pull_through {\n  include = [\"registry.opentofu.org/*/*/*\"]\n}\n", false, true, true, "[{registry.opentofu.org true}]"},
	} {
		c := mustParse(t, tc.before+tc.text, machine{})
		if got := fmt.Sprint(c.PulledModuleHosts()); got != tc.hosts {
			t.Errorf("%s: the hosts are %s, want %s", name, got, tc.hosts)
		}
		if p := c.PullThrough; p != nil && (p.Selects(provided) != tc.ofProviders || p.Selects(called) != tc.ofModules || p.NamesHosts() != tc.names) {
			t.Errorf("%s: %t, %t, %t", name, p.Selects(provided), p.Selects(called), p.NamesHosts())
		}
	}
	for _, wrong := range []string{"registry.opentofu.org/*/*/*/*", "registry.opentofu.org/*", "registry.opentofu.org/acme/*/aws"} {
		if _, err := parse("pull_through {\n  include = [\""+wrong+"\"]\n}\n", machine{}); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
