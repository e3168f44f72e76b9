package artifact

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Verified is a stored version whose evidence was verified again.
type Verified struct {
	// Verdict and Signer are results of this verification. They do not come from the record.
	Verdict trust.Verdict
	Signer  trust.Signer // zero for ChecksumOnly
	// Pinned reports whether the policy pins the key that made the signature. If it does
	// not, the evidence proves nothing against an attacker who can write to the registry.
	Pinned   bool
	Evidence *Evidence
	// Checksums are the checksums in the SHA256SUMS of the evidence.
	Checksums *trust.Checksums
	// Packages lists the packages that the evidence confirms: its SHA256SUMS lists the
	// layer's digest under exactly the published name of this provider, version and
	// platform. Their H1 still comes from the unsigned annotation.
	Packages []Package
	// Refused lists the other packages.
	Refused []Refusal
}

// Refusal is a package that the evidence does not confirm.
type Refusal struct {
	Package Package
	Err     error // wraps trust.ErrNotListed or trust.ErrChecksum
}

// OtherName reports whether the only problem of the package is that the checksum document
// lists it under another name. The error is then an [OtherNameError].
func (r Refusal) OtherName() bool {
	var other *OtherNameError
	return errors.As(r.Err, &other)
}

// OtherNameError means that a checksum document lists a package under a name that contains
// neither its version nor its platform. It matches [trust.ErrNotListed].
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
// contains no SHA256SUMS. Such an error also wraps trust.ErrUnsigned.
var ErrNothingToCheck = errors.New("there is nothing to check it against")

// Verify verifies a version that [Read] returned against its evidence, as a push verifies
// its origin's claims. It contacts only the registry.
//
// The keys come from the evidence. If the policy pins keys, only pinned keys count, and a
// registry cannot pass off forged content: without the private key it cannot sign other
// packages, and the file names in the signed document differ for other versions and
// platforms. Without pinned keys, any key in the evidence counts. A registry that forges
// packages can then also forge evidence with a key of its own, so the result shows what was
// pushed, but proves nothing against the registry. See Verified.Pinned. If the registry
// removes a revocation from a stored key, Verify does not notice: remove a revoked key from
// the policy.
//
// Verify sends one request for the evidence manifest, and one for each of its parts, of
// which there are at most four. Errors wrap trust.ErrUnsigned or trust.ErrSignature if the
// signature is the reason, and also ErrNothingToCheck if there is no document to verify.
// Verify also returns the errors of [ReadEvidence]. A package that the evidence does not
// confirm is not an error.
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

// Verify verifies the packages of a version against this evidence. It is [Verify] without
// the requests.
func (e *Evidence) Verify(ctx context.Context, a provider.Address, v provider.Version, packages []Package, policy trust.Policy) (*Verified, error) {
	if e.SHA256SUMS == nil {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w: its evidence holds no SHA256SUMS: %w", a, v, trust.ErrUnsigned, ErrNothingToCheck), again)
	}
	keys, err := trust.ParseSigningKeys(e.SigningKeys)
	if err != nil {
		return nil, fmt.Errorf("%s %s: evidence: %w: %w", a, v, trust.ErrSignature, err)
	}
	sums, err := policy.Accept(ctx, trust.Claims{
		Provider: a, Version: v,
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

// Vouched divides packages into those that the checksums confirm, and the others. The
// checksums confirm a package if they list its digest under exactly the published name. The
// file name of the package does not matter.
func Vouched(sums *trust.Checksums, packages []Package) (vouched []Package, refused []Refusal) {
	for _, p := range packages {
		if err := vouch(sums, p); err != nil {
			refused = append(refused, Refusal{p, err})
			continue
		}
		vouched = append(vouched, p)
	}
	return vouched, refused
}

// vouch returns an error unless the checksums list a package's digest under its published
// name.
func vouch(sums *trust.Checksums, p Package) error {
	name := provider.PackageFilename(sums.Provider(), sums.Version(), p.Platform)
	sum, listed := sums.Sum(name)
	want := digest.NewDigestFromBytes(digest.SHA256, sum[:])
	switch {
	case !listed:
		if other := otherName(sums, p, name); other != "" {
			return &OtherNameError{name, other, sums.Verdict()}
		}
		return fmt.Errorf("%s: %w that is in its evidence", name, trust.ErrNotListed)
	case want != p.Digest:
		return fmt.Errorf("%s: %w: its layer is %s, but the SHA256SUMS in its evidence lists %s", name, trust.ErrChecksum, p.Digest, want)
	}
	return nil
}

// otherName returns another name under which the checksums list the package's digest, or ""
// if there is none. It prefers the package's own file name.
func otherName(sums *trust.Checksums, p Package, published string) string {
	for _, name := range append([]string{p.Filename}, sums.Files()...) {
		sum, listed := sums.Sum(name)
		if listed && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest && isOtherName(name, published) {
			return name
		}
	}
	return ""
}

// isOtherName reports whether name differs from the published name of a package, but can be
// a name of the same package. Any other name in the published form belongs to a different
// package, unless it differs only in letter case.
func isOtherName(name, published string) bool {
	return name != published && (!provider.NamesPackage(name) || strings.EqualFold(name, published))
}
