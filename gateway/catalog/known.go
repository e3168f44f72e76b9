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
