package trust

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// ErrUnknown means that a lock file in [Claims.Known] has no hash of a package.
var ErrUnknown = errors.New("not known")

// Known holds the hashes of a version's packages in a lock file. A lock file does not say
// which hash belongs to which platform, and might lack the hashes of some platforms.
type Known struct {
	// Where is the file and the line of the hashes, such as .terraform.lock.hcl:12.
	Where  string
	Hashes []provider.Hash
}

// KnownBySum reports whether every lock file has the zh: hash of a file, according to the
// SHA-256 that SHA256SUMS lists. If not, the bytes of the package are needed to decide.
func (c *Checksums) KnownBySum(filename string) bool {
	sum, ok := c.sums[filename]
	return len(c.claims.Known) == 0 || ok && !slices.ContainsFunc(c.claims.Known, func(k Known) bool { return !k.hasZip(sum) })
}

// checkKnown returns ErrUnknown or ErrChecksum if a lock file does not have the package. If
// read is false, the bytes of the package have not been read yet, and any h1: hash in a lock
// file might be the hash of the package.
//
// Like clients, it accepts a package if the lock file has one of its hashes, with one
// exception. If the lock file has only the h1: hash of the package, and a zh: hash that the
// release does not list, the lock file was created from different packages. checkKnown then
// returns ErrChecksum.
func (c *Checksums) checkKnown(p Package, read bool) error {
	for _, k := range c.claims.Known {
		if k.hasZip(p.sum) {
			continue
		}
		if other := c.unlistedZip(k); !other.IsZero() {
			return k.contradicted(p.filename, p.sum, other)
		}
		if !slices.ContainsFunc(k.Hashes, func(h provider.Hash) bool { return !h.IsZip() && (!read || p.HasH1(h)) }) {
			return k.unknown(p)
		}
	}
	return nil
}

// unlistedZip returns a zh: hash in a lock file that is not in the checksum document, or the
// zero hash if there is none.
func (c *Checksums) unlistedZip(k Known) provider.Hash {
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

func (k Known) unknown(p Package) error {
	return hint.Wrap(fmt.Errorf("%s: %w at %s: none of the hashes there is the package's, which has %s", p.filename, ErrUnknown, k.Where, joinHashes(p.Hashes())),
		"add it to the lock file with tofu providers lock -platform=%s or terraform providers lock -platform=%[1]s, or leave the platform out: --platform names those to push", p.platform)
}

func (k Known) contradicted(filename string, sum [sha256.Size]byte, other provider.Hash) error {
	return hint.Wrap(fmt.Errorf("%s: %w: it has %s, which is not at %s; there is %s, which its release does not list", filename, ErrChecksum, provider.ZipHash(sum), k.Where, other),
		"the lock file was made from other packages than its origin has now: find out which of them are the publisher's; nothing was stored")
}
