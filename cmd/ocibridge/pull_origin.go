package main

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// rediscoverAfter is how long a host's services are taken to be where they were.
const rediscoverAfter = 10 * time.Minute

// pullOrigin is the origin registries for what others ask for: it connects to
// public addresses and to what the user names, and says on whose behalf it asks.
// Service discovery keeps what a host once said until its end, which in a gateway
// may be far away: a client takes the place of the last one after a while.
type pullOrigin struct {
	make func() *origin.Registry

	mu      sync.Mutex
	current *origin.Registry
	since   time.Time
}

var _ origin.Source = (*pullOrigin)(nil)

func newPullOrigin(cli *cliconfig.Config, p *pulling) *pullOrigin {
	guard := origin.NewGuard(namedHosts(p.Selector.Include, cli.Services()))
	transport := guard.Transport(http.DefaultTransport.(*http.Transport))
	return &pullOrigin{make: func() *origin.Registry { return newOriginOver(cli, guard, transport, p.via) }}
}

func (o *pullOrigin) registry() *origin.Registry {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current == nil || time.Since(o.since) >= rediscoverAfter {
		o.current, o.since = o.make(), time.Now()
	}
	return o.current
}

// Versions implements [origin.Source].
func (o *pullOrigin) Versions(ctx context.Context, a provider.Address) (*origin.Listing, error) {
	return o.registry().Versions(ctx, a)
}

// Platforms implements [origin.Source].
func (o *pullOrigin) Platforms(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version) ([]provider.Platform, error) {
	return o.registry().Platforms(ctx, a, l, v)
}

// Release implements [origin.Source].
func (o *pullOrigin) Release(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	return o.registry().Release(ctx, a, l, v, want)
}

// Package is as that of [origin.Registry].
func (o *pullOrigin) Package(ctx context.Context, a provider.Address, v provider.Version, p provider.Platform) (origin.Package, [sha256.Size]byte, error) {
	return o.registry().Package(ctx, a, v, p)
}
