package page

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// TestDirectory shows that requests share one request for the registry's list, and wait only briefly for
// it. They get the old list while a new list is pending, and after the registry has failed.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := catalog.New(catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a := provider.MustParseAddress("registry.acme.example/acme/widget")
		var asked atomic.Int32
		var takes atomic.Int64
		var fails atomic.Bool
		d := newDirectory(Options{Options: gateway.Options{Catalog: c}, Configured: []subject.Address{a}, List: func(context.Context) Names {
			asked.Add(1)
			time.Sleep(time.Duration(takes.Load()))
			if fails.Load() {
				return Names{}
			}
			return Names{All: []subject.Address{a, module.MustParseAddress("registry.acme.example/acme/other/aws")}, Complete: true}
		}})
		see := func(want listed, asks int32) {
			t.Helper()
			got := d.known(t.Context())
			if len(got.entries) != len(want.entries) || got.complete != want.complete || got.pending != want.pending || !slices.Contains(got.entries, entry{a}) {
				t.Errorf("known: %+v, want %+v", got, want)
			}
			if n := asked.Load(); n != asks {
				t.Errorf("asked %d times, want %d", n, asks)
			}
		}
		one, two := make([]entry, 1), make([]entry, 2)

		takes.Store(int64(5 * time.Second))
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if k := d.known(t.Context()); !k.pending || len(k.entries) != 1 {
					t.Errorf("before the list: %+v", k)
				}
			})
		}
		all.Wait()
		see(listed{entries: one, pending: true}, 1)
		time.Sleep(5 * time.Second)
		see(listed{entries: two, complete: true}, 1)

		// A list is current for 20 times as long as the registry took to return it. Here, this is 100
		// seconds. Afterwards, requests get the old list until a new list arrives.
		time.Sleep(31 * time.Second)
		see(listed{entries: two, complete: true}, 1)
		time.Sleep(70 * time.Second)
		fails.Store(true)
		before := time.Now()
		see(listed{entries: two, complete: true}, 2)
		if waited := time.Since(before); waited != agedPatience {
			t.Errorf("waited %s", waited)
		}
		time.Sleep(6 * time.Second)
		see(listed{entries: two}, 2)
		synctest.Wait()
	})
}

// TestAppeared shows which entries of the registry's list are new: those that a complete list before lacks. Failed lists add entries,
// and after an incomplete list, nothing is known to be new.
func TestAppeared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last *fresh.Answer[listed]
		began := time.Now()
		list := func(names string, complete, failed bool, want string) {
			t.Helper()
			time.Sleep(time.Minute)
			l := requestList(t.Context(), Options{List: func(context.Context) Names {
				n := Names{Complete: complete, Failed: failed}
				for _, name := range names {
					n.All = append(n.All, provider.MustParseAddress("registry.acme.example/acme/"+string(name)))
				}
				return n
			}}, last)
			var got []string
			for e, at := range l.appeared {
				got = append(got, fmt.Sprintf("%s%d", e.Short(), int(at.Sub(began).Minutes())))
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("%q: appeared %v, want %s", names, got, want)
			}
			last = &fresh.Answer[listed]{Value: l}
		}
		list("ab", true, false, "")
		list("", false, true, "")
		list("bc", false, true, "c3")
		list("abcd", true, false, "c3 d4")
		list("abd", true, false, "d4")
		list("abce", false, false, "c6 e6")
		list("abcef", true, false, "c6 e6")
		list("gabcef", true, false, "c6 e6 g8")
		last.Value.appeared[entry{provider.MustParseAddress("registry.acme.example/acme/g")}] = time.Now().Add(time.Hour) // the clock has gone backwards
		list("gabcef", true, false, "c6 e6")
	})
}

// TestMatches shows that a search finds the entries whose keys contain all words: words in a host, in a path, and in both, and in
// both forms of a host's name.
func TestMatches(t *testing.T) {
	c, err := catalog.New(catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d := &directory{catalog: c}
	for _, host := range []string{"acme.example", "registry.acme.example", "bücher.example", "example.net"} {
		for _, name := range []string{"acme/net", "acme/widget", "example/acme", "io/bücher"} {
			if p, err := provider.ParseAddress(host + "/" + name); err == nil {
				d.configured = append(d.configured, entry{p})
			}
			if m, err := module.ParseAddress(host + "/" + name + "/aws"); err == nil {
				d.configured = append(d.configured, entry{m})
			}
		}
	}
	i := d.build(t.Context(), nil)
	if len(i.hosts) != 4 || len(i.entries) < 20 {
		t.Fatalf("%d hosts, %d entries", len(i.hosts), len(i.entries))
	}
	words := []string{"", "/"}
	for _, e := range i.entries { // all their parts
		key := strings.TrimSpace(e.key())
		for begin := range key {
			for end := begin + 1; end <= len(key); end++ {
				if word := key[begin:end]; !strings.Contains(word, "\n") {
					words = append(words, word)
				}
			}
		}
	}
	for _, word := range words {
		for _, query := range [][]string{{word}, {word, "acme"}, {"e", word}, {word + "x"}} {
			var want []int
			for n, e := range i.entries {
				if containsAll(e.key(), query) {
					want = append(want, n)
				}
			}
			if got := slices.Collect(i.matches(query)); !slices.Equal(got, want) {
				t.Fatalf("%q: %d, want %d", query, got, want)
			}
		}
	}
}

// TestKnownNamesWithoutTheRegistry shows that a request that does not wait for the registry's list, or whose client has left, does not
// hide the names on disk from the next requests.
func TestKnownNamesWithoutTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := catalog.New(catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a := entry{provider.MustParseAddress("registry.acme.example/acme/widget")}
		d := newDirectory(Options{Options: gateway.Options{Catalog: c}, List: func(ctx context.Context) Names {
			<-ctx.Done()
			return Names{Failed: true}
		}})
		d.saved.Put("", fresh.Answer[[]entry]{Value: []entry{a}, At: time.Now(), TTL: time.Hour})
		gone, leave := context.WithCancel(t.Context())
		leave()
		d.known(gone)
		if k := d.known(t.Context()); !k.has(a) {
			t.Errorf("known: %+v", k)
		}
		time.Sleep(indexTTL)
		began := time.Now()
		if k := d.now(t.Context()); !k.has(a) || time.Since(began) > summaryPatience {
			t.Errorf("after %s: %+v", time.Since(began), k)
		}
		synctest.Wait()
		time.Sleep(listTimeout)
	})
}

// TestModulePageWithoutTheRegistrysList shows that the host block of a module's page does not wait for the registry's list.
func TestModulePageWithoutTheRegistrysList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := catalog.New(catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p := New(Options{Options: gateway.Options{Catalog: c}, Configured: []subject.Address{provider.MustParseAddress("registry.acme.example/acme/widget")},
			List: func(ctx context.Context) Names { <-ctx.Done(); return Names{Failed: true} }}).(*page)
		began := time.Now()
		if !p.hasProviders(httptest.NewRequest("GET", "/", nil), "registry.acme.example") || time.Since(began) > summaryPatience {
			t.Errorf("it took %s", time.Since(began))
		}
		time.Sleep(listTimeout)
	})
}
