// Package bundle keeps provider versions of many repositories in one OCI image
// layout, a folder or a tar archive of one, to be carried to where no registry
// can be reached.
//
//	oci-layout
//	index.json           one entry a tag, and one for the list
//	blobs/sha256/...     manifests, packages, evidence: as they are in a registry
//
// An entry's org.opencontainers.image.ref.name is HOSTNAME/NAMESPACE/TYPE/TAG, by
// which other tools get at it. The tag is that of a version, or one that attaches
// something to a manifest ([ociaddr.ReferrersTag], [ociaddr.CosignTags]). The list, of the artifact type [TypeBundle], names
// every version and the digest and size of all that belongs to them, so that a
// bundle that lost something on its way is known for it.
//
// Invariants: a bundle is whole or is refused when it is opened, before anything
// of it is used; bytes are not hashed then, and nothing read is to be believed
// before its digest is checked. index.json is written last, and in one step: what
// was interrupted leaves a folder's bundle as it was, and no archive. An archive is
// read where it is: nothing is unpacked. Only regular files are read, and nothing
// outside the folder.
package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/document"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// maxLayoutBytes bounds the file that says what the folder is.
const maxLayoutBytes = 4 << 10

// indexLimits bound index.json, and the list of what a bundle holds. Decoded, each
// takes less than 64 MiB. They leave room for some 10,000 versions of three platforms.
var indexLimits = document.Limits{Bytes: 12 << 20, Values: 300_000, Elements: 200_000}

// maxVersions bounds the entries of index.json.
const maxVersions = 40_000

// Reasons for which something is no bundle, or no good one.
var (
	// ErrNotBundle: it is something else.
	ErrNotBundle = errors.New("not a bundle")
	// ErrIncomplete: it does not hold what it lists.
	ErrIncomplete = errors.New("incomplete bundle")
	// ErrExists: there is an archive of that name.
	ErrExists = errors.New("there is such a file")
)

// storage is where a layout's files are.
type storage interface {
	// readFile returns a file of the layout beside its blobs; fs.ErrNotExist if
	// there is none.
	readFile(name string, limit int64) ([]byte, error)
	// size returns the size of a blob; not ok if there is none.
	size(d digest.Digest) (n int64, ok bool, err error)
	// fetch reads a blob; fs.ErrNotExist if there is none.
	fetch(d digest.Digest) (io.ReadCloser, error)
	// push stores a blob, if what it reads is one.
	push(desc ocispec.Descriptor, content io.Reader) error
	// finish writes oci-layout and index.json, in the place of the one given, nil
	// for none.
	finish(before, index []byte) error
	close() error
}

// Bundle is an open bundle. Repositories of it may be used at once.
type Bundle struct {
	name    string // as messages have it
	storage storage
	before  []byte // index.json as it was opened; nil for none

	mu   sync.Mutex
	tags map[provider.Address]map[string]ocispec.Descriptor
	// referrers are those that were pushed and are under no fallback tag yet.
	referrers map[provider.Address]map[digest.Digest][]ocispec.Descriptor // by subject
	// listBytes is at least how long the list of each subject's referrers will be.
	listBytes map[subjectOf]int64
}

// Open opens a bundle, which must be whole: a folder, or with archive a tar file.
// Errors wrap [ErrNotBundle] or [ErrIncomplete] where that is the reason.
func Open(ctx context.Context, name string, archive bool) (*Bundle, error) {
	open := openFolder
	if archive {
		open = openArchive
	}
	s, err := open(name)
	if err != nil {
		return nil, err
	}
	b := newBundle(name, s)
	if err := b.load(ctx); err != nil {
		s.close()
		return nil, err
	}
	return b, nil
}

// Create opens a bundle to be written. A folder may hold one, which is added to
// and must be whole; an archive must not be there: ErrExists. [Bundle.Save]
// completes it.
func Create(ctx context.Context, name string, archive bool) (*Bundle, error) {
	if archive {
		s, err := createArchive(name)
		if err != nil {
			return nil, err
		}
		return newBundle(name, s), nil
	}
	s, err := createFolder(name)
	if err != nil {
		return nil, err
	}
	b := newBundle(name, s)
	if _, err = s.readFile(ocispec.ImageIndexFile, indexLimits.Bytes); err == nil {
		err = b.load(ctx)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return b, nil
}

func newBundle(name string, s storage) *Bundle {
	return &Bundle{
		name: name, storage: s, tags: map[provider.Address]map[string]ocispec.Descriptor{},
		referrers: map[provider.Address]map[digest.Digest][]ocispec.Descriptor{}, listBytes: map[subjectOf]int64{},
	}
}

// Close releases the bundle. What was not saved is gone.
func (b *Bundle) Close() error { return b.storage.close() }

// Providers returns the providers that there are versions of, sorted.
func (b *Bundle) Providers() []provider.Address {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []provider.Address
	for a := range b.tags {
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y provider.Address) int { return strings.Compare(x.Path(), y.Path()) })
	return out
}

// load reads index.json and checks that everything is there.
func (b *Bundle) load(ctx context.Context) error {
	err := b.loadIndex(ctx)
	switch {
	case errors.Is(err, ErrNotBundle):
		return hint.Wrap(fmt.Errorf("%s: %w", b.name, err), "name what ocibridge copy --to oci:DIR or --to oci-archive:FILE wrote")
	case errors.Is(err, ErrIncomplete):
		return hint.Wrap(fmt.Errorf("%s: %w", b.name, err), "it was changed, or is damaged: bring it over once more; nothing was copied")
	}
	return err
}

func (b *Bundle) loadIndex(ctx context.Context) error {
	if err := b.checkLayout(); err != nil {
		return err
	}
	data, err := b.storage.readFile(ocispec.ImageIndexFile, indexLimits.Bytes)
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
	data, err := b.storage.readFile(ocispec.ImageLayoutFile, maxLayoutBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it has no file %s", ErrNotBundle, ocispec.ImageLayoutFile)
	}
	var layout ocispec.ImageLayout
	if err == nil {
		err = json.Unmarshal(data, &layout)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrNotBundle, ocispec.ImageLayoutFile, err)
	case layout.Version != ocispec.ImageLayoutVersion:
		return fmt.Errorf("%w: it is an image layout of version %.20q", ErrNotBundle, layout.Version)
	}
	return nil
}

// add takes a tag from an entry of index.json.
func (b *Bundle) add(entry ocispec.Descriptor) error {
	name := entry.Annotations[ocispec.AnnotationRefName]
	a, tag, err := parseName(name)
	if err != nil || !fitsTag(tag, entry.MediaType) {
		return fmt.Errorf("%w: %s has the entry %.200q, which is no version of a provider, and is attached to none", ErrIncomplete, ocispec.ImageIndexFile, name)
	}
	if b.tags[a] == nil {
		b.tags[a] = map[string]ocispec.Descriptor{}
	}
	if _, twice := b.tags[a][tag]; twice {
		return fmt.Errorf("%w: %s has two entries %s", ErrIncomplete, ocispec.ImageIndexFile, name)
	}
	b.tags[a][tag] = ocispec.Descriptor{MediaType: entry.MediaType, ArtifactType: entry.ArtifactType, Digest: entry.Digest, Size: entry.Size}
	return nil
}

// isKept reports whether a tag is one that a bundle keeps. What pushes leave for each
// other is of no use to anybody else.
func isKept(tag string) bool {
	_, isVersion := ociaddr.Tag(tag).Version()
	_, isAttached := ociaddr.Tag(tag).Subject()
	return isVersion || isAttached
}

// fitsTag reports whether a tag may name a manifest of a media type. Versions and lists
// of referrers are indexes.
func fitsTag(tag, mediaType string) bool {
	subject, isAttached := ociaddr.Tag(tag).Subject()
	cosign := isAttached && ociaddr.Tag(tag) != ociaddr.ReferrersTag(subject)
	return mediaType == ocispec.MediaTypeImageIndex || cosign && mediaType == ocispec.MediaTypeImageManifest
}

// tagName is the name of a tag in index.json.
func tagName(a provider.Address, tag string) string { return a.Path() + "/" + tag }

func parseName(name string) (provider.Address, string, error) {
	dir, tag := path.Split(name)
	parts := strings.Split(strings.TrimSuffix(dir, "/"), "/")
	if len(parts) != 3 {
		return provider.Address{}, "", errors.New("not four parts")
	}
	if !isKept(tag) {
		return provider.Address{}, "", errors.New("neither a version nor attached")
	}
	a, err := provider.AddressFromPath(parts[0], parts[1], parts[2])
	return a, tag, err
}

// Save completes the bundle.
func (b *Bundle) Save(ctx context.Context) error {
	index, err := b.encode(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	if err := b.storage.finish(b.before, index); err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}
