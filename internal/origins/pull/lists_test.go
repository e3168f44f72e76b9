package pull

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

func TestListIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0"}}
		p := puller(t, s, Options{ListTTL: 4 * time.Minute, StaleIfError: time.Hour})
		expect := func(want string, calls int) {
			t.Helper()
			if got := offered(t, p); got != want {
				t.Errorf("offered are %q, want %q", got, want)
			}
			if n := s.calls(); n != calls {
				t.Errorf("the origin was asked %d times, want %d", n, calls)
			}
		}
		expect("1.0.0", 1)
		expect("1.0.0", 0)
		s.set(func() { s.versions = []string{"1.0.0", "2.0.0"} })
		time.Sleep(3 * time.Minute)
		expect("1.0.0", 1) // refreshed for the next client
		expect("1.0.0 2.0.0", 0)
		s.set(func() { s.err = errors.New("no way") })
		time.Sleep(5 * time.Minute)
		expect("1.0.0 2.0.0", 1)
		expect("1.0.0 2.0.0", 0) // no request so soon after the failure
		time.Sleep(6 * time.Second)
		s.set(func() { s.delay = time.Second })
		start := time.Now()
		expect("1.0.0 2.0.0", 1) // a request in the background, for which the client does not wait
		if took := time.Since(start); took != 0 {
			t.Errorf("waited for %s", took)
		}
		s.set(func() { s.err, s.delay = nil, time.Minute })
		time.Sleep(32 * time.Second)
		start = time.Now()
		expect("1.0.0 2.0.0", 1)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("waited for %s", took)
		}
		s.set(func() { s.err, s.delay = errors.New("no way"), 0 })
		time.Sleep(time.Hour)
		expect("trouble", 1)
		s.set(func() { s.err = fmt.Errorf("%w: 404", origin.ErrProviderNotFound) })
		time.Sleep(10 * time.Second)
		expect("", 1)
		s.set(func() { s.err = nil })
		expect("", 0)
		time.Sleep(absentTTL)
		expect("1.0.0 2.0.0", 1)
	})
}

// TestWarningsAreKeptWithTheList shows that an origin's warnings are kept in memory and on disk for as long as the
// list to which they belong.
func TestWarningsAreKeptWithTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"1.0.0"}, warnings: []string{"it is old"}}
		o := Options{Directory: t.TempDir(), ListTTL: time.Minute, StaleIfError: time.Hour}
		p := puller(t, s, o)
		expect := func(when, want string) {
			t.Helper()
			_, warnings, err := of(p, widget).Offers(t.Context())
			if err != nil || fmt.Sprint(warnings) != want {
				t.Errorf("%s: %q, %v", when, warnings, err)
			}
		}
		expect("at first", "[it is old]")
		s.set(func() { s.err = errors.New("no way") })
		time.Sleep(10 * time.Minute)
		expect("while the origin is unavailable", "[it is old]")
		p.Close()
		p = puller(t, s, o)
		expect("after a restart", "[it is old]")
		s.set(func() { s.err, s.warnings = nil, nil })
		time.Sleep(time.Minute)
		expect("with the next list", "[]")
	})
}

// TestWarningsFromDiskAreCounted shows that, if a list is read from disk, its warnings count towards the memory of
// the list.
func TestWarningsFromDiskAreCounted(t *testing.T) {
	warnings := strings.Split(strings.Repeat("x", 64*500), "")
	l := &list{offers: []catalog.Offer{{Version: provider.MustParseVersion("1.0.0")}}, warnings: warnings}
	p := puller(t, &source{}, Options{Directory: t.TempDir()})
	if err := p.writeList(widget, l); err != nil {
		t.Fatal(err)
	}
	answer, ok := p.loadList(widget)
	if !ok || len(answer.Value.warnings) != len(warnings) || answer.Value.bytes < 32*int64(len(warnings)) {
		t.Errorf("%d bytes are counted", answer.Value.bytes)
	}
}

// TestAbsenceIsNeverStale shows that a provider or version is reported as absent only while the origin's answer is
// current. If the origin fails after that answer has expired, the provider or version is not reported as absent.
func TestAbsenceIsNeverStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{err: fmt.Errorf("%w: 404", origin.ErrProviderNotFound)}
		o := Options{Directory: t.TempDir()}
		p := puller(t, s, o)
		expect := func(want string) {
			t.Helper()
			if got := offered(t, p); got != want {
				t.Errorf("offered are %q, want %q", got, want)
			}
		}
		// absent requests version 2.0.0, and checks whether it is reported as absent.
		absent := func(want string) {
			t.Helper()
			found, err := of(p, widget).Complete(t.Context(), provider.MustParseVersion("2.0.0"), nil)
			got := "trouble"
			if err == nil {
				got = fmt.Sprintf("absent %t", found == nil)
			} else if !errors.Is(err, catalog.ErrSource) {
				t.Errorf("%v is not marked as a failure of the origin", err)
			}
			if got != want {
				t.Errorf("2.0.0: %s, want %s", got, want)
			}
		}
		down := func() { s.set(func() { s.err = errors.New("no way") }) }
		expect("")
		absent("absent true")
		down()
		expect("")
		time.Sleep(2 * absentTTL)
		expect("trouble")
		absent("trouble")
		s.set(func() { s.err, s.versions = nil, []string{"1.0.0"} })
		time.Sleep(10 * time.Second)
		expect("1.0.0")
		absent("absent true")
		down()
		time.Sleep(time.Minute)
		absent("absent true")
		s.calls()
		time.Sleep(10 * time.Minute)
		expect("1.0.0")
		for range 3 {
			absent("trouble")
		}
		if n := s.calls(); n != 1 {
			t.Errorf("the origin was asked %d times", n)
		}
		p.Close()
		p = puller(t, s, o)
		expect("1.0.0")
		absent("trouble")
		time.Sleep(10 * time.Second)
		s.set(func() { s.err, s.versions = nil, []string{"1.0.0", "2.0.0"} })
		absent("absent false")
	})
}

// TestAbsentWhileRefreshed shows that a version is not reported as absent if a list that lacks it has expired, even
// if the current list arrives between the search of the old list and the decision.
func TestAbsentWhileRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{versions: []string{"0.1.0"}}
		p := puller(t, s, Options{ListTTL: time.Minute, StaleIfError: time.Hour})
		offered(t, p)
		s.set(func() { s.err = errors.New("no way") })
		time.Sleep(2 * time.Minute) // the list expires
		offered(t, p)
		s.set(func() { s.err, s.versions = nil, []string{"1.0.0"} })
		time.Sleep(10 * time.Second) // long enough after the failure for a request in the background
		old, err := p.lists.Get(t.Context(), widget)
		if err != nil || old.Current(time.Now()) {
			t.Fatalf("the list has not expired, %v", err)
		}
		synctest.Wait() // the current list arrives
		if !p.lists.Last(widget).Current(time.Now()) {
			t.Fatal("the list was not refreshed")
		}
		latest := provider.MustParseVersion("1.0.0")
		if _, found, err := p.findIn(t.Context(), old, widget, latest, true); err != nil || !found {
			t.Errorf("the version is absent, %v", err)
		}
		if found, err := of(p, widget).Complete(t.Context(), latest, nil); err != nil || found == nil {
			t.Errorf("the client gets no version, %v", err)
		}
	})
}

// TestListsAreBounded shows that the memory of lists is limited, whatever clients request and origins send.
func TestListsAreBounded(t *testing.T) {
	testkit.LeaveToAll(t)
	synctest.Test(t, func(t *testing.T) {
		s := &source{err: fmt.Errorf("%w: 404", origin.ErrProviderNotFound)}
		p := puller(t, s, Options{})
		ask := func(n int, kind string) {
			for i := range n {
				time.Sleep(time.Millisecond)
				a := provider.MustParseAddress(fmt.Sprintf("registry.acme.example/%s/widget%d", kind, i))
				if _, _, err := of(p, a).Offers(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask(2*maxLists, "none")
		if n, size := p.lists.Size(); n > maxLists || size > maxListBytes {
			t.Errorf("%d empty lists take %d bytes", n, size)
		}
		for i := range 1000 {
			s.versions = append(s.versions, fmt.Sprintf("1.%d.0", i))
		}
		s.set(func() { s.err = nil })
		ask(160, "many")
		n, size := p.lists.Size()
		if n < 80 || size > maxListBytes || size < maxListBytes/2 {
			t.Errorf("%d lists of 1000 versions take %d bytes", n, size)
		}
		s.calls()
		ask(160, "many")
		if n := s.calls(); n == 0 || n > 160 {
			t.Errorf("the origin was asked %d times", n)
		}
		// Even a list that is larger than the whole cache is cached for the next client.
		for i := range 60 * 1000 {
			s.versions = append(s.versions, fmt.Sprintf("2.%d.0", i))
		}
		ask(1, "large")
		s.calls()
		ask(1, "large")
		if n := s.calls(); n != 0 {
			t.Errorf("the origin was asked %d times", n)
		}
	})
}

// TestListInAnotherOrder reads a list from a release that ordered prereleases in another way. Versions are looked up by
// a binary search.
func TestListInAnotherOrder(t *testing.T) {
	p := puller(t, &source{}, Options{Directory: t.TempDir()})
	var written list
	for _, v := range []string{"1.0.0-beta", "1.0.0-rc1", "1.0.0-alpha.1"} {
		written.offers = append(written.offers, catalog.Offer{Version: provider.MustParseVersion(v)})
	}
	if err := p.writeList(widget, &written); err != nil {
		t.Fatal(err)
	}
	read, err := p.readList(widget)
	if err != nil || len(read.offers) != 3 {
		t.Fatalf("read %+v, %v", read, err)
	}
	for _, o := range written.offers {
		if _, ok := read.offer(o.Version); !ok {
			t.Errorf("%s is not found", o.Version)
		}
	}
}
