// Package artifact owns the layout in which a provider version is kept in an OCI
// repository: how it is encoded, and how it is read back, whoever wrote it.
//
//	tag 3.2.4
//	└─ image index, artifactType application/vnd.opentofu.provider
//	   ├─ linux_amd64: image manifest, artifactType application/vnd.opentofu.provider-target
//	   │  ├─ config: the empty descriptor, {}
//	   │  └─ one layer, archive/zip: the release zip, byte for byte
//	   ├─ darwin_arm64: likewise
//	   └─ evidence: image manifest, artifactType application/vnd.ocibridge.evidence.v1
//	      └─ layers: SHA256SUMS, its signature, signing keys, a record
//
// What OpenTofu's oci_mirror requires is the whole of what is needed to read a
// version; annotations and evidence are ours and optional. Encoding is
// deterministic: the same packages and evidence give the same bytes. Nothing
// read is believed before its size and digest are checked, and no manifest is
// larger than [MaxManifestBytes].
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
)

// Media and artifact types.
const (
	TypeProvider = "application/vnd.opentofu.provider"
	TypeTarget   = "application/vnd.opentofu.provider-target"
	TypeEvidence = "application/vnd.ocibridge.evidence.v1"

	mediaTypeZip         = "archive/zip"
	mediaTypeSums        = "text/plain"
	mediaTypeSignature   = "application/pgp-signature"
	mediaTypeSigningKeys = "application/vnd.ocibridge.signing-keys.v1+json"
	mediaTypeRecord      = "application/vnd.ocibridge.record.v1+json"
)

// Annotations of our own.
const (
	annotationPrefix    = "io.github.ocibridge."
	annotationProvider  = annotationPrefix + "provider"     // on the index: the address, with the hostname in Punycode
	annotationVersion   = annotationPrefix + "version"      // on the index
	annotationProtocols = annotationPrefix + "protocols"    // on the index: joined by commas
	annotationDigest    = annotationPrefix + "layer.digest" // on an index entry
	annotationSize      = annotationPrefix + "layer.size"   // on an index entry, in bytes
	annotationFilename  = annotationPrefix + "filename"     // on an index entry
	annotationH1        = annotationPrefix + "h1"           // on an index entry, if there is one
	annotationVerdict   = annotationPrefix + "verdict"      // on the index entry of evidence: its record's verdict
)

// IsManifest reports whether a media type is that of an OCI manifest or index.
func IsManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == ocispec.MediaTypeImageManifest
}

// MaxManifestBytes bounds indexes and manifests: OpenTofu takes no larger ones,
// and registries need not either.
const MaxManifestBytes = 4 << 20

// Package is one platform's package within a version.
type Package struct {
	Platform provider.Platform
	Filename string
	Digest   digest.Digest // of the zip, always sha256
	Size     int64         // of the zip, in bytes
	H1       provider.Hash // none if nobody computed it
	// Manifest describes the platform's image manifest.
	Manifest ocispec.Descriptor
	// UnusedAnnotations is set if the index entry has annotations of ours that do not
	// describe a package. They are not used.
	UnusedAnnotations bool
}

// Claims reports whether everything that a description says of a package is so of the
// verified one. A description may leave out the h1: hash.
func (p Package) Claims(verified Package) bool {
	return p.Platform == verified.Platform && p.Digest == verified.Digest && p.Size == verified.Size && p.Filename == verified.Filename &&
		(p.H1.IsZero() || p.H1 == verified.H1)
}

// ZipHash returns the package's zh: hash.
func (p Package) ZipHash() provider.Hash {
	h, err := provider.ParseHash("zh:" + p.Digest.Encoded())
	if err != nil {
		panic("artifact: package with the digest " + p.Digest.String()) // both Encode and Read let only sha256 through
	}
	return h
}

// Layer returns the descriptor of the package's zip.
func (p Package) Layer() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaTypeZip, Digest: p.Digest, Size: p.Size}
}

// MissingPackage is a platform whose manifest an index names and the registry lacks.
type MissingPackage struct {
	Platform provider.Platform
	Manifest digest.Digest
}

// Err returns an error that wraps [ErrMissing] and [ErrNotProvider].
func (m MissingPackage) Err() error {
	return fmt.Errorf("%s: %w: %w: the manifest %s", m.Platform, ErrNotProvider, ErrMissing, m.Manifest)
}

// Version is one version of a provider as an index holds it.
type Version struct {
	// Provider and Version are what the index says of itself; zero where it was
	// made by a tool that does not say.
	Provider provider.Address
	Version  provider.Version
	// Protocols are the plugin protocols, such as 5.0; nil if not known.
	Protocols []string
	// Packages are sorted by platform, at most one each. There are none in an
	// index that is only for platforms on which no client runs.
	Packages []Package
	// Missing are the platforms in the index that are not in Packages, sorted, because
	// the registry lacks their manifests. Only [ReadAvailable] returns any.
	Missing []MissingPackage
	// Evidence describes the evidence manifest; nil if there is none. It keeps the
	// annotation that [DescribeEvidence] makes.
	Evidence *ocispec.Descriptor
	// Index describes the index itself.
	Index ocispec.Descriptor
}

// Platforms returns the platforms of the index, sorted: those of Packages and Missing.
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

// MissingFor returns the missing package of a platform.
func (v *Version) MissingFor(p provider.Platform) (MissingPackage, bool) {
	i := slices.IndexFunc(v.Missing, func(m MissingPackage) bool { return m.Platform == p })
	if i < 0 {
		return MissingPackage{}, false
	}
	return v.Missing[i], true
}

// Fetcher gets content by its descriptor. oras-go's remote.Repository is one.
type Fetcher interface {
	Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error)
}

// ReferenceFetcher gets a manifest by tag as well. oras-go's remote.Repository
// is one.
type ReferenceFetcher interface {
	Fetcher
	FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error)
}

// Reasons for which what a tag names cannot be served.
var (
	// ErrNotProvider: it is some other kind of artifact, or none that OpenTofu
	// could install, such as an index whose manifests were deleted.
	ErrNotProvider = errors.New("not a provider index")
	// ErrMissing comes with ErrNotProvider where the registry lacks what an index
	// names. Unlike the other reasons, it may pass.
	ErrMissing = errors.New("the registry lacks what it names")
	// ErrAmbiguous: it holds two packages where one is wanted.
	ErrAmbiguous = errors.New("ambiguous provider index")
	// ErrTooLarge: a manifest is larger than MaxManifestBytes.
	ErrTooLarge = errors.New("manifest too large")
	// ErrForeign: it says that it belongs to another provider or version.
	ErrForeign = errors.New("belongs to another provider")
	// ErrDamaged: the registry answered with content that is not what its
	// descriptor says.
	ErrDamaged = errors.New("damaged content")
)
