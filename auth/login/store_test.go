package login

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// TestStoreLoginUnchanged shows that a login that is stored already leaves the file alone, which may be
// read-only. Another login replaces the file.
func TestStoreLoginUnchanged(t *testing.T) {
	dir := t.TempDir()
	c := New(Options{Environment: Environment{Getenv: func(name string) string { return map[string]string{"DOCKER_CONFIG": dir}[name] }, GOOS: "linux"}})
	store := func(password string) os.FileInfo {
		t.Helper()
		if _, err := c.Store(t.Context(), ociaddr.Repository{Registry: "registry.example"}, "user", NewSecret(password)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := store("one")
	if !os.SameFile(first, store("one")) {
		t.Error("an unchanged login replaced the file")
	}
	if os.SameFile(first, store("two")) {
		t.Error("a changed login did not replace the file")
	}
	// Another entry for the same registry would be found first.
	const twice = `{"auths": {"registry.example": {"auth": "dXNlcjp0d28="}, "https://registry.example/v2/": {"auth": "b2xkOm9sZA=="}}}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(twice), 0o600); err != nil {
		t.Fatal(err)
	}
	second, _ := os.Stat(filepath.Join(dir, "config.json"))
	if os.SameFile(second, store("two")) {
		t.Error("a second entry stays")
	}
}
