package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// offering is an origin in memory.
type offering struct {
	offers []catalog.Offer
	warns  []string
	err    error
	hangs  bool   // the origin never answers
	bytes  string // the content of its package
}

var _ catalog.Origin = (*offering)(nil)

func (o *offering) Selects(subject.Address) bool { return true }

func (o *offering) Offers(ctx context.Context, _ subject.Address) ([]catalog.Offer, []string, error) {
	if o.hangs {
		<-ctx.Done()
		return nil, nil, fmt.Errorf("%w: %w", catalog.ErrSource, ctx.Err())
	}
	return o.offers, o.warns, o.err
}

func (o *offering) Blob(provider.Address, digest.Digest) ([]byte, bool) { return nil, false }

func (o *offering) Package(provider.Address, provider.Version, artifact.Package, catalog.Stored) catalog.Blob {
	return nil
}

func (o *offering) Forget(subject.Address) {}

func (o *offering) Store(context.Context, module.Address, provider.Version) error { return o.err }

// Complete implements [catalog.Origin]. It adds a package for darwin_arm64 to the packages that the registry has.
func (o *offering) Complete(ctx context.Context, _ subject.Address, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	if o.hangs {
		<-ctx.Done()
		if stored != nil {
			return stored, nil
		}
		return nil, fmt.Errorf("%w: %w", catalog.ErrSource, ctx.Err())
	}
	if o.err != nil {
		return stored, o.err
	}
	for _, offer := range o.offers {
		if offer.Version != v {
			continue
		}
		out := artifact.Version{}
		if stored != nil {
			out = *stored
		}
		p := artifact.Package{Platform: provider.MustParsePlatform("darwin_arm64"), Filename: "x.zip", Digest: digest.FromString(o.bytes)}
		out.Packages = append([]artifact.Package{p}, out.Packages...)
		out.Index = ocispec.Descriptor{}
		return &out, nil
	}
	return stored, nil
}

var errNoWay = fmt.Errorf("%w: no way", catalog.ErrSource)

// offered runs f with a bench and with the origin of the bench's catalog.
func offered(t *testing.T, change func(*catalog.Options), f func(b *bench, o *offering)) {
	t.Helper()
	o := &offering{}
	inTime(t, func(options *catalog.Options) {
		options.Origin = o
		if change != nil {
			change(options)
		}
	}, func(b *bench) { f(b, o) })
}

// found returns the platforms of a version. It returns "absent" if the version is absent, and "trouble" if the catalog
// fails.
func (b *bench) found(v provider.Version) string {
	b.t.Helper()
	item, err := b.Version(b.t.Context(), widget, v)
	switch {
	case errors.Is(err, catalog.ErrAbsent):
		return "absent"
	case err != nil:
		return "trouble"
	}
	var out []provider.Platform
	for _, p := range item.Found.Packages {
		out = append(out, p.Platform)
	}
	return fmt.Sprint(out)
}

func (b *bench) listed() string {
	b.t.Helper()
	item, err := b.Versions(b.t.Context(), widget)
	switch {
	case errors.Is(err, catalog.ErrAbsent):
		return "absent"
	case err != nil:
		return "trouble"
	}
	return fmt.Sprint(item.Versions)
}

func (b *bench) expect(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestOriginHasAnotherPackage shows that an item and its document stay the same until the origin offers another
// package. The version has no index, so no digest of an index shows the change.
func TestOriginHasAnotherPackage(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		o.offers = []catalog.Offer{{Version: v110}}
		ask := func() *catalog.Item {
			item, err := b.Version(b.t.Context(), widget, v110)
			if err != nil {
				b.t.Fatal(err)
			}
			return item
		}
		first := ask()
		pass(time.Minute)
		if ask() != first {
			b.t.Error("the item has changed, although the package has not")
		}
		if newer, err := b.Newer(b.t.Context(), first); newer != nil || err != nil {
			b.t.Errorf("the unchanged package is reported as newer: %+v, %v", newer, err)
		}
		o.bytes = "other"
		newer, err := b.Newer(b.t.Context(), first)
		if err != nil || newer == nil || newer.Found.Packages[0].Digest != digest.FromString("other") {
			b.t.Errorf("newer: %+v, %v", newer, err)
		}
		pass(time.Minute)
		if ask() != newer {
			b.t.Error("the newer item is not served")
		}
	})
}

func TestOffersAreUnited(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		o.offers = []catalog.Offer{{Version: v100}, {Version: v110}}
		b.expect("list", b.listed(), "[1.0.0 1.1.0]")
		b.expect("stored and offered", b.found(v100), "[darwin_arm64 linux_amd64]")
		b.expect("offered", b.found(v110), "[darwin_arm64]")
		item, err := b.Versions(b.t.Context(), widget)
		if err != nil {
			b.t.Fatal(err)
		}
		if _, ok := item.Offer(v100); ok {
			b.t.Error("a version in the registry is reported as available only at the origin")
		}
		if _, ok := item.Offer(v110); !ok {
			b.t.Error("a version that only the origin offers is not reported as such")
		}
		// The origin withdraws its versions.
		o.offers = nil
		pass(time.Minute)
		b.expect("list", b.listed(), "[1.0.0]")
		b.expect("stored", b.found(v100), "[linux_amd64]")
		b.expect("withdrawn", b.found(v110), "absent")
	})
}

// TestWarningsOfTheOrigin shows that a list has the warnings of the origin's last response, even if all versions of
// the list are in the registry.
func TestWarningsOfTheOrigin(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		warnings := func() string {
			item, err := b.Versions(b.t.Context(), widget)
			if err != nil {
				b.t.Fatal(err)
			}
			return fmt.Sprint(item.Warnings)
		}
		o.offers, o.warns = []catalog.Offer{{Version: v110}}, []string{"it is old"}
		b.expect("offered", warnings(), "[it is old]")
		o.warns = []string{"it has moved"}
		pass(time.Minute)
		b.expect("the same versions with another warning", warnings(), "[it has moved]")
		o.offers = nil
		pass(time.Minute)
		b.expect("a source that offers nothing", warnings(), "[it has moved]")
		o.warns = nil
		pass(time.Minute)
		b.expect("without a warning", warnings(), "[]")
	})
}

// TestOriginFails shows that, if the origin fails, nothing is reported as absent, and the registry does not count as
// failing.
func TestOriginFails(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		o.err = errNoWay
		b.expect("list", b.listed(), "[1.0.0]")
		b.expect("not stored", b.found(v110), "trouble")
		if _, err := b.Versions(b.t.Context(), gadget); !errors.Is(err, catalog.ErrSource) {
			b.t.Errorf("a provider that the registry lacks: %v", err)
		}
		o.err, o.offers = nil, []catalog.Offer{{Version: v110}}
		pass(time.Minute)
		b.expect("list", b.listed(), "[1.0.0 1.1.0]")
		b.expect("offered", b.found(v110), "[darwin_arm64]")
		o.err = errNoWay
		pass(time.Minute)
		b.expect("what was offered, in trouble", b.found(v110), "[darwin_arm64]")
		// If the origin's failure counted as a failure of the registry, the catalog would serve the last list stale,
		// and not the new list.
		o.err = nil
		pass(time.Minute)
		b.expect("list", b.listed(), "[1.0.0 1.1.0]")
		o.err = errNoWay
		pass(time.Minute)
		b.expect("what was offered, in trouble", b.found(v110), "[darwin_arm64]")
		pass(time.Minute)
		b.requests()
		b.expect("what is stored", b.listed(), "[1.0.0]")
		if got := b.requests(); got != "[1 list]" {
			b.t.Errorf("requests to the registry: %s; the failure was taken for the registry's", got)
		}
	})
}

// TestSourceHangs shows that, while the origin hangs, the registry's versions are served within the 8 s for which
// clients wait. No other version is reported as absent.
func TestSourceHangs(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		o.hangs = true
		for what, ask := range map[string]func(context.Context) error{
			"list":   func(ctx context.Context) error { _, err := b.Versions(ctx, widget); return err },
			"stored": func(ctx context.Context) error { _, err := b.Version(ctx, widget, v100); return err },
		} {
			ctx, cancel := context.WithTimeout(b.t.Context(), 7*time.Second)
			if err := ask(ctx); err != nil {
				b.t.Errorf("%s: %v", what, err)
			}
			cancel()
		}
		b.expect("not stored", b.found(v110), "trouble")
		if _, err := b.Versions(b.t.Context(), gadget); err == nil || errors.Is(err, catalog.ErrAbsent) {
			b.t.Errorf("a provider that the registry lacks: %v", err)
		}
	})
}

// TestRegistryFails shows that, if the registry fails, the union fails, whatever the origin offers.
func TestRegistryFails(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		o.offers = []catalog.Offer{{Version: v110}}
		b.down(answered(http.StatusBadGateway, ""))
		b.expect("list", b.listed(), "trouble")
		b.expect("offered", b.found(v110), "trouble")
	})
}

// TestOffersAreNotKeptOnDisk shows that the registry's answers are saved on disk, and that the origin's offers are not
// saved.
func TestOffersAreNotKeptOnDisk(t *testing.T) {
	dir := t.TempDir()
	var options catalog.Options
	offered(t, func(o *catalog.Options) { o.Directory = dir; options = *o }, func(b *bench, o *offering) {
		k := &kept{b, options}
		o.offers = []catalog.Offer{{Version: v100}, {Version: v110}}
		b.expect("list", b.listed(), "[1.0.0 1.1.0]")
		b.expect("stored and offered", b.found(v100), "[darwin_arm64 linux_amd64]")
		b.expect("offered", b.found(v110), "[darwin_arm64]")
		k.restart()
		b.opened = k.opened
		b.expect("list, after a restart", b.listed(), "[1.0.0 1.1.0]")
		b.expect("stored and offered, after a restart", b.found(v100), "[darwin_arm64 linux_amd64]")
		b.down(unreachable)
		o.err = errNoWay
		k.restart()
		pass(time.Minute)
		b.opened = k.opened
		b.expect("list", b.listed(), "[1.0.0]")
		b.expect("stored", b.found(v100), "[linux_amd64]")
		b.expect("offered", b.found(v110), "trouble")
	})
}

// TestViews shows that the registry's view contains nothing from the origin, and that both views share the registry's
// answers. A refresh drops the answers of both views.
func TestViews(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		o.offers = []catalog.Offer{{Version: v100}, {Version: v110}}
		alone := *b
		alone.opened.View = b.Registry()
		b.expect("union", b.listed(), "[1.0.0 1.1.0]")
		b.expect("registry", alone.listed(), "[1.0.0]")
		b.expect("union", b.found(v100), "[darwin_arm64 linux_amd64]")
		b.expect("registry", alone.found(v100), "[linux_amd64]")
		b.expect("requests", b.requests(), "[1 get 1 list]")
		b.expect("union", b.found(v110), "[darwin_arm64]")
		b.expect("registry", alone.found(v110), "absent")
		for _, path := range []string{"index.json", "1.0.0.json", "1.1.0.json"} {
			union, ok := b.Warm(widget.Path()+"/"+path, time.Now())
			registry, _ := alone.Warm(widget.Path()+"/"+path, time.Now())
			if !ok || registry == nil || union == registry {
				b.t.Errorf("%s: one item is warm for both views", path)
			}
		}
		if n := b.Refresh(widget); n != 6 || b.Size() != (catalog.Size{}) {
			b.t.Errorf("a refresh drops %d answers, and leaves %+v", n, b.Size())
		}
	})
}

// TestUnionIsAsOldAsTheRegistry shows that an answer of the union expires at the same time as the registry's answer
// from which it was made.
func TestUnionIsAsOldAsTheRegistry(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		alone := *b
		alone.opened.View = b.Registry()
		alone.listed()
		pass(20 * time.Second)
		o.offers = []catalog.Offer{{Version: v110}}
		b.expect("list", b.listed(), "[1.0.0 1.1.0]")
		b.publish(b.t, widget, provider.MustParseVersion("1.2.0"), "new")
		pass(10 * time.Second)
		b.expect("list", b.listed(), "[1.0.0 1.1.0 1.2.0]")
	})
}

// TestUnionOfAStaleAnswer shows that, if the registry fails, its stale answer is joined with the origin's offers, even
// if earlier requests used only the registry's view.
func TestUnionOfAStaleAnswer(t *testing.T) {
	offered(t, nil, func(b *bench, o *offering) {
		alone := *b
		alone.opened.View = b.Registry()
		alone.listed()
		b.down(unreachable)
		pass(time.Hour)
		o.offers = []catalog.Offer{{Version: v110}}
		b.expect("list", b.listed(), "[1.0.0 1.1.0]")
		b.expect("never read", b.found(v100), "trouble")
		b.expect("offered", b.found(v110), "trouble")
	})
}
