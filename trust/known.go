package trust

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// ErrUnknown means that a package is none of those that [Claims.Known] knows.
var ErrUnknown = errors.New("not known")

// Known is what a lock file knows of the packages of a version. It does not say
// which hash is for which platform, nor whether it knows all of them.
type Known struct {
	// Where names the place, such as .terraform.lock.hcl:12.
	Where  string
	Hashes []provider.Hash
}

// KnownBySum reports whether the listed SHA-256 of a file is all that it takes to
// say that it is known to everyone who has to know it. Otherwise that needs its
// bytes.
func (c *Checksums) KnownBySum(filename string) bool {
	sum, ok := c.sums[filename]
	return len(c.claims.Known) == 0 || ok && !slices.ContainsFunc(c.claims.Known, func(k Known) bool { return !k.hasZip(sum) })
}

// checkKnown fails with ErrUnknown or ErrChecksum if what is listed for a file is
// enough to say that its package is not known.
func (c *Checksums) checkKnown(p provider.Platform, filename string) error {
	sum, listed := c.sums[filename]
	if !listed {
		return nil // its bytes will tell
	}
	for _, k := range c.claims.Known {
		if k.hasZip(sum) {
			continue
		}
		if other := c.stranger(k); !other.IsZero() {
			return k.contradicted(filename, sum, other)
		}
		if !slices.ContainsFunc(k.Hashes, isH1) {
			return k.unknown(p, filename, provider.ZipHash(sum).String())
		}
	}
	return nil
}

// checkAccepted does the same for a package whose bytes were verified.
//
// Like clients it is content with one hash that matches. But a lock file that
// knows the content of a package only, and zips that are none of its release, was
// made from other packages.
func (c *Checksums) checkAccepted(p Package) error {
	for _, k := range c.claims.Known {
		if k.hasZip(p.sum) {
			continue
		}
		if other := c.stranger(k); !other.IsZero() {
			return k.contradicted(p.filename, p.sum, other)
		}
		if p.h1.IsZero() || !slices.Contains(k.Hashes, p.h1) {
			has := provider.ZipHash(p.sum).String()
			if !p.h1.IsZero() {
				has += " and " + p.h1.String()
			}
			return k.unknown(p.platform, p.filename, has)
		}
	}
	return nil
}

// stranger returns a hash of a zip that is none of those in the checksum document,
// none if there is no such.
func (c *Checksums) stranger(k Known) provider.Hash {
	listed := map[provider.Hash]bool{}
	for _, sum := range c.sums {
		listed[provider.ZipHash(sum)] = true
	}
	for _, h := range k.Hashes {
		if h.IsZip() && !listed[h] {
			return h
		}
	}
	return provider.Hash{}
}

func (k Known) hasZip(sum [sha256.Size]byte) bool {
	return slices.Contains(k.Hashes, provider.ZipHash(sum))
}

func isH1(h provider.Hash) bool { return !h.IsZip() }

func (k Known) unknown(p provider.Platform, filename, has string) error {
	return hint.Wrap(fmt.Errorf("%s: %w at %s: none of the hashes there is the package's, which has %s", filename, ErrUnknown, k.Where, has),
		"have the lock file know it, by tofu providers lock -platform=%s or terraform providers lock -platform=%[1]s, or leave the platform out: --platform names those to push", p)
}

func (k Known) contradicted(filename string, sum [sha256.Size]byte, other provider.Hash) error {
	return hint.Wrap(fmt.Errorf("%s: %w: it has %s, which is not at %s; there is %s, which its release does not list", filename, ErrChecksum, provider.ZipHash(sum), k.Where, other),
		"the lock file was made from other packages than its origin has now: find out which of them are the publisher's; nothing was stored")
}
