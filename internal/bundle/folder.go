package bundle

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
)

// folder is a layout in a folder. It reads and writes no file outside the folder, not even through a link.
type folder struct {
	root *os.Root
}

const blobsDir = ocispec.ImageBlobsDir + "/sha256"

func openFolder(_ context.Context, dir string) (storage, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("bundle: %w", err), "name the folder that ocibridge copy --to oci:DIR wrote")
	}
	return &folder{root}, nil
}

// createFolder creates the folder if it does not exist. If the folder has no file oci-layout, createFolder
// refuses any content other than blobs.
func createFolder(_ context.Context, dir string) (storage, error) {
	root, err := files.MakeRoot(dir)
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

func (f *folder) open(name string) (io.ReadCloser, int64, error) {
	return files.OpenRegular(f.root, name)
}

func blobName(d digest.Digest) string { return path.Join(blobsDir, d.Encoded()) }

func (f *folder) write(name string, _ int64, body io.Reader, check func() error) error {
	return files.Replace(f.root, name, body, check)
}

// finish does nothing, because write has stored each file completely.
func (f *folder) finish() error { return nil }
