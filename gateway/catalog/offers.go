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

// Offer is a version that can be had, whether or not the registry has it.
type Offer struct {
	Version   provider.Version
	Protocols []string            // nil if not known
	Platforms []provider.Platform // nil if not known
	// Signed is set if nothing of it is served unless it is signed.
	Signed bool
}

// Offerer is a [Store] whose provider has more than the registry: a pull-through's.
type Offerer interface {
	Store
	// Offers returns what can be had, oldest first; none if its source knows no such provider.
	// Warnings are what the source wants the provider's users to read. An error is the
	// source's trouble, and wraps [ErrSource]. The slices are not to be changed.
	Offers(ctx context.Context) (offers []Offer, warnings []string, err error)
	// Complete adds to a version what can be had of it beyond what is stored,
	// which is nil where the registry says that it does not have the version. It
	// returns nil where nothing is stored, nor to be had; stored itself, where
	// there is nothing to add, or what there is cannot be known before ctx ends.
	// Packages of which the size is not known have 0 bytes. An error that wraps
	// [ErrSource] is trouble; others refuse the version.
	Complete(ctx context.Context, v provider.Version, stored *artifact.Version) (*artifact.Version, error)
	// Forget has what is known of its source asked for again.
	Forget()
}

// ErrSource means that what a registry lacks cannot be had now, and that the
// registry is not to blame.
var ErrSource = errors.New("the origin of what the registry lacks is in trouble")

// sourcePatience is how long a source may take to add to what the registry has, so
// that one which leaves its clients waiting keeps nobody from that: they wait for 8 s.
const sourcePatience = 5 * time.Second

// offers unites a list of tags with what else there is. err is what the registry
// said; where it is nil or [ErrAbsent], the registry has spoken. An error is
// trouble, unless it is [ErrAbsent].
func (c *Catalog) offers(ctx context.Context, up *upstream, item *Item, err error) error {
	o, ok := up.store.(Offerer)
	if !ok || err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sourcePatience)
		defer cancel()
	}
	offers, warnings, trouble := o.Offers(ctx)
	switch {
	case trouble != nil && err == nil:
		c.opts.Log.Debug("only what the registry has is listed", "provider", item.Address.String(), "err", hint.Brief(trouble))
		return nil
	case trouble != nil:
		up.fail(trouble)
		return trouble
	}
	item.Warnings = warnings
	if len(offers) == 0 {
		return err
	}
	item.offers = offers
	c.list(item, item.tagged, item.etag)
	return nil
}

// unite returns the versions that are tagged or offered, oldest first.
func unite(tagged []provider.Version, offers []Offer) []provider.Version {
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

// Offer returns what is known of a version in a list of them that the registry does
// not have, but which can be had.
func (i *Item) Offer(v provider.Version) (Offer, bool) {
	n, ok := slices.BinarySearchFunc(i.offers, v, func(o Offer, v provider.Version) int { return o.Version.Compare(v) })
	if _, tagged := slices.BinarySearchFunc(i.tagged, v, provider.Version.Compare); tagged || !ok {
		return Offer{}, false
	}
	return i.offers[n], true
}

// Stored returns what the registry has of a version; nil if it has none of it.
func (i *Item) Stored() *artifact.Version {
	if i.completed {
		return i.stored
	}
	return i.Found
}

// complete has an Offerer add to a version, or bring one that is absent: absent is
// then what says so, and else nil.
func (c *Catalog) complete(ctx context.Context, up *upstream, item *Item, stored *artifact.Version, absent error) (*artifact.Version, error) {
	o, ok := up.store.(Offerer)
	if !ok || up.trouble != nil {
		return stored, absent
	}
	within := ctx
	if stored != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, sourcePatience)
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
