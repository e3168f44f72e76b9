package lockfile

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// ErrContradiction means that a lock file and a release cannot be about the same
// packages.
var ErrContradiction = errors.New("contradicts")

// Release is what is known for certain of the packages of a version.
type Release struct {
	// Packages are those at hand.
	Packages []Package
	// Listed are the hashes of all zips of the release, and Platforms those that it
	// is for, by its checksum document; nil if there is none.
	Listed    []provider.Hash
	Platforms []provider.Platform
}

// Package is the package for one platform.
type Package struct {
	Platform provider.Platform
	Zip      provider.Hash // zh:
	H1       provider.Hash // h1:, if it is known
}

// Check fails with ErrContradiction if the hashes of an entry show that it was
// made from other packages than the release's.
//
// A lock file does not say which hash is for which platform, and may lack those
// of some. So one that the release does not explain proves nothing as long as
// there are packages that it could be of. There are none for
//
//   - a zh: hash that the checksum document does not list: the document lists all;
//   - an h1: hash that is no package's, where that of every platform in the
//     document is known;
//   - hashes of which not one is the release's.
//
// Clients would not look: to them it is enough if one hash in the file matches,
// and what is added to a file widens what they accept. For that reason the last
// rule holds also where the entry could just be for other platforms.
func (f *File) Check(a provider.Address, r Release) error {
	e := f.entries[a]
	zips, h1s := r.hashes()
	inCommon, hashes := 0, 0
	for _, l := range e.hashes {
		h, err := provider.ParseHash(l.text)
		if err != nil {
			continue // nothing that clients compare
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

// hashes are those of the release's packages, at hand or not.
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
