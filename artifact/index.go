package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// flaw is a problem that prevents an index, or one entry, from being read. [Read] returns the first flaw that is
// not minor as its error. [Lint] reports all flaws.
type flaw struct {
	where string // a platform such as linux_amd64; "" for the whole index
	err   error
	minor bool // clients ignore the entry, or do not need it, and the index is read without it
}

// decodeIndex decodes an index by OpenTofu's rules. A package without usable annotations has no digest yet.
func decodeIndex(desc ocispec.Descriptor, data []byte) (*Version, error) {
	v, flaws := examineIndex(desc, data)
	for _, f := range flaws {
		if !f.minor {
			return nil, f.err
		}
	}
	return v, nil
}

// examineIndex returns the readable part of an index, and the flaws of the other parts.
func examineIndex(desc ocispec.Descriptor, data []byte) (*Version, []flaw) {
	var index ocispec.Index
	var flaws []flaw
	refuse := func(where string, format string, args ...any) {
		flaws = append(flaws, flaw{where: where, err: fmt.Errorf(format, args...)})
	}
	v := &Version{Index: desc}
	if err := Unmarshal(data, &index); err != nil {
		refuse("", "%w", err)
		return v, flaws
	}
	v.Index.MediaType = index.MediaType
	if index.MediaType != ocispec.MediaTypeImageIndex {
		refuse("", "%w: its media type is %.80q", ErrNotProvider, index.MediaType)
	}
	if index.ArtifactType != TypeProvider {
		refuse("", "%w: its artifact type is %.80q", ErrNotProvider, index.ArtifactType)
	}
	if err := describe(v, index.Annotations); err != nil {
		refuse("", "%w", err)
	}
	targets := 0
	for i, entry := range index.Manifests {
		switch entry.ArtifactType {
		case TypeTarget:
			targets++
			p, err := decodeEntry(entry)
			if err != nil {
				flaws = append(flaws, flaw{entryName(i, entry), err, errors.Is(err, errIgnored)})
				continue
			}
			v.Packages = append(v.Packages, p)
		case TypeEvidence:
			if err := v.setEvidence(entry); err != nil {
				refuse("evidence", "%w", err)
			}
		case TypeDocs:
			if err := v.setDocs(entry); err != nil {
				flaws = append(flaws, flaw{where: DocsWhere, err: err, minor: true})
			}
		}
	}
	slices.SortStableFunc(v.Packages, func(a, b Package) int { return a.Platform.Compare(b.Platform) })
	for i := 1; i < len(v.Packages); i++ {
		if p := v.Packages[i].Platform; p == v.Packages[i-1].Platform {
			refuse(p.String(), "%w: two packages for %s", ErrAmbiguous, p)
		}
	}
	if targets == 0 {
		refuse("", "%w: it holds no package; is it a container image?", ErrNotProvider)
	}
	return v, flaws
}

// setEvidence sets v.Evidence from the evidence entry of the index.
func (v *Version) setEvidence(entry ocispec.Descriptor) error {
	if v.Evidence != nil {
		return fmt.Errorf("%w: two entries with evidence", ErrAmbiguous)
	}
	if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	v.Evidence = &ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size, Annotations: verdictAnnotation(entry)}
	return nil
}

// setDocs sets v.Docs from an entry of the index with documentation.
func (v *Version) setDocs(entry ocispec.Descriptor) error {
	if v.Docs != nil {
		return fmt.Errorf("%w: two entries with documentation", ErrAmbiguous)
	}
	if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
		return err
	}
	v.Docs = &ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size}
	return nil
}

// entryName returns the platform of an index entry, or its position if it has no valid platform.
func entryName(i int, entry ocispec.Descriptor) string {
	if entry.Platform != nil {
		if p, err := provider.NewPlatform(entry.Platform.OS, entry.Platform.Architecture); err == nil {
			return p.String()
		}
	}
	return fmt.Sprintf("entry %d", i+1)
}

// parseOwner parses the annotation that names a provider.
func parseOwner(s string) (provider.Address, error) {
	host, rest, _ := strings.Cut(s, "/")
	namespace, typ, _ := strings.Cut(rest, "/")
	a, err := provider.AddressFromPath(host, namespace, typ)
	if err != nil {
		return a, fmt.Errorf("%w: annotation %s: %v", ErrNotProvider, annotationProvider, err)
	}
	return a, nil
}

// parseOwnerOf is like parseOwner, for an address of the given kind.
func parseOwnerOf(kind subject.Kind, path string) (subject.Address, error) {
	l, ok := zipLayouts[kind]
	if !ok {
		return parseOwner(path)
	}
	a, err := l.parse(path)
	if err != nil {
		return nil, fmt.Errorf("%w: annotation %s: %v", l.wrong, l.annotation, err)
	}
	return a, nil
}

// describe sets the fields of a version that come from the annotations of its index.
func describe(v *Version, annotations map[string]string) error {
	if s := annotations[annotationProvider]; s != "" {
		a, err := parseOwner(s)
		if err != nil {
			return err
		}
		v.Owner = a
	}
	if s := annotations[annotationVersion]; s != "" {
		ver, err := provider.ParseVersion(s)
		if err != nil {
			return fmt.Errorf("%w: annotation %s: %v", ErrNotProvider, annotationVersion, err)
		}
		v.Version = ver
	}
	if s := annotations[annotationProtocols]; s != "" {
		v.Protocols = parseProtocols(s)
	}
	return nil
}

// errIgnored means that clients ignore the entry of an index.
var errIgnored = errors.New("clients ignore this entry")

// decodeEntry decodes one entry of an index. The error wraps errIgnored if OpenTofu ignores
// the entry.
func decodeEntry(entry ocispec.Descriptor) (Package, error) {
	switch {
	case entry.MediaType != ocispec.MediaTypeImageManifest:
		return Package{}, fmt.Errorf("%w: an entry has the media type %.80q", ErrNotProvider, entry.MediaType)
	case entry.Platform == nil:
		return Package{}, fmt.Errorf("%w: an entry has no platform", ErrNotProvider)
	case entry.Platform.OSVersion != "":
		return Package{}, fmt.Errorf("%w: its platform has the os.version %.80q", errIgnored, entry.Platform.OSVersion)
	}
	platform, err := provider.NewPlatform(entry.Platform.OS, entry.Platform.Architecture)
	if err != nil { // no client runs on this platform, so no client is affected
		return Package{}, fmt.Errorf("%w: no client runs on %.80q, %.80q", errIgnored, entry.Platform.OS, entry.Platform.Architecture)
	}
	if err := checkDescriptor(entry, MaxManifestBytes); err != nil {
		return Package{}, fmt.Errorf("%s: %w", platform, err)
	}
	p := Package{Platform: platform, Manifest: ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size}}
	annotate(&p, entry.Annotations)
	return p, nil
}

// annotate sets the fields of a package that come from the annotations of ocibridge. It sets either all of these
// fields or none.
func annotate(p *Package, annotations map[string]string) {
	d := digest.Digest(annotations[annotationDigest])
	size, err := strconv.ParseInt(annotations[annotationSize], 10, 64)
	name := annotations[annotationFilename]
	if !isSHA256(d) || err != nil || size <= 0 || !provider.ValidFilename(name) {
		for _, key := range []string{annotationDigest, annotationSize, annotationFilename} {
			_, there := annotations[key]
			p.UnusedAnnotations = p.UnusedAnnotations || there
		}
		return
	}
	p.Digest, p.Size, p.Filename, p.H1 = d, size, name, annotatedH1(annotations)
}

// annotatedH1 returns the h1: hash in the annotations, or the zero hash if there is no valid one.
func annotatedH1(annotations map[string]string) provider.Hash {
	h, err := provider.ParseHash(annotations[annotationH1])
	if err != nil || h.IsZip() {
		return provider.Hash{}
	}
	return h
}

func isSHA256(d digest.Digest) bool {
	return d.Validate() == nil && d.Algorithm() == digest.SHA256
}

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
		// the new index from the platform manifests. The push reads the hash from this
		// annotation.
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
// it. Read refuses, for example, a version without packages, two packages for one
// platform, and a package with an invalid platform, file name, digest or size.
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
	if v.Docs != nil {
		if err := checkDescriptor(*v.Docs, MaxManifestBytes); err != nil {
			return Blob{}, fmt.Errorf("documentation: %w", err)
		}
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, ArtifactType: TypeDocs, Digest: v.Docs.Digest, Size: v.Docs.Size,
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
