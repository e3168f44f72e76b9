package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestMemoryOfUsage shows that usage needs at most 64 MiB of memory, even for a log that names more versions and more users
// than usage remembers, and has long lines.
func TestMemoryOfUsage(t *testing.T) {
	t.Parallel()
	const allowed = 64 << 20
	s := newScene(t)
	name := filepath.Join(t.TempDir(), "serve.log")
	f, err := os.Create(name)
	clients.Must(t, err)
	defer f.Close()
	w := bufio.NewWriter(f)
	for i := range 300_000 {
		fmt.Fprintf(w, "time=2026-11-01T10:00:00.000Z level=INFO msg=request method=GET path=/x.zip status=200 bytes=100 duration=1ms client=10.0.0.1:4000 agent=OpenTofu/1.10.6 request_id=A "+
			"provider=%s/acme/null%d version=1.%d.0 sent=whole subject=\"oidc github repo:acme/infrastructure-%040d\"\n", world.Host, i%500, i%12_000, i%30_000)
	}
	fmt.Fprintf(w, "time=2026-11-01T10:00:00.000Z level=ERROR msg=panic stack=%s\n", strings.Repeat("x", 100<<20))
	clients.Must(t, w.Flush())
	for _, format := range []string{"text", "json"} {
		peak, out := s.peakOf(t, "usage", "--output", format, name)
		t.Logf("%s: peak resident memory: %d MiB", format, peak>>20)
		if peak > allowed || !strings.Contains(out, "uses do not count, because the logs name more than 10000 versions") || !strings.Contains(out, "others") {
			t.Errorf("%d MiB, and the output\n%.2000s", peak>>20, out)
		}
	}
}
