//go:build unix

package tools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// TestVersion runs tools/version.sh in a repository before and after its first tag.
func TestVersion(t *testing.T) {
	m := newMachine(t, 0)
	m.copy("version.sh", 0o755)
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = m.root
		cmd.Env = append(testkit.GitEnv(os.Environ()), "GIT_CEILING_DIRECTORIES="+filepath.Dir(m.root))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func() {
		t.Helper()
		run("git", "add", ".")
		run("git", "-c", "user.name=a", "-c", "user.email=a@acme.example", "commit", "-q", "--allow-empty", "-m", "a")
	}
	want := func(pattern string) {
		t.Helper()
		if got := run(filepath.Join(m.root, "tools", "version.sh")); !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
			t.Errorf("%s, want %s", got, pattern)
		}
	}
	run("git", "init", "-q")
	changelog := filepath.Join(m.root, "CHANGELOG.md")
	clients.Must(t, os.WriteFile(changelog, []byte("# Changelog\n\n## 1.2.0 (2026-11-24)\n\n## 1.1.0 (2026-10-01)\n"), 0o600))
	commit()
	want(`v1\.2\.0-g[0-9a-f]{7,}`)
	shallow := filepath.Join(t.TempDir(), "shallow")
	run("git", "clone", "-q", "--depth", "1", "file://"+m.root, shallow)
	if got := run(filepath.Join(shallow, "tools", "version.sh")); !regexp.MustCompile("^[0-9a-f]{7,}$").MatchString(got) {
		t.Errorf("in a shallow clone: %s", got)
	}
	run("git", "tag", "v1.2.0")
	run("git", "tag", "another")
	want(`v1\.2\.0`)
	commit()
	want(`v1\.2\.0-1-g[0-9a-f]{7,}`)
	clients.Must(t, os.WriteFile(changelog, nil, 0o600))
	want(`v1\.2\.0-1-g[0-9a-f]{7,}-dirty`)
}
