package artifact

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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
}

// maxEvidenceBytes bounds one layer of evidence when it is read.
const maxEvidenceBytes = 4 << 20

// NewEvidence returns the evidence of accepted checksums.
func NewEvidence(c *trust.Checksums, origin string, protocols []string) Evidence {
	sums, signature, keys := c.Document()
	return Evidence{sums, signature, keys, Record{
		Origin: origin, Verdict: c.Verdict(), Fingerprint: c.Signer().Fingerprint, Protocols: protocols,
	}}
}

// EncodeEvidence returns the manifest of the evidence and the blobs it names.
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
		b := newBlob(part.mediaType, part.data)
		blobs = append(blobs, b)
		layer := b.Descriptor
		layer.Annotations = map[string]string{ocispec.AnnotationTitle: part.title}
		m.Layers = append(m.Layers, layer)
	}
	manifest, err = encodeManifest(ocispec.MediaTypeImageManifest, m)
	return manifest, blobs, err
}

// ReadEvidence returns the evidence of a version as it is stored. It checks
// digests, not signatures.
func ReadEvidence(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (*Evidence, error) {
	m, err := fetchManifest(ctx, store, desc, TypeEvidence)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	var e Evidence
	for _, layer := range m.Layers {
		var into *[]byte
		var record []byte
		switch layer.MediaType {
		case mediaTypeSums:
			into = &e.SHA256SUMS
		case mediaTypeSignature:
			into = &e.Signature
		case mediaTypeSigningKeys:
			into = (*[]byte)(&e.SigningKeys)
		case mediaTypeRecord:
			into = &record
		default:
			continue
		}
		if *into, err = fetchVerified(ctx, store, layer, maxEvidenceBytes); err != nil {
			return nil, fmt.Errorf("evidence: %w", err)
		}
		if record != nil {
			if err := json.Unmarshal(record, &e.Record); err != nil {
				return nil, fmt.Errorf("evidence: %w: its record does not read: %v", ErrNotProvider, err)
			}
		}
	}
	return &e, nil
}
