// Package trust decides whether a package is acceptable. Only this package can create an
// accepted package.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
// A release comes with [Claims], the unverified statements of its origin. A [Policy] that
// accepts the claims turns them into [Checksums]. The checksums are signed if the claims
// contain a SHA256SUMS document with a valid detached OpenPGP signature by an accepted key.
// Otherwise the checksums are checksum only, which the policy must allow. A [Verifier] of these
// checksums reads the bytes of one package. It returns a [Package] only if the bytes match the
// checksum for exactly that file name and are a zip. There is no other way to create a Package
// with content, and only a Package is ever stored.
//
// The sizes of all keys and signatures are checked before the first verification. Within the
// limits, the verifications of one release take at most about a second of CPU time. The
// package does no I/O.
package trust

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Verdict is the basis on which a package was accepted.
type Verdict string

const (
	// Signed means that the package's checksum is in a document with a valid signature.
	Signed Verdict = "signed"
	// ChecksumOnly means that the package matches an unsigned checksum, or that it comes
	// from a mirror that gives no hash of it.
	ChecksumOnly Verdict = "checksum only"
)

// Policy determines which releases are accepted. The zero value has the rules of clients: it
// accepts only signed releases, and trusts the keys that the origin sends with them.
type Policy struct {
	// AllowUnsigned accepts a release if the origin offers no key, or only unsigned hashes.
	// A release with an invalid signature is refused in any case.
	AllowUnsigned bool
	// UnsignedAsClients accepts a release by its checksums if registry.opentofu.org has no key of its publisher.
	// OpenTofu does the same. UnsignedAsClients has no effect on other hosts and with pinned keys. The caller
	// must refuse the release if a signed version of the provider is stored, see [Checksums.AsClients].
	UnsignedAsClients bool
	// Keys pins the keys that may sign. It lists the full fingerprints of primary keys in
	// upper-case hexadecimal. Keys in the claims that are not pinned are not tried. If Keys
	// is empty, all keys in the claims may sign. If it is not empty, a signature is
	// required, and AllowUnsigned has no effect.
	Keys []string
	// StrictExpiry refuses expired signatures and signatures by expired keys. Clients only
	// warn about them.
	StrictExpiry bool
}

// Pins reports whether the policy names the keys that may sign.
func (p Policy) Pins() bool { return len(p.Keys) > 0 }

func (p Policy) allowsUnsigned(c Claims) bool {
	return !p.Pins() && (p.AllowUnsigned || p.allowsAsClients(c))
}

// AllowsUnsigned reports whether the policy accepts checksums that another policy has accepted without a signature.
func (p Policy) AllowsUnsigned(c *Checksums) bool { return p.allowsUnsigned(c.claims) }

// allowsAsClients reports whether UnsignedAsClients makes a release without a signature acceptable.
func (p Policy) allowsAsClients(c Claims) bool {
	return p.UnsignedAsClients && ClientsInstallKeyless(c.Provider) && c.FromRegistry && c.SHA256SUMS != nil && len(c.Keys) == 0
}

// ClientsInstallKeyless reports whether OpenTofu installs a provider if its registry has no key of its publisher.
func ClientsInstallKeyless(a provider.Address) bool { return a.Hostname() == openTofuRegistry }

// openTofuRegistry is the only host from which OpenTofu installs providers without a key.
const openTofuRegistry = "registry.opentofu.org"

// orUnsigned returns the end of the hint for a release without a signature: how to accept the release without a
// signature, or that the pinned keys must have signed it.
func (p Policy) orUnsigned(a provider.Address, what string) string {
	if p.Pins() {
		return "; its trust block names the keys that must have signed it"
	}
	return fmt.Sprintf(", or accept %s with allow_unsigned = true in a block trust %q, or for one push or copy with --allow-unsigned", what, a)
}

// orAsClients is like orUnsigned, for a release without keys.
func (p Policy) orAsClients(c Claims) string {
	if p.Pins() || !(Policy{UnsignedAsClients: true}).allowsAsClients(c) {
		return p.orUnsigned(c.Provider, "its checksums alone")
	}
	return fmt.Sprintf(", or accept its checksums alone, as OpenTofu does, with allow_unsigned = %q in a block trust %q, or for one push or copy with --allow-unsigned", AsClients, c.Provider)
}

// AsClients is the value of allow_unsigned that sets [Policy.UnsignedAsClients].
const AsClients = "where-clients-do"

// Downgrade returns the error for an unsigned release if the given version of the same provider is stored and signed.
// It wraps [ErrUnsigned].
func (c *Checksums) Downgrade(signed provider.Version) error {
	return hint.Wrap(fmt.Errorf("%s %s: %w: its registry offers no public key, but the stored version %s is signed", c.Provider(), c.Version(), ErrUnsigned, signed),
		"find out why %s no longer has the publisher's key; to accept checksums alone from now on, set allow_unsigned = true in a block trust %q", c.Provider().Hostname(), c.Provider())
}

// whyNoKey returns the start of the hint for a release without keys.
func whyNoKey(a provider.Address) string {
	if a.Hostname() == openTofuRegistry {
		return openTofuRegistry + " has no key of this publisher, and OpenTofu then relies on checksums alone: ask the publisher to file its key there"
	}
	return "ask its publisher to sign it, and to file the key with the registry"
}

// Claims holds the statements of a release's origin about the release.
type Claims struct {
	Provider     provider.Address
	Version      provider.Version
	FromRegistry bool // whether the claims come from the registry of the provider's host

	// SHA256SUMS is the checksum document. Signature is its detached OpenPGP signature,
	// binary or in ASCII armour; empty if there is none. Without keys, nobody verifies it.
	SHA256SUMS  []byte
	Signature   []byte
	Keys        []string        // ASCII-armoured public keys, one ring each
	SigningKeys json.RawMessage // the JSON object with the keys, for the evidence

	// Announced maps file names to the SHA-256 sums that the origin states outside
	// SHA256SUMS. SHA256SUMS must list each of these files with the same sum.
	Announced map[string][sha256.Size]byte

	// Reported maps file names to additional hashes and sizes from the origin. A package
	// that contradicts its report is refused.
	Reported map[string]Report
	// Hashes maps file names to hashes. It is for a release without SHA256SUMS, such as a
	// release from a mirror folder. An empty list means that the file has no hash. If the
	// policy allows releases without a signature, such a file is accepted without a check.
	Hashes map[string][]provider.Hash

	// Known lists lock files. Every package must be in each lock file, in addition to all
	// other checks.
	Known []Known
}

// lacksHashes reports whether the claims contain a file without a hash.
func (c Claims) lacksHashes() bool {
	for _, hashes := range c.Hashes {
		if len(hashes) == 0 {
			return true
		}
	}
	return false
}

// The reasons to refuse claims. [provider.ErrNotZip] is a further reason.
var (
	ErrUnsigned  = errors.New("not signed")
	ErrSignature = errors.New("signature refused")
	ErrChecksum  = errors.New("checksum mismatch")
	ErrNotListed = errors.New("not listed in SHA256SUMS")
	ErrMalformed = errors.New("malformed SHA256SUMS")
)

// Refused reports whether err means that claims or a package were refused for one of these
// reasons. It returns false for errors of the connection or of a context.
func Refused(err error) bool {
	return errors.Is(err, ErrUnsigned) || errors.Is(err, ErrSignature) || errors.Is(err, ErrChecksum) || errors.Is(err, ErrNotListed) ||
		errors.Is(err, ErrMalformed) || errors.Is(err, provider.ErrNotZip)
}

// Checksums holds claims that a policy accepted.
type Checksums struct {
	claims    Claims
	verdict   Verdict
	signer    Signer
	sums      sums
	packages  map[provider.Platform]string // the file names under which sums lists the packages
	asClients bool                         // only Policy.UnsignedAsClients accepted the claims
}

// Accept verifies claims against the policy. If it refuses the claims for one of the reasons
// ErrUnsigned, ErrSignature, ErrChecksum, ErrNotListed and ErrMalformed, its error wraps that
// reason.
//
// For a release with keys, Accept waits for one of the process's slots for verifying
// signatures. If ctx ends before a slot is free or between two keys, Accept neither accepts nor
// refuses the claims. In that case, it returns an error that wraps the error of ctx, and
// [Refused] returns false for this error.
func (p Policy) Accept(ctx context.Context, c Claims) (*Checksums, error) {
	accepted, err := p.accept(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.Provider, c.Version, err)
	}
	return accepted, nil
}

func (p Policy) accept(ctx context.Context, c Claims) (*Checksums, error) {
	if c.SHA256SUMS == nil {
		found, what := "it has hashes, but no signed checksum document", "its hashes alone"
		if c.lacksHashes() {
			found, what = "it has neither hashes of every package nor a signed checksum document", "it unchecked"
		}
		if !p.allowsUnsigned(c) {
			return nil, hint.Wrap(fmt.Errorf("%w: %s", ErrUnsigned, found), "push it from its origin, where it is signed%s", p.orUnsigned(c.Provider, what))
		}
		return &Checksums{claims: c, verdict: ChecksumOnly}, nil
	}
	parsed, err := parseSums(c.SHA256SUMS)
	if err != nil {
		return nil, hint.Wrap(err, "each line must be a SHA-256 and a file name, as sha256sum writes them: no comment, no other hash, no further column. Without such a line the signature would not match, so its publisher must correct and sign it")
	}
	for name, sum := range c.Announced {
		if err := parsed.check(name, sum); err != nil {
			return nil, err
		}
	}
	if err := parsed.checkReports(c.Reported); err != nil {
		return nil, err
	}
	out := &Checksums{claims: c, verdict: ChecksumOnly, sums: parsed, packages: parsed.packages(c.Provider, c.Version)}
	if len(c.Keys) == 0 {
		if !p.allowsUnsigned(c) {
			return nil, hint.Wrap(fmt.Errorf("%w: no public key is offered to check a signature with", ErrUnsigned),
				"%s%s", whyNoKey(c.Provider), p.orAsClients(c))
		}
		out.asClients = !p.AllowUnsigned
		out.claims.Signature, out.claims.SigningKeys = unverifiedSignature(c.Signature), nil
		return out, nil
	}
	if len(c.Signature) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%w: there are public keys, but no signature of SHA256SUMS", ErrUnsigned),
			"ask its publisher for the missing signature")
	}
	if out.claims.Signature, err = BinarySignature(c.Signature); err != nil {
		return nil, hint.Wrap(fmt.Errorf("%w: %w", ErrSignature, err), "ask its publisher for a signature as gpg --detach-sign writes it")
	}
	if out.signer, err = p.verifySignature(ctx, c.SHA256SUMS, out.claims.Signature, c.Keys); err != nil {
		if ctx.Err() != nil {
			return nil, err // not ErrSignature, because nothing was decided
		}
		return nil, hint.Wrap(fmt.Errorf("%w: %w", ErrSignature, err),
			"SHA256SUMS, its signature or the key is not the publisher's. If the release is your own, sign SHA256SUMS again")
	}
	out.verdict = Signed
	return out, nil
}

// Provider returns the provider to which the checksums belong.
func (c *Checksums) Provider() provider.Address { return c.claims.Provider }

// Version returns the version to which the checksums belong.
func (c *Checksums) Version() provider.Version { return c.claims.Version }

// Verdict returns the basis on which the checksums were accepted.
func (c *Checksums) Verdict() Verdict { return c.verdict }

// AsClients reports whether the claims were accepted only because OpenTofu accepts them, too
// ([Policy.UnsignedAsClients]). If a signed version of the provider is stored, the caller must fail with
// [Checksums.Downgrade].
func (c *Checksums) AsClients() bool { return c.asClients }

// Signer returns the key that verified the signature. It is the zero value for ChecksumOnly.
func (c *Checksums) Signer() Signer { return c.signer }

// Document returns SHA256SUMS, its binary signature, and the JSON of the signing keys as the
// origin sent it. Each result is nil if the release does not have it. The signature is
// unverified if there are no signing keys.
func (c *Checksums) Document() (sums, signature []byte, signingKeys json.RawMessage) {
	return c.claims.SHA256SUMS, c.claims.Signature, c.claims.SigningKeys
}

// Sum returns the SHA-256 of a file in the accepted document. Callers can identify a package
// by it before they download the package. The bool is false if the document does not list
// the file, or if the release has no document.
func (c *Checksums) Sum(filename string) ([sha256.Size]byte, bool) {
	sum, ok := c.sums[filename]
	return sum, ok
}

// Package returns the file name and the SHA-256 of the package for a platform. The accepted document
// lists the package under its published name, or under another spelling of that name. The bool is
// false if the document does not list the package, or lists different packages under several other
// spellings.
func (c *Checksums) Package(p provider.Platform) (filename string, sum [sha256.Size]byte, listed bool) {
	filename, listed = c.packages[p]
	return filename, c.sums[filename], listed
}

// Platforms returns the platforms for which [Checksums.Package] returns a package, in order.
func (c *Checksums) Platforms() []provider.Platform {
	out := slices.Collect(maps.Keys(c.packages))
	provider.SortPlatforms(out)
	return out
}

// SumFor is like [Checksums.Package], for a package with the given file name. It also returns a
// SHA-256 that is listed only under that file name, unless the name is of another version or platform.
func (c *Checksums) SumFor(p provider.Platform, filename string) (sum [sha256.Size]byte, listed bool) {
	if _, sum, listed = c.Package(p); listed || provider.Misnamed(filename, c.Version(), p) {
		return sum, listed
	}
	return c.Sum(filename)
}

// Files returns the sorted file names in the accepted document. The result is empty if the
// release has no document.
func (c *Checksums) Files() []string { return slices.Sorted(maps.Keys(c.sums)) }

// Rule is the policy for providers that match a pattern.
type Rule struct {
	Pattern provider.Pattern
	Policy  Policy
}

// Rules is the list of all policy rules.
type Rules []Rule

// For returns the policy of the most specific pattern that matches a provider, or the zero
// policy if no pattern matches. If several matching patterns are equally specific, the
// first rule applies. The policies of less specific patterns are not merged into the
// result.
func (rs Rules) For(a provider.Address) Policy {
	var best *Rule
	for i := range rs {
		if r := &rs[i]; r.Pattern.Matches(a) && (best == nil || r.Pattern.Parts() > best.Pattern.Parts()) {
			best = r
		}
	}
	if best == nil {
		return Policy{}
	}
	return best.Policy
}
