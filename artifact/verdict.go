package artifact

import (
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Verdicts on stored versions, in addition to those of package trust.
const (
	// NoEvidence means that no evidence is stored, or that the stored evidence was refused.
	NoEvidence trust.Verdict = "none"
	// SignedOtherName means that the signed checksum document lists a package under a name
	// that contains neither the package's version nor its platform. Clients install the
	// package. A gateway with verify = "required" does not serve it.
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

// Signed reports whether the evidence contains everything with which a client can verify
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

// verdictAnnotation returns the annotation that [DescribeEvidence] sets. It returns nil if
// desc has no such annotation, or an invalid verdict.
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
