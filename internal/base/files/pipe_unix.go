//go:build !windows

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

	"golang.org/x/sys/unix"
)

const (
	// nonBlocking is the flag that opens a file without blocking. The file never becomes the
	// controlling terminal.
	nonBlocking = syscall.O_NONBLOCK | syscall.O_NOCTTY
	// canPoll reports whether this system can wait for a pipe with a deadline.
	canPoll = true
	// pollInterval is how often a waiting reader checks its context.
	pollInterval = 50 * time.Millisecond
)

// pipe reads from a pipe or a device until ctx ends or a deadline passes.
type pipe struct {
	*os.File
	read  func([]byte) (int, error)
	begun bool // a byte was read, or the file may be empty
}

func newPipe(ctx context.Context, f *os.File, isPipe bool) io.ReadCloser {
	until := time.Now().Add(PipeTimeout)
	return &pipe{File: f, begun: !isPipe, read: func(b []byte) (int, error) { return readBefore(ctx, until, f, b) }}
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.read(b)
	if err == io.EOF && !p.begun {
		err = errors.New("it is a pipe, and nothing was written to it")
	}
	p.begun = p.begun || n > 0
	if err != nil && err != io.EOF {
		err = &fs.PathError{Op: "read", Path: p.Name(), Err: err}
	}
	return n, err
}

// readBefore reads from a file that was opened without blocking. It uses poll, which distinguishes a pipe that no process
// has opened for writing yet from a pipe whose writers are gone. The system call read does not distinguish these.
func readBefore(ctx context.Context, until time.Time, f *os.File, b []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil || len(b) == 0 {
		return 0, err
	}
	rawErr := raw.Control(func(fd uintptr) {
		for ctx.Err() == nil && time.Now().Before(until) {
			ready, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(pollInterval.Milliseconds()))
			if perr != nil && perr != unix.EINTR {
				err = os.NewSyscallError("poll", perr)
				return
			}
			if ready <= 0 {
				continue
			}
			n, err = unix.Read(int(fd), b)
			switch {
			case err == unix.EAGAIN, err == unix.EINTR:
				continue
			case n == 0 && err == nil:
				err = io.EOF
			}
			n = max(n, 0)
			return
		}
		if n, err = 0, ctx.Err(); err == nil {
			err = fmt.Errorf("its content did not arrive within %s", PipeTimeout)
		}
	})
	if rawErr != nil {
		return 0, rawErr
	}
	return n, err
}
