package artifact

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Evidence contains the documents against which a push verified a version. They are stored next
// to the packages, so that anyone can verify the version again.
type Evidence struct {
	// SHA256SUMS and Signature are the origin's files, and SigningKeys is the origin's JSON.
	// All three are stored unchanged. A field is nil if the origin does not provide the
	// document.
	SHA256SUMS  []byte
	Signature   []byte
	SigningKeys json.RawMessage
	Record      Record
}

// Record is the small JSON document in the evidence. It contains nothing that depends on
// when or where the push ran.
type Record struct {
	// Origin is the source of the release, such as the host name of its registry.
	Origin string `json:"origin"`
	// Verdict says how the release was verified.
	Verdict trust.Verdict `json:"verdict"`
	// Fingerprint is the fingerprint of the primary key that verified the signature, in
	// upper-case hexadecimal. It is empty if the verdict is ChecksumOnly.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Protocols lists the plugin protocols that the origin states.
	Protocols []string `json:"protocols,omitempty"`
	// About contains the source and the publication time that the origin states.
	provider.About
}

const (
	// maxEvidenceBytes is the maximum size in bytes of one layer of evidence.
	maxEvidenceBytes = 4 << 20
	// maxRecordBytes is the maximum size of the record in bytes. Most records are about 300
	// bytes long.
	maxRecordBytes = 64 << 10
)

// maxLayerBytes returns the maximum size in bytes of an evidence layer with the given media
// type.
func maxLayerBytes(mediaType string) int64 {
	if mediaType == mediaTypeRecord {
		return maxRecordBytes
	}
	return maxEvidenceBytes
}

// NewEvidence returns the evidence for checksums that a policy accepted.
func NewEvidence(c *trust.Checksums, origin string, protocols []string, about provider.About) Evidence {
	sums, signature, keys := c.Document()
	return Evidence{sums, signature, keys, Record{
		Origin: origin, Verdict: c.Verdict(), Fingerprint: c.Signer().Fingerprint, Protocols: protocols, About: about,
	}}
}

// EncodeEvidence returns the manifest of the evidence and its blobs. The manifest's
// descriptor has the annotation that [DescribeEvidence] adds.
func EncodeEvidence(e Evidence) (manifest Blob, blobs []Blob, err error) {
	record, err := json.Marshal(e.Record)
	if err != nil {
		return Blob{}, nil, err
	}
	var layers []ocispec.Descriptor
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
		layers = append(layers, layer)
	}
	manifest, err = encodeImage(TypeEvidence, layers, nil)
	manifest.Descriptor = DescribeEvidence(manifest.Descriptor, e.Record.Verdict)
	return manifest, blobs, err
}

// ReadEvidence returns the evidence of a version. It verifies digests and the format, but
// not signatures. It returns the same errors as [Read], except errdef.ErrNotFound.
func ReadEvidence(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (*Evidence, error) {
	return readEvidence(ctx, store, desc, mediaTypeSums, mediaTypeSignature, mediaTypeSigningKeys, mediaTypeRecord)
}

// ReadRecord returns only the record of a version's evidence. It sends two requests. It
// returns the record as the push wrote it, and does not verify the claims in the record. It
// returns the same errors as [ReadEvidence].
func ReadRecord(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (Record, error) {
	e, err := readEvidence(ctx, store, desc, mediaTypeRecord)
	if err != nil {
		return Record{}, err
	}
	return e.Record, nil
}

// readEvidence reads the parts of the evidence that have the given media types. mediaTypes must
// include the media type of the record.
func readEvidence(ctx context.Context, store Fetcher, desc ocispec.Descriptor, mediaTypes ...string) (*Evidence, error) {
	m, err := fetchManifest(ctx, store, desc, TypeEvidence)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	parts := map[string][]byte{}
	for _, layer := range m.Layers {
		if !slices.Contains(mediaTypes, layer.MediaType) {
			continue
		}
		if parts[layer.MediaType] != nil {
			return nil, fmt.Errorf("evidence: %w: two layers of type %s", ErrAmbiguous, layer.MediaType)
		}
		if parts[layer.MediaType], err = fetchVerified(ctx, store, layer, maxLayerBytes(layer.MediaType)); err != nil {
			return nil, fmt.Errorf("evidence: %w", err)
		}
	}
	record, err := decodeRecord(parts[mediaTypeRecord])
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	return &Evidence{parts[mediaTypeSums], parts[mediaTypeSignature], parts[mediaTypeSigningKeys], record}, nil
}

// decodeRecord decodes the record of the evidence. It returns an error if data is nil,
// because the record is mandatory.
func decodeRecord(data []byte) (Record, error) {
	if data == nil {
		return Record{}, fmt.Errorf("%w: it has no record", ErrNotProvider)
	}
	var r Record
	if err := Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("its record is invalid: %w", err)
	}
	if r.Verdict != trust.Signed && r.Verdict != trust.ChecksumOnly {
		return Record{}, fmt.Errorf("%w: its record has the verdict %.80q", ErrNotProvider, r.Verdict)
	}
	r.Protocols, r.About = knownProtocols(r.Protocols), r.About.Normal()
	return r, nil
}
