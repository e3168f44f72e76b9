package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// manifestFetches is the maximum number of concurrent fetches of the platform manifests of
// one version.
const manifestFetches = 8

// maxMissing is the maximum number of missing manifests of one version. The number is small
// because each read of the version requests every missing manifest again.
const maxMissing = 32

// Read reads a version from its tag in the provider's repository. It fetches only the index
// if ocibridge wrote the index. If another tool wrote the index, Read also fetches the
// manifest of each platform.
//
// Read returns the store's errors unchanged. errdef.ErrNotFound always means that the tag
// does not exist. ErrNotProvider, ErrAmbiguous, ErrTooLarge, ErrForeign and ErrDamaged say
// why Read refuses the content. If the registry lacks content that the index refers to, the
// error wraps ErrNotProvider and ErrMissing.
func Read(ctx context.Context, store ReferenceFetcher, a provider.Address, v provider.Version) (*Version, error) {
	return read(ctx, store, a, v, 0)
}

// ReadAvailable is like [Read], but for callers that can use a version without some of its platforms.
// It puts the platforms whose manifests are not in the registry into Version.Missing. It
// returns an error if all manifests are missing, or if more than 32 manifests are missing.
func ReadAvailable(ctx context.Context, store ReferenceFetcher, a provider.Address, v provider.Version) (*Version, error) {
	return read(ctx, store, a, v, maxMissing)
}

// ReadTagged is like [ReadAvailable], but reads versions of all kinds. For kinds whose versions
// have no platforms, it is like [ReadZip], but reads the given tag only.
func ReadTagged(ctx context.Context, store ReferenceFetcher, of subject.Address, v provider.Version, tag ociaddr.Tag) (*Version, error) {
	if a, ok := of.(provider.Address); ok {
		return ReadAvailable(ctx, store, a, v)
	}
	if _, err := ociaddr.VersionTag(v); err != nil {
		return nil, err
	}
	return readZipTag(ctx, store, of, v, tag)
}

// read is like [Read], but accepts a version that has at most mayMiss missing manifests.
func read(ctx context.Context, store ReferenceFetcher, a provider.Address, v provider.Version, mayMiss int32) (*Version, error) {
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	desc, data, err := fetchTag(ctx, store, string(tag))
	if err != nil {
		return nil, err
	}
	out, err := decodeIndex(desc, data)
	if err != nil {
		return nil, foreignOr(err, data, a)
	}
	if err := out.checkOwner(a, v, "index"); err != nil {
		return nil, err
	}
	if err := resolvePackages(ctx, store, out, a, v, mayMiss); err != nil {
		return nil, err
	}
	return out, nil
}

// checkOwner returns an error if the annotations of the index or manifest name another address
// than a, or another version than ver.
func (v *Version) checkOwner(a subject.Address, ver provider.Version, where string) error {
	if v.Owner != nil && v.Owner != a {
		return fmt.Errorf("%w: the %s says that it is %s", ErrForeign, where, v.Owner)
	}
	if !v.Version.IsZero() && v.Version != ver {
		return fmt.Errorf("%w: the %s says that it is version %s", ErrOtherVersion, where, v.Version)
	}
	return nil
}

// TypeOf returns the media type and the artifact type of the manifest or index under the tag of a version.
func TypeOf(kind subject.Kind) (mediaType, artifactType string) {
	if l, ok := zipLayouts[kind]; ok {
		return ocispec.MediaTypeImageManifest, l.artifactType
	}
	return ocispec.MediaTypeImageIndex, TypeProvider
}

// foreignOr returns ErrForeign if refused content is of another kind, or names another address than the address
// a. Otherwise it returns err.
func foreignOr(err error, data []byte, a subject.Address) error {
	var m struct {
		ArtifactType string            `json:"artifactType"`
		Annotations  map[string]string `json:"annotations"`
	}
	if Unmarshal(data, &m) != nil {
		return err
	}
	for _, kind := range subject.Kinds {
		_, artifactType := TypeOf(kind)
		if kind != a.Kind() && m.ArtifactType == artifactType {
			return fmt.Errorf("%w a %s", ErrOtherKind, kind)
		}
	}
	if l, ok := zipLayouts[a.Kind()]; ok && m.ArtifactType == l.artifactType {
		if named, invalid := l.parse(m.Annotations[l.annotation]); invalid == nil {
			return cmp.Or((&Version{Owner: named}).checkOwner(a, provider.Version{}, "manifest"), err)
		}
	}
	return err
}

// fetchTag fetches the manifest under a tag. It computes the descriptor from the received
// bytes, because some registries send no digest, or a wrong digest.
func fetchTag(ctx context.Context, store ReferenceFetcher, tag string) (ocispec.Descriptor, []byte, error) {
	desc, body, err := store.FetchReference(ctx, tag)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	defer body.Close()
	data, err := readBounded(body, desc.Size)
	if err != nil {
		return ocispec.Descriptor{}, nil, fmt.Errorf("tag %s: %w", tag, err)
	}
	got := digest.FromBytes(data)
	if isSHA256(desc.Digest) && desc.Digest != got {
		return ocispec.Descriptor{}, nil, fmt.Errorf("tag %s: %w: announced as %s, it is %s", tag, ErrDamaged, desc.Digest, got)
	}
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: got, Size: int64(len(data))}, data, nil
}

// Children returns the digests of the manifests and layers that a tag's manifest refers to, and
// the digest of the manifest itself. The manifest can be of any kind. If ocibridge wrote an
// index, Children also returns the digests of the layers that the index describes.
func Children(ctx context.Context, store ReferenceFetcher, tag string) ([]digest.Digest, digest.Digest, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return nil, "", err
	}
	var m struct {
		Manifests []ocispec.Descriptor `json:"manifests"`
		Layers    []ocispec.Descriptor `json:"layers"`
	}
	if err := Unmarshal(data, &m); err != nil {
		return nil, "", fmt.Errorf("tag %s: %w", tag, err)
	}
	var out []digest.Digest
	for _, entry := range slices.Concat(m.Manifests, m.Layers) {
		out = append(out, entry.Digest)
		if layer := digest.Digest(entry.Annotations[annotationDigest]); layer != "" {
			out = append(out, layer)
		}
	}
	return out, desc.Digest, nil
}

// resolvePackages reads the manifests of the packages that the index does not describe, and completes these
// packages. It moves packages without a manifest to v.Missing. It returns an error if more than mayMiss manifests
// are missing, or if no package remains.
func resolvePackages(ctx context.Context, store Fetcher, v *Version, a provider.Address, ver provider.Version, mayMiss int32) error {
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(manifestFetches)
	var missing atomic.Int32
	for i := range v.Packages {
		p := &v.Packages[i]
		if p.Digest != "" {
			continue
		}
		g.Go(func() error {
			layer, err := fetchLayer(ctx, store, p.Manifest)
			if errors.Is(err, ErrMissing) && missing.Add(1) <= mayMiss {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.Platform, err)
			}
			p.fill(layer, a, ver)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	v.Packages = slices.DeleteFunc(v.Packages, func(p Package) bool {
		if p.Digest != "" {
			return false
		}
		v.Missing = append(v.Missing, MissingPackage{p.Platform, p.Manifest.Digest})
		return true
	})
	if len(v.Packages) == 0 && len(v.Missing) > 0 {
		return v.Missing[0].Err()
	}
	return nil
}

// fill sets the digest, size, file name and h1: hash of a package from its layer. If the
// layer has no valid file name, fill uses the published name.
func (p *Package) fill(layer ocispec.Descriptor, a provider.Address, v provider.Version) {
	p.Digest, p.Size, p.H1 = layer.Digest, layer.Size, annotatedH1(layer.Annotations)
	if p.Filename = layer.Annotations[ocispec.AnnotationTitle]; !provider.ValidFilename(p.Filename) {
		p.Filename = provider.PackageFilename(a, v, p.Platform)
	}
}

// Resolve returns the descriptor of the manifest under a tag. It computes the descriptor
// from the received bytes.
func Resolve(ctx context.Context, store ReferenceFetcher, tag string) (ocispec.Descriptor, error) {
	desc, _, err := fetchTag(ctx, store, tag)
	return desc, err
}

// ReadPackage returns the package of the platform manifest under a tag.
func ReadPackage(ctx context.Context, store ReferenceFetcher, tag string, a provider.Address, v provider.Version, platform provider.Platform) (*Package, error) {
	desc, data, err := fetchTag(ctx, store, tag)
	if err != nil {
		return nil, err
	}
	return DecodePackage(desc, data, a, v, platform)
}

// DecodePackage returns the package that a platform manifest describes.
func DecodePackage(desc ocispec.Descriptor, data []byte, a provider.Address, v provider.Version, platform provider.Platform) (*Package, error) {
	manifest, err := decodeManifest(data, TypeTarget, ErrNotProvider)
	if err != nil {
		return nil, err
	}
	layer, err := zipLayer(manifest, ErrNotProvider)
	if err != nil {
		return nil, err
	}
	desc.MediaType = manifest.MediaType
	p := &Package{Platform: platform, Manifest: desc}
	p.fill(layer, a, v)
	return p, nil
}

// fetchLayer returns the only archive/zip layer of a platform manifest.
func fetchLayer(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (ocispec.Descriptor, error) {
	manifest, err := fetchManifest(ctx, store, desc, TypeTarget)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return zipLayer(manifest, ErrNotProvider)
}

// zipLayer returns the archive/zip layer of a manifest. The error wraps the error wrong, or [ErrAmbiguous] if
// there are several such layers.
func zipLayer(manifest ocispec.Manifest, wrong error) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	for _, l := range manifest.Layers {
		if l.MediaType == mediaTypeZip {
			found = append(found, l)
		}
	}
	switch {
	case len(found) == 0:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its manifest has no %s layer", wrong, mediaTypeZip)
	case len(found) > 1:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its manifest has %d %s layers", ErrAmbiguous, len(found), mediaTypeZip)
	case !isSHA256(found[0].Digest) || found[0].Size <= 0:
		return ocispec.Descriptor{}, fmt.Errorf("%w: its layer %.80q of %d bytes has no SHA-256", wrong, found[0].Digest, found[0].Size)
	}
	return found[0], nil
}

func fetchManifest(ctx context.Context, store Fetcher, desc ocispec.Descriptor, artifactType string) (ocispec.Manifest, error) {
	data, err := FetchManifest(ctx, store, desc)
	if err != nil {
		return ocispec.Manifest{}, err
	}
	return decodeManifest(data, artifactType, ErrNotProvider)
}

// decodeManifest decodes an image manifest. If the manifest is invalid or has another artifact
// type, the error wraps [ErrTooLarge] or the error wrong.
func decodeManifest(data []byte, artifactType string, wrong error) (ocispec.Manifest, error) {
	var m ocispec.Manifest
	if err := unmarshalWithin(manifestLimits, data, &m, wrong); err != nil {
		return m, err
	}
	if m.MediaType != ocispec.MediaTypeImageManifest || m.ArtifactType != artifactType {
		return m, fmt.Errorf("%w: manifest of media type %.80q and artifact type %.80q", wrong, m.MediaType, m.ArtifactType)
	}
	return m, nil
}
