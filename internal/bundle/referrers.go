package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// emptyListBytes is an upper bound of the length of an empty list.
const emptyListBytes = 256

// subjectOf identifies a manifest in a provider's repository that referrers name as their subject.
type subjectOf struct {
	provider provider.Address
	digest   digest.Digest
}

// pushManifest stores a manifest, and returns it.
func (b *Bundle) pushManifest(desc ocispec.Descriptor, body io.Reader) ([]byte, error) {
	if desc.Size < 0 || desc.Size > artifact.MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes, more than %d", artifact.ErrTooLarge, desc.Digest, desc.Size, artifact.MaxManifestBytes)
	}
	data, err := content.ReadAll(body, desc)
	if err != nil {
		return nil, err
	}
	return data, b.push(desc, bytes.NewReader(data))
}

// refer records a manifest as the referrer of its subject, if it has one. It fails if the list of referrers
// would be longer than a manifest may be.
func (b *Bundle) refer(a provider.Address, desc ocispec.Descriptor, data []byte) error {
	var m struct {
		ArtifactType string `json:"artifactType"`
		Config       *struct {
			MediaType string `json:"mediaType"`
		} `json:"config"`
		Subject *struct {
			Digest digest.Digest `json:"digest"`
		} `json:"subject"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := artifact.Unmarshal(data, &m); err != nil || m.Subject == nil {
		return err
	}
	if err := checkDigest(m.Subject.Digest); err != nil {
		return err
	}
	referrer := ocispec.Descriptor{MediaType: desc.MediaType, ArtifactType: m.ArtifactType, Digest: desc.Digest, Size: desc.Size, Annotations: m.Annotations}
	if referrer.ArtifactType == "" && desc.MediaType == ocispec.MediaTypeImageManifest && m.Config != nil {
		referrer.ArtifactType = m.Config.MediaType
	}
	entry, err := json.Marshal(referrer)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.referrers[a][m.Subject.Digest]
	if slices.ContainsFunc(list, func(d ocispec.Descriptor) bool { return d.Digest == desc.Digest }) {
		return nil
	}
	s := subjectOf{a, m.Subject.Digest}
	size, ok := b.listBytes[s]
	if !ok {
		size = emptyListBytes + b.tags[a][string(ociaddr.ReferrersTag(m.Subject.Digest))].Size
	}
	if size += int64(len(entry)) + 1; size > artifact.MaxManifestBytes {
		return fmt.Errorf("%w: with %s, the list of the referrers of %s has more than %d bytes", artifact.ErrTooLarge, desc.Digest, m.Subject.Digest, artifact.MaxManifestBytes)
	}
	b.listBytes[s] = size
	if b.referrers[a] == nil {
		b.referrers[a] = map[digest.Digest][]ocispec.Descriptor{}
	}
	b.referrers[a][m.Subject.Digest] = append(list, referrer)
	return nil
}

// sortReferrers sorts a list by digest, and removes duplicates, in place.
func sortReferrers(list []ocispec.Descriptor) []ocispec.Descriptor {
	slices.SortStableFunc(list, func(x, y ocispec.Descriptor) int { return strings.Compare(string(x.Digest), string(y.Digest)) })
	return slices.CompactFunc(list, func(x, y ocispec.Descriptor) bool { return x.Digest == y.Digest })
}

// Referrers lists the referrers of a subject, on one page, sorted by digest.
func (r *Repository) Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, fn func(referrers []ocispec.Descriptor) error) error {
	list, err := r.bundle.referrersOf(ctx, r.provider, subject.Digest)
	if err != nil {
		return err
	}
	if artifactType != "" {
		list = slices.DeleteFunc(list, func(d ocispec.Descriptor) bool { return d.ArtifactType != artifactType })
	}
	if len(list) == 0 {
		return nil
	}
	return fn(list)
}

// referrersOf returns the referrers that the subject's fallback tag lists, and those that were pushed since,
// sorted.
func (b *Bundle) referrersOf(ctx context.Context, a provider.Address, subject digest.Digest) ([]ocispec.Descriptor, error) {
	if err := checkDigest(subject); err != nil {
		return nil, err
	}
	tag := string(ociaddr.ReferrersTag(subject))
	b.mu.Lock()
	desc, tagged := b.tags[a][tag]
	pushed := slices.Clone(b.referrers[a][subject])
	b.mu.Unlock()
	if !tagged {
		return sortReferrers(pushed), nil
	}
	data, err := b.readBlob(ctx, desc, artifact.MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := artifact.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIncomplete, tag, err)
	}
	return sortReferrers(slices.Concat(index.Manifests, pushed)), nil
}

// listReferrers stores the lists of the pushed referrers, each under the fallback tag of its subject.
func (b *Bundle) listReferrers(ctx context.Context) error {
	b.mu.Lock()
	pushed := maps.Clone(b.referrers)
	b.mu.Unlock()
	providers := slices.SortedFunc(maps.Keys(pushed), func(x, y provider.Address) int { return strings.Compare(x.Path(), y.Path()) })
	for _, a := range providers {
		for _, subject := range slices.Sorted(maps.Keys(pushed[a])) {
			list, err := b.referrersOf(ctx, a, subject)
			if err != nil {
				return err
			}
			data, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list})
			if err != nil {
				return err
			}
			desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data)
			if desc.Size > artifact.MaxManifestBytes {
				return fmt.Errorf("%w: the list of the referrers of %s has %d bytes", artifact.ErrTooLarge, subject, desc.Size)
			}
			if err := b.Repository(a).PushReference(ctx, desc, bytes.NewReader(data), string(ociaddr.ReferrersTag(subject))); err != nil {
				return err
			}
		}
	}
	return nil
}
