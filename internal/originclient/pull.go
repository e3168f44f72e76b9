package originclient

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// rediscoverAfter is how long a host's services stay cached.
	rediscoverAfter = 10 * time.Minute
	// maxDiscovered bounds how many hosts' services are cached.
	maxDiscovered = 256
)

// Pull is a client that asks origins on behalf of a gateway's clients.
//
// Service discovery caches the services of every host for as long as it exists. A gateway
// may run for months, and its clients may name any number of hosts. So Pull replaces its
// registry client from time to time.
type Pull struct {
	make func() *origin.Registry

	mu      sync.Mutex
	current *origin.Registry
	since   time.Time
	hosts   map[svchost.Hostname]bool // that current was used for
}

var _ origin.Source = (*Pull)(nil)

// Pull returns a client for a gateway's pull-through. The header Via tells origins, and the
// gateway itself, which gateway asks. Hosts in the include patterns may be at any address.
func (u User) Pull(include []provider.Pattern, via string) *Pull {
	guard := origin.NewGuard(namedHosts(include, u.CLI.Services()))
	transport := guard.Transport(outgoing.Transport())
	return &Pull{make: func() *origin.Registry { return u.over(guard, transport, via) }}
}

// registry returns the client for a provider.
func (p *Pull) registry(a provider.Address) *origin.Registry {
	p.mu.Lock()
	defer p.mu.Unlock()
	host := a.ServiceHost()
	if p.current == nil || time.Since(p.since) >= rediscoverAfter || len(p.hosts) >= maxDiscovered && !p.hosts[host] {
		p.current, p.since, p.hosts = p.make(), time.Now(), map[svchost.Hostname]bool{}
	}
	p.hosts[host] = true
	return p.current
}

// Versions implements [origin.Source].
func (p *Pull) Versions(ctx context.Context, a provider.Address) (*origin.Listing, error) {
	return p.registry(a).Versions(ctx, a)
}

// Platforms implements [origin.Source].
func (p *Pull) Platforms(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version) ([]provider.Platform, error) {
	return p.registry(a).Platforms(ctx, a, l, v)
}

// Release implements [origin.Source].
func (p *Pull) Release(ctx context.Context, a provider.Address, l *origin.Listing, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	return p.registry(a).Release(ctx, a, l, v, want)
}

// Package returns a package as [origin.Registry.Package] does.
func (p *Pull) Package(ctx context.Context, a provider.Address, v provider.Version, platform provider.Platform) (origin.Package, [sha256.Size]byte, error) {
	return p.registry(a).Package(ctx, a, v, platform)
}
