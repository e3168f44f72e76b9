//go:build unix

package tools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// TestDemoBuilds shows that tools/demo.sh builds ocibridge, the demo, and the null provider for this platform, and no
// client. It uses the terraform on PATH. While a build runs, the script prints lines of progress. A build that fails ends it.
func TestDemoBuilds(t *testing.T) {
	testkit.LeaveToAll(t)
	for _, onPath := range []bool{false, true} {
		m := newMachine(t, 0)
		m.fakeApt()
		m.copy("demo.sh", 0o755)
		for _, name := range []string{"go.mod", "go.sum"} {
			m.copy("provider-null/"+name, 0o644)
		}
		for _, name := range []string{"sleep", "grep", "true"} {
			path, err := exec.LookPath(name)
			clients.Must(t, err)
			clients.Must(t, os.Symlink(path, filepath.Join(m.bin, name)))
		}
		if onPath {
			m.fake("terraform", "echo Terraform v1.5.7")
		}
		log := filepath.Join(m.root, "log")
		m.fake("make", `[ "$*" = "--no-print-directory build" ] || exit 1
until grep -q "still building ocibridge" `+log+`; do sleep 0.02; done`)
		// The fake Go leaves a file that exists as it is.
		clients.Must(t, os.MkdirAll(filepath.Join(m.root, "bin"), 0o755))
		clients.Must(t, os.WriteFile(filepath.Join(m.root, "bin", "demo"), []byte("#!"+filepath.Join(m.bin, "bash")+"\necho the demo has $*\n"), 0o755))
		run := func(tick string) (string, error) {
			t.Helper()
			out, err := os.Create(log)
			clients.Must(t, err)
			cmd := exec.CommandContext(t.Context(), filepath.Join(m.root, "tools", "demo.sh"), "-keep")
			cmd.Env = []string{"PATH=" + m.bin, "HOME=" + m.root, "OCIBRIDGE_DEMO_TICK=" + tick}
			cmd.Stdout, cmd.Stderr = out, out
			err = cmd.Run()
			clients.Must(t, out.Close())
			text, readErr := os.ReadFile(log)
			clients.Must(t, readErr)
			return string(text), err
		}
		out, err := run("0.05")
		for _, want := range []string{"demo: building ocibridge (about ", "demo: building the null provider (about ", "the demo has -keep\n"} {
			if err != nil || !strings.Contains(out, want) {
				t.Fatalf("%v, want %q\n%s", err, want, out)
			}
		}
		var built []string
		for _, name := range lines(t, m.made) {
			built = append(built, strings.TrimPrefix(filepath.Base(name), ".new."))
		}
		if want := []string{"demo", "terraform-provider-null_" + runtime.GOOS + "_" + runtime.GOARCH}; !slices.Equal(built, want) {
			t.Errorf("terraform on PATH %t: built %q, want %q", onPath, built, want)
		}
		if calls := lines(t, m.apt); calls != nil {
			t.Errorf("apt-get was asked for %q", calls)
		}
		link, err := os.Readlink(filepath.Join(m.root, ".tools", "bin", "terraform"))
		if onPath && link != filepath.Join(m.bin, "terraform") || !onPath && !os.IsNotExist(err) {
			t.Errorf("terraform on PATH %t: it is linked to %q, %v", onPath, link, err)
		}

		m.fake("make", "exit 3")
		if out, err := run("15"); err == nil || strings.Contains(out, "building the demo") {
			t.Errorf("after a build that failed: %v\n%s", err, out)
		}
	}
}

// TestMakeDemo shows that "make demo" is the script, and that KEEP leaves the gateway running.
func TestMakeDemo(t *testing.T) {
	testkit.LeaveToAll(t)
	clients.OnPath(t, "make")
	if _, err := os.Stat("../Makefile"); err != nil { // so that go test runs the test again when the Makefile has changed
		t.Fatal(err)
	}
	for keep, want := range map[string]string{"": "tools/demo.sh", "0": "tools/demo.sh", "1": "tools/demo.sh -keep"} {
		cmd := exec.CommandContext(t.Context(), "make", "-C", "..", "--no-print-directory", "-n", "demo", "KEEP="+keep)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("KEEP=%s: %v, %s", keep, err, out)
		}
	}
}
