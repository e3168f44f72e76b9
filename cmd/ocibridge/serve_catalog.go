package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// embeddedTTL takes the place of the default where the registry is in this
// process: nothing is current, so that what is pushed is served at once.
const embeddedTTL = -1

// newCatalog makes the catalog of the backend's repositories as the gateway block
// says. offers says of which providers there is more than they have; nil: of none. The
// caller closes it.
func newCatalog(back *backend, repository func(context.Context, provider.Address) (catalog.Store, error), offers func(provider.Address) bool, c config.Gateway, check checkVersion, n *telemetry.CatalogCounters, log *slog.Logger) (*catalog.Catalog, error) {
	o := catalog.Options{
		Repository: repository, Account: back.account, Place: back.place, Anew: auth.Anew, Check: check, Offers: offers,
		TagTTL: orNone(c.TagTTL), StaleIfError: orNone(c.StaleIfError), Counters: n, Log: log,
	}
	if back.embedded != nil && c.TagTTL == nil {
		o.TagTTL = embeddedTTL
	}
	for _, d := range c.Deny {
		o.Deny = append(o.Deny, catalog.Deny(d))
	}
	if c.Cache != nil {
		o.Directory = filepath.Join(c.Cache.Directory, "catalog")
	}
	return catalog.New(o)
}

// orNone returns a duration as [catalog.Options] have it: 0 for one that is not
// said, less for none.
func orNone(d *time.Duration) time.Duration {
	switch {
	case d == nil:
		return 0
	case *d == 0:
		return -1
	}
	return *d
}
