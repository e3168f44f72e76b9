package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestDemo shows that the demo runs in a project that contains only the null provider for this platform, with OpenTofu
// and without a client, and that -keep leaves its gateway running until a signal. tools.TestDemoBuilds shows that
// "make demo" builds the provider.
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

	// Stat the files, so that go test runs this test again when the demo has changed.
	for _, name := range []string{"main.go", "clients.go"} {
		_, err = os.Stat(filepath.Join(root, "internal", "test", "demo", name))
		clients.Must(t, err)
	}
	program := filepath.Join(project, "demo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./internal/test/demo")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	demo := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "PATH="+t.TempDir()) // without clients
		return cmd
	}
	out, err := demo().CombinedOutput()
	for _, want := range []string{"tofu installs it by oci_mirror", "Apply complete!", "It was at https://localhost:", "All of it worked"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %q\n%s", err, want, out)
		}
	}

	clients.Must(t, os.Remove(tofu))
	kept := demo("-keep")
	stdout, err := kept.StdoutPipe()
	clients.Must(t, err)
	clients.Must(t, kept.Start())
	defer kept.Process.Kill()
	var text strings.Builder
	r := bufio.NewReader(io.TeeReader(stdout, &text))
	line := ""
	for !strings.Contains(line, "curl --cacert ") {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatalf("%v\n%s", err, &text)
		}
	}
	words := strings.Fields(line) // curl --cacert FILE URL
	list, err := tlsca.Get(t.Context(), words[2], words[3])
	if err != nil || !strings.Contains(string(list), "3.2.4") || !strings.Contains(string(list), "4.0.0") {
		t.Errorf("%s: %v, %s", words[3], err, list)
	}
	clients.Must(t, kept.Process.Signal(syscall.SIGTERM))
	io.Copy(io.Discard, r)
	if err := kept.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &text)
	}
	for _, want := range []string{"Neither tofu nor terraform is on PATH", "with the hash that was announced", "Acme's registry is switched off", "All of it worked"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("want %q\n%s", want, &text)
		}
	}
}
