package artifact

import (
	"github.com/opencontainers/go-digest"
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
	DecodeState  = decodeState
)

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
