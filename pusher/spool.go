package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/fill"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// spool downloads a package from its origin into a temporary file, and verifies it. Uploads read the file while it
// is being filled. No upload gets the last byte before the package is verified, so a registry never receives a
// wrong package completely.
type spool struct {
	file      *fill.File
	own       *fill.Reader // keeps the file open between uploads
	verifier  *trust.Verifier
	explain   func(error) error // adds the name of the package to an error
	report    func(int)         // counts bytes from the origin
	size      int64             // -1: unknown before drain
	pkg       trust.Package     // set once the file is verified
	noProgram *noProgram        // gets pkg
	filled    chan struct{}     // closed once the origin is no longer read
}

// open starts to download a package from its origin.
func (w *push) open(ctx context.Context, pkg origin.Package) (*spool, error) {
	s := &spool{noProgram: &w.noProgram, explain: func(err error) error {
		if errors.Is(err, trust.ErrChecksum) && !errors.Is(err, provider.ErrNoH1) && pkg.MismatchHint != "" {
			err = hint.Replace(err, "%s", pkg.MismatchHint)
		}
		return fmt.Errorf("%s %s for %s: %w", w.release.Provider(), w.release.Version(), pkg.Platform, err)
	}}
	var err error
	if s.verifier, err = w.sums.Verifier(pkg.Platform, pkg.Filename); err != nil {
		return nil, s.explain(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	body, size, err := pkg.Open(ctx)
	if err != nil {
		cancel()
		return nil, s.explain(err)
	}
	s.report = func(n int) { w.event(pkg.Platform, StageFetch, n, size) }
	if err := s.begin(ctx, cancel, body, size, provider.MaxZipBytes); err != nil {
		cancel()
		return nil, s.explain(err)
	}
	return s, nil
}

// begin starts to fill the file from body, which it always closes. size is the announced number of bytes, or -1.
// If begin succeeds, it calls cancel once body is no longer read.
func (s *spool) begin(ctx context.Context, cancel func(), body io.ReadCloser, size, limit int64) error {
	if size > limit {
		body.Close()
		return tooLong(limit)
	}
	storage, err := fill.NewTemp("", "ocibridge-*.zip")
	if err != nil {
		body.Close()
		return hint.Wrap(fmt.Errorf("temporary file: %w", err), helpTemp)
	}
	s.report(0)
	s.file, s.size, s.filled = fill.New(fill.Options{Cancel: cancel, Limit: limit}), size, make(chan struct{})
	s.own, _ = s.file.Open(ctx)
	s.file.Begin(storage, size)
	go func() {
		defer close(s.filled)
		defer cancel()
		defer s.file.Close()
		defer body.Close()
		s.file.Finish(panics.Catch(ctx, nil, func() error { return s.fill(ctx, body) }))
	}()
	return nil
}

// fill reads the package from its origin, and verifies it.
func (s *spool) fill(ctx context.Context, body io.Reader) error {
	err := s.file.Fill(io.TeeReader(body, io.MultiWriter(s.verifier, reporter(s.report))))
	var storage *fill.StorageError
	var long *fill.TooLongError
	switch {
	case errors.As(err, &storage):
		err = hint.Wrap(fmt.Errorf("temporary file: %w", err), helpTemp)
	case errors.As(err, &long):
		err = tooLong(long.Limit)
	case err != nil:
		err = s.truncated(err)
	default:
		s.pkg, err = s.verifier.Accept(ctx, s.file.Content())
		s.noProgram.note(s.pkg)
	}
	if err != nil {
		return s.explain(err)
	}
	return nil
}

// reporter is a writer that calls a function with the number of bytes of each write.
type reporter func(int)

// Write implements [io.Writer].
func (r reporter) Write(p []byte) (int, error) {
	r(len(p))
	return len(p), nil
}

// Close releases the temporary file, and waits until the origin is no longer read. All uploads must have ended.
func (s *spool) Close() {
	s.own.Close()
	<-s.filled
}

// open implements [layerContent].
func (s *spool) open(ctx context.Context) (io.ReadCloser, error) {
	file, ok := s.file.Open(ctx)
	if !ok {
		return nil, s.failure()
	}
	return file, nil
}

// failure returns the error of the download or the verification, or nil.
func (s *spool) failure() error { return s.file.State().Err }

// drain waits until the package is downloaded and verified.
func (s *spool) drain() error {
	<-s.filled
	s.size = s.file.State().Written
	return s.failure()
}

// accepted returns the verified package, after a successful drain or an upload of the whole file.
func (s *spool) accepted() trust.Package {
	<-s.filled
	return s.pkg
}

func tooLong(limit int64) error {
	return hint.Wrap(fmt.Errorf("%w: more than %d bytes", ErrTooLong, limit), "the origin sends more than it announces, or more than any package has; nothing was stored")
}

// truncated returns the error for an origin that sends too few bytes.
func (s *spool) truncated(cause error) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	of := ""
	if s.size >= 0 {
		of = fmt.Sprintf(" of %d", s.size)
	}
	return hint.Wrap(fmt.Errorf("%w after %d%s bytes: %v", ErrTruncated, s.file.State().Written, of, cause), "the origin broke off; nothing was tagged. Run it again")
}

// spoolReader is the body of one upload.
type spoolReader struct {
	file   io.ReadCloser
	before func()    // called before each read
	after  func(int) // called after each read, with the number of bytes that were read

	mu    sync.Mutex // guards the following
	off   int64
	ended bool
}

// Read implements [io.Reader].
func (r *spoolReader) Read(p []byte) (int, error) {
	r.before()
	n, err := r.file.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return 0, os.ErrClosed
	}
	r.off += int64(n)
	r.after(n)
	return n, err
}

// end closes the reader, and returns the number of bytes that were read. Later calls of Read fail.
func (r *spoolReader) end() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.file.Close()
	return r.off
}

const helpTemp = "TMPDIR names another folder for temporary files"
