package catalog

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// TestLaterRecordStays shows that a process does not replace the record of an answer that another
// process has had later. It replaces a record with a time in the future.
func TestLaterRecordStays(t *testing.T) {
	d, err := openDisk(t.TempDir(), 1<<20, func(subject.Address) Account { return Account{} }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := provider.MustParseAddress("registry.acme.example/acme/widget")
	now := time.Now()
	for _, tt := range []struct{ written, want time.Duration }{{-time.Hour, -time.Hour}, {-2 * time.Hour, -time.Hour}, {-time.Minute, -time.Minute}, {time.Hour, time.Hour}, {-time.Second, -time.Second}} {
		if err := d.putRecord(a, listName, record{Provider: a.Path(), Confirmed: now.Add(tt.written)}); err != nil {
			t.Fatal(err)
		}
		r, ok := d.record(filepath.Join(d.folder(a), listName))
		if !ok || !r.Confirmed.Equal(now.Add(tt.want)) {
			t.Errorf("after %s, the record is of %s, want %s", tt.written, r.Confirmed.Sub(now), tt.want)
		}
	}
}

// TestRecordInAnotherOrder reads a record of a release that ordered prereleases in another way. Versions are looked up by
// a binary search.
func TestRecordInAnotherOrder(t *testing.T) {
	d, err := openDisk(t.TempDir(), 1<<20, func(subject.Address) Account { return Account{} }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	of := provider.MustParseAddress("registry.acme.example/acme/widget")
	var versions []provider.Version
	for _, v := range []string{"1.0.0-beta", "1.0.0-rc1", "1.0.0-alpha.1"} {
		versions = append(versions, provider.MustParseVersion(v))
	}
	if err := d.putRecord(of, listName, record{Confirmed: time.Now(), Versions: versions, LeadingV: versions}); err != nil {
		t.Fatal(err)
	}
	r, ok := d.record(filepath.Join(d.folder(of), listName))
	if want := "[1.0.0-alpha.1 1.0.0-beta 1.0.0-rc1]"; !ok || fmt.Sprint(r.Versions) != want || fmt.Sprint(r.LeadingV) != want {
		t.Errorf("versions %v and %v, want %s", r.Versions, r.LeadingV, want)
	}
}
