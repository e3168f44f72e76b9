package artifact

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// TypeModule is the artifact type of a version of a module.
//
//	tag 1.4.0
//	└─ image manifest, artifactType application/vnd.opentofu.modulepkg
//	   ├─ config: the empty descriptor, {}
//	   └─ one layer, archive/zip: the module's folder
//
// OpenTofu installs this from oci:// addresses, and ignores the annotations.
const TypeModule = "application/vnd.opentofu.modulepkg"

// annotationModule is the annotation with a module's address, with the hostname in Punycode.
const annotationModule = annotationPrefix + "module"

// ErrNotModule means that the content is not a module that OpenTofu can install. Examples are
// a container image, and an index.
var ErrNotModule = errors.New("not a module package")

// maxRevision is the maximum length in bytes of the source commit of a module.
const maxRevision = 128

// Module is one version of a module, as stored in a manifest.
type Module struct {
	// Address and Version come from the manifest's annotations. They are zero if the manifest
	// has no such annotations.
	Address module.Address
	Version provider.Version
	// Digest and Size, in bytes, describe the zip of the module's folder. The digest always is
	// sha256.
	Digest digest.Digest
	Size   int64
	// H1 is the h1: hash of the files in the zip. It is zero if it is not known. It is a claim
	// of whoever pushed the module.
	H1 provider.Hash
	// Revision is the commit that the module was made from, or "".
	Revision string
	// Manifest describes the manifest itself. It is zero if the module is not stored.
	Manifest ocispec.Descriptor
	// Tag is the tag from which [ReadModule] has read the module, or "".
	Tag ociaddr.Tag
}

// Layer returns the descriptor of the module's zip.
func (m *Module) Layer() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaTypeZip, Digest: m.Digest, Size: m.Size}
}

// EncodeModule returns the manifest of a module's version. It returns an error if
// [ReadModule] would refuse the manifest.
func EncodeModule(m Module) (Blob, error) {
	switch {
	case !isSHA256(m.Digest) || m.Size <= 0:
		return Blob{}, fmt.Errorf("module %s: digest %q or size %d is invalid", m.Address, m.Digest, m.Size)
	case m.Address.IsZero() || m.Version.IsZero():
		return Blob{}, fmt.Errorf("%w: it has no address or no version", ErrNotModule)
	}
	if err := CheckRevision(m.Revision); err != nil {
		return Blob{}, err
	}
	layer := m.Layer()
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: m.Address.Name() + "-" + m.Version.String() + ".zip"}
	annotations := map[string]string{annotationModule: m.Address.Path(), annotationVersion: m.Version.String()}
	if !m.H1.IsZero() {
		annotations[annotationH1] = m.H1.String()
	}
	if m.Revision != "" {
		annotations[ocispec.AnnotationRevision] = m.Revision
	}
	return encodeImage(TypeModule, []ocispec.Descriptor{layer}, annotations)
}

// CheckRevision returns an error if a source commit has more than 128 bytes or control characters.
func CheckRevision(revision string) error {
	const help = "give the commit's ID, as git rev-parse HEAD prints it"
	switch {
	case len(revision) > maxRevision:
		return hint.New(fmt.Sprintf("the commit has more than %d bytes", maxRevision), help)
	case !utf8.ValidString(revision) || strings.ContainsFunc(revision, func(r rune) bool { return !unicode.IsPrint(r) }):
		return hint.New(fmt.Sprintf("the commit %q has control characters", revision), help)
	}
	return nil
}

// ReadModule reads a version of a module from its tag in the module's repository.
// Module.Manifest describes the manifest. ReadModule first requests the tag without a leading v.
// If the registry says that this tag does not exist, the list of tags decides, as in
// [ociaddr.ModuleTags]. A wrong answer about one tag therefore never selects the other tag.
//
// ReadModule returns the store's errors unchanged. errdef.ErrNotFound always means that
// neither tag exists. ErrMissing means that the list has a tag of the version, but the registry
// has no manifest for it. ErrNotModule, ErrAmbiguous, ErrTooLarge, ErrForeign and ErrDamaged say
// why ReadModule refuses the content.
func ReadModule(ctx context.Context, store ListedFetcher, a module.Address, v provider.Version) (*Module, error) {
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	m, absent := ReadModuleTag(ctx, store, a, v, tag)
	if !errors.Is(absent, errdef.ErrNotFound) {
		return m, absent
	}
	tags, err := ListAnyTags(ctx, store)
	if err != nil {
		return nil, err
	}
	tag, listed := ociaddr.ModuleTags(tags)[v]
	if !listed {
		return nil, absent
	}
	m, err = ReadModuleTag(ctx, store, a, v, tag) // another push may have just written it
	if errors.Is(err, errdef.ErrNotFound) {
		err = fmt.Errorf("%w: %w: the tag %s is listed, but has no manifest", ErrNotModule, ErrMissing, tag)
	}
	return m, err
}

// ListedFetcher is a repository whose tags can be listed and fetched.
type ListedFetcher interface {
	ReferenceFetcher
	TagLister
}

// ReadModuleTag is like [ReadModule], but reads the version from the given tag only.
// errdef.ErrNotFound means that this tag does not exist.
func ReadModuleTag(ctx context.Context, store ReferenceFetcher, a module.Address, v provider.Version, tag ociaddr.Tag) (*Module, error) {
	desc, data, err := fetchTag(ctx, store, string(tag))
	if err != nil {
		return nil, err
	}
	m, err := DecodeModule(desc, data)
	switch {
	case err != nil:
		return nil, foreignModuleOr(foreignOr(err, data, TypeProvider, "a provider"), data, a)
	case !m.Address.IsZero() && m.Address != a:
		return nil, fmt.Errorf("%w: the manifest says that it is the module %s", ErrForeign, m.Address)
	case !m.Version.IsZero() && m.Version != v:
		return nil, fmt.Errorf("%w: the manifest says that it is version %s", ErrForeign, m.Version)
	}
	m.Tag = tag
	return m, nil
}

// foreignModuleOr returns ErrForeign if the refused manifest is that of another module than a. Otherwise it returns err.
func foreignModuleOr(err error, data []byte, a module.Address) error {
	var m struct {
		ArtifactType string            `json:"artifactType"`
		Annotations  map[string]string `json:"annotations"`
	}
	if Unmarshal(data, &m) != nil || m.ArtifactType != TypeModule {
		return err
	}
	if named, invalid := annotatedModule(m.Annotations[annotationModule]); invalid == nil && named != a {
		return fmt.Errorf("%w: the manifest says that it is the module %s", ErrForeign, named)
	}
	return err
}

// annotatedModule parses an annotation with a module's address.
func annotatedModule(text string) (module.Address, error) {
	parts := append(strings.SplitN(text, "/", 4), "", "", "", "")
	return module.AddressFromPath(parts[0], parts[1], parts[2], parts[3])
}

// DecodeModule returns the module that a manifest describes. The errors are those of
// [ReadModule].
func DecodeModule(desc ocispec.Descriptor, data []byte) (*Module, error) {
	manifest, err := decodeManifest(data, TypeModule, ErrNotModule)
	if err != nil {
		return nil, err
	}
	layer, err := zipLayer(manifest, ErrNotModule)
	if err != nil {
		return nil, err
	}
	desc.MediaType = manifest.MediaType
	m := &Module{Digest: layer.Digest, Size: layer.Size, H1: annotatedH1(manifest.Annotations), Manifest: desc}
	if text, ok := manifest.Annotations[annotationModule]; ok {
		if m.Address, err = annotatedModule(text); err != nil {
			return nil, fmt.Errorf("%w: annotation %s: %v", ErrNotModule, annotationModule, err)
		}
	}
	if text, ok := manifest.Annotations[annotationVersion]; ok {
		if m.Version, err = provider.ParseVersion(text); err != nil {
			return nil, fmt.Errorf("%w: annotation %s: %v", ErrNotModule, annotationVersion, err)
		}
	}
	if revision := manifest.Annotations[ocispec.AnnotationRevision]; CheckRevision(revision) == nil {
		m.Revision = revision
	}
	return m, nil
}
