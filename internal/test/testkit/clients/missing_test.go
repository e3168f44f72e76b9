package clients_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// ended is a TB that keeps how its test ended.
type ended struct {
	testkit.TB
	how string
}

func (e *ended) Helper() {}

func (e *ended) Fatalf(format string, args ...any) { e.end("failed: " + fmt.Sprintf(format, args...)) }

func (e *ended) Skipf(format string, args ...any) { e.end("skipped: " + fmt.Sprintf(format, args...)) }

// end ends the test as [testing.T] does: the code after it does not run.
func (e *ended) end(how string) {
	e.how = how
	panic(e)
}

// end returns how a test ends that runs f, or "passed".
func end(f func(testkit.TB)) (how string) {
	e := &ended{how: "passed"}
	defer func() {
		if r := recover(); r != nil && r != any(e) {
			panic(r)
		}
		how = e.how
	}()
	f(e)
	return
}

// project changes to a new project whose .tools has one program, tofu, while its PATH also has terraform.
func project(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"go.mod", ".tools/bin/tofu", "path/terraform"} {
		clients.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		clients.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	t.Setenv("PATH", filepath.Join(dir, "path"))
	t.Chdir(dir)
}

// TestMissingTools shows how a test ends that needs a tool, for each value of the variable and for a tool that is there and
// one that is missing. A program on PATH does not count.
func TestMissingTools(t *testing.T) {
	project(t)
	none := func(path string) string { return "stat " + path + ": no such file or directory: run make tools" }
	root, err := clients.Root()
	clients.Must(t, err)
	terraform := none(filepath.Join(root, ".tools", "bin", "terraform"))
	for _, tc := range []struct{ variable, tofu, terraform string }{
		{"", "passed", "skipped: not run without terraform: " + terraform},
		{"required", "passed", "failed: " + terraform},
		{"terraform", "skipped: not run without tofu: OCIBRIDGE_TOOLS=terraform does not list tofu", "failed: " + terraform},
		{"tofu,registry", "passed", "skipped: not run without terraform: " + terraform},
	} {
		t.Setenv(clients.ToolsVariable, tc.variable)
		if got := end(func(tb testkit.TB) { clients.Tofu(tb) }); got != tc.tofu {
			t.Errorf("%q: a test that needs tofu %s, want %s", tc.variable, got, tc.tofu)
		}
		if got := end(func(tb testkit.TB) { clients.Terraform(tb) }); got != tc.terraform {
			t.Errorf("%q: a test that needs terraform %s, want %s", tc.variable, got, tc.terraform)
		}
	}
}

// TestNamespaces shows that a process that is not allowed is a missing tool, and that a test that fails in such a process fails.
func TestNamespaces(t *testing.T) {
	t.Setenv(clients.ToolsVariable, "")
	for name, want := range map[string]string{"exit 77": "skipped: not run without namespaces: ", "exit 1": "failed: exit status 1", "exit 0": "passed", "": "skipped: not run without namespaces: "} {
		cmd := exec.Command("sh", "-c", name)
		if name == "" { // it does not start
			cmd.Dir = filepath.Join(t.TempDir(), "missing")
		}
		_, err := clients.RunInNamespaces(cmd)
		if got := end(func(tb testkit.TB) { clients.Must(tb, err) }); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// TestMissingBridge shows that a test of the program is skipped if nobody has built the program, and that any other error
// fails a test.
func TestMissingBridge(t *testing.T) {
	project(t)
	t.Setenv(clients.ToolsVariable, "")
	var missing *clients.Missing
	if _, err := clients.Bridge(); !errors.As(err, &missing) || missing.Tool != "ocibridge" {
		t.Errorf("error %v", err)
	}
	if got := end(func(tb testkit.TB) { clients.Must(tb, fmt.Errorf("start: %w", missing)) }); got[:7] != "skipped" {
		t.Errorf("the test %s", got)
	}
	if got := end(func(tb testkit.TB) { clients.Must(tb, os.ErrNotExist) }); got != "failed: file does not exist" {
		t.Errorf("the test %s", got)
	}
	if got := end(func(tb testkit.TB) { clients.Must(tb, nil) }); got != "passed" {
		t.Errorf("the test %s", got)
	}
}
