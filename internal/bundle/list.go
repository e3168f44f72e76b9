package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// TypeBundle is the artifact type of the list of a bundle's contents: an image manifest with one layer, the
// list, whose media type has the suffix +json.
const TypeBundle = "application/vnd.ocibridge.bundle.v1"

const mediaTypeList = TypeBundle + "+json"

// list is the list of a bundle's contents.
type list struct {
	// Versions has the digest of each version's index, and of each attachment, by the name of its entry.
	Versions map[string]digest.Digest `json:"versions"`
	// Contents has the size in bytes of every blob.
	Contents map[digest.Digest]int64 `json:"contents"`
}

// check fails with ErrIncomplete unless everything on the list exists, and the list has every required blob.
func (b *Bundle) check(ctx context.Context, listed ocispec.Descriptor) error {
	want, err := b.readList(ctx, listed)
	if err != nil {
		return err
	}
	has := b.byName()
	for _, name := range slices.Sorted(maps.Keys(want.Versions)) {
		if has[name].Digest != want.Versions[name] {
			return fmt.Errorf("%w: it should hold %s as %s", ErrIncomplete, name, want.Versions[name])
		}
	}
	for name := range has {
		if _, ok := want.Versions[name]; !ok {
			return fmt.Errorf("%w: %s is not in its list", ErrIncomplete, name)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(want.Contents)) {
		if err := b.checkBlob(d, want.Contents[d]); err != nil {
			return err
		}
	}
	needed, err := b.contents(ctx)
	if err != nil {
		return err
	}
	for _, d := range slices.Sorted(maps.Keys(needed)) {
		if size, ok := want.Contents[d]; !ok || size != needed[d] {
			return fmt.Errorf("%w: %s of %d bytes is needed, but is not in its list", ErrIncomplete, d, needed[d])
		}
	}
	return nil
}

func (b *Bundle) checkBlob(d digest.Digest, size int64) error {
	if err := checkDigest(d); err != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	switch n, ok, err := b.size(d); {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: it lacks %s of %d bytes", ErrIncomplete, d, size)
	case n != size:
		return fmt.Errorf("%w: %s has %d bytes, and should have %d", ErrIncomplete, d, n, size)
	}
	return nil
}

// readList reads the list that an entry of index.json names.
func (b *Bundle) readList(ctx context.Context, listed ocispec.Descriptor) (*list, error) {
	data, err := b.readBlob(ctx, listed, artifact.MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := artifact.Unmarshal(data, &m); err != nil || len(m.Layers) != 1 || m.Layers[0].MediaType != mediaTypeList {
		return nil, fmt.Errorf("%w: its list is malformed", ErrIncomplete)
	}
	if data, err = b.readBlob(ctx, m.Layers[0], indexLimits.Bytes); err != nil {
		return nil, err
	}
	var out list
	if err := indexLimits.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%w: its list is malformed: %w", ErrIncomplete, err)
	}
	return &out, nil
}

// readBlob returns a blob, checked against its descriptor.
func (b *Bundle) readBlob(ctx context.Context, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if desc.Size < 0 || desc.Size > limit {
		return nil, fmt.Errorf("%w: %s is said to have %d bytes, more than %d", ErrIncomplete, desc.Digest, desc.Size, limit)
	}
	if err := b.checkBlob(desc.Digest, desc.Size); err != nil {
		return nil, err
	}
	data, err := content.FetchAll(ctx, b, desc)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIncomplete, desc.Digest, err)
	}
	return data, nil
}

// byName returns the tagged descriptors by their names in index.json.
func (b *Bundle) byName() map[string]ocispec.Descriptor {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]ocispec.Descriptor{}
	for a, tags := range b.tags {
		for tag, desc := range tags {
			if isKept(tag) {
				out[tagName(a, tag)] = desc
			}
		}
	}
	return out
}

// maxNesting bounds manifests within manifests: a version has two levels, and a list of referrers at most four.
const maxNesting = 4

// contents returns the size of every blob that the tags lead to, at any depth.
func (b *Bundle) contents(ctx context.Context) (map[digest.Digest]int64, error) {
	out := map[digest.Digest]int64{}
	var walk func(desc ocispec.Descriptor, depth int) error
	walk = func(desc ocispec.Descriptor, depth int) error {
		if size, seen := out[desc.Digest]; seen && size == desc.Size {
			return nil
		}
		if err := b.checkBlob(desc.Digest, desc.Size); err != nil {
			return err
		}
		out[desc.Digest] = desc.Size
		if !artifact.IsManifest(desc.MediaType) {
			return nil
		}
		if depth == maxNesting {
			return fmt.Errorf("%w: %s lies in more than %d manifests within one another", ErrNotBundle, desc.Digest, maxNesting)
		}
		data, err := b.readBlob(ctx, desc, artifact.MaxManifestBytes)
		if err != nil {
			return err
		}
		var m struct {
			Manifests []ocispec.Descriptor `json:"manifests"`
			Config    *ocispec.Descriptor  `json:"config"`
			Layers    []ocispec.Descriptor `json:"layers"`
		}
		if err := artifact.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrIncomplete, desc.Digest, err)
		}
		parts := slices.Concat(m.Manifests, m.Layers)
		if m.Config != nil {
			parts = append(parts, *m.Config)
		}
		for _, part := range parts {
			if err := walk(part, depth+1); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	for _, desc := range b.byName() {
		if err := walk(desc, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// encode stores the list and returns index.json.
func (b *Bundle) encode(ctx context.Context) ([]byte, error) {
	if err := b.listReferrers(ctx); err != nil {
		return nil, err
	}
	versions := b.byName()
	want := list{Versions: map[string]digest.Digest{}}
	var err error
	if want.Contents, err = b.contents(ctx); err != nil {
		return nil, err
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		desc := versions[name]
		want.Versions[name] = desc.Digest
		entry := ocispec.Descriptor{
			MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size,
			Annotations: map[string]string{ocispec.AnnotationRefName: name},
		}
		if _, isVersion := ociaddr.Tag(path.Base(name)).Version(); isVersion {
			entry.ArtifactType = artifact.TypeProvider
		}
		index.Manifests = append(index.Manifests, entry)
	}
	doc, err := json.Marshal(want)
	if err == nil {
		err = hint.Wrap(indexLimits.Check(doc), "copy into several bundles")
	}
	if err != nil {
		return nil, err
	}
	config := artifact.Config()
	layer := ocispec.Descriptor{MediaType: mediaTypeList, Digest: digest.FromBytes(doc), Size: int64(len(doc))}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: TypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer},
	})
	if err != nil {
		return nil, err
	}
	listed := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: TypeBundle, Digest: digest.FromBytes(manifest), Size: int64(len(manifest))}
	for _, blob := range []artifact.Blob{config, {Descriptor: layer, Data: doc}, {Descriptor: listed, Data: manifest}} {
		if err := b.push(blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			return nil, err
		}
	}
	index.Manifests = append(index.Manifests, listed)
	return json.Marshal(index)
}
