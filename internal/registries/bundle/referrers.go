package bundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// refer adds a manifest to the list of its subject's referrers. It does nothing for a manifest without a subject. It
// fails if the list would become larger than a manifest is allowed to be.
func (r *Repository) refer(ctx context.Context, desc ocispec.Descriptor, data []byte) error {
	var m struct {
		ArtifactType string              `json:"artifactType"`
		Config       ocispec.Descriptor  `json:"config"`
		Subject      *ocispec.Descriptor `json:"subject"`
		Annotations  map[string]string   `json:"annotations"`
	}
	if err := artifact.Unmarshal(data, &m); err != nil || m.Subject == nil {
		return err
	}
	if desc.MediaType == ocispec.MediaTypeImageManifest {
		m.ArtifactType = cmp.Or(m.ArtifactType, m.Config.MediaType)
	}
	r.bundle.mu.Lock()
	defer r.bundle.mu.Unlock()
	list, err := r.referrers(ctx, m.Subject.Digest)
	if err != nil || slices.ContainsFunc(list, func(d ocispec.Descriptor) bool { return d.Digest == desc.Digest }) {
		return err
	}
	list = append(list, ocispec.Descriptor{MediaType: desc.MediaType, ArtifactType: m.ArtifactType, Digest: desc.Digest, Size: desc.Size, Annotations: m.Annotations})
	slices.SortFunc(list, func(x, y ocispec.Descriptor) int { return cmp.Compare(x.Digest, y.Digest) })
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list})
	if err == nil && len(index) > artifact.MaxManifestBytes {
		err = fmt.Errorf("%w: with %s, the list of the referrers of %s has more than %d bytes", artifact.ErrTooLarge, desc.Digest, m.Subject.Digest, artifact.MaxManifestBytes)
	}
	if err == nil {
		r.bundle.referrers[r.tagName(string(ociaddr.ReferrersTag(m.Subject.Digest)))] = index
	}
	return err
}

// referrers returns the list of a subject's referrers. The caller must hold the bundle's lock.
func (r *Repository) referrers(ctx context.Context, subject digest.Digest) ([]ocispec.Descriptor, error) {
	if err := checkDigest(subject); err != nil {
		return nil, err
	}
	name := r.tagName(string(ociaddr.ReferrersTag(subject)))
	data, changed := r.bundle.referrers[name]
	if !changed {
		desc, ok := r.bundle.tags[name]
		if !ok {
			return nil, nil
		}
		var err error
		if data, err = r.bundle.readBlob(ctx, desc, artifact.MaxManifestBytes); err != nil {
			return nil, err
		}
	}
	var index ocispec.Index
	if err := artifact.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIncomplete, name, err)
	}
	return index.Manifests, nil
}

// Referrers calls fn once with the referrers of a subject that have the given artifact type. If artifactType is "", it
// calls fn with all referrers. It does not call fn if there are none.
func (r *Repository) Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, fn func(referrers []ocispec.Descriptor) error) error {
	r.bundle.mu.Lock()
	list, err := r.referrers(ctx, subject.Digest)
	r.bundle.mu.Unlock()
	if artifactType != "" {
		list = slices.DeleteFunc(list, func(d ocispec.Descriptor) bool { return d.ArtifactType != artifactType })
	}
	if err != nil || len(list) == 0 {
		return err
	}
	return fn(list)
}

// storeReferrers stores each changed list of referrers under the fallback tag of its subject.
func (b *Bundle) storeReferrers() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.referrers)) {
		desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, b.referrers[name])
		if err := b.push(desc, bytes.NewReader(b.referrers[name])); err != nil {
			return err
		}
		b.tags[name] = desc
	}
	return nil
}
