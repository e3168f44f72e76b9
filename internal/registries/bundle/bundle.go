// Package bundle stores versions of many providers and modules in one OCI image layout, in a folder or a tar file. A bundle
// carries versions across an air gap.
//
//	oci-layout
//	index.json           one entry per tag, and one for the list
//	blobs/sha256/...     manifests, packages and evidence, as in a registry
//
// The org.opencontainers.image.ref.name of an entry is HOSTNAME/NAMESPACE/TYPE/TAG for a provider, and
// HOSTNAME/NAMESPACE/NAME/SYSTEM/TAG for a module, so that other tools can find the entry. The tag names a version, or
// attaches something to a manifest ([ociaddr.ReferrersTag], [ociaddr.CosignTags]). The list has the artifact type
// [TypeBundle]. It contains every version, and the digest and size of every blob, so that a lost blob is noticed.
//
// A bundle can omit packages ([Bundle.Omit]). The list contains the digests and sizes of the omitted packages, so that
// a copy of the bundle's versions can find these packages at the destination. An archive has a checksum file next to
// it, FILE.sha256, as sha256sum writes it.
//
// Invariants: Opening a bundle fails unless the bundle is complete, and the archive matches its checksum file, if there is
// one. Opening does not hash blobs, so readers must check the digest of every blob. index.json is written last, in one step.
// Therefore an interrupted write leaves a bundle in a folder as it was, and leaves no archive. An archive is read in place
// and never unpacked. Only regular files are read, and never a file outside the bundle's folder.
package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// maxLayoutBytes is the maximum size of the file oci-layout in bytes.
const maxLayoutBytes = 4 << 10

// indexLimits limits the JSON of index.json, and of the list of a bundle's contents. A decoded document takes less than 64
// MiB of memory. The limits allow about 10,000 versions of three platforms.
var indexLimits = document.Limits{Bytes: 12 << 20, Values: 300_000, Elements: 200_000}

// maxVersions is the maximum number of entries in index.json.
const maxVersions = 40_000

// Reasons why a bundle cannot be opened or created.
var (
	// ErrNotBundle means that the file or folder is not a bundle.
	ErrNotBundle = errors.New("not a bundle")
	// ErrIncomplete means that the bundle does not match its list: a blob or version is missing or changed.
	ErrIncomplete = errors.New("incomplete bundle")
	// ErrOmitted means that a blob was left out of the bundle on purpose. An error never matches both ErrOmitted and
	// errdef.ErrNotFound.
	ErrOmitted = errors.New("left out of the bundle")
	// ErrExists means that an archive cannot be created because its file already exists.
	ErrExists = errors.New("the file already exists")
)

// storage holds the files of a layout.
type storage interface {
	// open opens a regular file, and returns its size in bytes. The error is fs.ErrNotExist if the file does not exist.
	open(name string) (io.ReadCloser, int64, error)
	// write reads body, and calls check. If check returns no error, write stores the body as a file in one step.
	write(name string, size int64, body io.Reader, check func() error) error
	// finish completes the layout. It is called after all files are written.
	finish() error
	close() error
}

// Bundle is an open bundle. Its repositories are safe for concurrent use.
type Bundle struct {
	name    string // the name of the folder or file, for messages
	storage storage
	before  []byte // index.json as it was when the bundle was opened; nil if there was none

	mu        sync.Mutex
	tags      map[string]ocispec.Descriptor // by the names of entries in index.json
	referrers map[string][]byte             // the changed lists of referrers as JSON, by the names of their fallback tags
	omitted   omitted
}

// Open opens a complete bundle. name is the path of a tar file if archive is set, and of a folder otherwise. Errors can
// wrap [ErrNotBundle] or [ErrIncomplete].
func Open(ctx context.Context, name string, archive bool) (*Bundle, error) {
	open := openFolder
	if archive {
		open = openArchive
	}
	return openBundle(ctx, name, open, false)
}

// Create opens a bundle for writing. It extends a complete bundle in a folder. It returns ErrExists if an archive exists.
// [Bundle.Save] completes the bundle.
func Create(ctx context.Context, name string, archive bool) (*Bundle, error) {
	create := createFolder
	if archive {
		create = createArchive
	}
	return openBundle(ctx, name, create, true)
}

// Preview opens the bundle that [Create] would open, or an empty bundle. The result cannot be written to.
func Preview(ctx context.Context, name string, archive bool) (*Bundle, error) {
	preview := previewFolder
	if archive {
		preview = previewArchive
	}
	return openBundle(ctx, name, preview, true)
}

// openBundle opens a storage, and loads the bundle in it. If mayBeEmpty is set, the storage may contain no bundle.
func openBundle(ctx context.Context, name string, open func(context.Context, string) (storage, error), mayBeEmpty bool) (*Bundle, error) {
	s, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	b := &Bundle{name: name, storage: s, tags: map[string]ocispec.Descriptor{}, referrers: map[string][]byte{}}
	if _, err := b.readFile(ocispec.ImageIndexFile, indexLimits.Bytes); mayBeEmpty && errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err := b.load(ctx); err != nil {
		s.close()
		return nil, err
	}
	return b, nil
}

// Close releases the bundle. It discards changes that were not saved.
func (b *Bundle) Close() error { return b.storage.close() }

// All returns the addresses of one kind that have tags in the bundle, sorted.
func (b *Bundle) All(kind subject.Kind) []subject.Address {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[subject.Address]bool{}
	for name := range b.tags {
		if n, err := parseName(name); err == nil && n.of.Kind() == kind {
			found[n.of] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(x, y subject.Address) int { return strings.Compare(x.Path(), y.Path()) })
}

// load reads index.json and checks that the bundle is complete.
func (b *Bundle) load(ctx context.Context) error {
	err := b.loadIndex(ctx)
	switch {
	case errors.Is(err, ErrNotBundle):
		return hint.Wrap(fmt.Errorf("%s: %w", b.name, err), "name what ocibridge copy --to oci:DIR or --to oci-archive:FILE wrote")
	case errors.Is(err, ErrIncomplete):
		return hint.Wrap(fmt.Errorf("%s: %w", b.name, err), incompleteHelp)
	}
	return err
}

const incompleteHelp = "it was changed or damaged: transfer it again"

func (b *Bundle) loadIndex(ctx context.Context) error {
	if err := b.checkLayout(); err != nil {
		return err
	}
	data, err := b.readFile(ocispec.ImageIndexFile, indexLimits.Bytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it has no %s, or is not completely written", ErrNotBundle, ocispec.ImageIndexFile)
	}
	var index ocispec.Index
	if err == nil {
		limits := indexLimits
		limits.Elements = maxVersions
		err = limits.Unmarshal(data, &index)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotBundle, ocispec.ImageIndexFile, err)
	}
	var listed *ocispec.Descriptor
	for _, entry := range index.Manifests {
		if entry.ArtifactType == TypeBundle && listed == nil {
			listed = &entry
			continue
		}
		if err := b.add(entry); err != nil {
			return err
		}
	}
	if listed == nil {
		return fmt.Errorf("%w: it is an image layout without a list of what it should hold", ErrNotBundle)
	}
	b.before = data
	return b.check(ctx, *listed)
}

func (b *Bundle) checkLayout() error {
	data, err := b.readFile(ocispec.ImageLayoutFile, maxLayoutBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it has no file %s", ErrNotBundle, ocispec.ImageLayoutFile)
	}
	var layout ocispec.ImageLayout
	if err == nil {
		err = json.Unmarshal(data, &layout)
	}
	if err == nil && layout.Version != ocispec.ImageLayoutVersion {
		err = fmt.Errorf("its version is %.20q", layout.Version)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotBundle, ocispec.ImageLayoutFile, err)
	}
	return nil
}

// add adds the tag in the name of an entry of index.json.
func (b *Bundle) add(entry ocispec.Descriptor) error {
	name := entry.Annotations[ocispec.AnnotationRefName]
	n, err := parseName(name)
	if err != nil || !n.fits(entry.MediaType) {
		return fmt.Errorf("%w: %s has the entry %.200q, which is neither a version of a provider or module nor attached to one", ErrIncomplete, ocispec.ImageIndexFile, name)
	}
	if _, twice := b.tags[name]; twice {
		return fmt.Errorf("%w: %s has two entries %s", ErrIncomplete, ocispec.ImageIndexFile, name)
	}
	b.tags[name] = ocispec.Descriptor{MediaType: entry.MediaType, ArtifactType: entry.ArtifactType, Digest: entry.Digest, Size: entry.Size}
	return nil
}

// isKept reports whether a bundle stores a tag. A bundle stores none of the tags by which concurrent pushes to a
// registry coordinate.
func isKept(tag string) bool {
	_, isVersion := ociaddr.Tag(tag).Version()
	_, isAttached := ociaddr.Tag(tag).Subject()
	return isVersion || isAttached
}

// entryName is the name of an entry of index.json.
type entryName struct {
	of  subject.Address // nil unless the name is valid
	tag ociaddr.Tag
}

// parseName parses HOSTNAME/NAMESPACE/TYPE/TAG or HOSTNAME/NAMESPACE/NAME/SYSTEM/TAG.
func parseName(name string) (n entryName, err error) {
	slash := max(strings.LastIndexByte(name, '/'), 0)
	tag := strings.TrimPrefix(name[slash:], "/")
	if n.tag = ociaddr.Tag(tag); !isKept(tag) {
		return n, errors.New("neither a version nor attached")
	}
	n.of, err = query.ParsePath(name[:slash])
	return n, err
}

// fits reports whether a manifest of the given media type is valid under the tag. A version of a provider is an index,
// as is a list of referrers. A version of a module is an image manifest.
func (n entryName) fits(mediaType string) bool {
	switch attachedTo, isAttached := n.tag.Subject(); {
	case !isAttached:
		want, _ := artifact.TypeOf(n.of.Kind())
		return mediaType == want
	case n.tag != ociaddr.ReferrersTag(attachedTo): // a tag of cosign
		return mediaType == ocispec.MediaTypeImageIndex || mediaType == ocispec.MediaTypeImageManifest
	}
	return mediaType == ocispec.MediaTypeImageIndex
}

// artifactType returns the artifact type of a version, or "" for an attachment.
func (n entryName) artifactType() string {
	if _, isVersion := n.tag.Version(); !isVersion {
		return ""
	}
	_, artifactType := artifact.TypeOf(n.of.Kind())
	return artifactType
}

// Save writes the list and index.json, which completes the bundle.
func (b *Bundle) Save(ctx context.Context) error {
	index, err := b.encode(ctx)
	if err == nil {
		err = b.finish(index)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}

// layoutFile is the content of the file oci-layout.
var layoutFile = []byte(`{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`)

// finish writes oci-layout and index.json. It fails if index.json has changed since the bundle was opened.
func (b *Bundle) finish(index []byte) error {
	now, err := b.readFile(ocispec.ImageIndexFile, indexLimits.Bytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(now, b.before) {
		return hint.New(ocispec.ImageIndexFile+" was changed by somebody else in the meantime", "let one copy write to a bundle at a time, and run it again")
	}
	if err := b.writeFile(ocispec.ImageLayoutFile, layoutFile); err != nil {
		return err
	}
	if err := b.writeFile(ocispec.ImageIndexFile, index); err != nil {
		return err
	}
	return b.storage.finish()
}

// writeFile stores oci-layout or index.json.
func (b *Bundle) writeFile(name string, data []byte) error {
	return b.storage.write(name, int64(len(data)), bytes.NewReader(data), func() error { return nil })
}

// readFile returns the content of oci-layout or index.json, which must have at most limit bytes.
func (b *Bundle) readFile(name string, limit int64) ([]byte, error) {
	file, _, err := b.storage.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return document.ReadAll(file, limit)
}

// size returns the size of a blob in bytes. The error is fs.ErrNotExist if the blob does not exist.
func (b *Bundle) size(d digest.Digest) (int64, error) {
	file, n, err := b.storage.open(blobName(d))
	if err != nil {
		return 0, err
	}
	return n, file.Close()
}
