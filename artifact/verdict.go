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

// Standing returns the verdict on the version, which may be SignedOtherName.
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

// DescribeEvidence returns a descriptor of evidence with the verdict as an annotation, so
// that a reader of the index knows the verdict. Nothing proves the annotation: it is for
// listing versions. A gateway decides what to serve from the evidence itself.
func DescribeEvidence(desc ocispec.Descriptor, verdict trust.Verdict) ocispec.Descriptor {
	desc.Annotations = map[string]string{annotationVerdict: string(verdict)}
	return desc
}

// verdictAnnotation returns the annotation that DescribeEvidence sets; nil if it is missing
// or invalid.
func verdictAnnotation(desc ocispec.Descriptor) map[string]string {
	switch v := trust.Verdict(desc.Annotations[annotationVerdict]); v {
	case trust.Signed, trust.ChecksumOnly:
		return map[string]string{annotationVerdict: string(v)}
	}
	return nil
}

// ReadVerdict returns the verdict in a version's index, without reading the evidence. If the
// index has none, because an earlier release pushed it, ReadVerdict fetches the evidence
// manifest. A version without evidence is [trust.ChecksumOnly]. Its errors are those of
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
