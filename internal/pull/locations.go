package pull

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// Origin is where providers come from.
type Origin interface {
	origin.Source
	// Package returns a package, and the SHA-256 that the origin announces for it. The caller
	// knows the release's signed SHA256SUMS already.
	Package(context.Context, provider.Address, provider.Version, provider.Platform) (origin.Package, [sha256.Size]byte, error)
}

// location is where the origin has a package.
type location struct {
	pkg   origin.Package
	since time.Time
}

// locationBytes is the memory of a location at most, including the URL of the package.
const locationBytes = 21 << 10

// addLocation remembers where a package is. Expired locations make room for it before
// releases do.
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

// dropExpired forgets expired locations, and reports whether there were any.
func (r *release) dropExpired(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.locations)
	maps.DeleteFunc(r.locations, func(_ provider.Platform, at location) bool { return now.Sub(at.since) >= packageLasts })
	return len(r.locations) < before
}

// memory is roughly the memory of a release, in bytes.
func (r *release) memory() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes + locationBytes*int64(len(r.locations))
}

// size returns the size of a package; 0: unknown.
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

// prepare asks for the sizes of all packages whose locations are known. A client is likely
// to request one of them next, and the connection to its host is then open.
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

// isStored reports whether the registry has a package, as far as known.
func (r *release) isStored(d digest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored[d]
}

// setStored notes the packages that a push has stored.
func (r *release) setStored(result *pusher.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range result.Packages {
		r.stored[digest.Digest(p.Digest)] = true
	}
}

// locate returns a package's current location at its origin.
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
	if pkg.Filename != w.filename || digest.NewDigestFromBytes(digest.SHA256, sum[:]) != w.digest {
		return pkg, contradiction(w, pkg.Filename)
	}
	p.addLocation(r, w.platform, location{pkg, time.Now()})
	return pkg, nil
}

// contradiction is the error for an origin that offers another package than its SHA256SUMS
// lists.
func contradiction(w wanted, name string) error {
	return hint.Wrap(fmt.Errorf("%s for %s: %w: its origin announces %s with another SHA-256 than its SHA256SUMS listed for %s",
		w.subject, w.platform, trust.ErrChecksum, name, w.filename), "the origin contradicts itself, or the version was published anew; nothing was stored")
}
