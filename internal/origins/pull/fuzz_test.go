package pull

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// FuzzListFile shows that a saved list is read back unchanged, and that files with any other content are rejected.
// If a list cannot be read, a new cooldown begins.
func FuzzListFile(f *testing.F) {
	for _, seed := range []string{
		`{"provider":"registry.acme.example/acme/widget","confirmed":"2026-01-02T03:04:05Z","versions":[{"version":"1.0.0","protocols":["5.0"],"platforms":["linux_amd64"]}]}`,
		`{"provider":"registry.acme.example/acme/widget","confirmed":"2026-01-02T03:04:05Z","versions":[],"seen":{"1.0.0":"2026-01-02T03:04:05Z","2.0.0-rc.1":"0001-01-01T00:00:00Z"}}`,
		`{"provider":"registry.acme.example/acme/other","versions":[{"version":"1.0.0"}]}`,
		`{"provider":"registry.acme.example/acme/widget","versions":[{"version":"01.0"},{"version":"1.0.0","platforms":["linux"]}]}`,
		`{"provider":"registry.acme.example/acme/widget","versions":[{"version":null}]}`,
		`{"provider":"registry.acme.example/acme/widget","versions":[{"version":"1.0.0","platforms":[null]}]}`,
		`{`, ``,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, whole bool) {
		dir := t.TempDir()
		p, err := New(Options{Directory: dir, Spool: t.TempDir(), Log: slog.New(slog.DiscardHandler), Policy: func(provider.Address) trust.Policy { return trust.Policy{} }})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		path := p.listPath(widget)
		write := func(data []byte) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !whole {
			write(body) // without its checksum
			if l, err := p.readList(widget); err == nil {
				t.Fatalf("a file without a checksum is accepted: %+v", l)
			}
			if a, ok := p.loadList(widget); !ok || a.Value.seen == nil || len(a.Value.offers) > 0 || a.Err == nil {
				t.Errorf("a damaged file leaves %+v", a)
			}
			return
		}
		write(append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...))
		l, err := p.readList(widget)
		if err != nil {
			return
		}
		if err := p.writeList(widget, l); err != nil {
			return // JSON cannot encode all values of time.Time
		}
		again, err := p.readList(widget)
		if len(l.offers) == 0 && l.seen == nil {
			if err == nil {
				t.Error("an empty list is kept on disk")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		same := slices.EqualFunc(l.offers, again.offers, func(a, b catalog.Offer) bool {
			return a.Version == b.Version && slices.Equal(a.Protocols, b.Protocols) && slices.Equal(a.Platforms, b.Platforms)
		})
		if !same || !slices.Equal(l.warnings, again.warnings) || !l.at.Equal(again.at) || !maps.EqualFunc(l.seen, again.seen, time.Time.Equal) {
			t.Errorf("%+v became %+v", l, again)
		}
	})
}
