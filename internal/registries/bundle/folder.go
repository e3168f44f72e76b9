package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// folder is a layout in a folder. It reads and writes no file outside the folder, not even through a link.
type folder struct{ root *os.Root }

const blobsDir = ocispec.ImageBlobsDir + "/sha256"

func openFolder(_ context.Context, dir string) (storage, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name the folder that ocibridge copy --to oci:DIR wrote")
	}
	return &folder{root}, nil
}

// createFolder creates the folder if it does not exist. It refuses a folder with content that does not belong to a
// bundle.
func createFolder(_ context.Context, dir string) (storage, error) {
	root, err := files.MakeRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name a folder that can be written")
	}
	files.SweepTemporary(root, ".")
	files.SweepTemporary(root, blobsDir)
	if err = checkFolder(root, dir); err == nil {
		err = root.MkdirAll(blobsDir, 0o755)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return &folder{root}, nil
}

// checkFolder refuses a folder that has no file oci-layout, unless the folder contains only blobs.
func checkFolder(root *os.Root, dir string) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil || len(entries) == 0 {
		return err
	}
	// An interrupted copy leaves only blobs.
	if _, err := root.Lstat(ocispec.ImageLayoutFile); err != nil && (len(entries) > 1 || entries[0].Name() != ocispec.ImageBlobsDir) {
		return hint.Wrap(fmt.Errorf("%s: %w: it holds other files", dir, ErrNotBundle), "name an empty folder, or a new one")
	}
	return nil
}

// previewFolder opens the folder if it exists.
func previewFolder(ctx context.Context, dir string) (storage, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return empty{}, nil
	}
	s, err := openFolder(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := checkFolder(s.(*folder).root, dir); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// empty is a storage without files, to which nothing can be written.
type empty struct{}

func (empty) open(name string) (io.ReadCloser, int64, error) {
	return nil, 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func (empty) write(string, int64, io.Reader, func() error) error { return errors.ErrUnsupported }
func (empty) finish() error                                      { return errors.ErrUnsupported }
func (empty) close() error                                       { return nil }

func (f *folder) close() error { return f.root.Close() }

func (f *folder) open(name string) (io.ReadCloser, int64, error) {
	return files.OpenRegular(f.root, name)
}

func blobName(d digest.Digest) string { return path.Join(blobsDir, d.Encoded()) }

func (f *folder) write(name string, _ int64, body io.Reader, check func() error) error {
	return files.Replace(f.root, name, body, check)
}

// finish does nothing, because write has stored each file completely.
func (f *folder) finish() error { return nil }
