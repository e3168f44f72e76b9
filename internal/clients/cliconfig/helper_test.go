package cliconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestPluginFolders(t *testing.T) {
	tests := []struct {
		name string
		env  Environment
		vars map[string]string
		want []string
	}{
		{"Linux", Environment{GOOS: "linux", GOARCH: "amd64", Home: "/home/u"}, nil,
			[]string{"/home/u/.terraform.d/plugins", "/home/u/.terraform.d/plugins/linux_amd64"}},
		{"Linux with XDG", Environment{GOOS: "linux", GOARCH: "arm64", Home: "/home/u"}, map[string]string{"XDG_DATA_HOME": "/data/", "XDG_CONFIG_HOME": "/config"},
			[]string{"/home/u/.terraform.d/plugins", "/home/u/.terraform.d/plugins/linux_arm64", "/data/opentofu/plugins", "/data/opentofu/plugins/linux_arm64"}},
		{"macOS", Environment{GOOS: "darwin", GOARCH: "arm64", Home: "/Users/u"}, nil,
			[]string{"/Users/u/.terraform.d/plugins", "/Users/u/.terraform.d/plugins/darwin_arm64"}},
		{"Windows", Environment{GOOS: "windows", GOARCH: "amd64", Home: `C:\Users\u`}, map[string]string{"XDG_DATA_HOME": `D:\data`},
			[]string{`C:\Users\u\AppData\Roaming\terraform.d\plugins`, `C:\Users\u\AppData\Roaming\terraform.d\plugins\windows_amd64`}},
		{"Windows with APPDATA", Environment{GOOS: "windows", GOARCH: "amd64", Home: `C:\Users\u`}, map[string]string{"APPDATA": `D:\app`},
			[]string{`D:\app\terraform.d\plugins`, `D:\app\terraform.d\plugins\windows_amd64`}},
		{"no home", Environment{GOOS: "linux", GOARCH: "amd64"}, nil, nil},
		{"this machine", Environment{GOOS: "linux", Home: "/h"}, nil, []string{"/h/.terraform.d/plugins", "/h/.terraform.d/plugins/linux_" + runtime.GOARCH}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.env.Getenv = func(name string) string { return tt.vars[name] }
			if got := tt.env.pluginFolders(); !slices.Equal(got, tt.want) {
				t.Errorf("folders = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFindHelper(t *testing.T) {
	const (
		home    = "/home/u/.terraform.d/plugins/"
		machine = "/home/u/.terraform.d/plugins/linux_amd64/"
		xdg     = "/data/opentofu/plugins/"
	)
	tests := []struct {
		name  string
		files []string
		want  string
	}{
		{"without a version", []string{home + "terraform-credentials-vault"}, home + "terraform-credentials-vault"},
		{"with a version", []string{home + "terraform-credentials-vault_v1.2.3"}, home + "terraform-credentials-vault_v1.2.3"},
		{"with a protocol", []string{home + "terraform-credentials-vault_v1.2.3_x4"}, home + "terraform-credentials-vault_v1.2.3_x4"},
		{"by the machine's name", []string{machine + "terraform-credentials-vault"}, machine + "terraform-credentials-vault"},
		{"XDG", []string{xdg + "terraform-credentials-vault"}, xdg + "terraform-credentials-vault"},
		{"the newest", []string{home + "terraform-credentials-vault", home + "terraform-credentials-vault_v1.9.0", home + "terraform-credentials-vault_v1.10.0", xdg + "terraform-credentials-vault_v1.2.0"},
			home + "terraform-credentials-vault_v1.10.0"},
		{"the newest, elsewhere", []string{home + "terraform-credentials-vault_v1.0.0", xdg + "terraform-credentials-vault_v1.0.1"}, xdg + "terraform-credentials-vault_v1.0.1"},
		{"of equals the first", []string{machine + "terraform-credentials-vault_v1.0.0", xdg + "terraform-credentials-vault_v1.0.0"}, machine + "terraform-credentials-vault_v1.0.0"},
		{"Windows' suffix and capitals", []string{home + "Terraform-Credentials-Vault_V1.0.0.EXE"}, home + "Terraform-Credentials-Vault_V1.0.0.EXE"},
		{"another helper", []string{home + "terraform-credentials-vault2", home + "terraform-provider-vault", home + "vault"}, ""},
		{"no version", []string{home + "terraform-credentials-vault_vnext"}, ""},
		{"a folder", []string{home + "terraform-credentials-vault/x"}, ""},
		{"nothing", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for _, f := range tt.files {
				files[f] = ""
			}
			env := machineWith(files)
			env.GOARCH = "amd64"
			if got := env.findPlugin("vault"); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func machineWith(files map[string]string) Environment {
	return machine{goos: "linux", vars: map[string]string{"XDG_DATA_HOME": "/data"}, files: files}.environment()
}

func TestHelperBlocks(t *testing.T) {
	load := func(src string) (*Config, error) {
		return Load(machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": src}}.environment())
	}
	c, err := load(`credentials_helper "vault" { args = ["-x"] }`)
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "the credentials helper vault is not used: there is no terraform-credentials-vault in the plugin folders: /home/u/.terraform.d/plugins") {
		t.Errorf("a missing helper: %v, %+v", err, c)
	}
	if got := authorization(t, c, "example.com"); got != "" {
		t.Errorf("without a helper, the token is %q", got)
	}
	if _, err := load("credentials_helper \"a\" {}\ncredentials_helper \"b\" {}"); err == nil || !strings.Contains(err.Error(), "more than one credentials_helper block: a, b") || hint.Of(err) == "" {
		t.Errorf("two helpers: %v", err)
	}
	if c, err := load(`{"credentials_helper": {"vault": {}}}`); err != nil || len(c.Warnings) != 1 {
		t.Errorf("an empty block: %v", err)
	}
}

// installHelper installs the credentials helper terraform-credentials-fake in a new home folder, and writes the given
// configuration there. The helper is a shell script that writes its arguments to a file and then runs script.
// installHelper returns the loaded configuration, and a function that returns the arguments of all calls so far.
func installHelper(t *testing.T, config, script string) (*Config, func() []string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the helper is a shell script")
	}
	home := t.TempDir()
	dir := filepath.Join(home, ".terraform.d", "plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(home, "asked")
	src := "#!/bin/sh\necho \"$*\" >> '" + asked + "'\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, helperPrefix+"fake_v1.0.0"), []byte(src), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Environment{
		GOOS: runtime.GOOS, Home: home, Getenv: func(string) string { return "" }, ReadFile: os.ReadFile, ReadDir: os.ReadDir,
		Environ: func() []string { return []string{"TF_TOKEN_env_example=from-env"} },
	})
	if err != nil || len(c.Warnings) > 0 || c.helper == nil {
		t.Fatalf("%v, %v", err, c.Warnings)
	}
	return c, func() []string {
		b, _ := os.ReadFile(asked)
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
}

func TestHelper(t *testing.T) {
	const config = `
credentials_helper "fake" { args = ["--realm", "a b"] }
credentials "file.example" { token = "from-file" }
credentials "none.example" { other = 1 }`
	tests := []struct {
		name, script, host, want string
		asked                    string
	}{
		{"token", `echo '{"token": "t", "more": {"x": 1}}'`, "example.com", "Bearer t", "--realm a b get example.com"},
		{"port", `echo '{"token": "t"}'`, "example.com:8443", "Bearer t", "--realm a b get example.com:8443"},
		{"Punycode", `echo '{"token": "t"}'`, "café.fr", "Bearer t", "--realm a b get xn--caf-dma.fr"},
		{"nothing", `echo '{}'`, "example.com", "", "--realm a b get example.com"},
		{"null", `echo null`, "example.com", "", "--realm a b get example.com"},
		{"another kind of credential", `echo '{"username": "u"}'`, "example.com", "", "--realm a b get example.com"},
		{"empty token", `echo '{"token": ""}'`, "example.com", "", "--realm a b get example.com"},
		{"child left behind", `echo '{"token": "t"}'; sleep 5 &`, "example.com", "Bearer t", "--realm a b get example.com"},
		{"variable before it", `echo '{"token": "t"}'`, "env.example", "Bearer from-env", ""},
		{"block before it", `echo '{"token": "t"}'`, "file.example", "Bearer from-file", ""},
		{"block without a token before it", `echo '{"token": "t"}'`, "none.example", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, asked := installHelper(t, config, tt.script)
			for range 2 {
				if got := authorization(t, c, tt.host); got != tt.want {
					t.Errorf("Authorization = %q, want %q", got, tt.want)
				}
			}
			if got := asked(); !slices.Equal(got, []string{tt.asked}) {
				t.Errorf("calls %q, want %q once", got, tt.asked)
			}
		})
	}
}

func TestHelperFailures(t *testing.T) {
	const config = `credentials_helper "fake" { args = ["--password=s3cr3t"] }`
	tests := []struct {
		name, script, want string
	}{
		{"complaint", `echo s3cr3t; printf 'vault is\n\033[31msealed\n' >&2; exit 3`, "exit status 3: vault is [31msealed"},
		{"nothing to say", `echo s3cr3t; exit 1`, "exit status 1"},
		{"no JSON", `echo s3cr3t`, "not the JSON object"},
		{"no object", `echo '["s3cr3t"]'`, "not the JSON object"},
		{"no answer", `exit 0`, "not the JSON object"},
		{"endless answer", `yes s3cr3t | head -c 100000`, "longer than 65536 bytes"},
		{"endless complaint", `yes complaint | head -c 100000 >&2; exit 1`, "exit status 1: complaint complaint"},
		{"that hangs", `exec sleep 5`, "no answer within"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, asked := installHelper(t, config, tt.script)
			if tt.name == "that hangs" {
				c.helper.limit = 20 * time.Millisecond
			}
			for range 2 {
				creds, err := c.CredentialsSource().ForHost(t.Context(), "example.com")
				if err == nil || creds != nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "terraform-credentials-fake_v1.0.0") || hint.Of(err) == "" {
					t.Fatalf("%v, %v (hint %q), want %q", creds, err, hint.Of(err), tt.want)
				}
				if s := err.Error() + hint.Of(err); strings.Contains(s, "s3cr3t") || strings.ContainsAny(s, "\n\x1b") || len(s) > 2000 {
					t.Errorf("the error shows too much: %.300q", s)
				}
			}
			if tt.name != "that hangs" && len(asked()) != 2 {
				t.Errorf("a failure was cached: %q", asked())
			}
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		c, _ := installHelper(t, config, "exec sleep 5")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.CredentialsSource().ForHost(ctx, "example.com"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a program that cannot be run", func(t *testing.T) {
		c, _ := installHelper(t, config, "")
		if err := os.Chmod(c.helper.path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CredentialsSource().ForHost(t.Context(), "example.com"); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%v", err)
		}
	})
}

func TestHelperAnswersAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, helperAnswersAreKeptForAWhile)
}

func helperAnswersAreKeptForAWhile(t *testing.T) {
	c, asked := installHelper(t, `credentials_helper "fake" {}`, `echo '{"token": "t"}'`)
	get := func(host svchost.Hostname) {
		if creds, err := c.CredentialsSource().ForHost(t.Context(), host); err != nil || creds == nil {
			t.Errorf("%s: %v, %v", host, creds, err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { get("a.example") })
	}
	wg.Wait()
	get("b.example")
	time.Sleep(helperKeep)
	get("a.example")
	if got, want := asked(), []string{"get a.example", "get b.example", "get a.example"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	if s := fmt.Sprintf("%v %+v %#v", c, c, *c); strings.Contains(s, "\"t\"") {
		t.Errorf("a token shows: %s", s)
	}
}
