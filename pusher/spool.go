package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/ocibridge/ocibridge/internal/fill"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// maxPackageBytes bounds a package, whatever its origin announces. The largest
	// public ones have some 200 MiB.
	maxPackageBytes = 4 << 30
	// pieceBytes is how much of a package is read from its origin, written to the
	// file and hashed at once.
	pieceBytes = 256 << 10
)

// content is a package's bytes, to be read as often as it takes.
type content interface {
	io.ReaderAt
	io.ReadSeekCloser
}

// spool is a package on its way from its origin: its bytes are read once, hashed,
// and kept in a file, from which they can be read again. The last of them are
// handed out only when all are verified, so that whoever sends what it reads
// never sends a whole package that is not the right one.
type spool struct {
	src      io.Reader
	file     content // the origin's own, or a temporary one that is gone when it is closed
	temp     *fill.Temp
	closers  []io.Closer
	verifier *trust.Verifier
	accept   func() (trust.Package, error) // verifies the bytes read so far
	size     int64                         // -1 if not announced, until all is read
	limit    int64                         // of the bytes that are read
	report   func(int)                     // is told of what was read
	explain  func(error) error             // says which package failed

	mu       sync.Mutex
	piece    []byte // what was read last and ends at read
	buf      []byte
	read     int64
	verified *trust.Package // nil until all is read
	err      error          // why there will be no more
}

// open starts reading a package.
func (w *push) open(ctx context.Context, pkg origin.Package) (*spool, error) {
	s := &spool{limit: maxPackageBytes, explain: func(err error) error {
		if errors.Is(err, trust.ErrChecksum) && pkg.MismatchHint != "" {
			err = hint.Replace(err, "%s", pkg.MismatchHint)
		}
		return fmt.Errorf("%s %s for %s: %w", w.release.Provider(), w.release.Version(), pkg.Platform, err)
	}}
	var err error
	if s.verifier, err = w.sums.Verifier(pkg.Platform, pkg.Filename); err != nil {
		return nil, s.explain(err)
	}
	body, size, err := pkg.Open(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	if size > s.limit {
		body.Close()
		return nil, s.explain(s.tooLong(s.limit))
	}
	s.src, s.size, s.closers = body, size, []io.Closer{body}
	var isFile bool
	if s.file, isFile = body.(content); !isFile {
		if s.temp, err = newTempFile(); err != nil {
			body.Close()
			return nil, s.explain(err)
		}
		s.file, s.closers = s.temp, append(s.closers, s.temp)
	}
	s.accept = func() (trust.Package, error) { return s.verifier.Accept(ctx, s.file) }
	w.event(pkg.Platform, StageFetch, 0, size)
	s.report = func(n int) { w.event(pkg.Platform, StageFetch, n, size) }
	return s, nil
}

// Close ends it. Nothing reads from it any more.
func (s *spool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.closers {
		c.Close()
	}
}

// failure returns why the package cannot be had, nil if nothing is wrong so far.
func (s *spool) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// drain reads what is left.
func (s *spool) drain() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.verified == nil {
		if err := s.pull(); err != nil {
			return err
		}
	}
	return nil
}

// accepted returns the package once all of it was read.
func (s *spool) accepted() trust.Package {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.verified
}

// pull reads the next piece from the origin. It is called with s.mu held.
func (s *spool) pull() error {
	if s.err == nil {
		if err := s.next(); err != nil {
			s.err = s.explain(err)
		}
	}
	return s.err
}

func (s *spool) next() error {
	if s.buf == nil {
		s.buf = make([]byte, pieceBytes)
	}
	buf := s.buf
	if s.size >= 0 {
		buf = buf[:min(pieceBytes, s.size-s.read)]
	}
	n, err := io.ReadFull(s.src, buf)
	s.piece = buf[:n]
	if s.temp != nil {
		if _, err := s.temp.Write(s.piece); err != nil {
			return hint.Wrap(fmt.Errorf("temporary file: %w", err), helpTemp)
		}
	}
	s.verifier.Write(s.piece)
	s.read += int64(n)
	if n > 0 {
		s.report(n)
	}
	ended := err == io.EOF || err == io.ErrUnexpectedEOF && s.size < 0
	switch {
	case err == nil && s.size >= 0 && s.read == s.size:
		if err := s.end(); err != io.EOF {
			return s.brokeOff(err)
		}
		return s.verify()
	case s.read > s.limit:
		return s.tooLong(s.limit)
	case ended && s.size < 0:
		s.size = s.read
		return s.verify()
	case ended, err == io.ErrUnexpectedEOF:
		return s.brokeOff(nil)
	case err != nil:
		return s.brokeOff(err)
	}
	return nil
}

// end fails where the origin sends more than it announced.
func (s *spool) end() error {
	n, err := io.ReadFull(s.src, make([]byte, 1))
	if n > 0 {
		return s.tooLong(s.size)
	}
	return err
}

// verify accepts the package whose bytes were read.
func (s *spool) verify() error {
	p, err := s.accept()
	if err != nil {
		return err
	}
	s.verified = &p
	return nil
}

func (s *spool) tooLong(limit int64) error {
	return hint.Wrap(fmt.Errorf("%w: more than %d bytes", ErrTooLong, limit), "the origin sends more than it announces, or more than any package has; nothing was stored")
}

// brokeOff is the error for an origin that ended too soon; cause may be nil.
func (s *spool) brokeOff(cause error) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, ErrTooLong) {
		return cause
	}
	of, because := "", ""
	if s.size >= 0 {
		of = fmt.Sprintf(" of %d", s.size)
	}
	if cause != nil {
		because = ": " + cause.Error()
	}
	return hint.Wrap(fmt.Errorf("%w after %d%s bytes%s", ErrTruncated, s.read, of, because), "the origin broke off; nothing was tagged. Run it again")
}

// spoolReader reads a package from the start, as far as it was read already from
// the file, and from there on from its origin.
type spoolReader struct {
	spool  *spool
	before func()    // a read
	after  func(int) // it brought so many bytes

	off   int64 // guarded by spool.mu, as is
	ended bool
}

// Read implements [io.Reader].
func (r *spoolReader) Read(p []byte) (n int, err error) {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.ended:
		return 0, os.ErrClosed
	case s.err != nil:
		return 0, s.err
	case s.verified != nil && r.off == s.size:
		return 0, io.EOF
	}
	r.before()
	if r.off == s.read {
		err = s.pull()
	}
	start := s.read - int64(len(s.piece))
	switch {
	case err != nil:
	case r.off >= start:
		n = copy(p, s.piece[r.off-start:])
	default:
		if n, err = s.file.ReadAt(p[:min(int64(len(p)), start-r.off)], r.off); n > 0 {
			err = nil
		}
	}
	r.off += int64(n)
	r.after(n)
	return n, err
}

// end makes the reader useless to whoever may hold it still, and returns how much
// it has read.
func (r *spoolReader) end() int64 {
	r.spool.mu.Lock()
	defer r.spool.mu.Unlock()
	r.ended = true
	return r.off
}

const helpTemp = "TMPDIR names another folder for temporary files"

// newTempFile makes a file that is gone once it is closed.
func newTempFile() (*fill.Temp, error) {
	f, err := fill.NewTemp("", "ocibridge-*.zip")
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("temporary file: %w", err), helpTemp)
	}
	return f, nil
}
