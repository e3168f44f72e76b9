package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/provider"
)

// Scratch is an empty file that a package is written to, to be read again.
type Scratch interface {
	io.Writer
	io.ReaderAt
}

// Rehash downloads a package into scratch and compares its size, its SHA-256 and,
// where the index gives one, its h1: hash with what the index says. ErrDamaged and
// ErrNotProvider are about the package; other errors about the way to it, or
// about scratch.
func Rehash(ctx context.Context, store Fetcher, p Package, scratch Scratch) error {
	body, err := store.Fetch(ctx, p.Layer())
	if errors.Is(err, errdef.ErrNotFound) {
		return fmt.Errorf("%w: %w: %v", ErrNotProvider, ErrMissing, err)
	}
	if err != nil {
		return err
	}
	defer body.Close()
	hash := p.Digest.Algorithm().Digester()
	n, err := io.Copy(io.MultiWriter(scratch, hash.Hash()), io.LimitReader(body, p.Size+1))
	switch {
	case err != nil:
		return fmt.Errorf("download the package: %w", err)
	case n > p.Size:
		return fmt.Errorf("%w: the package has more than %d bytes", ErrDamaged, p.Size)
	case n < p.Size:
		return fmt.Errorf("%w: the package has %d bytes, not %d", ErrDamaged, n, p.Size)
	case hash.Digest() != p.Digest:
		return fmt.Errorf("%w: the package has the digest %s, not %s", ErrDamaged, hash.Digest(), p.Digest)
	}
	h1, err := provider.H1(ctx, scratch, n)
	switch {
	case errors.Is(err, provider.ErrNotZip):
		return fmt.Errorf("%w: the package: %v", ErrNotProvider, err)
	case errors.Is(err, provider.ErrNoH1) && p.H1.IsZero():
		return nil
	case errors.Is(err, provider.ErrNoH1):
		return fmt.Errorf("%w: the index gives %s: %v", ErrDamaged, p.H1, err)
	case err != nil:
		return err
	case !p.H1.IsZero() && h1 != p.H1:
		return fmt.Errorf("%w: the package has %s, the index gives %s", ErrDamaged, h1, p.H1)
	}
	return nil
}
