// Package files reads the files that users name: configuration, logins, keys and certificates. It limits the size of
// each file, and reports changes of files and folders. It can also replace a file atomically in a folder that a user
// names.
//
// No function of the package waits forever for another process. Files are opened without blocking, because opening
// a named pipe would otherwise wait for a process that writes to the pipe. [Read] and [Open] accept regular files only.
// [ReadGiven] and [OpenGiven] also accept pipes, but wait for their content only until a deadline.
//
// The package follows links and compares contents. It therefore detects all three ways to change a file: writing to it,
// renaming another file to its name, and replacing a link to its folder. Kubernetes does the last.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// MaxSize is the maximum size in bytes of a file that [Read] accepts. The parsers of files have lower limits.
	MaxSize = 4 << 20
	// PipeTimeout is the longest wait for the content of a pipe. The command that writes to the pipe may ask a person
	// for a password.
	PipeTimeout = time.Minute
)

// ErrLocked means that another process has locked a file.
var ErrLocked = errors.New("another process has locked it")

// Read reads a regular file, or the null device. It returns an error if the file has more than [MaxSize] bytes.
func Read(name string) ([]byte, error) {
	f, info, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !info.Mode().IsRegular() && !isNull(name, info) {
		return nil, notRegular(name, info)
	}
	return readAll(name, f)
}

// ReadGiven is like [Read], but also reads what a user gives in place of a file, such as a shell's <(...). It fails if
// ctx ends, or after [PipeTimeout]. An empty pipe is an error, because it means that the command that writes to the
// pipe has failed.
func ReadGiven(ctx context.Context, name string) ([]byte, error) {
	f, err := OpenGiven(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(name, f)
}

// OpenGiven opens a file that [ReadGiven] reads. The time limits of ReadGiven apply to the returned reader.
func OpenGiven(ctx context.Context, name string) (io.ReadCloser, error) {
	f, info, err := open(name)
	switch {
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() || isNull(name, info):
		return f, nil
	case !info.IsDir() && canPoll:
		return newPipe(ctx, f, info.Mode()&fs.ModeNamedPipe != 0), nil
	}
	f.Close()
	return nil, notRegular(name, info)
}

// Open opens a regular file for reading.
func Open(name string) (*os.File, fs.FileInfo, error) {
	f, info, err := open(name)
	if err == nil && !info.Mode().IsRegular() {
		f.Close()
		return nil, nil, notRegular(name, info)
	}
	return f, info, err
}

// open opens any file without blocking.
func open(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
	}
	return f, info, err
}

func readAll(name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err == nil && len(b) > MaxSize {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d MiB", MaxSize>>20)}
	}
	return b, err
}

// ContextReader is a reader that fails once its context ends.
type ContextReader struct {
	context.Context
	io.Reader
}

// Read implements [io.Reader].
func (r ContextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.Context); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// isNull reports whether a file is the null device, which users name for a file without content.
func isNull(name string, info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return name == os.DevNull || err == nil && os.SameFile(info, null)
}

// notRegular returns the error for a file that is not regular.
func notRegular(name string, info fs.FileInfo) error {
	err := errors.New("it is no regular file")
	switch mode := info.Mode(); {
	case mode.IsDir():
		err = syscall.EISDIR
	case mode&fs.ModeNamedPipe != 0:
		err = errors.New("it is a pipe, and no regular file")
	case mode&fs.ModeDevice != 0:
		err = errors.New("it is a device, and no regular file")
	}
	return &fs.PathError{Op: "read", Path: name, Err: err}
}

// Clone creates the file to as a clone of a file, which shares its bytes until one of both changes. It fails with
// [errors.ErrUnsupported] if the file system cannot do that. mode is the mode of the new file. Linux subtracts the umask.
func Clone(from *os.File, to string, mode os.FileMode) error { return clone(from, to, mode) }
