package artifact

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Blob is a manifest or a small blob, with its descriptor.
type Blob struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

func newBlob(mediaType string, data []byte) Blob {
	return Blob{ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, data}
}

// Config returns the config blob of all manifests that ocibridge writes: {}, the content of
// the OCI empty descriptor.
func Config() Blob { return newBlob(ocispec.MediaTypeEmptyJSON, []byte("{}")) }

// EncodePackage returns the description and the image manifest of a verified package.
func EncodePackage(p trust.Package) (Package, Blob, error) {
	sum := p.Sum()
	out := Package{
		Platform: p.Platform(), Filename: p.Filename(),
		Digest: digest.NewDigestFromBytes(digest.SHA256, sum[:]), Size: p.Size(), H1: p.H1(),
	}
	if err := out.check(); err != nil {
		return Package{}, Blob{}, err
	}
	layer := out.Layer()
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: out.Filename}
	if !out.H1.IsZero() {
		// The index entry contains this hash too. However, a push of only some platforms writes
		// the new index from the platform manifests. It reads the hash here.
		layer.Annotations[annotationH1] = out.H1.String()
	}
	manifest, err := encodeImage(TypeTarget, []ocispec.Descriptor{layer}, nil)
	if err != nil {
		return Package{}, Blob{}, err
	}
	out.Manifest = manifest.Descriptor
	return out, manifest, nil
}

// EncodeIndex returns the index of a version. The packages of the version can be in any
// order. EncodeIndex returns an error if Read would refuse the index or ignore a part of
// it. Reasons are that the version has no package, that it has two packages for one
// platform, or that the platform, file name, digest or size of a package is invalid.
func EncodeIndex(v Version) (Blob, error) { return encodeIndex(v, nil) }

// encodeIndex is like [EncodeIndex], but with additional annotations on the index.
func encodeIndex(v Version, more map[string]string) (Blob, error) {
	packages := slices.Clone(v.Packages)
	slices.SortFunc(packages, func(a, b Package) int { return a.Platform.Compare(b.Platform) })
	index := ocispec.Index{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageIndex,
		ArtifactType: TypeProvider,
		Annotations:  map[string]string{},
	}
	maps.Copy(index.Annotations, more)
	if v.Owner != nil {
		index.Annotations[annotationProvider] = v.Owner.Path()
	}
	if !v.Version.IsZero() {
		index.Annotations[annotationVersion] = v.Version.String()
	}
	if len(v.Protocols) > 0 {
		index.Annotations[annotationProtocols] = strings.Join(v.Protocols, ",")
	}
	if len(v.Protocols) != len(knownProtocols(v.Protocols)) {
		return Blob{}, fmt.Errorf("%w: %d protocols, which have more than %d names or %d bytes", ErrTooLarge, len(v.Protocols), maxProtocols, maxProtocolBytes)
	}
	if len(packages) == 0 {
		return Blob{}, fmt.Errorf("%w: it has no package", ErrNotProvider)
	}
	for i, p := range packages {
		if err := p.check(); err != nil {
			return Blob{}, err
		}
		if err := checkDescriptor(p.Manifest, MaxManifestBytes); err != nil {
			return Blob{}, fmt.Errorf("package for %s: %w", p.Platform, err)
		}
		if i > 0 && packages[i-1].Platform == p.Platform {
			return Blob{}, fmt.Errorf("%w: two packages for %s", ErrAmbiguous, p.Platform)
		}
		index.Manifests = append(index.Manifests, indexEntry(p))
	}
	if v.Evidence != nil {
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, ArtifactType: TypeEvidence,
			Digest: v.Evidence.Digest, Size: v.Evidence.Size, Annotations: verdictAnnotation(*v.Evidence),
		})
	}
	return encodeManifest(ocispec.MediaTypeImageIndex, index)
}

// check returns an error if Read would refuse an index with this package.
func (p Package) check() error {
	_, err := provider.NewPlatform(p.Platform.OS, p.Platform.Arch)
	switch {
	case err != nil:
		return err
	case !isSHA256(p.Digest) || p.Size <= 0:
		return fmt.Errorf("package for %s: digest %q or size %d is invalid", p.Platform, p.Digest, p.Size)
	case !provider.ValidFilename(p.Filename):
		return fmt.Errorf("package for %s: %q is not a plain file name", p.Platform, p.Filename)
	}
	return nil
}

func indexEntry(p Package) ocispec.Descriptor {
	annotations := map[string]string{
		annotationDigest:   p.Digest.String(),
		annotationSize:     strconv.FormatInt(p.Size, 10),
		annotationFilename: p.Filename,
	}
	if !p.H1.IsZero() {
		annotations[annotationH1] = p.H1.String()
	}
	return ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: TypeTarget,
		Digest: p.Manifest.Digest, Size: p.Manifest.Size,
		Platform:    &ocispec.Platform{OS: p.Platform.OS, Architecture: p.Platform.Arch},
		Annotations: annotations,
	}
}

// encodeEmpty encodes an image manifest that carries nothing but its annotations. The only
// blob of the manifest is [Config].
func encodeEmpty(artifactType string, annotations map[string]string) (Blob, error) {
	return encodeImage(artifactType, []ocispec.Descriptor{Config().Descriptor}, annotations) // some registries require a layer
}

// encodeImage encodes an image manifest. Its config is [Config].
func encodeImage(artifactType string, layers []ocispec.Descriptor, annotations map[string]string) (Blob, error) {
	return encodeManifest(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: artifactType,
		Config:       Config().Descriptor,
		Layers:       layers,
		Annotations:  annotations,
	})
}

// encodeManifest encodes a manifest deterministically: encoding/json writes the fields of a
// struct in their order, and sorts the keys of a map.
func encodeManifest(mediaType string, manifest any) (Blob, error) {
	data, err := json.Marshal(manifest)
	if err != nil {
		return Blob{}, err
	}
	if len(data) > MaxManifestBytes {
		return Blob{}, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, len(data), MaxManifestBytes)
	}
	return newBlob(mediaType, data), nil
}
