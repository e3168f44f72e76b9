package pullthrough

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

// place is where the origin has a package.
type place struct {
	pkg origin.Package
	at  time.Time
}

// placeBytes is what a place takes in memory at most, with the URL of the package.
const placeBytes = 21 << 10

// addPlace remembers where a package is. Locations that have expired make room for it
// before releases do.
func (p *Puller) addPlace(r *release, platform provider.Platform, at place) {
	r.dropPlaces(at.at)
	r.addPlace(platform, at)
	if _, bytes := p.releases.Size(); bytes+placeBytes > maxReleaseBytes {
		for _, other := range p.releases.Good() {
			if other.Value.dropPlaces(at.at) {
				p.releases.Resize(other.Value.subject)
			}
		}
	}
	p.releases.Resize(r.subject)
}

func (r *release) addPlace(platform provider.Platform, at place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[platform] = at
}

// dropPlaces forgets expired locations, and reports whether there were any.
func (r *release) dropPlaces(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.found)
	maps.DeleteFunc(r.found, func(_ provider.Platform, at place) bool { return now.Sub(at.at) >= packageLasts })
	return len(r.found) < before
}

// memory is roughly the memory of a release, in bytes.
func (r *release) memory() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes + placeBytes*int64(len(r.found))
}

// size returns the size of a package if it is known, else 0.
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

// prepare asks for the sizes of packages whose place is known: one of them is likely
// to be asked for next, and its origin is then spoken to already.
func (r *release) prepare(ctx context.Context) {
	r.mu.Lock()
	found := maps.Clone(r.found)
	r.mu.Unlock()
	for platform, at := range found {
		if p := r.find(platform); p != nil && at.pkg.Size != nil {
			r.setSize(p.Digest, at.pkg.Size(ctx))
		}
	}
}

// isThere reports whether the registry has a package by now.
func (r *release) isThere(d digest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.there[d]
}

// stored takes note of what a push has stored.
func (r *release) stored(result *pusher.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range result.Packages {
		r.there[digest.Digest(p.Digest)] = true
	}
}

// packager is an origin that tells of one package without what it is checked by.
// [origin.Registry] is one.
type packager interface {
	Package(context.Context, provider.Address, provider.Version, provider.Platform) (origin.Package, [sha256.Size]byte, error)
}

// place returns where the origin has a package now.
func (p *Puller) place(ctx context.Context, r *release, w wanted) (origin.Package, error) {
	r.mu.Lock()
	known, ok := r.found[w.platform]
	r.mu.Unlock()
	if ok && time.Since(known.at) < packageLasts {
		return known.pkg, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	var pkg origin.Package
	if o, ok := p.o.Origin.(packager); ok {
		var sum [sha256.Size]byte
		var err error
		if pkg, sum, err = o.Package(ctx, w.subject.provider, w.subject.version, w.platform); err != nil {
			return pkg, outage(err)
		}
		if pkg.Filename != w.filename || digest.NewDigestFromBytes(digest.SHA256, sum[:]) != w.digest {
			return pkg, contradiction(w, pkg.Filename)
		}
	} else {
		l, err := p.fetchable(ctx, w.subject.provider)
		if err != nil {
			return pkg, err
		}
		rel, err := p.o.Origin.Release(ctx, w.subject.provider, l.listing, w.subject.version, []provider.Platform{w.platform})
		if err != nil {
			return pkg, outage(err)
		}
		if pkg = rel.Packages[0]; pkg.Filename != w.filename {
			return pkg, contradiction(w, pkg.Filename)
		}
	}
	p.addPlace(r, w.platform, place{pkg, time.Now()})
	return pkg, nil
}

// contradiction is the error for an origin that offers something else than it has
// signed.
func contradiction(w wanted, name string) error {
	return hint.Wrap(fmt.Errorf("%s for %s: %w: its origin announces %s with another SHA-256 than its SHA256SUMS listed for %s",
		w.subject, w.platform, trust.ErrChecksum, name, w.filename), "the origin contradicts itself, or the version was published anew; nothing was stored")
}
