package lock

import (
	"context"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

// check returns an error if the hashes of an entry show that the entry was written for packages other than those
// of the version in the registry.
//
// A lock file does not say which hash belongs to which platform. It can also lack the hashes of some platforms.
// Therefore an unknown hash can belong to a package that the registry does not have. It cannot belong to such a
// package if it is
//
//   - a zh: hash that the checksum document does not list, because the document
//     lists all packages;
//   - an h1: hash that matches no package, while the h1: hash of every platform in
//     the document is known;
//   - in an entry that contains no hash of the version.
//
// Clients do not check this. They accept a package if one hash in the file matches, so every added hash makes
// the file accept more packages. Therefore the last rule applies even if the entry could simply be for other
// platforms.
//
// The registry has no h1: hash of some packages, for example of a zip with entries for folders. Before the last rule
// applies, check reads such packages, and compares the entry with the h1: hashes of their content.
func (r *reading) check(ctx context.Context, file *lockfile.File, p lockfile.Provider) error {
	if err := r.checkHashes(file, p); err != nil {
		return err
	}
	known := p.Known()
	if len(known) == 0 || slices.ContainsFunc(known, r.knows) {
		return nil
	}
	if slices.ContainsFunc(known, func(h provider.Hash) bool { return !h.IsZip() }) {
		if err := r.hashContents(ctx); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(known, r.knows) {
		return nil
	}
	return r.contradiction(file, p, 0, "neither this hash nor any other of its entry is known to be a package's of the release", nothingShared)
}

// knows reports whether a hash is listed in the checksum document, or is of a stored package.
func (r *reading) knows(h provider.Hash) bool {
	return slices.Contains(r.listed, h) || slices.ContainsFunc(r.packages(), func(p artifact.Package) bool {
		return h == p.ZipHash() || h == p.H1 || r.contents[p.Platform].Has(h)
	})
}

// checkHashes checks each hash of an entry by the first two rules.
func (r *reading) checkHashes(file *lockfile.File, p lockfile.Provider) error {
	complete := r.platforms != nil && !slices.ContainsFunc(r.platforms, func(platform provider.Platform) bool {
		return !slices.ContainsFunc(r.packages(), func(p artifact.Package) bool { return p.Platform == platform && !p.H1.IsZero() })
	})
	for i, text := range p.Hashes {
		h, err := provider.ParseHash(text)
		switch {
		case err != nil: // a hash of an unknown scheme; clients ignore it
		case r.knows(h):
		case h.IsZip() && r.listed != nil:
			return r.contradiction(file, p, i, "the checksum document of the release lists no such package", otherPackages)
		case !h.IsZip() && complete:
			return r.contradiction(file, p, i, "no package of the release has that content", otherPackages)
		}
	}
	return nil
}

const (
	otherPackages = "the entry was made from other packages than the registry has: find out which of them are the publisher's. If it is the registry's, remove the hashes from the entry and run this again"
	nothingShared = "push the platforms, too, that the entry was made on; if it was made from other packages, find out which are the publisher's"
)

func (r *reading) contradiction(file *lockfile.File, p lockfile.Provider, hash int, why, help string) error {
	return hint.New(fmt.Sprintf("%s: %.80q contradicts the registry's %s: %s", file.Where(p.HashLine(hash)), p.Hashes[hash], r.target, why), "%s", help)
}
