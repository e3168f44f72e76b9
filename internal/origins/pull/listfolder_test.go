package pull

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// TestListFolderIsBounded shows that, however many providers clients request, the size of the lists on disk is
// limited. No cooldown becomes shorter because of the limit.
func TestListFolderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var log bytes.Buffer
		s := &source{versions: []string{"1.0.0"}}
		o := Options{Scope: Scope{Cooldown: time.Hour}, Directory: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}
		p := puller(t, s, o)
		p.folder.max = 2 << 10
		ask := func(p *Puller, a provider.Address) int {
			t.Helper()
			offers, _, err := of(p, a).Offers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return len(offers)
		}
		if n := ask(p, widget); n != 1 {
			t.Fatalf("%d versions", n)
		}
		for i := range 100 {
			ask(p, provider.MustParseAddress(fmt.Sprintf("registry.acme.example/acme/p%d", i)))
		}
		if size := sizeOf(t, dir); size > 2<<10 || size < 1<<10 {
			t.Errorf("%d bytes are on disk", size)
		}
		if !strings.Contains(log.String(), "cannot be kept on disk") {
			t.Errorf("the log says\n%s", log.String())
		}
		// If there was no room to save a list, a cooldown begins for its versions. The saved lists are unchanged.
		if n := ask(p, provider.MustParseAddress("registry.acme.example/acme/late")); n != 0 {
			t.Errorf("%d versions are offered without a cooldown", n)
		}
		if n := ask(p, widget); n != 1 {
			t.Errorf("%d versions of a provider whose list is saved", n)
		}
		again := puller(t, s, o)
		if got := again.folder.bytes; got != sizeOf(t, dir) {
			t.Errorf("another process counts %d bytes", got)
		}
		var next, empty listFolder
		if next.count(dir, 2<<10); !next.isFull() {
			t.Error("the next process takes a provider whose list did not fit for a new provider")
		}
		if empty.count(t.TempDir(), maxListFolder); empty.isFull() {
			t.Error("an empty folder is full")
		}
		if err := empty.replace(filepath.Join(dir, "large"), maxListFile+1); err == nil || empty.isFull() {
			t.Errorf("a list that is too large: %v, full: %t", err, empty.isFull())
		}
	})
}

func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// TestReleasesAreBounded shows that the number of releases in memory is limited, and that the most recently used
// releases stay.
func TestReleasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		for i := range maxReleases + 100 {
			s.versions = append(s.versions, fmt.Sprintf("1.%d.0", i))
		}
		p := puller(t, s, Options{})
		store := of(p, widget)
		for _, v := range s.versions {
			found, err := store.Complete(t.Context(), provider.MustParseVersion(v), nil)
			if err != nil || len(found.Packages) != 1 {
				t.Fatal(found, err)
			}
		}
		synctest.Wait()
		counted := int64(0)
		good := p.releases.Good()
		for _, a := range good {
			counted += 512 + int64(len(a.Value.subject.String())) + a.Value.memory()
		}
		if n, bytes := p.releases.Size(); n > maxReleases || n < maxReleases/2 || len(good) != n || bytes != counted || bytes > maxReleaseBytes {
			t.Errorf("%d versions (%d good) with %d bytes, counted as %d", n, len(good), counted, bytes)
		}
		last := providerVersion{widget, provider.MustParseVersion(s.versions[len(s.versions)-1])}
		if r := p.current(last); r == nil {
			t.Error("the last release was evicted")
		}
	})
}
