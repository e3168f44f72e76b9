package artifact

import (
	"context"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Content is what [Rehash] finds in a package.
type Content struct {
	H1s     provider.H1s // none if clients could refuse the zip
	Program error        // wraps [provider.ErrNoProgram] if no client can run the package
}

// Rehash downloads a package to a temporary file. It checks the file against the size and
// the SHA-256 of p, and against the h1: hash if p has one. It returns what the
// package contains, which is for a provider of the given type.
//
// ErrDamaged and ErrNotProvider mean that the package is bad. Other errors mean that the
// registry, the connection or the temporary file failed.
func Rehash(ctx context.Context, store Fetcher, typ string, p Package) (Content, error) {
	none := Content{}
	scratch, remove, err := downloadZip(ctx, store, p.Layer())
	if err != nil {
		return none, err
	}
	defer remove()
	h1s, err := provider.HashContent(ctx, scratch, p.Size)
	switch {
	case errors.Is(err, provider.ErrNotZip):
		return none, fmt.Errorf("%w: the package: %v", ErrNotProvider, err)
	case errors.Is(err, provider.ErrNoH1) && p.H1.IsZero(): // clients could refuse the zip
	case errors.Is(err, provider.ErrNoH1):
		return none, fmt.Errorf("%w: the index gives %s: %v", ErrDamaged, p.H1, err)
	case err != nil:
		return none, err
	case !p.H1.IsZero() && !h1s.Has(p.H1):
		return none, fmt.Errorf("%w: the package has %v, the index gives %s", ErrDamaged, h1s, p.H1)
	}
	out := Content{H1s: h1s}
	if err := provider.CheckProgram(ctx, scratch, p.Size, typ, p.Platform); errors.Is(err, provider.ErrNoProgram) {
		out.Program = err
	}
	return out, nil
}

// downloadZip downloads a zip to a temporary file, and then checks its size and digest. The caller must call the
// function that it returns, which removes the file. If the process is killed, nothing is left where files need no name.
func downloadZip(ctx context.Context, store Fetcher, desc ocispec.Descriptor) (*fill.Temp, func(), error) {
	if desc.Size > provider.MaxZipBytes {
		return nil, nil, fmt.Errorf("%w: the zip has %d bytes according to the manifest, and the maximum is %d", ErrDamaged, desc.Size, int64(provider.MaxZipBytes))
	}
	scratch, err := fill.NewTemp("", "ocibridge-*.zip")
	if err != nil {
		return nil, nil, hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	remove := func() { scratch.Close() }
	if err := download(ctx, store, desc, scratch); err != nil {
		remove()
		return nil, nil, err
	}
	return scratch, remove, nil
}

// RehashZip downloads the zip of a module to a temporary file, and describes its files. It
// checks the zip against the size and the SHA-256 of p, and the files against the h1: hash if p
// has one. It refuses links, names outside the folder, and duplicate names, and it unpacks every
// file. It ignores directory entries, which other tools write.
//
// ErrDamaged and ErrNotModule mean that the zip is bad. Other errors mean that the registry,
// the connection or the temporary file failed.
func RehashZip(ctx context.Context, store Fetcher, p Package) (provider.ZipFiles, error) {
	scratch, remove, err := downloadZip(ctx, store, p.Layer())
	if err != nil {
		return provider.ZipFiles{}, err
	}
	defer remove()
	out, err := provider.HashFiles(ctx, scratch, p.Size)
	switch {
	case errors.Is(err, provider.ErrNoH1): // it may also wrap ErrNotZip
		return out, fmt.Errorf("%w: the zip: %v", ErrNotModule, err)
	case err != nil:
		return out, err
	case !p.H1.IsZero() && out.H1 != p.H1:
		return out, fmt.Errorf("%w: the files in the zip have %s, the manifest gives %s", ErrDamaged, out.H1, p.H1)
	}
	return out, nil
}
