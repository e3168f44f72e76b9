// Package trust decides what makes a package acceptable, and is the only one
// that makes an accepted package.
//
// A release comes with [Claims]: what its origin says about it, unverified. A
// [Policy] turns them into [Checksums], either signed (a SHA256SUMS document
// with a valid OpenPGP detached signature by an accepted key) or, where the
// policy allows, checksum only. A [Verifier] made by them takes the bytes of one
// package and ends in a [Package] if, and only if, they are the ones meant for
// exactly that file name, and are a zip. Nothing else makes a Package with content, and nothing
// but a Package is ever stored.
//
// Keys and signatures are bounded before any is verified: the largest ones within
// the bounds take about a second of CPU time for each release. The package does no I/O.
package trust

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Verdict says on what grounds a package was accepted.
type Verdict string

const (
	// Signed: its checksum stands in a document with a valid signature.
	Signed Verdict = "signed"
	// ChecksumOnly: it matches a checksum that nobody signed, or it comes from a mirror
	// that gives no checksum at all.
	ChecksumOnly Verdict = "checksum only"
)

// Policy says what is accepted. The zero value accepts signed releases only, by
// the keys that come with them, as clients do.
type Policy struct {
	// AllowUnsigned accepts a release for which no key is offered, or that has
	// hashes and no signed document. A signature that is there and does not
	// verify is refused all the same.
	AllowUnsigned bool
	// Keys pins the keys that may sign, by the full fingerprints of their primary
	// keys in upper-case hexadecimal; none: whatever keys are offered. Of the
	// claims' keys only those are tried. With Keys, AllowUnsigned counts for
	// nothing: who says whose signature it must be wants one.
	Keys []string
	// StrictExpiry refuses signatures that are expired or by expired keys, which
	// clients only warn about.
	StrictExpiry bool
}

// Pins reports whether the policy names the keys that may sign.
func (p Policy) Pins() bool { return len(p.Keys) > 0 }

// allowsUnsigned reports whether a release without a signature will do.
func (p Policy) allowsUnsigned() bool { return p.AllowUnsigned && !p.Pins() }

// orUnsigned ends a hint with how to accept a release without a signature, if the policy
// leaves that open. what is the object of "accept".
func (p Policy) orUnsigned(a provider.Address, what string) string {
	if p.Pins() {
		return "; its trust block names the keys that must have signed it"
	}
	return fmt.Sprintf(", or accept %s with allow_unsigned = true in a block trust %q, or for one push or copy with --allow-unsigned", what, a)
}

// whyNoKey begins the hint for a release without keys.
func whyNoKey(a provider.Address) string {
	const openTofu = "registry.opentofu.org"
	if a.Hostname() == openTofu {
		return openTofu + " has no key of this publisher, and OpenTofu then goes by checksums alone: ask the publisher to file its key there"
	}
	return "ask its publisher to sign it, and to file the key with the registry"
}

// Claims are what the origin of a release says about it.
type Claims struct {
	Provider provider.Address
	Version  provider.Version

	// SHA256SUMS is the checksum document, Signature its detached OpenPGP
	// signature, binary or in ASCII armour (empty: none).
	SHA256SUMS []byte
	Signature  []byte
	// Keys are ASCII-armoured public keys, one ring each.
	Keys []string
	// SigningKeys is the JSON object that the keys came in, for the evidence.
	SigningKeys json.RawMessage

	// Announced are the SHA-256 sums, by file name, that the origin gives outside
	// the document. The document must list every one of them.
	Announced map[string][sha256.Size]byte

	// Reported are, by file name, hashes and sizes that the origin gives beside
	// them; a package must not contradict them.
	Reported map[string]Report
	// Hashes, by file name, take the place of SHA256SUMS for a release that has
	// none, as in a mirror folder. A file with an empty list has no hash: its package
	// is accepted unchecked, where the policy allows releases without a signature.
	Hashes map[string][]provider.Hash

	// Known are lock files, say, each of which must know every package, beside all
	// else that makes it acceptable.
	Known []Known
}

// lacksHashes reports whether the claims give no hash of some file.
func (c Claims) lacksHashes() bool {
	for _, hashes := range c.Hashes {
		if len(hashes) == 0 {
			return true
		}
	}
	return false
}

// Reasons to refuse claims. [provider.ErrNotZip] is another one.
var (
	ErrUnsigned  = errors.New("not signed")
	ErrSignature = errors.New("signature refused")
	ErrChecksum  = errors.New("checksum mismatch")
	ErrNotListed = errors.New("not listed in SHA256SUMS")
)

// Refused reports whether an error is for one of those reasons: it is about what is
// claimed, and not about the way to it.
func Refused(err error) bool {
	return errors.Is(err, ErrUnsigned) || errors.Is(err, ErrSignature) || errors.Is(err, ErrChecksum) || errors.Is(err, ErrNotListed) ||
		errors.Is(err, provider.ErrNotZip)
}

// Checksums are claims that a policy accepted.
type Checksums struct {
	claims  Claims
	verdict Verdict
	signer  Signer
	sums    sums
}

// Accept checks claims against the policy. Errors wrap ErrUnsigned or ErrSignature
// where that is the reason.
//
// A release with keys waits for one of the slots that the process has to verify
// signatures. If ctx ends first, or between two keys, nothing is decided: Accept
// returns the error of ctx, which [Refused] does not report.
func (p Policy) Accept(ctx context.Context, c Claims) (*Checksums, error) {
	accepted, err := p.accept(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.Provider, c.Version, err)
	}
	return accepted, nil
}

func (p Policy) accept(ctx context.Context, c Claims) (*Checksums, error) {
	if c.SHA256SUMS == nil {
		if !p.allowsUnsigned() {
			if c.lacksHashes() {
				return nil, hint.Wrap(fmt.Errorf("%w: it has neither hashes of every package nor a signed checksum document", ErrUnsigned),
					"push it from its origin, where it is signed%s", p.orUnsigned(c.Provider, "it unchecked"))
			}
			return nil, hint.Wrap(fmt.Errorf("%w: it has hashes, but no signed checksum document", ErrUnsigned),
				"push it from its origin, where it is signed%s", p.orUnsigned(c.Provider, "its hashes alone"))
		}
		return &Checksums{claims: c, verdict: ChecksumOnly}, nil
	}
	parsed, err := parseSums(c.SHA256SUMS)
	if err != nil {
		return nil, hint.Wrap(err, "it is no list of checksums as sha256sum writes it: nothing was stored; ask its publisher")
	}
	for name, sum := range c.Announced {
		if err := parsed.check(name, sum); err != nil {
			return nil, err
		}
	}
	if err := parsed.checkReports(c.Reported); err != nil {
		return nil, err
	}
	out := &Checksums{claims: c, verdict: ChecksumOnly, sums: parsed}
	if len(c.Keys) == 0 {
		if !p.allowsUnsigned() {
			return nil, hint.Wrap(fmt.Errorf("%w: no public key is offered to check a signature with", ErrUnsigned),
				"%s%s", whyNoKey(c.Provider), p.orUnsigned(c.Provider, "its checksums alone"))
		}
		return out, nil
	}
	if len(c.Signature) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%w: there are public keys, but no signature of SHA256SUMS", ErrUnsigned),
			"nothing was stored; ask its publisher for the missing signature")
	}
	if out.claims.Signature, err = BinarySignature(c.Signature); err != nil {
		return nil, hint.Wrap(fmt.Errorf("%w: %w", ErrSignature, err), "nothing was stored; ask its publisher for a signature as gpg --detach-sign writes it")
	}
	if out.signer, err = p.verifySignature(ctx, c.SHA256SUMS, out.claims.Signature, c.Keys); err != nil {
		if ctx.Err() != nil {
			return nil, err // not ErrSignature: nothing was decided
		}
		return nil, hint.Wrap(fmt.Errorf("%w: %w", ErrSignature, err),
			"nothing was stored; SHA256SUMS, its signature or the key is not the publisher's")
	}
	out.verdict = Signed
	return out, nil
}

// Provider returns the provider that the checksums are for.
func (c *Checksums) Provider() provider.Address { return c.claims.Provider }

// Version returns the version that the checksums are for.
func (c *Checksums) Version() provider.Version { return c.claims.Version }

// Verdict says on what grounds they were accepted.
func (c *Checksums) Verdict() Verdict { return c.verdict }

// Signer returns whose key the signature verified with; zero for ChecksumOnly.
func (c *Checksums) Signer() Signer { return c.signer }

// Document returns SHA256SUMS, its signature, binary, and the signing keys as they
// came; nil what there was none of.
func (c *Checksums) Document() (sums, signature []byte, signingKeys json.RawMessage) {
	return c.claims.SHA256SUMS, c.claims.Signature, c.claims.SigningKeys
}

// Sum returns the SHA-256 that the accepted document gives for a file name, so
// that a package is known before its bytes are there. There is none for a file
// that only has hashes of the unpacked package.
func (c *Checksums) Sum(filename string) ([sha256.Size]byte, bool) {
	sum, ok := c.sums[filename]
	return sum, ok
}

// Files returns the names that the accepted document lists, sorted; none if there
// is no document.
func (c *Checksums) Files() []string { return slices.Sorted(maps.Keys(c.sums)) }
