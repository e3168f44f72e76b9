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
	// NoEvidence means that no evidence is stored, or that the stored evidence is refused.
	NoEvidence trust.Verdict = "none"
	// SignedOtherName means that the checksum document is signed, and lists a package under
	// a name that contains neither its version nor its platform. Clients install it. A
	// gateway with verify = "required" does not serve it.
	SignedOtherName trust.Verdict = "signed under another name"
)

// OtherNameHint is the hint for a version that is signed under another name.
const OtherNameHint = `clients install it, and a gateway with verify = "required" does not serve it: ask the publisher to name its zips terraform-provider-TYPE_VERSION_OS_ARCH.zip`

// Standing returns the verdict on the version: v.Verdict, or SignedOtherName.
func (v *Verified) Standing() trust.Verdict { return Standing(v.Verdict, v.Refused) }

// Standing returns SignedOtherName instead of the verdict if the checksum document lists
// any refused package under another name.
func Standing(verdict trust.Verdict, refused []Refusal) trust.Verdict {
	if verdict == trust.Signed && slices.ContainsFunc(refused, Refusal.OtherName) {
		return SignedOtherName
	}
	return verdict
}

// RecordedStanding is like Standing for a recorded verdict. It uses the file names that the
// push recorded, and does not read the checksum document.
func (v *Version) RecordedStanding(recorded trust.Verdict, a provider.Address, ver provider.Version) trust.Verdict {
	hasOther := func(p Package) bool { return isOtherName(p.Filename, provider.PackageFilename(a, ver, p.Platform)) }
	if recorded == trust.Signed && slices.ContainsFunc(v.Packages, hasOther) {
		return SignedOtherName
	}
	return recorded
}

// Signed reports whether the evidence contains everything that clients need to verify the
// publisher's signature themselves.
func (e *Evidence) Signed() bool {
	return e.Record.Verdict == trust.Signed && e.SHA256SUMS != nil && e.Signature != nil && e.SigningKeys != nil
}

// DescribeEvidence returns desc, the descriptor of an evidence manifest, with the verdict
// as an annotation. A reader of the index thus knows the verdict without a further request.
// Nothing proves the annotation, so it is only for lists of versions: a gateway verifies
// the evidence itself before it serves a version.
func DescribeEvidence(desc ocispec.Descriptor, verdict trust.Verdict) ocispec.Descriptor {
	desc.Annotations = map[string]string{annotationVerdict: string(verdict)}
	return desc
}

// verdictAnnotation returns the annotation that DescribeEvidence sets, or nil if it is
// missing or invalid.
func verdictAnnotation(desc ocispec.Descriptor) map[string]string {
	switch v := trust.Verdict(desc.Annotations[annotationVerdict]); v {
	case trust.Signed, trust.ChecksumOnly:
		return map[string]string{annotationVerdict: string(v)}
	}
	return nil
}

// ReadVerdict returns the verdict in a version's index, without reading the evidence. If the
// index contains no verdict, because an earlier release wrote it, ReadVerdict fetches the
// evidence manifest and returns a verdict that depends on its layers. It returns
// [trust.ChecksumOnly] for a version without evidence. It returns the same errors as
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
	// A push stores the signature together with the keys only if the keys accept it.
	parts := map[string]bool{}
	for _, layer := range m.Layers {
		parts[layer.MediaType] = true
	}
	if parts[mediaTypeSums] && parts[mediaTypeSignature] && parts[mediaTypeSigningKeys] {
		return trust.Signed, nil
	}
	return trust.ChecksumOnly, nil
}
