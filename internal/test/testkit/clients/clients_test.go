package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

func TestVersions(t *testing.T) {
	w := clients.For(t)
	for _, tt := range []struct {
		client clients.Client
		args   []string
		want   string
	}{
		{clients.Tofu(t), []string{"version"}, "OpenTofu v1."},
		{clients.Terraform(t), []string{"version"}, "Terraform v1."},
		{clients.ORAS(t), []string{"version"}, "1."},
		{clients.Registry(t), []string{"--version"}, "registry"},
	} {
		t.Run(tt.client.Name, func(t *testing.T) {
			output := w.MustRun(t, tt.client, tt.args...)
			if !strings.Contains(output, tt.want) {
				t.Errorf("output lacks %q:\n%s", tt.want, output)
			}
			if strings.Contains(output, "Warning") {
				t.Errorf("the configuration is not clean:\n%s", output)
			}
		})
	}
}

func TestStdoutIsAlone(t *testing.T) {
	stdout, err := clients.For(t).Stdout(clients.Tofu(t), "version", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var version map[string]any
	if err := json.Unmarshal(stdout, &version); err != nil {
		t.Errorf("%v in %s", err, stdout)
	}
}

func TestFailure(t *testing.T) {
	w := clients.For(t)
	clients.Must(t, w.WriteConfig("resource {"))
	output := w.MustFail(t, clients.Tofu(t), "validate", "-no-color")
	if !strings.Contains(output, "main.tf") {
		t.Errorf("output does not name the file:\n%s", output)
	}
}

func TestTimeout(t *testing.T) {
	w := clients.For(t)
	w.Timeout = time.Nanosecond
	_, err := w.Run(clients.Tofu(t), "version")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline's error", err)
	}
}

// TestEnvironment shows that a client inherits only PATH from the environment of the test.
func TestEnvironment(t *testing.T) {
	t.Setenv("TF_CLI_ARGS_version", "-nonsense")
	t.Setenv("TF_CLI_CONFIG_FILE", filepath.Join(t.TempDir(), "absent"))
	w := clients.For(t)
	w.MustRun(t, clients.Tofu(t), "version")

	w.Env["TF_CLI_ARGS_version"] = "-nonsense"
	w.MustFail(t, clients.Tofu(t), "version")
}

func TestNullProvider(t *testing.T) {
	binaries, err := clients.NullProvider()
	clients.Must(t, err)
	host := false
	for _, b := range binaries {
		host = host || b.OS == runtime.GOOS && b.Arch == runtime.GOARCH
	}
	if !host || len(binaries) < 3 {
		t.Errorf("got %v, want the host's platform and two others", binaries)
	}
}

func TestParseLock(t *testing.T) {
	const text = `
# This file is maintained automatically by "tofu init".
provider "registry.example.com/acme/widget" {
  version     = "1.2.3"
  constraints = "~> 1.2"
  hashes = [
    "h1:abc=",
    "zh:0123",
  ]
}

provider "registry.example.com/acme/gadget" {
  version = "2.0.0+b1"
}
`
	got, err := clients.ParseLock("lock", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]clients.Locked{
		"registry.example.com/acme/widget": {Version: "1.2.3", Constraints: "~> 1.2", Hashes: []string{"h1:abc=", "zh:0123"}},
		"registry.example.com/acme/gadget": {Version: "2.0.0+b1"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, text := range map[string]string{
		"syntax":     `provider "a" {`,
		"no version": `provider "a" {}`,
		"twice":      "provider \"a\" {\n version = \"1\"\n}\nprovider \"a\" {\n version = \"1\"\n}",
	} {
		if _, err := clients.ParseLock("lock", []byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCleanAndLock(t *testing.T) {
	w := clients.For(t)
	path := filepath.Join(w.Dir, clients.LockFileName)
	clients.Must(t, os.WriteFile(path, []byte("provider \"a/b/c\" {\n version = \"1.0.0\"\n}\n"), 0o644))
	if got := w.MustLock(t)["a/b/c"].Version; got != "1.0.0" {
		t.Errorf("locked version %q", got)
	}
	clients.Must(t, w.Clean())
	if _, err := w.Lock(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Clean: %v", err)
	}
}
