package testkit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// TestMemoryDir shows that TMPDIR decides where the folder is, and that nothing of the folder stays after the test.
func TestMemoryDir(t *testing.T) {
	var dir string
	folder := func(name, want string) {
		t.Run(name, func(t *testing.T) {
			if dir = testkit.MemoryDir(t); !strings.HasPrefix(dir, want) {
				t.Errorf("the folder is %s, want one in %s", dir, want)
			}
			if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	folder("TMPDIR", temp)
	t.Setenv("TMPDIR", "")
	want := os.TempDir()
	if free, err := files.Free("/dev/shm"); err == nil && free >= 2<<30 {
		want = "/dev/shm/"
	}
	folder("memory", want)
}
