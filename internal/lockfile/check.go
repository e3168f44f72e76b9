package lockfile

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// ErrContradiction means that a lock file and a release cannot describe the same packages.
var ErrContradiction = errors.New("contradicts")

// Release has the facts that are known about a version's packages.
type Release struct {
	// Packages are the available packages.
	Packages []Package
	// Listed are the hashes of all zips of the release in its checksum document, and Platforms their platforms;
	// nil without a document.
	Listed    []provider.Hash
	Platforms []provider.Platform
}

// Package is the package for one platform.
type Package struct {
	Platform provider.Platform
	Zip      provider.Hash // zh:
	H1       provider.Hash // h1:, if known
}

// Check fails with ErrContradiction if the hashes of an entry show that it was made from other packages than
// the release's.
//
// A lock file does not say which hash belongs to which platform, and may lack the hashes of some platforms. So
// an unknown hash proves nothing as long as it may belong to an unavailable package. It cannot belong to one if
// it is
//
//   - a zh: hash that the checksum document does not list, because the document
//     lists all packages;
//   - an h1: hash that matches no package, while the h1: hash of every platform in
//     the document is known;
//   - one of several hashes, none of which is the release's.
//
// Clients do not check this: they accept a package if one hash in the file matches, and every added hash makes
// the file accept more. Therefore the last rule also holds if the entry could just belong to other platforms.
func (f *File) Check(a provider.Address, r Release) error {
	e := f.entries[a]
	zips, h1s := r.hashes()
	inCommon, hashes := 0, 0
	for _, l := range e.hashes {
		h, err := provider.ParseHash(l.text)
		if err != nil {
			continue // clients do not compare these
		}
		hashes++
		switch {
		case zips[h] || h1s[h]:
			inCommon++
		case h.IsZip() && r.Listed != nil:
			return f.contradiction(a, l, "the checksum document of the release lists no such package", otherPackages)
		case !h.IsZip() && r.Platforms != nil && r.complete():
			return f.contradiction(a, l, "no package of the release has that content", otherPackages)
		}
	}
	if hashes > 0 && inCommon == 0 {
		return f.contradiction(a, e.hashes[0], "neither this hash nor any other of its entry is known to be a package's of the release", nothingShared)
	}
	return nil
}

const (
	otherPackages = "the entry was made from other packages than the registry has: find out which of them are the publisher's. If it is the registry's, remove the hashes from the entry and run this again"
	nothingShared = "push the platforms, too, that the entry was made on; if it was made from other packages, find out which are the publisher's"
)

func (f *File) contradiction(a provider.Address, l listed, why, help string) error {
	p, _ := f.Provider(a)
	return hint.Wrap(fmt.Errorf("%s: %.80q %w the registry's %s %s: %s", f.Where(l.line), l.text, ErrContradiction, a, p.Version, why),
		"%s", help)
}

// hashes returns the hashes of the release's packages, available or not.
func (r Release) hashes() (zips, h1s map[provider.Hash]bool) {
	zips, h1s = map[provider.Hash]bool{}, map[provider.Hash]bool{}
	for _, h := range r.Listed {
		zips[h] = true
	}
	for _, p := range r.Packages {
		zips[p.Zip] = true
		if !p.H1.IsZero() {
			h1s[p.H1] = true
		}
	}
	return zips, h1s
}

// complete reports whether the h1: hash of every platform is known.
func (r Release) complete() bool {
	known := map[provider.Platform]bool{}
	for _, p := range r.Packages {
		known[p.Platform] = !p.H1.IsZero()
	}
	for _, p := range r.Platforms {
		if !known[p] {
			return false
		}
	}
	return true
}
