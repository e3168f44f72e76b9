package artifact

import (
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Keys of annotations, for tests that spoil them.
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

// Media types of the evidence's layers.
const (
	MediaTypeSums        = mediaTypeSums
	MediaTypeSignature   = mediaTypeSignature
	MediaTypeSigningKeys = mediaTypeSigningKeys
	MediaTypeRecord      = mediaTypeRecord
)

const (
	MaxEvidenceBytes = maxEvidenceBytes
	MaxRecordBytes   = maxRecordBytes
)

var (
	DecodeRecord = decodeRecord
	DecodeSeen   = decodeSeen
)

// DecodeIndex decodes an index that was fetched as data.
func DecodeIndex(data []byte) (*Version, error) {
	return decodeIndex(ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}, data)
}

// DecodeLayer returns the zip layer of a platform manifest.
func DecodeLayer(data []byte) (ocispec.Descriptor, error) {
	m, err := decodeManifest(data, TypeTarget)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return zipLayer(m)
}
