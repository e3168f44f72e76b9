package artifact

import (
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Verdicts on stored versions, beside those of package trust.
const (
	// NoEvidence: nothing is stored that says who published it, or what is stored is
	// refused.
	NoEvidence trust.Verdict = "none"
	// SignedOtherName: the document is signed, and lists a package under a name that
	// says neither its version nor its platform. Clients install it; a gateway with
	// verify = "required" does not serve it.
	SignedOtherName trust.Verdict = "signed under another name"
)

// OtherNameHint says what to do about a version that is signed under another name.
const OtherNameHint = `clients install it, and a gateway with verify = "required" does not serve it: ask the publisher to name its zips terraform-provider-TYPE_VERSION_OS_ARCH.zip`

// Standing returns the verdict on the version, SignedOtherName among them.
func (v *Verified) Standing() trust.Verdict { return Standing(v.Verdict, v.Refused) }

// Standing returns SignedOtherName in place of the verdict if the document lists any
// refused package under another name.
func Standing(verdict trust.Verdict, refused []Refusal) trust.Verdict {
	if verdict == trust.Signed && slices.ContainsFunc(refused, Refusal.OtherName) {
		return SignedOtherName
	}
	return verdict
}

// RecordedStanding is like Standing for a recorded verdict. It goes by the file names
// that the push recorded, and does not read the document.
func (v *Version) RecordedStanding(recorded trust.Verdict, a provider.Address, ver provider.Version) trust.Verdict {
	hasOther := func(p Package) bool { return isOtherName(p.Filename, provider.PackageFilename(a, ver, p.Platform)) }
	if recorded == trust.Signed && slices.ContainsFunc(v.Packages, hasOther) {
		return SignedOtherName
	}
	return recorded
}

// Signed reports whether the evidence is all that clients need to check the
// publisher's signature themselves.
func (e *Evidence) Signed() bool {
	return e.Record.Verdict == trust.Signed && e.SHA256SUMS != nil && e.Signature != nil && e.SigningKeys != nil
}

// DescribeEvidence returns a descriptor of evidence that says which verdict is in
// it, so that whoever reads the index alone knows. Nobody vouches for that: it
// serves to list versions, and what is served of one is decided on its evidence.
func DescribeEvidence(desc ocispec.Descriptor, verdict trust.Verdict) ocispec.Descriptor {
	desc.Annotations = map[string]string{annotationVerdict: string(verdict)}
	return desc
}

// verdictAnnotation returns the annotation that DescribeEvidence made; nil if
// there is none that reads.
func verdictAnnotation(desc ocispec.Descriptor) map[string]string {
	switch v := trust.Verdict(desc.Annotations[annotationVerdict]); v {
	case trust.Signed, trust.ChecksumOnly:
		return map[string]string{annotationVerdict: string(v)}
	}
	return nil
}

// ReadVerdict returns what a version's index says of its evidence, without reading
// that. It takes a fetch of the evidence manifest where the index does not say, as
// one that was pushed before it did. A version without evidence is
// [trust.ChecksumOnly]. Errors are those of [ReadEvidence].
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
	// A push stores signature and keys together only of what they accepted.
	parts := map[string]bool{}
	for _, layer := range m.Layers {
		parts[layer.MediaType] = true
	}
	if parts[mediaTypeSums] && parts[mediaTypeSignature] && parts[mediaTypeSigningKeys] {
		return trust.Signed, nil
	}
	return trust.ChecksumOnly, nil
}
