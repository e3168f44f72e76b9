// Package artifact defines the layout of a provider version in an OCI repository. It
// encodes versions. It also reads versions, whether ocibridge or another tool wrote them.
//
// Other programs may import this package. Until version 1.0, a change that breaks them needs a new minor version.
//
//	tag 3.2.4
//	└─ image index, artifactType application/vnd.opentofu.provider
//	   ├─ linux_amd64: image manifest, artifactType application/vnd.opentofu.provider-target
//	   │  ├─ config: the empty descriptor, {}
//	   │  └─ one layer, archive/zip: the release zip, byte for byte
//	   ├─ darwin_arm64: likewise
//	   ├─ evidence: image manifest, artifactType application/vnd.ocibridge.evidence.v1
//	   │  └─ layers: SHA256SUMS, its signature, signing keys, a record
//	   └─ documentation: image manifest, artifactType application/vnd.ocibridge.docs.v1
//	      └─ one layer, archive/zip: the pages
//
// Reading a version needs only the parts that OpenTofu's oci_mirror requires. The
// annotations, the evidence and the documentation are optional additions of ocibridge. Encoding is
// deterministic: the same packages and evidence give the same bytes. Content is used only
// after its size and digest are verified. No manifest is larger than [MaxManifestBytes].
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Media and artifact types.
const (
	TypeProvider = "application/vnd.opentofu.provider"
	TypeTarget   = "application/vnd.opentofu.provider-target"
	TypeEvidence = "application/vnd.ocibridge.evidence.v1"
	TypeDocs     = "application/vnd.ocibridge.docs.v1"

	mediaTypeZip         = "archive/zip"
	mediaTypeSums        = "text/plain"
	mediaTypeSignature   = "application/pgp-signature"
	mediaTypeSigningKeys = "application/vnd.ocibridge.signing-keys.v1+json"
	mediaTypeRecord      = "application/vnd.ocibridge.record.v1+json"
)

// The annotations that ocibridge defines.
const (
	annotationPrefix    = "io.github.ocibridge."
	annotationProvider  = annotationPrefix + "provider"     // on the index: the address, with the hostname in Punycode
	annotationVersion   = annotationPrefix + "version"      // on the index
	annotationProtocols = annotationPrefix + "protocols"    // on the index: joined by commas
	annotationDigest    = annotationPrefix + "layer.digest" // on an index entry
	annotationSize      = annotationPrefix + "layer.size"   // on an index entry, in bytes
	annotationFilename  = annotationPrefix + "filename"     // on an index entry
	annotationH1        = annotationPrefix + "h1"           // on an index entry, if the hash is known
	annotationVerdict   = annotationPrefix + "verdict"      // on the index entry of the evidence: the verdict in its record
)

// IsManifest reports whether mediaType is the media type of an OCI image manifest or index.
func IsManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == ocispec.MediaTypeImageManifest
}

// MaxManifestBytes is the maximum size in bytes of an index or manifest. OpenTofu and some
// registries reject larger manifests.
const MaxManifestBytes = 4 << 20

// UnknownSize is the Size of a package that is not stored in a registry and whose origin
// has not announced the size.
const UnknownSize = -1

// Package is one platform's package within a version.
type Package struct {
	Platform provider.Platform
	Filename string
	Digest   digest.Digest // of the zip, always sha256
	Size     int64         // of the zip, in bytes, or [UnknownSize]
	// H1 is zero if it is unknown. The H1 of a module is not verified: it is the hash that the pusher of the
	// module claimed.
	H1 provider.Hash
	// Manifest describes the platform's image manifest.
	Manifest ocispec.Descriptor
	// UnusedAnnotations reports whether Read ignored annotations of ocibridge in the index
	// entry, because they do not describe the package completely.
	UnusedAnnotations bool
}

// Claims reports whether p has the platform, digest, size, file name and h1: hash of the
// verified package. If p has no h1: hash, Claims does not compare these hashes.
func (p Package) Claims(verified Package) bool {
	return p.Platform == verified.Platform && p.Digest == verified.Digest && p.Size == verified.Size && p.Filename == verified.Filename &&
		(p.H1.IsZero() || p.H1 == verified.H1)
}

// ZipHash returns the package's zh: hash.
func (p Package) ZipHash() provider.Hash {
	h, err := provider.ParseHash("zh:" + p.Digest.Encoded())
	if err != nil {
		panic("artifact: package with the digest " + p.Digest.String()) // encoding and reading accept only sha256
	}
	return h
}

// Layer returns the descriptor of the package's zip.
func (p Package) Layer() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaTypeZip, Digest: p.Digest, Size: p.Size}
}

// MissingPackage is a platform that an index lists, but whose manifest is not in the registry.
type MissingPackage struct {
	Platform provider.Platform `json:"platform"`
	Manifest digest.Digest     `json:"manifest"`
}

// Err returns an error that wraps [ErrMissing] and [ErrNotProvider].
func (m MissingPackage) Err() error {
	return fmt.Errorf("%s: %w: %w: the manifest %s", m.Platform, ErrNotProvider, ErrMissing, m.Manifest)
}

// Version is one version of a provider, as stored in an index, or of a module, as stored in a
// manifest. A module's version has one package, without a platform.
type Version struct {
	// Owner is the provider or the module. Owner and Version come from the annotations of the
	// index or manifest. They are nil and zero if there are no such annotations.
	Owner   subject.Address
	Version provider.Version
	// Protocols lists the plugin protocols, such as 5.0. It is nil if they are unknown.
	Protocols []string
	// Packages is sorted by platform, and contains at most one package for each platform.
	// It is empty if no client runs on any platform in the index.
	Packages []Package
	// Missing lists the platforms whose manifests are not in the registry, sorted by
	// platform. These platforms are not in Packages. Only [ReadAvailable] sets Missing.
	Missing []MissingPackage
	// Evidence describes the evidence manifest, or is nil if there is none. It includes
	// the annotation that [DescribeEvidence] sets.
	Evidence *ocispec.Descriptor
	// Docs describes the manifest of the documentation, or is nil if there is none. See
	// [ReadDocs].
	Docs *ocispec.Descriptor
	// Index describes the index itself or, for a module, its manifest. It is zero if the version
	// is not stored.
	Index ocispec.Descriptor
	// Revision is the commit that a module was made from, or "".
	Revision string
	// Provenance says where a module was fetched from.
	Provenance Provenance
	// Tag is the tag from which [ReadZip] has read a module. It is "" for a provider.
	Tag ociaddr.Tag
}

// Zip returns the only package of a module's version.
func (v *Version) Zip() *Package { return &v.Packages[0] }

// Same reports whether two versions have the same index, evidence and packages.
func (v *Version) Same(other *Version) bool {
	return v.Index.Digest == other.Index.Digest && v.evidence() == other.evidence() &&
		slices.EqualFunc(v.Packages, other.Packages, func(p, q Package) bool { return p.Claims(q) && p.H1 == q.H1 })
}

// evidence returns the digest of the evidence manifest, or "" if there is none.
func (v *Version) evidence() digest.Digest {
	if v.Evidence == nil {
		return ""
	}
	return v.Evidence.Digest
}

// Platforms returns the platforms in Packages and Missing, sorted.
func (v *Version) Platforms() []provider.Platform {
	var out []provider.Platform
	for _, p := range v.Packages {
		out = append(out, p.Platform)
	}
	for _, m := range v.Missing {
		out = append(out, m.Platform)
	}
	provider.SortPlatforms(out)
	return out
}

// MissingFor returns the entry of v.Missing for the given platform. The bool is false if
// there is no such entry.
func (v *Version) MissingFor(p provider.Platform) (MissingPackage, bool) {
	i := slices.IndexFunc(v.Missing, func(m MissingPackage) bool { return m.Platform == p })
	if i < 0 {
		return MissingPackage{}, false
	}
	return v.Missing[i], true
}

// Fetcher fetches content by its descriptor. oras-go's remote.Repository implements it.
type Fetcher interface {
	Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error)
}

// ReferenceFetcher also fetches a manifest by tag. oras-go's remote.Repository implements
// it.
type ReferenceFetcher interface {
	Fetcher
	FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error)
}

// The reasons why a version cannot be served.
var (
	// ErrNotProvider means that the content is not a provider index that OpenTofu can
	// install. Examples are a container image, and an index whose manifests were deleted.
	ErrNotProvider = errors.New("not a provider index")
	// ErrMissing means that an index or the list of a module's tags refers to content that is not
	// in the registry. An error that wraps ErrMissing also wraps ErrNotProvider or ErrNotModule.
	// Unlike the other errors, it can be temporary.
	ErrMissing = errors.New("the registry lacks content that it refers to")
	// ErrAmbiguous means that the content has two of something that must be unique, such as
	// two packages for one platform.
	ErrAmbiguous = errors.New("ambiguous index or manifest")
	// ErrTooLarge means that a manifest is larger than MaxManifestBytes, or that another
	// document exceeds its limits.
	ErrTooLarge = errors.New("manifest too large")
	// ErrForeign means that the content names another provider, module or version.
	// ErrOtherKind and ErrOtherVersion wrap it. [HelpForeign] says what to do.
	ErrForeign = errors.New("belongs to another provider or module")
	// ErrOtherKind means that the content is a module where a provider is expected, or the
	// reverse. It wraps ErrForeign. Errors that wrap it append the kind of the content.
	ErrOtherKind = fmt.Errorf("%w: it is", ErrForeign)
	// ErrOtherVersion means that the content names another version of the same provider or
	// module. It wraps ErrForeign.
	ErrOtherVersion error = otherVersion{}
	// ErrDamaged means that the registry returned content that does not match its
	// descriptor.
	ErrDamaged = errors.New("damaged content")
)

// otherVersion is the type of [ErrOtherVersion], whose text does not include that of [ErrForeign].
type otherVersion struct{}

func (otherVersion) Error() string { return "belongs to another version" }
func (otherVersion) Unwrap() error { return ErrForeign }

// HelpForeign returns the hint about an error of a version of a, if the error wraps [ErrForeign]. No push replaces foreign content.
func HelpForeign(err error, a subject.Address) string {
	switch {
	case errors.Is(err, ErrOtherVersion):
		return "delete that tag with the registry's own tools, and push the version again: no push replaces what the tag names"
	case a.Kind() == subject.Provider:
		return "let the repository template give each provider a repository of its own; if the repository is right, delete that tag with the registry's own tools"
	}
	return "give each module a repository of its own: let the template contain ${hostname}, ${namespace}, ${name} and ${system}; if the repository is right, delete that tag with the registry's own tools"
}

// isAny reports whether err wraps one of the target errors.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// IsInvalid reports whether err means that package artifact refuses stored content. Such
// content stays invalid, because the content of a digest never changes.
func IsInvalid(err error) bool {
	return isAny(err, append(wrongForms(), ErrAmbiguous, ErrTooLarge, ErrForeign)...) && !errors.Is(err, ErrMissing)
}

// IsContent reports whether err is about stored content: the content is invalid, or the
// registry lacks it or returns other bytes. IsContent is false if the connection, the
// authentication or a limit of the registry caused the error. Unlike IsContent,
// [IsInvalid] is false for errors that a repair of the registry can fix.
func IsContent(err error) bool {
	return IsInvalid(err) || isAny(err, ErrMissing, ErrDamaged)
}

// Brief returns err with a message of bounded length, for callers that store the error: see
// [hint.Brief]. The result still wraps each sentinel error that err wraps, if that error
// belongs to package artifact or package trust, or is in the list also.
func Brief(err error, also ...error) error {
	return hint.Brief(err, append(append(wrongForms(), ErrMissing, ErrAmbiguous, ErrTooLarge, ErrForeign, ErrOtherVersion, ErrDamaged, ErrNothingToCheck,
		trust.ErrUnsigned, trust.ErrSignature, trust.ErrChecksum, trust.ErrNotListed, provider.ErrNotZip), also...)...)
}
