package provider

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// ErrNotPlain means that clients could unpack a zip in different ways, or into files that [Zip.Unpack] does not write.
var ErrNotPlain = errors.New("clients unpack it in ways of their own")

// Zip is a package that every client unpacks into the same files.
type Zip struct{ content *content }

// OpenZip reads the directory of the zip in the first size bytes of r. Its limits are those of [HashContent].
//
// The error wraps ErrNotPlain if the zip has no [H1], if it has an entry that its owner could not read, or if an entry has
// the set-user-ID, the set-group-ID or the sticky bit. OpenZip returns errors of r and ctx unchanged.
func OpenZip(ctx context.Context, r io.ReaderAt, size int64) (*Zip, error) {
	c, err := openContent(ctx, r, size)
	if err == nil {
		err = c.ambiguous("")
	}
	if errors.Is(err, ErrNoH1) {
		return nil, fmt.Errorf("%w: %w", ErrNotPlain, err)
	} else if err != nil {
		return nil, err
	}
	for _, f := range c.zipped {
		if mode := f.Mode(); mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 || mode&0o400 == 0 {
			return nil, fmt.Errorf("%w: entry %.80q has the mode %v", ErrNotPlain, f.Name, mode)
		}
	}
	return &Zip{c}, nil
}

// Size returns the size of the unpacked files in bytes.
func (z *Zip) Size() int64 { return z.content.unpacked }

// Program returns the name of the file in the root that looks like a provider's program, or "" if there is none.
func (z *Zip) Program() string {
	i := slices.IndexFunc(z.content.files, LooksLikeProgram)
	if i < 0 {
		return ""
	}
	return z.content.files[i]
}

// LooksLikeProgram reports whether a file in the root of a package has the name of some provider's program.
func LooksLikeProgram(name string) bool {
	return strings.HasPrefix(name, "terraform-provider-") && !strings.Contains(name, "/")
}

// writeError is an error of the function that [Zip.Unpack] calls.
type writeError struct{ error }

// Unpack unpacks the zip, and returns its h1: hash. For each file, it calls create with the file's name, which has slashes
// and leads to no other folder, and with whether its owner may execute it. It writes the content to the result, and closes
// it. Unpack returns errors of create, and of what it returns, unchanged. Other errors are those of [H1].
func (z *Zip) Unpack(create func(name string, executable bool) (io.WriteCloser, error)) (Hash, error) {
	err := z.content.read(func(f *zip.File) (sum [sha256.Size]byte, err error) {
		in, err := f.Open()
		if err != nil {
			return sum, err
		}
		defer in.Close()
		out, err := create(f.Name, f.Mode()&0o100 != 0)
		if err != nil {
			return sum, &writeError{err}
		}
		if sum, err = sumOf(in, failing{out}); err != nil {
			out.Close()
			return sum, err
		}
		if err := out.Close(); err != nil {
			return sum, &writeError{err}
		}
		return sum, nil
	})
	if err != nil {
		return Hash{}, err
	}
	return z.content.hashFiles(), nil
}

// failing makes the errors of a writer a writeError.
type failing struct{ w io.Writer }

func (f failing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		err = &writeError{err}
	}
	return n, err
}

// HashFolder returns the h1: hash of a folder, given the SHA-256 of each file by the file's path, which has slashes.
func HashFolder(sums map[string][sha256.Size]byte) Hash {
	var names []string
	for name := range sums {
		names = append(names, name)
	}
	return hash1(names, func(name string) [sha256.Size]byte { return sums[name] })
}
