package bundle

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// folder is a layout in a folder. Nothing outside it is read or written, wherever its links lead.
type folder struct {
	root *os.Root
}

const blobsDir = ocispec.ImageBlobsDir + "/sha256"

func openFolder(dir string) (storage, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name the folder that ocibridge copy --to oci:DIR wrote")
	}
	return &folder{root}, nil
}

// createFolder creates the folder if it is missing. It refuses a folder with other content than a layout.
func createFolder(dir string) (storage, error) {
	err := os.MkdirAll(dir, 0o755)
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name a folder that can be written")
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(entries) > 0 {
		// An interrupted copy leaves only blobs.
		if _, lerr := root.Lstat(ocispec.ImageLayoutFile); lerr != nil && (len(entries) > 1 || entries[0].Name() != ocispec.ImageBlobsDir) {
			err = hint.Wrap(fmt.Errorf("%s: %w: it holds other files", dir, ErrNotBundle), "name an empty folder, or a new one")
		}
	}
	if err == nil {
		err = root.MkdirAll(blobsDir, 0o755)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return &folder{root}, nil
}

func (f *folder) close() error { return f.root.Close() }

// open opens a regular file.
func (f *folder) open(name string) (*os.File, int64, error) {
	// Check before opening: opening a pipe would wait for a writer.
	info, err := f.root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", name)
	}
	file, err := f.root.Open(name)
	return file, info.Size(), err
}

func (f *folder) readFile(name string, limit int64) ([]byte, error) {
	file, _, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readLimited(file, name, limit)
}

func readLimited(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}

func blobName(d digest.Digest) string { return path.Join(blobsDir, d.Encoded()) }

func (f *folder) size(d digest.Digest) (int64, bool, error) {
	info, err := f.root.Stat(blobName(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case !info.Mode().IsRegular():
		return 0, false, fmt.Errorf("%s is no regular file", blobName(d))
	}
	return info.Size(), true, nil
}

func (f *folder) fetch(d digest.Digest) (io.ReadCloser, error) {
	file, _, err := f.open(blobName(d))
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *folder) push(desc ocispec.Descriptor, body io.Reader) error {
	verified := content.NewVerifyReader(body, desc)
	return f.replace(blobName(desc.Digest), verified, verified.Verify)
}

// replace writes a file in one step, if check passes after body was read.
func (f *folder) replace(name string, body io.Reader, check func() error) (err error) {
	temp := path.Join(path.Dir(name), ".ocibridge-"+rand.Text())
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.root.Remove(temp)
		}
	}()
	_, err = io.Copy(file, body)
	if err == nil {
		err = check()
	}
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = f.root.Rename(temp, name)
	}
	return err
}

func (f *folder) finish(before, index []byte) error {
	now, err := f.readFile(ocispec.ImageIndexFile, indexLimits.Bytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(now, before) {
		return hint.New(ocispec.ImageIndexFile+" was changed by somebody else in the meantime", "let one copy write to a bundle at a time, and run it again")
	}
	ok := func() error { return nil }
	if err := f.replace(ocispec.ImageLayoutFile, bytes.NewReader(layoutFile), ok); err != nil {
		return err
	}
	return f.replace(ocispec.ImageIndexFile, bytes.NewReader(index), ok)
}

// layoutFile is the content of the file oci-layout.
var layoutFile = []byte(`{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`)
