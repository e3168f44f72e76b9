package artifact

import (
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The keys of annotations, for tests that change them.
const (
	AnnotationProvider  = annotationProvider
	AnnotationVersion   = annotationVersion
	AnnotationProtocols = annotationProtocols
	AnnotationDigest    = annotationDigest
	AnnotationSize      = annotationSize
	AnnotationFilename  = annotationFilename
	AnnotationH1        = annotationH1
	AnnotationVerdict   = annotationVerdict
)

// The media types of the evidence's layers.
const (
	MediaTypeSums        = mediaTypeSums
	MediaTypeSignature   = mediaTypeSignature
	MediaTypeSigningKeys = mediaTypeSigningKeys
	MediaTypeRecord      = mediaTypeRecord
)

// The annotations of states, and the maximum numbers of elements in a state.
const (
	AnnotationSeen  = annotationSeen
	AnnotationState = annotationState

	AnnotationVersions = annotationVersions

	MaxSeen         = maxSeen
	MaxReplaced     = maxReplaced
	MaxSummarized   = maxSummarized
	MaxSummaryBytes = maxSummaryBytes
)

const (
	MaxEvidenceBytes = maxEvidenceBytes
	MaxRecordBytes   = maxRecordBytes
)

var (
	DecodeRecord = decodeRecord
	DecodeSeen   = decodeSeen
	DecodeState  = decodeState
)

// EncodeSeen returns the manifest in which earlier releases recorded the time at which they
// first saw a version.
func EncodeSeen(at time.Time) (Blob, error) {
	return encodeManifest(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: "application/vnd.ocibridge.seen.v1",
		Config:       Config().Descriptor,
		Layers:       []ocispec.Descriptor{Config().Descriptor},
		Annotations:  map[string]string{annotationSeen: seenText(at)},
	})
}

// DecodeIndex decodes an index from its bytes.
func DecodeIndex(data []byte) (*Version, error) {
	return decodeIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
}

// DecodeLayer returns the zip layer of a platform manifest.
func DecodeLayer(data []byte) (ocispec.Descriptor, error) {
	m, err := decodeManifest(data, TypeTarget, ErrNotProvider)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return zipLayer(m, ErrNotProvider)
}
