package artifact

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Verified is the result of verifying the evidence of a stored version again.
type Verified struct {
	// Verdict and Signer are the results of this verification, not the values in the record.
	Verdict trust.Verdict
	Signer  trust.Signer // zero for ChecksumOnly
	// Pinned reports whether the policy pins the key that made the signature. Without a
	// pinned key, the evidence proves nothing against an attacker who can write to the
	// registry.
	Pinned   bool
	Evidence *Evidence
	// Checksums are the checksums in the SHA256SUMS of the evidence.
	Checksums *trust.Checksums
	// Packages lists the packages that the evidence confirms. SHA256SUMS lists the digest of
	// each of them under exactly the published name of this provider, version and platform.
	// The H1 of these packages still comes from an annotation, which is not signed.
	Packages []Package
	// Refused lists the packages that the evidence does not confirm.
	Refused []Refusal
}

// Refusal is a package that the evidence does not confirm.
type Refusal struct {
	Package Package
	Err     error // wraps trust.ErrNotListed or trust.ErrChecksum
}

// OtherName reports whether the only problem of the package is that the checksum document
// lists it under another name. Err then wraps an [OtherNameError].
func (r Refusal) OtherName() bool {
	var other *OtherNameError
	return errors.As(r.Err, &other)
}

// OtherNameError means that a checksum document lists a package under a name that contains
// neither the package's version nor its platform. It matches [trust.ErrNotListed].
type OtherNameError struct {
	Name    string // the published name
	Listed  string // the name in the document
	Verdict trust.Verdict
}

func (e *OtherNameError) Error() string {
	how := "listed under another name"
	if e.Verdict == trust.Signed {
		how = string(SignedOtherName)
	}
	return fmt.Sprintf("%s: %s: the SHA256SUMS in its evidence lists the package as %s", e.Name, how, e.Listed)
}

// Is reports whether target is [trust.ErrNotListed].
func (e *OtherNameError) Is(target error) bool { return target == trust.ErrNotListed }

// ErrNothingToCheck means that a version was stored without evidence, or that its evidence
// contains no SHA256SUMS. An error that wraps ErrNothingToCheck also wraps
// trust.ErrUnsigned.
var ErrNothingToCheck = errors.New("there is nothing to check it against")

// Verify verifies a version that [Read] returned against the version's evidence. It does
// the same checks as a push. It sends requests only to the registry.
//
// The keys come from the evidence. If the policy pins keys, Verify accepts only pinned
// keys, and a registry cannot forge content. Without the private key, the registry cannot
// sign other packages. It cannot use the packages of another version or platform either,
// because the signed document lists them under other file names.
//
// Without pinned keys, Verify accepts any key in the evidence. A registry that forges
// packages can then also forge the evidence with its own key. The result then shows what
// was pushed, but proves nothing against the registry. See Verified.Pinned.
//
// Verify does not notice if the registry removes a revocation from a stored key. Therefore
// remove a revoked key from the policy.
//
// Verify sends one request for the evidence manifest, and one for each of its parts. There
// are at most four parts. The error wraps trust.ErrUnsigned or trust.ErrSignature if the
// signature is the reason. It also wraps ErrNothingToCheck if there is no document to
// verify. Verify also returns the errors of [ReadEvidence]. It returns no error for a
// package that the evidence does not confirm, but lists the package in Verified.Refused.
func Verify(ctx context.Context, store Fetcher, a provider.Address, v provider.Version, found *Version, policy trust.Policy) (*Verified, error) {
	if found.Evidence == nil {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w: it was stored without evidence: %w", a, v, trust.ErrUnsigned, ErrNothingToCheck), again)
	}
	e, err := ReadEvidence(ctx, store, *found.Evidence)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", a, v, err)
	}
	return e.Verify(ctx, a, v, found.Packages, policy)
}

// again is the hint for evidence that proves nothing.
const again = "push it again from its origin with --refresh-evidence, which keeps the packages that are the publisher's"

// Verify verifies the packages of a version against this evidence. It is the function
// [Verify] without the requests.
func (e *Evidence) Verify(ctx context.Context, a provider.Address, v provider.Version, packages []Package, policy trust.Policy) (*Verified, error) {
	if e.SHA256SUMS == nil {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w: its evidence holds no SHA256SUMS: %w", a, v, trust.ErrUnsigned, ErrNothingToCheck), again)
	}
	keys, err := trust.ParseSigningKeys(e.SigningKeys)
	if err != nil {
		return nil, fmt.Errorf("%s %s: evidence: %w: %w", a, v, trust.ErrSignature, err)
	}
	sums, err := policy.Accept(ctx, trust.Claims{
		Provider: a, Version: v, FromRegistry: e.Record.Origin == a.Hostname(),
		SHA256SUMS: e.SHA256SUMS, Signature: e.Signature, Keys: keys, SigningKeys: e.SigningKeys,
	})
	if err != nil {
		return nil, fmt.Errorf("evidence of %w", err)
	}
	out := &Verified{
		Verdict: sums.Verdict(), Signer: sums.Signer(), Evidence: e, Checksums: sums,
		Pinned: sums.Signer().Pinned,
	}
	out.Packages, out.Refused = Vouched(sums, packages)
	return out, nil
}

// Vouched divides packages into those that the checksums confirm and those that they
// refuse. The checksums confirm a package if they list its digest under the published
// name, or under another spelling of that name. The package's own file name does not matter. A
// confirmed package gets the listed name.
func Vouched(sums *trust.Checksums, packages []Package) (vouched []Package, refused []Refusal) {
	for _, p := range packages {
		name, err := vouch(sums, p)
		if err != nil {
			refused = append(refused, Refusal{p, err})
			continue
		}
		p.Filename = name
		vouched = append(vouched, p)
	}
	return vouched, refused
}

// vouch returns the file name under which the checksums list the digest of the package for its platform.
func vouch(sums *trust.Checksums, p Package) (string, error) {
	name, sum, listed := sums.Package(p.Platform)
	want := digest.NewDigestFromBytes(digest.SHA256, sum[:])
	switch {
	case !listed:
		published := provider.PackageFilename(sums.Provider(), sums.Version(), p.Platform)
		if other := otherName(sums, p); other != "" {
			return "", &OtherNameError{published, other, sums.Verdict()}
		}
		return "", fmt.Errorf("%s: %w that is in its evidence", published, trust.ErrNotListed)
	case want != p.Digest:
		return "", fmt.Errorf("%s: %w: its layer is %s, but the SHA256SUMS in its evidence lists %s", name, trust.ErrChecksum, p.Digest, want)
	}
	return name, nil
}

// otherName returns a name that does not contain the version and platform of a package, and under
// which the checksums list the package's digest. It prefers the package's own file name. It returns
// "" if there is no such name.
func otherName(sums *trust.Checksums, p Package) string {
	for _, name := range append([]string{p.Filename}, sums.Files()...) {
		sum, listed := sums.Sum(name)
		if listed && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest && isOtherName(name, sums.Provider(), sums.Version(), p.Platform) {
			return name
		}
	}
	return ""
}

// isOtherName reports whether the name of a package says nothing about its version and platform, or
// is right apart from the letter case of the type.
func isOtherName(name string, a provider.Address, v provider.Version, p provider.Platform) bool {
	return !provider.SpellsPackage(name, a, v, p) && !provider.NamesAnother(name, a, v, p)
}
