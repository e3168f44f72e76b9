package artifact

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
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
// OpenTofu installs this from oci:// addresses, and ignores the annotations. The annotations of a public module say where it
// was fetched from ([Provenance]).
const TypeModule = "application/vnd.opentofu.modulepkg"

// annotationModule is the annotation with a module's address, with the hostname in Punycode.
const annotationModule = annotationPrefix + "module"

// ErrNotModule means that the content is not a module that OpenTofu can install. Examples are
// a container image, and an index.
var ErrNotModule = errors.New("not a module package")

// maxRevision is the maximum length in bytes of the source commit of a module.
const maxRevision = 128

// zipLayout describes how versions of one kind are stored. Such a version has one zip and no platforms.
type zipLayout struct {
	artifactType string
	annotation   string // the key of the annotation with the path of the address
	wrong        error  // wrapped by errors about content of another form
	parse        func(path string) (subject.Address, error)
}

// zipLayouts contains the layout of each kind whose versions have no platforms.
var zipLayouts = map[subject.Kind]zipLayout{
	subject.Module: {TypeModule, annotationModule, ErrNotModule, func(path string) (subject.Address, error) {
		parts := append(strings.SplitN(path, "/", 4), "", "", "", "")
		return module.AddressFromPath(parts[0], parts[1], parts[2], parts[3])
	}},
}

// zipLayoutOf returns the layout of the address's kind. It panics for a kind whose versions have platforms.
func zipLayoutOf(a subject.Address) zipLayout {
	l, ok := zipLayouts[a.Kind()]
	if !ok {
		panic("artifact: the versions of a " + string(a.Kind()) + " have no layout of one zip")
	}
	return l
}

// wrongForms returns the errors about content that does not have the form of its kind.
func wrongForms() []error {
	out := []error{ErrNotProvider}
	for _, l := range zipLayouts {
		out = append(out, l.wrong)
	}
	return out
}

// EncodeZip returns the manifest of a version that has one package, without a platform. It
// returns an error if [ReadZip] would refuse the manifest. The owner must not be a provider.
func EncodeZip(v Version) (Blob, error) {
	if v.Owner == nil || v.Version.IsZero() {
		return Blob{}, fmt.Errorf("%w: it has no address or no version", ErrNotModule)
	}
	l, zip := zipLayoutOf(v.Owner), v.Zip()
	if _, err := l.parse(v.Owner.Path()); err != nil {
		return Blob{}, fmt.Errorf("%w: its address: %v", l.wrong, err)
	}
	if !isSHA256(zip.Digest) || zip.Size <= 0 {
		return Blob{}, fmt.Errorf("%s %s: digest %q or size %d is invalid", v.Owner.Kind(), v.Owner, zip.Digest, zip.Size)
	}
	if err := CheckRevision(v.Revision); err != nil {
		return Blob{}, err
	}
	if err := v.Provenance.check(); err != nil {
		return Blob{}, err
	}
	layer := zip.Layer()
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: ZipName(v.Owner, v.Version)}
	annotations := map[string]string{l.annotation: v.Owner.Path(), annotationVersion: v.Version.String()}
	if !zip.H1.IsZero() {
		annotations[annotationH1] = zip.H1.String()
	}
	if v.Revision != "" {
		annotations[ocispec.AnnotationRevision] = v.Revision
	}
	v.Provenance.annotate(annotations, zip)
	return encodeImage(l.artifactType, []ocispec.Descriptor{layer}, annotations)
}

// ZipName returns the file name of a version's zip.
func ZipName(a subject.Address, v provider.Version) string {
	return a.Parts()[2] + "-" + v.String() + ".zip"
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

// ReadZip reads a version of a module from its tag in the module's repository. It first requests
// the tag without a leading v. If the registry says that this tag does not exist, the list of
// tags decides, as in [ociaddr.TagsOf]. A wrong "not found" for one tag therefore never selects
// the other tag.
//
// ReadZip returns the store's errors unchanged. errdef.ErrNotFound always means that
// neither tag exists. ErrMissing means that the list has a tag of the version, but the registry
// has no manifest for it. ErrNotModule, ErrAmbiguous, ErrTooLarge, ErrForeign and ErrDamaged say
// why ReadZip refuses the content.
func ReadZip(ctx context.Context, store ListedFetcher, a subject.Address, v provider.Version) (*Version, error) {
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	found, absent := readZipTag(ctx, store, a, v, tag)
	if !errors.Is(absent, errdef.ErrNotFound) {
		return found, absent
	}
	tags, err := ListAnyTags(ctx, store)
	if err != nil {
		return nil, err
	}
	tag, listed := ociaddr.TagsOf(a, tags)[v]
	if !listed {
		return nil, absent
	}
	found, err = readZipTag(ctx, store, a, v, tag) // another push may have just written it
	if errors.Is(err, errdef.ErrNotFound) {
		err = fmt.Errorf("%w: %w: the tag %s is listed, but has no manifest", zipLayoutOf(a).wrong, ErrMissing, tag)
	}
	return found, err
}

// ListedFetcher is a repository whose tags can be listed and fetched.
type ListedFetcher interface {
	ReferenceFetcher
	TagLister
}

// readZipTag is like [ReadZip], but reads the version from the given tag only.
// errdef.ErrNotFound means that this tag does not exist.
func readZipTag(ctx context.Context, store ReferenceFetcher, a subject.Address, v provider.Version, tag ociaddr.Tag) (*Version, error) {
	desc, data, err := fetchTag(ctx, store, string(tag))
	if err != nil {
		return nil, err
	}
	found, err := zipLayoutOf(a).decode(desc, data)
	if err == nil {
		err = found.checkOwner(a, v, "manifest")
	} else {
		err = foreignOr(err, data, a)
	}
	if err != nil {
		return nil, err
	}
	found.Tag, found.Zip().Filename = tag, ZipName(a, v)
	return found, nil
}

// decode returns the version that a manifest describes. The errors are those of [ReadZip].
func (l zipLayout) decode(desc ocispec.Descriptor, data []byte) (*Version, error) {
	manifest, err := decodeManifest(data, l.artifactType, l.wrong)
	if err != nil {
		return nil, err
	}
	layer, err := zipLayer(manifest, l.wrong)
	if err != nil {
		return nil, err
	}
	desc.MediaType = manifest.MediaType
	v := &Version{Packages: []Package{{Digest: layer.Digest, Size: layer.Size, H1: annotatedH1(manifest.Annotations), Manifest: desc}}, Index: desc}
	if text, ok := manifest.Annotations[l.annotation]; ok {
		if v.Owner, err = l.parse(text); err != nil {
			return nil, fmt.Errorf("%w: annotation %s: %v", l.wrong, l.annotation, err)
		}
	}
	if text, ok := manifest.Annotations[annotationVersion]; ok {
		if v.Version, err = provider.ParseVersion(text); err != nil {
			return nil, fmt.Errorf("%w: annotation %s: %v", l.wrong, annotationVersion, err)
		}
	}
	if revision := manifest.Annotations[ocispec.AnnotationRevision]; CheckRevision(revision) == nil {
		v.Revision = revision
	}
	if v.Provenance, err = provenanceOf(manifest.Annotations); err != nil {
		return nil, fmt.Errorf("%w: annotation %s: %v", l.wrong, annotationFolder, err)
	}
	return v, nil
}
