package files

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestAbove shows that the search for a file in the folders above ends at the root of a repository.
func TestAbove(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	all := Above(".")
	if len(all) < 3 || !slices.Equal(all[:3], []string{"..", filepath.Join("..", ".."), filepath.Join("..", "..", "..")}) || len(all) > 50 {
		t.Errorf("without a repository: %q", all)
	}
	// A file is the form of .git in submodules and work trees.
	if err := os.WriteFile(filepath.Join(root, "a", ".git"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Above("."); !slices.Equal(got, all[:2]) {
		t.Errorf("in a repository: %q", got)
	}
	if got := Above(filepath.Join("..", "..")); got != nil {
		t.Errorf("at the root of a repository: %q", got)
	}
	if got := Above("missing"); got != nil {
		t.Errorf("of a missing folder: %q", got)
	}
}

// TestIsOwn shows that files of this user and of the administrator are own, and links to them.
func TestIsOwn(t *testing.T) {
	own := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(own), "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	system := map[string]string{"windows": `C:\Windows\System32\drivers\etc\hosts`}[runtime.GOOS]
	if system == "" {
		system = "/etc/passwd"
	}
	for _, name := range []string{own, link, system} {
		if got, err := IsOwn(name); !got && runtime.GOOS != "windows" || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := IsOwn(own + "s"); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}
