package artifact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/ociaddr"
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
// neither the package's version nor its platform, or that differs from the published name only
// in the letter case of the type. It matches [trust.ErrNotListed].
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
// The keys come from the evidence. If the policy pins keys, Verify accepts only pinned keys,
// and a registry cannot forge content. Without the private key, the registry cannot sign other
// packages. It cannot serve the packages of another version or platform either, because the
// signed document lists them under other file names.
//
// Without pinned keys, Verify accepts any key in the evidence. A registry that forges packages
// can then also forge the evidence with its own key. In that case, the result shows what was
// pushed, but proves nothing against the registry. See Verified.Pinned.
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

// Verify verifies the packages of a version against this evidence. It does the same as the
// function [Verify], but sends no requests.
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

// Vouched divides packages into those that the checksums confirm and those that the checksums
// do not confirm. The checksums confirm a package if they list its digest under the published
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

// vouch returns the file name under which the checksums list a package for p's platform with p's digest.
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

// otherName returns a name under which the checksums list a package's digest and for which isOtherName is
// true, preferably the package's own file name. It returns "" if there is no such name.
func otherName(sums *trust.Checksums, p Package) string {
	for _, name := range append([]string{p.Filename}, sums.Files()...) {
		sum, listed := sums.Sum(name)
		if listed && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest && isOtherName(name, sums.Provider(), sums.Version(), p.Platform) {
			return name
		}
	}
	return ""
}

// isOtherName reports whether a name says nothing about version and platform, or differs from the published name
// only in the letter case of the type.
func isOtherName(name string, a provider.Address, v provider.Version, p provider.Platform) bool {
	return !provider.SpellsPackage(name, a, v, p) && !provider.NamesAnother(name, a, v, p)
}

// Verdicts on stored versions, in addition to those of package trust.
const (
	// NoEvidence means that no evidence is stored, or that the stored evidence was refused.
	NoEvidence trust.Verdict = "none"
	// SignedOtherName means that the signed checksum document lists a package under another
	// name, as in [OtherNameError]. Clients install the package. A gateway with verify =
	// "required" does not serve it.
	SignedOtherName trust.Verdict = "signed under another name"
)

// OtherNameHint is the hint for a version that is signed under another name.
const OtherNameHint = `clients install it, and a gateway with verify = "required" does not serve it: ask the publisher to name its zips terraform-provider-TYPE_VERSION_OS_ARCH.zip`

// Standing returns v.Verdict, or SignedOtherName as described at the function [Standing].
func (v *Verified) Standing() trust.Verdict { return Standing(v.Verdict, v.Refused) }

// Standing returns SignedOtherName if verdict is Signed and the checksum document lists a
// refused package under another name. Otherwise it returns verdict.
func Standing(verdict trust.Verdict, refused []Refusal) trust.Verdict {
	if verdict == trust.Signed && slices.ContainsFunc(refused, Refusal.OtherName) {
		return SignedOtherName
	}
	return verdict
}

// RecordedStanding is like [Standing], but for the verdict that a push recorded. It does not read the
// checksum document, but compares the packages' recorded file names with the published
// names.
func (v *Version) RecordedStanding(recorded trust.Verdict, a provider.Address, ver provider.Version) trust.Verdict {
	hasOther := func(p Package) bool { return isOtherName(p.Filename, a, ver, p.Platform) }
	if recorded == trust.Signed && slices.ContainsFunc(v.Packages, hasOther) {
		return SignedOtherName
	}
	return recorded
}

// Signed reports whether the evidence contains everything that a client needs to verify
// the publisher's signature.
func (e *Evidence) Signed() bool {
	return e.Record.Verdict == trust.Signed && e.SHA256SUMS != nil && e.Signature != nil && e.SigningKeys != nil
}

// DescribeEvidence returns the descriptor of an evidence manifest, with the verdict as its
// only annotation. A reader of the index thus knows the verdict without a further request.
// The annotation is not signed, so it is used only in lists of versions. A gateway verifies
// the evidence itself before it serves a version.
func DescribeEvidence(desc ocispec.Descriptor, verdict trust.Verdict) ocispec.Descriptor {
	desc.Annotations = map[string]string{annotationVerdict: string(verdict)}
	return desc
}

// verdictAnnotation returns the annotation that [DescribeEvidence] sets, or nil if there is no valid one.
func verdictAnnotation(desc ocispec.Descriptor) map[string]string {
	switch v := trust.Verdict(desc.Annotations[annotationVerdict]); v {
	case trust.Signed, trust.ChecksumOnly:
		return map[string]string{annotationVerdict: string(v)}
	}
	return nil
}

// ReadVerdict returns the verdict in a version's index, without reading the evidence. An
// index that an earlier release wrote contains no verdict. In that case ReadVerdict fetches
// the evidence manifest, and derives the verdict from the manifest's layers. For a version
// without evidence, ReadVerdict returns [trust.ChecksumOnly]. It returns the same errors as
// [ReadEvidence].
func ReadVerdict(ctx context.Context, store Fetcher, v *Version) (trust.Verdict, error) {
	if v.Evidence == nil {
		return trust.ChecksumOnly, nil
	}
	if said := verdictAnnotation(*v.Evidence); said != nil {
		return trust.Verdict(said[annotationVerdict]), nil
	}
	m, err := fetchManifest(ctx, store, *v.Evidence, TypeEvidence)
	if err != nil {
		return "", err
	}
	// A push stores a signature together with keys only if one of the keys made the
	// signature.
	parts := map[string]bool{}
	for _, layer := range m.Layers {
		parts[layer.MediaType] = true
	}
	if parts[mediaTypeSums] && parts[mediaTypeSignature] && parts[mediaTypeSigningKeys] {
		return trust.Signed, nil
	}
	return trust.ChecksumOnly, nil
}

// verdictReads is the maximum number of versions that FindSigned reads concurrently.
const verdictReads = 8

// errFound ends the search of FindSigned.
var errFound = errors.New("found")

// FindSigned returns one of the versions whose verdict is [trust.Signed]. It calls verdict concurrently, and stops at
// the first error or signed version.
func FindSigned(ctx context.Context, versions []provider.Version, verdict func(context.Context, provider.Version) (trust.Verdict, error)) (signed provider.Version, found bool, err error) {
	var hit atomic.Pointer[provider.Version]
	group, reading := panics.WithContext(ctx)
	group.SetLimit(verdictReads)
	for _, v := range slices.Backward(versions) { // the newest version is most likely to be signed
		group.Go(func() error {
			if reading.Err() != nil {
				return context.Cause(reading)
			}
			got, err := verdict(reading, v)
			if err != nil || got != trust.Signed {
				return err
			}
			hit.Store(&v)
			return errFound
		})
	}
	err = group.Wait()
	if v := hit.Load(); v != nil {
		return *v, true, nil
	}
	return signed, false, err
}

// FindSignedIn returns a version in a provider's repository whose index says that it is signed. It reads the indexes
// and not the summary, which may be outdated. The index is not verified: a registry that forges a verdict can only cause
// a refusal.
func FindSignedIn(ctx context.Context, store ListedFetcher, a provider.Address) (signed provider.Version, found bool, err error) {
	tags, err := ListAnyTags(ctx, store)
	if err != nil {
		return signed, false, err
	}
	return FindSigned(ctx, ociaddr.Versions(tags), func(ctx context.Context, v provider.Version) (trust.Verdict, error) {
		found, err := Read(ctx, store, a, v)
		switch {
		case IsContent(err), errors.Is(err, errdef.ErrNotFound):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("version %s: %w", v, err)
		}
		return KnownVerdict(ctx, store, v, found)
	})
}

// KnownVerdict is like [ReadVerdict], but with another hint. If the index does not state the verdict and the registry
// has lost the evidence, the hint says how to repair the version.
func KnownVerdict(ctx context.Context, store Fetcher, v provider.Version, found *Version) (trust.Verdict, error) {
	verdict, err := ReadVerdict(ctx, store, found)
	if err == nil {
		return verdict, nil
	}
	err = fmt.Errorf("version %s: %w", v, err)
	if IsContent(err) {
		return "", hint.Wrap(err, "if the origin signs version %s, push it again with --force; otherwise delete its tag", v)
	}
	return "", err
}
