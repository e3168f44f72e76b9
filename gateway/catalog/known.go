package catalog

import (
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// Confirmed returns when the registry last confirmed the list of a provider's
// versions; zero if none is in memory.
func (c *Catalog) Confirmed(a provider.Address) time.Time {
	if e := c.cache.get(listingKey(a)); e != nil {
		if s := e.state.Load(); s != nil {
			return s.at
		}
	}
	return time.Time{}
}

// Denied reports whether a version is never served.
func (c *Catalog) Denied(a provider.Address, v provider.Version) bool { return c.denied(a, v) }

// All returns the versions of a provider, oldest first, that are tagged or can be had,
// with those that are denied. They are not to be changed.
func (i *Item) All() []provider.Version { return unite(i.tagged, i.offers) }

// Known returns the providers of which versions are in memory, in no order: those
// that were asked for, and not so long ago that they are forgotten.
func (c *Catalog) Known() []provider.Address {
	var out []provider.Address
	for _, e := range c.cache.entries() {
		if s := e.state.Load(); e.kind == listing && s != nil && s.err == nil {
			out = append(out, e.address)
		}
	}
	return out
}
