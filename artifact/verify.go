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

// Verified is a stored version whose evidence was checked again.
type Verified struct {
	// Verdict and Signer are what the check found, not what the record says.
	Verdict trust.Verdict
	Signer  trust.Signer // zero for ChecksumOnly
	// Pinned is set if the signature is by a key that the policy pins. Without, the
	// evidence proves nothing against whoever can write to the registry.
	Pinned   bool
	Evidence *Evidence
	// Checksums are those of the SHA256SUMS in the evidence.
	Checksums *trust.Checksums
	// Packages are those that the evidence vouches for: its SHA256SUMS lists the
	// layer's digest under exactly the name that a package of this provider, version
	// and platform is published under. Their H1 is still the unsigned annotation.
	Packages []Package
	// Refused are the others.
	Refused []Refusal
}

// Refusal is a package that evidence does not vouch for.
type Refusal struct {
	Package Package
	Err     error // wraps trust.ErrNotListed or trust.ErrChecksum
}

// OtherName reports whether the only fault of the package is that the checksum
// document lists it under another name: the error is an [OtherNameError].
func (r Refusal) OtherName() bool {
	var other *OtherNameError
	return errors.As(r.Err, &other)
}

// OtherNameError says that a checksum document lists a package under a name that says
// neither its version nor its platform. It is a [trust.ErrNotListed].
type OtherNameError struct {
	Name    string // that the package should have
	Listed  string // that the document has
	Verdict trust.Verdict
}

func (e *OtherNameError) Error() string {
	how := "listed under another name"
	if e.Verdict == trust.Signed {
		how = string(SignedOtherName)
	}
	return fmt.Sprintf("%s: %s: the SHA256SUMS in its evidence lists the package as %s", e.Name, how, e.Listed)
}

// Is makes the error a [trust.ErrNotListed].
func (e *OtherNameError) Is(target error) bool { return target == trust.ErrNotListed }

// ErrNothingToCheck means that a version was stored without evidence, or on hashes
// that nobody signed. It comes with trust.ErrUnsigned.
var ErrNothingToCheck = errors.New("there is nothing to check it against")

// Verify checks a version that [Read] found against the evidence beside it, as a
// push would check its origin's claims, and asks nobody but the registry.
//
// The key material is that of the evidence. If the policy pins keys, only those
// count, and a registry that forges content cannot pass: without the private
// key, it has no signature for other packages, and for another version or
// platform the file names in the signed document differ. Without pinned keys, any
// key in the evidence counts, and a registry that forges packages can forge
// evidence with a key of its own: that shows what was pushed, and proves nothing
// against the registry. See Verified.Pinned. A revocation that the registry
// leaves out of a stored key is not seen: remove a revoked key from the policy.
//
// It makes one request for the evidence manifest and one for each of its parts,
// four at most. Errors wrap trust.ErrUnsigned or trust.ErrSignature where that is
// the reason, ErrNothingToCheck as well where there is no document to judge, and
// are those of [ReadEvidence] otherwise. A package that is not vouched for is no
// error.
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

// again is what to do about evidence that proves nothing.
const again = "push it again from its origin with --refresh-evidence, which keeps the packages that are the publisher's"

// Verify checks the packages of a version against evidence that was read. It is
// [Verify] without its requests.
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

// Vouched divides packages into those that accepted checksums vouch for, and the
// others. A checksum document vouches for a package if it lists the package's digest
// under exactly the published name, whatever name the package says it has.
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

// vouch fails unless the checksums list a package's digest under its published name.
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

// otherName returns the name under which a document lists a package's digest, "" for
// none: the package's own name if that is listed.
func otherName(sums *trust.Checksums, p Package, published string) string {
	for _, name := range append([]string{p.Filename}, sums.Files()...) {
		sum, listed := sums.Sum(name)
		if listed && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest && isOtherName(name, published) {
			return name
		}
	}
	return ""
}

// isOtherName reports whether a package may have another name than the published
// one and still be that package. A name of the published form says that it is another
// package, unless it differs in upper case alone.
func isOtherName(name, published string) bool {
	return name != published && (!provider.NamesPackage(name) || strings.EqualFold(name, published))
}
