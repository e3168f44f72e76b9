package artifact

import (
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
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

// Annotations of states and of what they replaced, and their bounds.
const (
	AnnotationSeen  = annotationSeen
	AnnotationState = annotationState

	MaxSeen     = maxSeen
	MaxReplaced = maxReplaced
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

// EncodeSeen returns the manifest in which earlier releases kept the age of a version.
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
