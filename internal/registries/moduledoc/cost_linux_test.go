package moduledoc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

// TestCost shows that modules of other parties cost at most 64 MiB of resident memory and 1 s of CPU time.
func TestCost(t *testing.T) {
	testkit.LeaveToAll(t)
	read := func(content map[string]string) cost.Child {
		file := filepath.Join(t.TempDir(), "module.zip")
		if err := os.WriteFile(file, pack(t, content), 0o600); err != nil {
			t.Fatal(err)
		}
		return cost.OfChild(t, file)
	}
	small := read(map[string]string{"main.tf": "variable \"a\" {\n}\n", "README.md": "# A\n"})
	if small.Said != "" {
		t.Fatal(small.Said)
	}
	for about, content := range costly() {
		read(content).CheckDocument(t, about, small)
	}
}
