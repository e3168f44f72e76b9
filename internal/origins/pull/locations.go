package pull

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// Origin is the source of the providers that are pulled through.
type Origin interface {
	origin.Source
	// Package returns a package, and the SHA-256 that the origin announces for it. The caller must compare this SHA-256
	// with the SHA256SUMS that the trust policy has already accepted.
	Package(context.Context, provider.Address, provider.Version, provider.Platform) (origin.Package, [sha256.Size]byte, error)
}

// location is the location of a package at its origin.
type location struct {
	pkg   origin.Package
	since time.Time // when the origin returned it
}

// locationBytes is the maximum memory in bytes of a location, including the package's URL.
const locationBytes = 21 << 10

// addLocation stores the location of a package in the package's release. If the cache of releases is full, the expired
// locations of all releases are dropped first. Releases are evicted only if that does not make enough room.
func (p *Puller) addLocation(r *release, platform provider.Platform, at location) {
	r.dropExpired(at.since)
	r.addLocation(platform, at)
	if _, bytes := p.releases.Size(); bytes+locationBytes > maxReleaseBytes {
		for _, other := range p.releases.Good() {
			if other.Value.dropExpired(at.since) {
				p.releases.Resize(other.Value.subject)
			}
		}
	}
	p.releases.Resize(r.subject)
}

func (r *release) addLocation(platform provider.Platform, at location) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locations[platform] = at
}

// dropExpired drops expired locations, and reports whether it has dropped any.
func (r *release) dropExpired(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.locations)
	maps.DeleteFunc(r.locations, func(_ provider.Platform, at location) bool { return now.Sub(at.since) >= packageLasts })
	return len(r.locations) < before
}

// memory returns roughly the memory of a release in bytes.
func (r *release) memory() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes + locationBytes*int64(len(r.locations))
}

// size returns the size of a package in bytes, or 0 if it is unknown.
func (r *release) size(d digest.Digest) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sizes[d]
}

func (r *release) setSize(d digest.Digest, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size > 0 {
		r.sizes[d] = size
	}
}

// prepare requests the sizes of all packages whose locations are known. A client is likely to request one of these packages
// next, and the connection to its host is then already open.
func (r *release) prepare(ctx context.Context) {
	r.mu.Lock()
	locations := maps.Clone(r.locations)
	r.mu.Unlock()
	for platform, at := range locations {
		if p := r.find(platform); p != nil && at.pkg.Size != nil {
			r.setSize(p.Digest, at.pkg.Size(ctx))
		}
	}
}

// storedFor is how long a package counts as stored after a push. The registry may remove it later.
const storedFor = 10 * time.Minute

// isStored reports whether a recent push of this Puller has shown that a package is stored in the registry.
func (r *release) isStored(d digest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.stored[d]) < storedFor
}

// setStored records that a push has stored the packages of its result.
func (r *release) setStored(result *pusher.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range result.Packages {
		r.stored[digest.Digest(p.Digest)] = time.Now()
	}
}

// locate returns the location of a package at its origin. It asks the origin unless a current location is known.
func (p *Puller) locate(ctx context.Context, r *release, w wanted) (origin.Package, error) {
	r.mu.Lock()
	known, ok := r.locations[w.platform]
	r.mu.Unlock()
	if ok && time.Since(known.since) < packageLasts {
		return known.pkg, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	pkg, sum, err := p.o.Origin.Package(ctx, w.subject.provider, w.subject.version, w.platform)
	if err != nil {
		return pkg, outage(err)
	}
	if offered := r.find(w.platform); offered == nil || pkg.Filename != offered.Filename || digest.NewDigestFromBytes(digest.SHA256, sum[:]) != w.digest {
		return pkg, contradiction(w.subject, w.platform, pkg.Filename)
	}
	p.addLocation(r, w.platform, location{pkg, time.Now()})
	return pkg, nil
}

// contradiction returns the error for an origin whose announcement of a package differs from the accepted SHA256SUMS.
func contradiction(s providerVersion, platform provider.Platform, name string) error {
	return hint.Wrap(fmt.Errorf("%s for %s: %w: its origin announces %s with another SHA-256 than its SHA256SUMS listed, or in place of the package that it announced before",
		s, platform, trust.ErrChecksum, name), "the origin contradicts itself, or the version was published anew; nothing was stored")
}
