package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TypeBundle is the artifact type of the image manifest of a bundle's list. The only layer of that manifest is the list
// itself, whose media type is TypeBundle with the suffix +json.
const TypeBundle = "application/vnd.ocibridge.bundle.v1"

const mediaTypeList = TypeBundle + "+json"

// list is the list of a bundle's contents.
type list struct {
	// Versions maps the names of the entries of index.json to their digests. An entry is a version or an attachment.
	Versions map[string]digest.Digest `json:"versions"`
	// Contents maps the digest of every blob to its size in bytes.
	Contents map[digest.Digest]int64 `json:"contents"`
	// Omitted has the blobs that a version needs, but that are left out. It maps their digests to their sizes in bytes.
	Omitted map[digest.Digest]int64 `json:"omitted,omitempty"`
}

// has reports whether a blob is on the list with the given size.
func (l *list) has(d digest.Digest, size int64) bool {
	n, ok := l.Contents[d]
	if !ok {
		n, ok = l.Omitted[d]
	}
	return ok && n == size
}

// check returns ErrIncomplete unless every blob on the list exists or is omitted, and the list contains every
// blob that the bundle's tags need.
func (b *Bundle) check(ctx context.Context, listed ocispec.Descriptor) error {
	want, err := b.readList(ctx, listed)
	if err != nil {
		return err
	}
	for _, d := range slices.Sorted(maps.Keys(want.Contents)) {
		if err := b.checkBlob(d, want.Contents[d]); err != nil {
			return err
		}
	}
	b.omitted.sizes = want.Omitted
	has, err := b.list(ctx, b.kept())
	if err != nil {
		return err
	}
	b.omitted.sizes = has.Omitted
	for _, name := range slices.Sorted(maps.Keys(want.Versions)) {
		if has.Versions[name] != want.Versions[name] {
			return fmt.Errorf("%w: it should hold %s as %s", ErrIncomplete, name, want.Versions[name])
		}
	}
	for name := range has.Versions {
		if want.Versions[name] == "" {
			return fmt.Errorf("%w: %s is not in its list", ErrIncomplete, name)
		}
	}
	for d, size := range has.Contents {
		if !want.has(d, size) {
			return fmt.Errorf("%w: %s of %d bytes is needed, but is not in its list", ErrIncomplete, d, size)
		}
	}
	return nil
}

func (b *Bundle) checkBlob(d digest.Digest, size int64) error {
	if err := checkDigest(d); err != nil {
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	switch n, err := b.size(d); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it lacks %s of %d bytes", ErrIncomplete, d, size)
	case err != nil:
		return err
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

// readBlob returns the content of a blob of at most limit bytes, and checks it against the descriptor.
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

// kept returns the tags that Save writes to index.json.
func (b *Bundle) kept() map[string]ocispec.Descriptor {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := maps.Clone(b.tags)
	maps.DeleteFunc(out, func(name string, _ ocispec.Descriptor) bool { return !isKept(path.Base(name)) })
	return out
}

// maxNesting is the maximum depth of nested manifests. A version needs a depth of two, and a list of referrers at most four.
const maxNesting = 4

// list returns the list of the given tags and of every blob that a tag refers to, directly or through manifests. It
// fails if one of the blobs is missing and not omitted.
func (b *Bundle) list(ctx context.Context, tags map[string]ocispec.Descriptor) (list, error) {
	out := list{Versions: map[string]digest.Digest{}, Contents: map[digest.Digest]int64{}, Omitted: map[digest.Digest]int64{}}
	var walk func(desc ocispec.Descriptor, depth int) error
	walk = func(desc ocispec.Descriptor, depth int) error {
		if size, seen := out.Contents[desc.Digest]; seen && size == desc.Size {
			return nil
		}
		if b.isOmitted(desc) {
			out.Omitted[desc.Digest] = desc.Size
			return nil
		}
		if err := b.checkBlob(desc.Digest, desc.Size); err != nil {
			return err
		}
		out.Contents[desc.Digest] = desc.Size
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
	for name, desc := range tags {
		out.Versions[name] = desc.Digest
		if err := walk(desc, 0); err != nil {
			return out, err
		}
	}
	return out, nil
}

// encode stores the list and returns index.json.
func (b *Bundle) encode(ctx context.Context) ([]byte, error) {
	if err := b.storeReferrers(); err != nil {
		return nil, err
	}
	tags := b.kept()
	contents, err := b.list(ctx, tags)
	if err != nil {
		return nil, err
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		desc := tags[name]
		entry := ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size, Annotations: map[string]string{ocispec.AnnotationRefName: name}}
		if n, err := parseName(name); err == nil {
			entry.ArtifactType = n.artifactType()
		}
		index.Manifests = append(index.Manifests, entry)
	}
	doc, err := json.Marshal(contents)
	if err == nil {
		err = hint.Wrap(indexLimits.Check(doc), "copy into several bundles")
	}
	if err != nil {
		return nil, err
	}
	config, layer := artifact.Config(), content.NewDescriptorFromBytes(mediaTypeList, doc)
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: TypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer},
	})
	if err != nil {
		return nil, err
	}
	listed := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, manifest)
	listed.ArtifactType = TypeBundle
	for _, blob := range []artifact.Blob{config, {Descriptor: layer, Data: doc}, {Descriptor: listed, Data: manifest}} {
		if err := b.push(blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			return nil, err
		}
	}
	index.Manifests = append(index.Manifests, listed)
	return json.Marshal(index)
}
