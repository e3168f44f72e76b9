package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// errStorage means that a garbage collection does not understand the storage folder. It then deletes nothing.
var errStorage = errors.New("unexpected content")

// storageFolder is the folder of distribution's storage format. All paths have slashes and are relative to the folder.
type storageFolder struct {
	root *os.Root
	// before is called before each operation on a file or a folder.
	before func(operation, name string)
}

func (f *storageFolder) list(name string) ([]fs.DirEntry, error) {
	f.before("list", name)
	dir, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(-1)
}

// read returns at most limit+1 bytes of a file.
func (f *storageFolder) read(name string, limit int64) ([]byte, error) {
	f.before("read", name)
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit+1))
}

// remove removes a file or an empty folder. It succeeds if the file or folder does not exist.
func (f *storageFolder) remove(name string) error {
	f.before("remove", name)
	if err := f.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sync returns when the removals in a folder are on disk.
func (f *storageFolder) sync(name string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows does not sync folders; NTFS keeps the order of removals
	}
	f.before("sync", name)
	dir, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// kind is the role of a file in the storage folder.
type kind int

const (
	otherFile     kind = iota // no file of distribution
	blobFile                  // the data of a blob
	revisionLink              // says that a manifest is in a repository
	layerLink                 // says that a blob is in a repository
	tagLink                   // links a tag to the manifest that it names
	tagIndexLink              // links a tag to a manifest that it names or has named
	uploadFile                // part of an upload
	temporaryFile             // a file that distribution renames when it is complete
)

// storedFile describes a file in the storage folder.
type storedFile struct {
	kind       kind
	path       string
	size       int64
	repository string        // "" for a blob
	tag        string        // only for tagLink and tagIndexLink
	digest     digest.Digest // the digest in the path; "" for other kinds
}

// classify returns the description of a file by its path, without its size. It fails if the path contains a digest that
// ocibridge never writes.
func classify(name string) (storedFile, error) {
	f := storedFile{path: name}
	parts := strings.Split(name, "/")
	base := parts[len(parts)-1]
	isTemporary := strings.HasSuffix(base, ".tmp")
	if parts[0] == "blobs" {
		if len(parts) != 5 || base != "data" && !isTemporary {
			return f, nil
		}
		f.kind = blobFile
		return f.withDigest(parts[1], parts[3], isTemporary)
	}
	inner := 1
	for inner < len(parts) && !strings.HasPrefix(parts[inner], "_") {
		inner++
	}
	if parts[0] != "repositories" || inner == 1 || inner == len(parts) {
		return f, nil
	}
	f.repository = strings.Join(parts[1:inner], "/")
	parts = parts[inner:]
	at := func(length int, folders ...string) bool {
		if len(parts) != length || base != "link" && !isTemporary {
			return false
		}
		return slices.EqualFunc(folders, parts[:len(folders)], func(want, is string) bool { return want == "" || want == is })
	}
	switch {
	case parts[0] == "_uploads":
		f.kind = uploadFile
	case at(4, "_layers"):
		f.kind = layerLink
		return f.withDigest(parts[1], parts[2], isTemporary)
	case at(5, "_manifests", "revisions"):
		f.kind = revisionLink
		return f.withDigest(parts[2], parts[3], isTemporary)
	case at(5, "_manifests", "tags", "", "current"):
		f.kind, f.tag = tagLink, parts[2]
		if isTemporary {
			f.kind = temporaryFile
		}
	case at(7, "_manifests", "tags", "", "index"):
		f.kind, f.tag = tagIndexLink, parts[2]
		return f.withDigest(parts[4], parts[5], isTemporary)
	}
	return f, nil
}

func (f storedFile) withDigest(algorithm, encoded string, isTemporary bool) (storedFile, error) {
	f.digest = digest.NewDigestFromEncoded(digest.Algorithm(algorithm), encoded)
	if f.digest.Validate() != nil || f.digest.Algorithm() != digest.SHA256 {
		return f, fmt.Errorf("%w: %s does not belong to a SHA-256 digest", errStorage, f.path)
	}
	if isTemporary {
		f.kind = temporaryFile
	}
	return f, nil
}

// storageScan lists the files in the storage folder.
type storageScan struct {
	files []storedFile
	dirs  []string // each folder precedes the folders in it
	// tags maps repositories to their tags, and tags to the digests that they name.
	tags      map[string]map[string]digest.Digest
	revisions map[string]map[digest.Digest]bool // by repository
	blobs     map[digest.Digest]bool
}

// maxLink is the maximum size in bytes of a link.
const maxLink = 256

// scan lists the files in the storage folder, and reads the tags.
func (f *storageFolder) scan(ctx context.Context) (*storageScan, error) {
	s := &storageScan{tags: map[string]map[string]digest.Digest{}, revisions: map[string]map[digest.Digest]bool{}, blobs: map[digest.Digest]bool{}}
	if err := f.walk(ctx, s, "repositories"); err != nil {
		return nil, err
	}
	for _, file := range s.files {
		switch file.kind {
		case revisionLink:
			add(s.revisions, file.repository, file.digest, true)
		case tagLink:
			d, err := f.readLink(file.path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a writer has removed the tag
			}
			if errors.Is(err, errStorage) {
				err = f.suggestRepair(err, file.repository, file.tag)
			}
			if err != nil {
				return nil, err
			}
			add(s.tags, file.repository, file.tag, d)
		}
	}
	// The blobs come last. A writer stores blobs before it tags them, so the scan finds the blobs of each tag that it found.
	first := len(s.files)
	if err := f.walk(ctx, s, "blobs"); err != nil {
		return nil, err
	}
	for _, file := range s.files[first:] {
		if file.kind == blobFile {
			s.blobs[file.digest] = true
		}
	}
	if len(s.blobs) > 0 && !s.hasRepository() {
		return nil, hint.Wrap(fmt.Errorf("%w: there are blobs, but no repository", errStorage), "is a disk of the data folder not mounted?")
	}
	return s, nil
}

func add[K1, K2 comparable, V any](m map[K1]map[K2]V, first K1, second K2, value V) {
	if m[first] == nil {
		m[first] = map[K2]V{}
	}
	m[first][second] = value
}

// hasRepository reports whether the scan found the folder of a repository.
func (s *storageScan) hasRepository() bool {
	return slices.ContainsFunc(s.dirs, func(dir string) bool { return strings.HasPrefix(dir, "repositories/") })
}

// walk adds the folder dir, its files and its folders to the scan.
func (f *storageFolder) walk(ctx context.Context, s *storageScan, dir string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	entries, err := f.list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a writer has removed the folder, or nothing was ever stored
	}
	if err != nil {
		return err
	}
	s.dirs = append(s.dirs, dir)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			if err := f.walk(ctx, s, name); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.Mode().IsRegular() {
			err = hint.Wrap(fmt.Errorf("%w: %s is no regular file", errStorage, name), "gc does not follow links: mount a disk in the place of a link")
		}
		if err != nil {
			return err
		}
		file, err := classify(name)
		if err != nil {
			return err
		}
		file.size = info.Size()
		s.files = append(s.files, file)
	}
	return nil
}

// suggestRepair adds a hint to an error about a tag whose content is damaged. If the registry cannot read the manifest that
// the tag names, neither a push nor a removal succeeds.
func (f *storageFolder) suggestRepair(err error, repository, tag string) error {
	folder := filepath.Join(f.root.Name(), "repositories", filepath.FromSlash(repository), "_manifests", "tags", tag)
	return hint.Wrap(err, "push the version again with --force; if that fails, delete its tag, the folder %s, and push it again", folder)
}

// readLink returns the digest in the link of a tag.
func (f *storageFolder) readLink(name string) (digest.Digest, error) {
	text, err := f.read(name, maxLink)
	if err != nil {
		return "", err
	}
	d := digest.Digest(strings.TrimSpace(string(text)))
	if len(text) > maxLink || d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return "", fmt.Errorf("%w: %s contains no SHA-256 digest", errStorage, name)
	}
	return d, nil
}
