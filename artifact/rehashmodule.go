package artifact

import (
	"context"
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/provider"
)

// RehashModule downloads the zip of a module to a temporary file, and describes its files. It
// checks the zip against the size and the SHA-256 of m, and the files against the h1: hash if m
// has one. It refuses links, names outside the folder, and duplicate names, and it unpacks every
// file. It ignores directory entries, which other tools write.
//
// ErrDamaged and ErrNotModule mean that the zip is bad. Other errors mean that the registry,
// the connection or the temporary file failed.
func RehashModule(ctx context.Context, store Fetcher, m *Module) (provider.ZipFiles, error) {
	scratch, remove, err := downloadZip(ctx, store, m.Layer())
	if err != nil {
		return provider.ZipFiles{}, err
	}
	defer remove()
	out, err := provider.HashFiles(ctx, scratch, m.Size)
	switch {
	case errors.Is(err, provider.ErrNoH1): // it may also wrap ErrNotZip
		return out, fmt.Errorf("%w: the zip: %v", ErrNotModule, err)
	case err != nil:
		return out, err
	case !m.H1.IsZero() && out.H1 != m.H1:
		return out, fmt.Errorf("%w: the files in the zip have %s, the manifest gives %s", ErrDamaged, out.H1, m.H1)
	}
	return out, nil
}
