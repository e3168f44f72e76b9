package page_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

const orderSentence = "In the order of the last push where it is known, or else of the publication."

// wantOrder reloads the page with the newest first until it begins with the given rows. The gateway does not wait long for a
// registry on a busy machine.
func (c *client) wantOrder(rows ...string) answer {
	c.t.Helper()
	var a answer
	for range 100 {
		a = c.want("/?order=newest", http.StatusOK)
		rest, found := a.text(), true
		for _, row := range rows {
			var ok bool
			_, rest, ok = strings.Cut(rest, row)
			found = found && ok
		}
		if found {
			return a
		}
	}
	c.t.Errorf("not in the order %q:\n%s", rows, a.text())
	return a
}

func named(name string) provider.Address { return provider.MustParseAddress(host + "/acme/" + name) }

// TestNewestFirstWithoutTimesOfPushes shows the order for a registry that does not tell when a version was pushed. The
// view reads the publication dates of providers that no page has shown. What the gateway has seen appear comes first.
func TestNewestFirstWithoutTimesOfPushes(t *testing.T) {
	b := newBench(t)
	days := map[string]string{"a": "2024-01-01", "b": "2026-02-02", "c": "2025-03-03", "d": ""}
	names := slices.Sorted(maps.Keys(days))
	all := []subject.Address{}
	for _, name := range names {
		b.origin.About("", "")
		if days[name] != "" {
			b.origin.About("", days[name]+"T00:00:00Z")
		}
		b.push(named(name), "1.0.0", true)
		all = append(all, named(name))
	}
	var listed atomic.Value
	listed.Store(all)
	b.options.ListTTL = time.Nanosecond
	b.options.List = func(context.Context) page.Names {
		return page.Names{All: listed.Load().([]subject.Address), Complete: true}
	}
	c := b.serve(nil)
	today := time.Now().UTC().Format(time.DateOnly)

	c.wantOrder(orderSentence+" 1 of 4 has no known date, and comes last.", "Last change", "/acme/b", "2026-02-02", "/acme/c", "2025-03-03", "/acme/a", "2024-01-01", "/acme/d")
	// A version that the registry's list has gained was pushed now, whenever it was published.
	b.origin.About("", "2020-01-01T00:00:00Z")
	b.push(named("a"), "1.1.0", true)
	c.want("/p/"+named("a").Path(), http.StatusOK) // the gateway sees it when any client asks
	c.wantOrder("1 of 4 has", "Last change", "/acme/a 1.1.0", today, "/acme/b", "2026-02-02", "/acme/c", "/acme/d")
	// A repository that is new in the list was pushed now, too, and needs no date of its own.
	b.index(named("new"), "1.0.0", artifact.Version{})
	listed.Store(append(slices.Clone(all), named("new")))
	c.wantOrder("1 of 5 has", "Last change", "/acme/new 1.0.0", today, "/acme/a 1.1.0", today, "/acme/b", "/acme/c", "/acme/d")
	if n := b.origin.Count(recorder.PathContains("versions")); n > 5 {
		t.Errorf("%d requests to the origin", n)
	}
}

// TestNewestFirstIsBounded shows that one view reads at most a hundred entries that it does not show. The next view reads others.
// Counts and reads are only of what the client may read.
func TestNewestFirstIsBounded(t *testing.T) {
	b := newBench(t)
	const most, shown, count = 100, 25, 180
	all := []subject.Address{}
	for i := range count {
		all = append(all, named(fmt.Sprintf("p%d", i)))
	}
	b.options.Configured = append(all, provider.MustParseAddress(host+"/secret/p1"))
	b.catalog.TagTTL = time.Hour
	absent := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"NAME_UNKNOWN"}]}`)
	})
	b.lie("/tags/list", absent)
	c := b.serve(access.New(access.Options{Tokens: []access.Token{token("acme", "acme-token", host+"/acme/*")}}))
	c.authorization = "Bearer acme-token"
	b.registry.Reset()
	c.want("/", http.StatusOK)
	before := b.registry.Count()
	if before > shown {
		t.Errorf("by name: %d requests", before)
	}
	a := c.want("/?order=newest", http.StatusOK, fmt.Sprintf("%s %d of %d have no known date, and come last. The gateway reads more with each visit: reload the page.", orderSentence, count, count))
	if n := b.registry.Count() - before; n > most+shown {
		t.Errorf("the first view: %d requests", n)
	}
	for range 100 {
		if a = c.want("/?order=newest", http.StatusOK, "180 of 180 have no known date"); !a.has("reload the page") {
			break
		}
	}
	if a.has("reload the page") {
		t.Errorf("the gateway reads on and on:\n%s", a.text())
	}
	for range 3 {
		c.want("/?order=newest", http.StatusOK)
	}
	for _, e := range all {
		if n := b.registry.Count(recorder.PathContains("/" + e.Path() + "/")); n != 1 {
			t.Errorf("%d requests about %s", n, e)
		}
	}
	if n := b.registry.Count(recorder.PathContains("/secret/")); n != 0 {
		t.Errorf("%d requests about what the client may not read", n)
	}
}
