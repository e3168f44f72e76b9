package artifact

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Evidence is what a version was accepted on, kept beside its packages so that
// anyone can check it again.
type Evidence struct {
	// SHA256SUMS and Signature are the origin's own bytes, SigningKeys its JSON;
	// nil where there were none.
	SHA256SUMS  []byte
	Signature   []byte
	SigningKeys json.RawMessage
	Record      Record
}

// Record is the small JSON document in the evidence. It says nothing that
// depends on when or where the push ran.
type Record struct {
	// Origin is where the release came from, such as the host of its registry.
	Origin string `json:"origin"`
	// Verdict is how it was accepted.
	Verdict trust.Verdict `json:"verdict"`
	// Fingerprint is that of the primary key the signature verified with, in
	// upper-case hexadecimal; empty for checksum only.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Protocols are the plugin protocols that the origin gives.
	Protocols []string `json:"protocols,omitempty"`
	// About has what the origin gives of source and time.
	provider.About
}

const (
	// maxEvidenceBytes bounds one layer of evidence when it is read.
	maxEvidenceBytes = 4 << 20
	// maxRecordBytes bounds the record, which has some 300 bytes.
	maxRecordBytes = 64 << 10
)

// maxLayerBytes bounds a layer of evidence by its media type.
func maxLayerBytes(mediaType string) int64 {
	if mediaType == mediaTypeRecord {
		return maxRecordBytes
	}
	return maxEvidenceBytes
}

// NewEvidence returns the evidence of accepted checksums.
func NewEvidence(c *trust.Checksums, origin string, protocols []string, about provider.About) Evidence {
	sums, signature, keys := c.Document()
	return Evidence{sums, signature, keys, Record{
		Origin: origin, Verdict: c.Verdict(), Fingerprint: c.Signer().Fingerprint, Protocols: protocols, About: about,
	}}
}

// EncodeEvidence returns the manifest of the evidence, whose descriptor is as
// [DescribeEvidence] makes it, and the blobs it names.
func EncodeEvidence(e Evidence) (manifest Blob, blobs []Blob, err error) {
	record, err := json.Marshal(e.Record)
	if err != nil {
		return Blob{}, nil, err
	}
	m := ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: TypeEvidence,
		Config:       Config().Descriptor,
	}
	for _, part := range []struct {
		mediaType, title string
		data             []byte
	}{
		{mediaTypeSums, "SHA256SUMS", e.SHA256SUMS},
		{mediaTypeSignature, "SHA256SUMS.sig", e.Signature},
		{mediaTypeSigningKeys, "signing_keys.json", e.SigningKeys},
		{mediaTypeRecord, "record.json", record},
	} {
		if len(part.data) == 0 {
			continue // some registries refuse empty blobs
		}
		if limit := maxLayerBytes(part.mediaType); int64(len(part.data)) > limit {
			return Blob{}, nil, fmt.Errorf("evidence: %w: %s has %d bytes, more than %d", ErrTooLarge, part.title, len(part.data), limit)
		}
		b := newBlob(part.mediaType, part.data)
		blobs = append(blobs, b)
		layer := b.Descriptor
		layer.Annotations = map[string]string{ocispec.AnnotationTitle: part.title}
		m.Layers = append(m.Layers, layer)
	}
	manifest, err = encodeManifest(ocispec.MediaTypeImageManifest, m)
	manifest.Descriptor = DescribeEvidence(manifest.Descriptor, e.Record.Verdict)
	return manifest, blobs, err
}

// ReadEvidence returns the evidence of a version as it is stored. It checks
// digests and form, not signatures. Errors are those of [Read]; errdef.ErrNotFound
// is none of them.
func ReadEvidence(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (*Evidence, error) {
	e, err := readEvidence(ctx, store, desc)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	return e, nil
}

func readEvidence(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (*Evidence, error) {
	m, err := fetchManifest(ctx, store, desc, TypeEvidence)
	if err != nil {
		return nil, err
	}
	parts := map[string][]byte{}
	for _, layer := range m.Layers {
		switch layer.MediaType {
		case mediaTypeSums, mediaTypeSignature, mediaTypeSigningKeys, mediaTypeRecord:
		default:
			continue
		}
		if parts[layer.MediaType] != nil {
			return nil, fmt.Errorf("%w: two layers of type %s", ErrAmbiguous, layer.MediaType)
		}
		if parts[layer.MediaType], err = fetchVerified(ctx, store, layer, maxLayerBytes(layer.MediaType)); err != nil {
			return nil, err
		}
	}
	record, err := decodeRecord(parts[mediaTypeRecord])
	if err != nil {
		return nil, err
	}
	return &Evidence{parts[mediaTypeSums], parts[mediaTypeSignature], parts[mediaTypeSigningKeys], record}, nil
}

// ReadRecord returns the record of a version's evidence alone, in two requests. It
// is what a push wrote, and nothing of it is checked. Errors are those of
// [ReadEvidence].
func ReadRecord(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (Record, error) {
	r, err := readRecord(ctx, store, desc)
	if err != nil {
		return Record{}, fmt.Errorf("evidence: %w", err)
	}
	return r, nil
}

func readRecord(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (Record, error) {
	m, err := fetchManifest(ctx, store, desc, TypeEvidence)
	if err != nil {
		return Record{}, err
	}
	for _, layer := range m.Layers {
		if layer.MediaType == mediaTypeRecord {
			data, err := fetchVerified(ctx, store, layer, maxRecordBytes)
			if err != nil {
				return Record{}, err
			}
			return decodeRecord(data)
		}
	}
	return decodeRecord(nil)
}

// decodeRecord reads the record that every evidence has.
func decodeRecord(data []byte) (Record, error) {
	if data == nil {
		return Record{}, fmt.Errorf("%w: it has no record", ErrNotProvider)
	}
	var r Record
	if err := Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("its record does not read: %w", err)
	}
	if r.Verdict != trust.Signed && r.Verdict != trust.ChecksumOnly {
		return Record{}, fmt.Errorf("%w: its record has the verdict %.80q", ErrNotProvider, r.Verdict)
	}
	r.Protocols, r.About = knownProtocols(r.Protocols), r.About.Normal()
	return r, nil
}
