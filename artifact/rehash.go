package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Rehash downloads a package to a temporary file. It checks the file against the size and
// the SHA-256 of p, and against the h1: hash if p has one. It returns the h1: hash of the
// package. The hash is zero if different clients compute different h1: hashes for this zip.
//
// ErrDamaged and ErrNotProvider mean that the package is bad. Other errors mean that the
// registry, the connection or the temporary file failed.
func Rehash(ctx context.Context, store Fetcher, p Package) (provider.Hash, error) {
	none := provider.Hash{}
	scratch, err := os.CreateTemp("", "ocibridge-*.zip")
	if err != nil {
		return none, hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	defer os.Remove(scratch.Name())
	defer scratch.Close()
	if err := download(ctx, store, p.Layer(), scratch); err != nil {
		return none, err
	}
	h1, err := provider.H1(ctx, scratch, p.Size)
	switch {
	case errors.Is(err, provider.ErrNotZip):
		return none, fmt.Errorf("%w: the package: %v", ErrNotProvider, err)
	case errors.Is(err, provider.ErrNoH1) && p.H1.IsZero():
		return none, nil
	case errors.Is(err, provider.ErrNoH1):
		return none, fmt.Errorf("%w: the index gives %s: %v", ErrDamaged, p.H1, err)
	case err != nil:
		return none, err
	case !p.H1.IsZero() && h1 != p.H1:
		return none, fmt.Errorf("%w: the package has %s, the index gives %s", ErrDamaged, h1, p.H1)
	}
	return h1, nil
}
