package main

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// rediscoverAfter is how long a host's services are taken to be where they were.
	rediscoverAfter = 10 * time.Minute
	// maxDiscovered is of how many hosts they are known at once.
	maxDiscovered = 256
)

// pullOrigin is the origin registries for what others ask for: it connects to
// public addresses and to what the user names, and says on whose behalf it asks.
// Service discovery keeps what a host once said until its end, which in a gateway
// may be far away, and for as many hosts as others ask for: a client takes the place
// of the last one after a while.
type pullOrigin struct {
	make func() *origin.Registry

	mu      sync.Mutex
	current *origin.Registry
	since   time.Time
	hosts   map[svchost.Hostname]bool // that it is asked for
}

var _ origin.Source = (*pullOrigin)(nil)

func newPullOrigin(cli *cliconfig.Config, p *pulling) *pullOrigin {
	guard := origin.NewGuard(namedHosts(p.Selector.Include, cli.Services()))
	transport := guard.Transport(outgoing.Transport())
	return &pullOrigin{make: func() *origin.Registry { return newOriginOver(cli, guard, transport, p.via) }}
}

// registry returns the client for a provider.
func (o *pullOrigin) registry(a provider.Address) *origin.Registry {
	o.mu.Lock()
	defer o.mu.Unlock()
	host := a.ServiceHost()
	if o.current == nil || time.Since(o.since) >= rediscoverAfter || len(o.hosts) >= maxDiscovered && !o.hosts[host] {
		o.current, o.since, o.hosts = o.make(), time.Now(), map[svchost.Hostname]bool{}
	}
	o.hosts[host] = true
	return o.current
}

// Versions implements [origin.Source].
func (o *pullOrigin) Versions(ctx context.Context, a provider.Address) (*origin.Listing, error) {
	return o.registry(a).Versions(ctx, a)
}

// Platforms implements [origin.Source].
func (o *pullOrigin) Platforms(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version) ([]provider.Platform, error) {
	return o.registry(a).Platforms(ctx, a, l, v)
}

// Release implements [origin.Source].
func (o *pullOrigin) Release(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	return o.registry(a).Release(ctx, a, l, v, want)
}

// Package is as that of [origin.Registry].
func (o *pullOrigin) Package(ctx context.Context, a provider.Address, v provider.Version, p provider.Platform) (origin.Package, [sha256.Size]byte, error) {
	return o.registry(a).Package(ctx, a, v, p)
}
