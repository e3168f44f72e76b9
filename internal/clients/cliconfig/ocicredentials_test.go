package cliconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestOCICredentials(t *testing.T) {
	secret := login.NewSecret
	const native = `
oci_credentials "harbor.example:8443/acme" {
  username = "robot$acme+push"
  password = "p$HOME$$w\"x"
}
oci_credentials "ghcr.io" { docker_credentials_helper = "osxkeychain" }
provider_installation { direct {} }
oci_credentials "quay.io/a/b" {
  access_token = "access"
  refresh_token = "refresh"
}
oci_credentials "alone.example" { access_token = "access" }
oci_default_credentials {
  docker_style_config_files = ["auth.json", "/abs/config.json", "../up.json"]
  docker_credentials_helper = "pass"
}
`
	inJSON := `{"oci_credentials": {"j1.example": {"username": "robot$j", "password": "p"}, "j2.example/x": {"access_token": "t"}}}`
	listed := `{"oci_credentials": [{"j3.example": {"username": "u", "password": "p"}}, {"j4.example": {"docker_credentials_helper": "h"}}]}`
	const main, one, two = "/home/u/.tofurc", "/home/u/.terraform.d/1.tfrc.json", "/home/u/.terraform.d/2.tfrc.json"
	c := mustLoad(t, machine{goos: "linux", files: map[string]string{main: native, one: inJSON, two: listed}})
	want := []login.Login{
		{Prefix: "harbor.example:8443/acme", Username: secret("robot$acme+push"), Password: secret(`p$HOME$$w"x`), Origin: main + ":2", InCLIConfig: true},
		{Prefix: "ghcr.io", Helper: "osxkeychain", Origin: main + ":6", InCLIConfig: true},
		{Prefix: "quay.io/a/b", AccessToken: secret("access"), RefreshToken: secret("refresh"), Origin: main + ":8", InCLIConfig: true},
		{Prefix: "alone.example", AccessToken: secret("access"), Origin: main + ":12", InCLIConfig: true},
		{Prefix: "j1.example", Username: secret("robot$j"), Password: secret("p"), Origin: one, InCLIConfig: true},
		{Prefix: "j2.example/x", AccessToken: secret("t"), Origin: one, InCLIConfig: true},
		{Prefix: "j3.example", Username: secret("u"), Password: secret("p"), Origin: two, InCLIConfig: true},
		{Prefix: "j4.example", Helper: "h", Origin: two, InCLIConfig: true},
	}
	got, defaults := c.OCICredentials()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("block %d of %d and %d wanted: %+v", i, len(got), len(want), got)
		}
	}
	wantDefaults := &login.Defaults{InCLIConfig: true,
		Discover: true, Files: []string{"/home/u/auth.json", "/abs/config.json", "/home/u/../up.json"}, Helper: "pass", Origin: main + ":13",
	}
	if !reflect.DeepEqual(defaults, wantDefaults) {
		t.Errorf("defaults = %+v, want %+v", defaults, wantDefaults)
	}
}

func TestOCIDefaultCredentials(t *testing.T) {
	tests := []struct {
		name, src string
		goos      string
		want      *login.Defaults
	}{
		{"none", ``, "linux", nil},
		{"empty", `oci_default_credentials {}`, "linux", &login.Defaults{InCLIConfig: true, Discover: true}},
		{"no discovery", `oci_default_credentials { discover_ambient_credentials = false }`, "linux", &login.Defaults{InCLIConfig: true}},
		{"discovery", `oci_default_credentials { discover_ambient_credentials = true }`, "linux", &login.Defaults{InCLIConfig: true, Discover: true}},
		{"no files", `oci_default_credentials { docker_style_config_files = [] }`, "linux", &login.Defaults{InCLIConfig: true, Discover: true, Files: []string{}}},
		{"JSON", `{"oci_default_credentials": {"docker_style_config_files": ["a.json"]}}`, "linux", &login.Defaults{InCLIConfig: true, Discover: true, Files: []string{"/home/u/a.json"}}},
		{"JSON list", `{"oci_default_credentials": [{"docker_credentials_helper": "h"}]}`, "linux", &login.Defaults{InCLIConfig: true, Discover: true, Helper: "h"}},
		{"Windows", `oci_default_credentials { docker_style_config_files = ["a.json", "C:\\x\\b.json", "\\\\server\\c.json", "sub/d.json"] }`, "windows",
			&login.Defaults{InCLIConfig: true, Discover: true, Files: []string{`C:\data\a.json`, `C:\x\b.json`, `\\server\c.json`, `C:\data\sub/d.json`}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name, vars := "/home/u/.tofurc", map[string]string{}
			if tt.goos == "windows" {
				name, vars["APPDATA"] = `C:\data\tofu.rc`, `C:\data`
			}
			_, got := mustLoad(t, machine{goos: tt.goos, vars: vars, files: map[string]string{name: tt.src}}).OCICredentials()
			if got != nil {
				if !strings.HasPrefix(got.Origin, name) {
					t.Errorf("origin %q", got.Origin)
				}
				got.Origin = ""
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestOCICredentialErrors(t *testing.T) {
	const secret = "s3cr3t"
	tests := []struct {
		name, src, want string
	}{
		{"no credential", "\n" + `oci_credentials "ghcr.io" {}`, `the oci_credentials block "ghcr.io" at /home/u/.tofurc:2 holds no credential`},
		{"user alone", `oci_credentials "ghcr.io" { username = "u" }`, "only one of username and password"},
		{"password alone", `oci_credentials "ghcr.io" { password = "s3cr3t" }`, "only one of username and password"},
		{"empty helper", `oci_credentials "ghcr.io" { docker_credentials_helper = "" }`, "has an empty docker_credentials_helper"},
		{"two kinds", `oci_credentials "ghcr.io" { username = "u", password = "s3cr3t", access_token = "s3cr3t" }`, "more than one kind"},
		{"refresh token alone", `oci_credentials "ghcr.io" { refresh_token = "s3cr3t" }`, "a refresh_token without an access_token"},
		{"helper for a path", `oci_credentials "ghcr.io/a" { docker_credentials_helper = "h" }`, "has a path and docker_credentials_helper"},
		{"helper with a path", `oci_credentials "ghcr.io" { docker_credentials_helper = "./h" }`, "holds a path"},
		{"URL as label", `oci_credentials "https://ghcr.io" { access_token = "s3cr3t" }`, "neither a registry nor a repository prefix"},
		{"no label", `oci_credentials { access_token = "s3cr3t" }`, "oci_credentials is a block with one label"},
		{"two labels", `oci_credentials "ghcr.io" "acme" { access_token = "s3cr3t" }`, "oci_credentials is a block with one label"},
		{"equals sign", `oci_credentials = { access_token = "s3cr3t" }`, "oci_credentials is a block with one label"},
		{"equals sign after the label", `oci_credentials "ghcr.io" = { access_token = "s3cr3t" }`, "does not parse"},
		{"no block", `oci_credentials = "s3cr3t"`, "oci_credentials is a block with one label"},
		{"list for text", `oci_credentials "ghcr.io" { username = "u", password = ["s3cr3t"] }`, `invalid oci_credentials block "ghcr.io"`},
		{"block for text", `oci_credentials "ghcr.io" { username = "u", password { a = "s3cr3t" } }`, `invalid oci_credentials block "ghcr.io"`},
		{"JSON: text for a block", `{"oci_credentials": {"ghcr.io": "s3cr3t"}}`, "oci_credentials is a block with one label"},
		{"JSON: object for text", `{"oci_credentials": {"ghcr.io": {"password": {"a": "s3cr3t"}}}}`, "oci_credentials is a block with one label"},
		{"JSON: nothing", `{"oci_credentials": {"ghcr.io": {}}}`, "holds no credential"},
		{"twice", "oci_credentials \"ghcr.io\" { access_token = \"s3cr3t\" }\n" + `oci_credentials "ghcr.io" { access_token = "s3cr3t" }`,
			`a second oci_credentials block "ghcr.io" at /home/u/.tofurc:2; the first is at /home/u/.tofurc:1`},
		{"default with a label", `oci_default_credentials "x" {}`, "oci_default_credentials is a block without a label"},
		{"default with an equals sign", `oci_default_credentials = {}`, "oci_default_credentials is a block without a label"},
		{"default that is text", `oci_default_credentials = "x"`, "oci_default_credentials is a block without a label"},
		{"two defaults", "oci_default_credentials {}\noci_default_credentials {}", "a second oci_default_credentials block at /home/u/.tofurc:2; the first is at /home/u/.tofurc:1"},
		{"files without discovery", `oci_default_credentials { discover_ambient_credentials = false, docker_style_config_files = [] }`, "forbids discovery"},
		{"default helper with a path", `oci_default_credentials { docker_credentials_helper = "a/b" }`, "holds a path"},
		{"empty default helper", `oci_default_credentials { docker_credentials_helper = "" }`, "an empty docker_credentials_helper"},
		{"discovery that is no boolean", `oci_default_credentials { discover_ambient_credentials = "perhaps s3cr3t" }`, "invalid oci_default_credentials block"},
		{"files that are no list", `oci_default_credentials { docker_style_config_files = { a = "s3cr3t" } }`, "invalid oci_default_credentials block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": tt.src}}.environment())
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "/home/u/.tofurc") {
				t.Fatalf("Load: %v, want %q", err, tt.want)
			}
			if hint.Of(err) == "" || strings.Contains(err.Error()+hint.Of(err), secret) {
				t.Errorf("no hint, or the file is quoted: %v (hint %q)", err, hint.Of(err))
			}
		})
	}
	t.Run("twice in two files", func(t *testing.T) {
		_, err := Load(machine{goos: "linux", files: map[string]string{
			"/home/u/.tofurc": `oci_credentials "ghcr.io" { access_token = "x" }`, "/home/u/.terraform.d/a.tfrc": `oci_credentials "ghcr.io" { access_token = "x" }`,
		}}.environment())
		if err == nil || !strings.Contains(err.Error(), "at /home/u/.terraform.d/a.tfrc:1; the first is at /home/u/.tofurc:1") {
			t.Errorf("%v", err)
		}
	})
}

// TestUselessOCICredentials shows that a block that cannot be used, but that OpenTofu accepts, causes a warning. Blocks
// for other registries are still used.
func TestUselessOCICredentials(t *testing.T) {
	for src, want := range map[string]string{
		`oci_credentials "a.example" { username = "u", password = "" }`:               `block "a.example" at /home/u/.tofurc:2 is passed over: it has an empty password`,
		`oci_credentials "a.example" { username = "", password = "s3cr3t" }`:          "it has an empty username",
		`oci_credentials "a.example" { access_token = "", refresh_token = "s3cr3t" }`: "it has an empty access_token",
		`oci_credentials "host_name.local" { username = "u", password = "s3cr3t" }`:   `block "host_name.local" at /home/u/.tofurc:2 is passed over: no registry`,
		`oci_credentials "host_name.local/a" { access_token = "s3cr3t" }`:             `block "host_name.local/a" at /home/u/.tofurc:2`,
	} {
		c := mustLoad(t, machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": "oci_credentials \"ghcr.io\" { access_token = \"x\" }\n" + src}})
		logins, _ := c.OCICredentials()
		if len(logins) != 1 || logins[0].Prefix != "ghcr.io" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], want) || strings.Contains(c.Warnings[0], "s3cr3t") {
			t.Errorf("%s: %+v, %q", src, logins, c.Warnings)
		}
	}
}

func TestOCICredentialsStaySecret(t *testing.T) {
	const secret = "s3cr3t-t0k3n"
	c := mustLoad(t, machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": `
oci_credentials "a.example" {
  username = "u"
  password = "` + secret + `"
}
oci_credentials "b.example" {
  access_token  = "` + secret + `"
  refresh_token = "` + secret + `"
}
credentials_helper "x" { args = ["--token=` + secret + `"] }
`}})
	blocks, _ := c.OCICredentials()
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{blocks, blocks[0], &blocks[1], login.Login(blocks[1]), c, *c, struct{ x any }{blocks}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
		logger.Info("x", "v", v)
		_ = json.NewEncoder(&out).Encode(v)
	}
	if s := out.String(); strings.Contains(s, secret) || strings.Contains(s, fmt.Sprintf("%x", secret)) || !strings.Contains(s, "[redacted]") {
		t.Errorf("a secret shows: %s", s)
	}
}
