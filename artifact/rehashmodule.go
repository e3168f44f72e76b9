package artifact

import (
	"context"
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/provider"
)

// ModuleContents describes the files in the zip of a module.
type ModuleContents struct {
	Entries  int   // the number of files
	Unpacked int64 // the size of the files in bytes
	// H1 is the h1: hash of the files. It is zero if the zip has directory entries or too
	// many files.
	H1 provider.Hash
}

// RehashModule downloads the zip of a module to a temporary file. It checks the file against
// the size and the SHA-256 of m, and against the h1: hash if m has one. It refuses links, names
// outside the folder, and duplicate names, and it unpacks every file.
//
// ErrDamaged and ErrNotModule mean that the zip is bad. Other errors mean that the registry,
// the connection or the temporary file failed.
func RehashModule(ctx context.Context, store Fetcher, m *Module) (ModuleContents, error) {
	var out ModuleContents
	scratch, remove, err := downloadZip(ctx, store, m.Layer())
	if err != nil {
		return out, err
	}
	defer remove()
	out.Entries, out.Unpacked, err = provider.CheckEntries(ctx, scratch, m.Size)
	if err == nil {
		out.H1, err = provider.H1(ctx, scratch, m.Size)
		if errors.Is(err, provider.ErrNoH1) && m.H1.IsZero() {
			return out, nil // another tool has written directory entries
		}
	}
	switch {
	case errors.Is(err, provider.ErrNotZip), errors.Is(err, provider.ErrNoH1):
		return out, fmt.Errorf("%w: the zip: %v", ErrNotModule, err)
	case err != nil:
		return out, err
	case !m.H1.IsZero() && out.H1 != m.H1:
		return out, fmt.Errorf("%w: the files in the zip have %s, the manifest gives %s", ErrDamaged, out.H1, m.H1)
	}
	return out, nil
}
