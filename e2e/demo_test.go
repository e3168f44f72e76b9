package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
)

// TestDemo shows that the demo runs in a project that contains only OpenTofu and the null
// provider for this platform. tools.TestDemoObtainsWhatItRuns shows that "make demo"
// obtains both.
func TestDemo(t *testing.T) {
	t.Parallel()
	root, err := clients.Root()
	clients.Must(t, err)
	bridge, err := clients.Bridge()
	clients.Must(t, err)
	project := t.TempDir()
	link := func(path string, elem ...string) string {
		t.Helper()
		to := filepath.Join(append([]string{project}, elem...)...)
		clients.Must(t, os.MkdirAll(filepath.Dir(to), 0o755))
		clients.Must(t, os.Symlink(path, to))
		return to
	}
	link(filepath.Join(root, "go.mod"), "go.mod")
	link(bridge.Path, "bin", "ocibridge")
	tofu := link(clients.Tofu(t).Path, ".tools", "bin", "tofu")
	null := "terraform-provider-null_" + runtime.GOOS + "_" + runtime.GOARCH
	link(filepath.Join(root, ".tools", "providers", null), ".tools", "providers", null)

	// Stat the file, so that go test runs this test again when the demo has changed.
	_, err = os.Stat(filepath.Join(root, "internal", "demo", "main.go"))
	clients.Must(t, err)
	program := filepath.Join(project, "demo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./internal/demo")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	demo := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Dir = project
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := demo()
	if err != nil || !strings.Contains(out, "The demo goes on with OpenTofu alone.") || !strings.Contains(out, "All of it worked") {
		t.Errorf("%v\n%s", err, out)
	}

	clients.Must(t, os.Remove(tofu))
	out, err = demo()
	if err == nil || !strings.Contains(out, "tofu: no such file") || !strings.Contains(out, "run make tools") || strings.Contains(out, "1. ") {
		t.Errorf("without OpenTofu: %v\n%s", err, out)
	}
}
