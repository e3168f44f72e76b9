package bundle

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/fill"
	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// maxEntries is the maximum number of files in an archive. [indexLimits] allows fewer blobs in a bundle.
	maxEntries = 1 << 18
	// maxName is the maximum length of a file's name in bytes. A blob's name has 77 bytes.
	maxName = 256
)

// archive is a layout in a tar file. The tar file is read and written directly, and never unpacked.
type archive struct {
	file *os.File
	name string // the final name; "" for an archive that is only read, or is finished

	mu    sync.Mutex
	files map[string]extent
	tar   *tar.Writer // nil for an archive that is only read
}

// extent is the offset and the size in bytes of a file in the archive.
type extent struct{ at, size int64 }

func openArchive(name string) (storage, error) {
	file, err := openRegular(name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name the file that ocibridge copy --to oci-archive:FILE wrote")
	}
	a := &archive{file: file, files: map[string]extent{}}
	if err := a.scan(); err != nil {
		file.Close()
		return nil, hint.Wrap(fmt.Errorf("%s: %w", name, err), "name what ocibridge copy --to oci-archive:FILE wrote, uncompressed; nothing was copied")
	}
	return a, nil
}

func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return os.Open(name)
}

// scan finds the files in the archive.
func (a *archive) scan() error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	r := tar.NewReader(a.file)
	for n := 0; ; n++ {
		header, err := r.Next()
		switch {
		case err == io.EOF && n > 0:
			return nil
		case err == io.EOF, errors.Is(err, tar.ErrHeader) && n == 0:
			return fmt.Errorf("%w: it is not a tar archive", ErrNotBundle)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrIncomplete, err)
		case n == maxEntries:
			return fmt.Errorf("%w: it holds more than %d files", ErrNotBundle, maxEntries)
		}
		at, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if err := a.found(header, at, info.Size()); err != nil {
			return err
		}
	}
}

// found adds a file to the archive's list.
func (a *archive) found(header *tar.Header, at, total int64) error {
	name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "./"), "/")
	if name == "" && header.Typeflag == tar.TypeDir {
		return nil // the entry of the folder itself
	}
	if !fs.ValidPath(name) || strings.Contains(name, `\`) || len(name) > maxName {
		return fmt.Errorf("%w: it contains a file named %.200q", ErrNotBundle, header.Name)
	}
	switch {
	case header.Typeflag == tar.TypeDir:
		return nil
	case header.Typeflag != tar.TypeReg || sparse(header):
		return fmt.Errorf("%w: %.200q in it is not a regular file", ErrNotBundle, header.Name)
	case header.Size > total-at:
		return fmt.Errorf("%w: it ends within %.200q", ErrIncomplete, name)
	}
	if !inLayout(name) {
		return nil // other tools can add files
	}
	if _, twice := a.files[name]; twice {
		return fmt.Errorf("%w: it contains %.200q twice", ErrNotBundle, name)
	}
	// A name can share its memory with the whole PAX header, so a copy is kept.
	a.files[strings.Clone(name)] = extent{at, header.Size}
	return nil
}

// inLayout reports whether a file name belongs to a layout.
func inLayout(name string) bool {
	if name == ocispec.ImageLayoutFile || name == ocispec.ImageIndexFile {
		return true
	}
	encoded, isBlob := strings.CutPrefix(name, blobsDir+"/")
	return isBlob && digest.NewDigestFromEncoded(digest.SHA256, encoded).Validate() == nil
}

// sparse reports whether the archive stores a file in a sparse format, and not its plain content.
func sparse(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// createArchive creates an archive. Until it is finished, it is a temporary file in its final folder.
func createArchive(name string) (storage, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, hint.Wrap(fmt.Errorf("bundle %s: %w", name, ErrExists), "remove it, or use another name; only a bundle in a folder, oci:DIR, can be extended")
	}
	// CreateTemp replaces the last star with random characters.
	file, err := os.CreateTemp(filepath.Dir(name), "."+strings.ReplaceAll(filepath.Base(name), "*", "_")+".*")
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name a file in a folder that can be written")
	}
	return &archive{file: file, name: name, files: map[string]extent{}, tar: tar.NewWriter(file)}, nil
}

// close closes the archive, and removes it if it was created but not finished.
func (a *archive) close() error {
	err := a.file.Close()
	if a.name != "" {
		os.Remove(a.file.Name())
	}
	if errors.Is(err, os.ErrClosed) {
		return nil // it is finished
	}
	return err
}

// section is a file of the archive, open for reading.
type section struct{ *io.SectionReader }

// Close does nothing: the archive stays open.
func (section) Close() error { return nil }

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.files[name]
	if !ok {
		return nil, 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return section{io.NewSectionReader(a.file, e.at, e.size)}, e.size, nil
}

// write reads body, and appends it as a file if check then succeeds. Calls can run concurrently: each one reads
// its body into its own temporary file, because only one file at a time can be appended to a tar archive.
func (a *archive) write(name string, size int64, body io.Reader, check func() error) error {
	temp, err := fill.NewTemp(filepath.Dir(a.file.Name()), ".ocibridge-*")
	if err != nil {
		return err
	}
	defer temp.Close()
	if _, err = io.Copy(temp, body); err == nil {
		err = check()
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, exists := a.files[name]; exists {
		return nil
	}
	// The header depends neither on the time nor on the user.
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	at, err := a.file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = io.Copy(a.tar, io.NewSectionReader(temp, 0, size))
	}
	if err == nil {
		a.files[name] = extent{at, size}
	}
	return errors.Join(err, a.tar.Flush())
}

func (a *archive) finish() error {
	// The file is closed before it is renamed: some systems cannot rename open files.
	if err := errors.Join(a.tar.Close(), a.file.Chmod(0o644), a.file.Sync(), a.file.Close()); err != nil {
		return err
	}
	if err := os.Rename(a.file.Name(), a.name); err != nil {
		return err
	}
	a.name = "" // close does not remove the archive any more
	return nil
}
