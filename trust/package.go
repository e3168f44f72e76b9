package trust

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Package is a package whose bytes were verified. Only a [Verifier] creates one. The zero
// value means no package.
type Package struct {
	platform provider.Platform
	filename string
	sum      [sha256.Size]byte
	size     int64
	h1s      provider.H1s
	program  error
}

// Platform returns the platform of the package.
func (p Package) Platform() provider.Platform { return p.platform }

// Filename returns the published file name of the package.
func (p Package) Filename() string { return p.filename }

// Sum returns the SHA-256 of the package.
func (p Package) Sum() [sha256.Size]byte { return p.sum }

// Size returns the size of the package in bytes.
func (p Package) Size() int64 { return p.size }

// H1 returns the h1: hash of the package. It is zero if clients might compute different h1:
// hashes for the package.
func (p Package) H1() provider.Hash { return p.h1s.Agreed() }

// HasH1 reports whether clients compute an h1: hash for the package. They can compute more than one.
func (p Package) HasH1(h provider.Hash) bool { return p.h1s.Has(h) }

// Program returns an error that wraps [provider.ErrNoProgram] if clients install the package, but cannot run it. A
// signature covers such a package like any other, so only its publisher can fix it.
func (p Package) Program() error { return p.program }

// Hashes returns the zh: hash of the package, and each h1: hash that clients compute.
func (p Package) Hashes() []provider.Hash {
	return append([]provider.Hash{provider.ZipHash(p.sum)}, p.h1s.All()...)
}

// Verifier verifies one package. The caller writes the bytes of the package to it, and then
// calls Accept.
type Verifier struct {
	checksums *Checksums
	platform  provider.Platform
	filename  string
	hash      hash.Hash
	size      int64
}

// Verifier returns a verifier for the package published as filename. It returns
// ErrNotListed if the checksums do not cover that name. It returns ErrUnknown or
// ErrChecksum if the listed checksum already shows that a lock file does not have the
// package.
func (c *Checksums) Verifier(p provider.Platform, filename string) (*Verifier, error) {
	sum, listed := c.sums[filename]
	_, offered := c.claims.Hashes[filename] // the list of hashes may be empty
	if !listed && (!offered || c.sums != nil) {
		return nil, hint.Wrap(fmt.Errorf("%s: %w", filename, ErrNotListed),
			"the release is incomplete: its publisher must list every package under its exact file name")
	}
	if listed { // otherwise Accept checks the lock files
		if err := c.checkKnown(Package{platform: p, filename: filename, sum: sum}, false); err != nil {
			return nil, err
		}
	}
	return &Verifier{checksums: c, platform: p, filename: filename, hash: sha256.New()}, nil
}

// Write adds the next bytes of the package. It never returns an error.
func (v *Verifier) Write(p []byte) (int, error) {
	v.size += int64(len(p))
	return v.hash.Write(p)
}

// Accept returns the package if the written bytes match the checksums and are a zip. It
// returns ErrChecksum for other bytes, [provider.ErrNotZip] for bytes that are not a zip or
// cannot be unpacked, and ErrUnknown if a lock file does not have the package. The
// parameter content must hold the bytes that were written. Accept reads it to compute the
// h1: hash, and stops when ctx ends.
func (v *Verifier) Accept(ctx context.Context, content io.ReaderAt) (Package, error) {
	p := Package{platform: v.platform, filename: v.filename, size: v.size, sum: [sha256.Size]byte(v.hash.Sum(nil))}
	if want, ok := v.checksums.sums[v.filename]; ok && want != p.sum {
		return Package{}, hint.Wrap(fmt.Errorf("%s: %w: its %d bytes have the SHA-256 %x, but %x is listed", v.filename, ErrChecksum, v.size, p.sum, want),
			"the package is not what its publisher released, or was damaged on the way; nothing was stored")
	}
	var err error
	if p.h1s, err = provider.HashContent(ctx, content, v.size); err != nil && !errors.Is(err, provider.ErrNoH1) {
		return Package{}, fmt.Errorf("%s: %w", v.filename, err)
	}
	if err := v.checksums.claims.Reported[v.filename].checkPackage(p); err != nil {
		return Package{}, err
	}
	isZip := !errors.Is(err, provider.ErrNotZip)
	if hashes := v.checksums.claims.Hashes[v.filename]; v.checksums.sums == nil && len(hashes) > 0 && !matches(p, isZip, hashes) {
		if isZip && err != nil {
			return Package{}, hint.Wrap(fmt.Errorf("%s: %w: it has %s, but listed are %v: %w", v.filename, ErrChecksum, provider.ZipHash(p.sum), hashes, err),
				"its zip has an entry that clients could refuse, so that only a zh: hash can identify it: push it from its origin")
		}
		return Package{}, fmt.Errorf("%s: %w: it has %s, but listed are %v", v.filename, ErrChecksum, joinHashes(p.Hashes()), hashes)
	}
	if !isZip {
		return Package{}, hint.Wrap(fmt.Errorf("%s: its %d bytes are what is listed, but they are %w", v.filename, v.size, err), NotZipHint)
	}
	if err := v.checksums.checkKnown(p, true); err != nil {
		return Package{}, err
	}
	if err := provider.CheckProgram(ctx, content, v.size, v.checksums.Provider().Type(), v.platform); errors.Is(err, provider.ErrNoProgram) {
		p.program = err
	}
	return p, nil
}

// joinHashes joins hashes for a message.
func joinHashes(hashes []provider.Hash) string {
	var out []string
	for _, h := range hashes {
		out = append(out, h.String())
	}
	return strings.Join(out, " and ")
}

// NotZipHint is the hint for a package that is not a zip.
const NotZipHint = "no client could unpack it: its publisher released a file that is not a zip, or the zip is damaged. Ask the publisher for a new release; nothing was stored"

// matches reports whether, for each scheme in hashes, the package has one of the hashes. Clients
// are less strict: they accept one match of any scheme. If clients could compute different h1:
// hashes of the zip, an unknown h1: hash does not count against the right zh: hash.
func matches(p Package, isZip bool, hashes []provider.Hash) bool {
	zip := provider.ZipHash(p.sum)
	given := func(isZip bool) bool {
		return slices.ContainsFunc(hashes, func(h provider.Hash) bool { return h.IsZip() == isZip })
	}
	if p.H1().IsZero() && isZip {
		return slices.Contains(hashes, zip) || !given(true) && slices.ContainsFunc(hashes, p.HasH1)
	}
	return len(hashes) > 0 &&
		(!given(true) || slices.Contains(hashes, zip)) &&
		(!given(false) || slices.ContainsFunc(hashes, p.HasH1))
}

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
// file might be the package's hash.
//
// Like clients, it accepts a package if the lock file has one of its hashes. But if only the h1: hash matches, and
// the lock file has a zh: hash that the release does not list, the lock file was created from different packages.
// checkKnown then returns ErrChecksum.
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

// unlistedZip returns a zh: hash in a lock file that is not in the checksum document, if any.
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
