package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Offer is a version that a provider's origin offers, whether or not the registry has it.
type Offer struct {
	Version   provider.Version
	Protocols []string            // nil if not known
	Platforms []provider.Platform // nil if not known
	// Signed means that the version is served only if it is signed.
	Signed bool
}

// Offerer is a [Store] whose provider has an origin with more than the registry.
type Offerer interface {
	Store
	// Offers returns the versions that the origin offers, oldest first; none if it does not
	// know the provider. Warnings are the origin's warnings to the provider's users. An error
	// means that the origin failed, and wraps [ErrSource]. Callers must not change the slices.
	Offers(ctx context.Context) (offers []Offer, warnings []string, err error)
	// Complete returns a version with the packages that the origin adds to stored, the
	// version in the registry; stored is nil if the registry says that it lacks the version.
	// The result is nil if neither has it, and stored itself if the origin adds nothing, or
	// does not answer before ctx ends. Packages of unknown size have 0 bytes. An error that
	// wraps [ErrSource] means that the origin failed; other errors refuse the version.
	Complete(ctx context.Context, v provider.Version, stored *artifact.Version) (*artifact.Version, error)
	// Forget drops what is cached of the origin.
	Forget()
}

// ErrSource means that an origin failed, and not the registry.
var ErrSource = errors.New("the origin of what the registry lacks is in trouble")

// originTimeout bounds the origin's time to add to a version or list of the registry.
// Clients wait for 8 s, and a slow origin must not keep the registry's answer from them.
const originTimeout = 5 * time.Second

// addOffers adds the origin's versions to a list of tags. Err is the registry's answer: nil
// or [ErrAbsent]. The result is nil, [ErrAbsent], or the origin's failure.
func (c *Catalog) addOffers(ctx context.Context, up *upstream, item *Item, err error) error {
	o, ok := up.store.(Offerer)
	if !ok || err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, originTimeout)
		defer cancel()
	}
	offers, warnings, failure := o.Offers(ctx)
	switch {
	case failure != nil && err == nil:
		c.opts.Log.Debug("only what the registry has is listed", "provider", item.Address.String(), "err", hint.Brief(failure))
		return nil
	case failure != nil:
		up.fail(failure)
		return failure
	}
	item.Warnings = warnings
	if len(offers) == 0 {
		return err
	}
	item.offers = offers
	c.list(item, item.tagged, item.etag)
	return nil
}

// merge returns the versions that are tagged or offered, oldest first.
func merge(tagged []provider.Version, offers []Offer) []provider.Version {
	if len(offers) == 0 {
		return tagged
	}
	out := slices.Clone(tagged)
	have := map[provider.Version]bool{}
	for _, v := range tagged {
		have[v] = true
	}
	for _, o := range offers {
		if !have[o.Version] {
			have[o.Version] = true
			out = append(out, o.Version)
		}
	}
	provider.SortVersions(out)
	return out
}

// Offer returns the origin's offer of a version that the registry lacks, if there is one.
func (i *Item) Offer(v provider.Version) (Offer, bool) {
	n, ok := slices.BinarySearchFunc(i.offers, v, func(o Offer, v provider.Version) int { return o.Version.Compare(v) })
	if _, tagged := slices.BinarySearchFunc(i.tagged, v, provider.Version.Compare); tagged || !ok {
		return Offer{}, false
	}
	return i.offers[n], true
}

// Stored returns the version as the registry has it; nil if the registry lacks it.
func (i *Item) Stored() *artifact.Version {
	if i.completed {
		return i.stored
	}
	return i.Found
}

// complete returns a version with the packages that its origin adds to stored, the version
// in the registry. If stored is nil, absent is the registry's error.
func (c *Catalog) complete(ctx context.Context, up *upstream, item *Item, stored *artifact.Version, absent error) (*artifact.Version, error) {
	o, ok := up.store.(Offerer)
	if !ok || up.failure != nil {
		return stored, absent
	}
	within := ctx
	if stored != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, originTimeout)
		defer cancel()
	}
	found, err := o.Complete(within, item.Version, stored)
	switch {
	case errors.Is(err, ErrSource), err != nil && ctx.Err() != nil:
		up.fail(err)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", item.Address, item.Version, err)
	case found == nil:
		return nil, absent
	}
	if found != stored {
		item.completed, item.stored = true, stored
	}
	return found, nil
}
