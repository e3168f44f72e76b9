package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// denies makes the registry send the error code for "denied" for absent repositories, as GHCR does.
func (f *fake) denies() {
	f.failing(func(_ context.Context, a provider.Address, _ string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.tags[a] == nil {
			return answered(http.StatusForbidden, "DENIED")
		}
		return nil
	})
}

// TestDeniedMeansAbsent shows that "denied" means absent only under two conditions. The registry's settings
// must say so, and another repository of the registry must still be readable with the same credential.
func TestDeniedMeansAbsent(t *testing.T) {
	tests := map[string]struct {
		means   bool
		account string // the name of the account for widget; the name for gadget is "a"
		before  func(b *bench)
		absent  bool
	}{
		"said, and another one answers": {true, "a", func(b *bench) { b.seen(widget) }, true},
		"not said":                      {false, "a", func(b *bench) { b.seen(widget) }, false},
		"none was seen to exist":        {true, "a", func(b *bench) {}, false},
		"the one that answers is read with another login":  {true, "b", func(b *bench) { b.seen(widget) }, false},
		"the one that was seen is denied now":              {true, "a", func(b *bench) { b.seen(widget); delete(b.tags, widget) }, false},
		"the one that was seen is empty now":               {true, "a", func(b *bench) { b.seen(widget); clear(b.tags[widget]) }, false},
		"it was itself seen to exist, not long ago":        {true, "a", func(b *bench) { b.seen(widget); b.seenOnce() }, false},
		"it was itself seen to exist, longer than that":    {true, "a", func(b *bench) { b.seenOnce(); pass(25 * time.Hour); b.seen(widget) }, true},
		"the registry cannot be reached for the other one": {true, "a", func(b *bench) { b.seen(widget); b.onlyDenies() }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			change := func(o *catalog.Options) {
				o.FreshToken = func(ctx context.Context) context.Context { return ctx }
				o.Account = func(a subject.Address) catalog.Account {
					name := "a"
					if a == widget {
						name = tc.account
					}
					return catalog.Account{Name: name, DeniedMeansAbsent: tc.means}
				}
			}
			inTime(t, change, func(b *bench) {
				b.denies()
				tc.before(b)
				pass(time.Minute)
				item, err := b.Versions(b.t.Context(), gadget)
				if errors.Is(err, catalog.ErrAbsent) != tc.absent || err == nil && item.Versions == nil {
					b.t.Errorf("versions: %v", err)
				}
				if _, err := b.Version(b.t.Context(), gadget, v110); err == nil || errors.Is(err, catalog.ErrAbsent) != tc.absent {
					b.t.Errorf("version: %v", err)
				}
			})
		})
	}
}

// seen reads the versions of a provider. After that, the catalog knows that the provider's repository exists.
func (b *bench) seen(a provider.Address) {
	if _, err := b.Versions(b.t.Context(), a); err != nil {
		b.t.Error(err)
	}
}

// seenOnce publishes gadget, reads its versions, and then deletes it.
func (b *bench) seenOnce() {
	b.publish(b.t, gadget, v100, "there once")
	b.seen(gadget)
	delete(b.tags, gadget)
}

// onlyDenies makes the registry deny requests for gadget. Requests for other providers do not reach the
// registry.
func (b *bench) onlyDenies() {
	b.failing(func(_ context.Context, a provider.Address, _ string) error {
		if a == gadget {
			return answered(http.StatusForbidden, "DENIED")
		}
		return unreachable
	})
}

// TestDenyRules shows that lists omit denied versions, and that a request for a denied version gets an error.
func TestDenyRules(t *testing.T) {
	all := catalog.Deny{Pattern: provider.MustParsePattern("registry.acme.example/acme/gadget")}
	some := catalog.Deny{Pattern: provider.MustParsePattern("registry.acme.example/*/*")}
	some.Versions, _ = provider.ParseConstraint(">= 1.1")
	inTime(t, func(o *catalog.Options) { o.Deny = []catalog.Deny{all, some} }, func(b *bench) {
		for _, v := range []string{"1.1.0", "1.2.0", "1.2.0-beta.1"} {
			b.publish(b.t, widget, provider.MustParseVersion(v), v)
		}
		b.publish(b.t, gadget, v100, "denied")
		b.want("[1.0.0 1.2.0-beta.1]", true, "[1 get 1 list]")
		// The result is an empty list and not ErrAbsent, because clients would install an absent provider from
		// elsewhere.
		if item, err := b.Versions(b.t.Context(), gadget); err != nil || len(item.Versions) != 0 {
			b.t.Errorf("%+v, %v", item, err)
		}
		b.requests()
		for a, want := range map[provider.Address]string{widget: "[1.1.0 1.2.0]", gadget: "[1.0.0]"} {
			if got := fmt.Sprint(b.Registry().DeniedVersions(b.t.Context(), a)); got != want {
				b.t.Errorf("denied versions of %s: %s, want %s", a, got, want)
			}
		}
		for _, what := range []struct {
			a provider.Address
			v string
		}{{widget, "1.1.0"}, {widget, "9.9.9"}, {gadget, "1.0.0"}, {gadget, "0.1.0"}} {
			if _, err := b.Version(b.t.Context(), what.a, provider.MustParseVersion(what.v)); !errors.Is(err, catalog.ErrDenied) {
				b.t.Errorf("%v: %v", what, err)
			}
		}
		if got := b.requests(); got != "[]" {
			b.t.Errorf("requests to the registry: %s", got)
		}
	})
}

func TestRefresh(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		b.publish(b.t, widget, v110, "new")
		b.publish(b.t, gadget, v100, "another")
		b.seen(gadget)
		b.requests()
		b.want("[1.0.0]", true, "[]")
		if n := b.Refresh(widget); n != 2 {
			b.t.Errorf("%d entries", n)
		}
		b.want("[1.0.0 1.1.0]", true, "[1 get 1 list]")
		b.seen(gadget)
		if got := b.requests(); got != "[]" {
			b.t.Errorf("of another provider: %s", got)
		}
	})
}
