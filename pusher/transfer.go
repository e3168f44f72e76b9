package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	// maxPackageBytes bounds a package whose origin does not announce its size.
	// The largest public ones have some 200 MiB.
	maxPackageBytes = 4 << 30
	// sendAttempts is how often a layer is sent before its push fails.
	sendAttempts = 4
)

// content is a package's bytes, to be read as often as it takes.
type content interface {
	io.ReaderAt
	io.ReadSeekCloser
}

// fetch reads a package from its origin and verifies it. The content is a file:
// the origin's own, or a temporary one that is gone when it is closed.
func (w *push) fetch(ctx context.Context, pkg origin.Package) (verified trust.Package, c content, err error) {
	verified, c, err = w.fetchVerified(ctx, pkg)
	if errors.Is(err, trust.ErrChecksum) && pkg.MismatchHint != "" {
		err = hint.Replace(err, "%s", pkg.MismatchHint)
	}
	if err != nil {
		err = fmt.Errorf("%s %s for %s: %w", w.release.Provider(), w.release.Version(), pkg.Platform, err)
	}
	return verified, c, err
}

func (w *push) fetchVerified(ctx context.Context, pkg origin.Package) (_ trust.Package, _ content, err error) {
	verifier, err := w.sums.Verifier(pkg.Platform, pkg.Filename)
	if err != nil {
		return trust.Package{}, nil, err
	}
	body, size, err := pkg.Open(ctx)
	if err != nil {
		return trust.Package{}, nil, err
	}
	w.event(pkg.Platform, StageFetch, 0, size)
	source := &progressReader{r: body, report: func(n int) { w.event(pkg.Platform, StageFetch, n, size) }}
	c, isFile := body.(content)
	var sink io.Writer = verifier
	if !isFile {
		defer body.Close()
		tmp, err := newTempFile()
		if err != nil {
			return trust.Package{}, nil, err
		}
		c, sink = tmp, io.MultiWriter(tmp, verifier)
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if err := copyExactly(sink, source, size); err != nil {
		return trust.Package{}, nil, fmt.Errorf("read %s: %w", pkg.Filename, err)
	}
	p, err := verifier.Accept(c)
	return p, c, err
}

// copyExactly copies all of src, which must have size bytes, or at most
// maxPackageBytes if size is negative.
func copyExactly(dst io.Writer, src io.Reader, size int64) error {
	limit := size
	if size < 0 {
		limit = maxPackageBytes
	}
	tail := &errorReader{r: src}
	n, err := io.Copy(dst, io.LimitReader(tail, limit+1))
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case tail.err != nil, err == nil && n < size:
		return hint.Wrap(fmt.Errorf("%w after %d%s bytes%s", ErrTruncated, n, of(size), because(tail.err)), "the origin broke off; nothing was tagged. Run it again")
	case err != nil:
		return err
	case n > limit:
		return hint.Wrap(fmt.Errorf("%w: more than %d bytes", ErrTooLong, limit), "the origin sends more than it announces, or more than any package has; nothing was stored")
	}
	return nil
}

// errorReader remembers why it ended, so that it is known which side of a copy
// failed.
type errorReader struct {
	r   io.Reader
	err error // nil for the end of the data
}

func (e *errorReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

func of(size int64) string {
	if size < 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", size)
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// tempFile is a file that is gone once it is closed.
type tempFile struct{ *os.File }

func newTempFile() (*tempFile, error) {
	f, err := os.CreateTemp("", "ocibridge-*.zip")
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	// Where the system lets an open file be removed, nothing is left over even if
	// the process is killed.
	os.Remove(f.Name())
	return &tempFile{f}, nil
}

func (t *tempFile) Close() error {
	err := t.File.Close()
	os.Remove(t.Name())
	return err
}

type progressReader struct {
	r      io.Reader
	report func(int)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.report(n)
	}
	return n, err
}

// sendLayer stores a package's bytes unless they are there. The registry's answer
// to a broken upload is read from a fresh start: oras-go cannot send a file again.
func (w *push) sendLayer(ctx context.Context, p artifact.Package, c content) error {
	op := "push " + p.Platform.String() + " to"
	layer := p.Layer()
	exists, err := w.dest.Store.Exists(ctx, layer)
	if err != nil {
		return w.registryError(op, err)
	}
	w.event(p.Platform, StageSend, 0, p.Size)
	if exists {
		w.event(p.Platform, StageSend, int(p.Size), p.Size)
		return nil
	}
	pause := w.o.RetryPause
	for attempt := 1; ; attempt++ {
		sent := 0
		sending, cancel := context.WithCancelCause(ctx)
		stall := time.AfterFunc(w.o.StallTimeout, func() { cancel(errStalled) })
		body := &progressReader{r: io.NewSectionReader(c, 0, p.Size), report: func(n int) {
			stall.Reset(w.o.StallTimeout)
			sent += n
			w.event(p.Platform, StageSend, n, p.Size)
		}}
		err = w.dest.Store.Push(sending, layer, body)
		stall.Stop()
		if err != nil && ctx.Err() == nil && sending.Err() != nil {
			err = hint.Wrap(fmt.Errorf("%w: %v", errStalled, err), "the registry takes no bytes: ask whoever runs it, and run the push again")
		}
		cancel(nil)
		if err == nil {
			return nil
		}
		if attempt == sendAttempts || !worthRetrying(err) {
			return w.registryError(op, err)
		}
		w.event(p.Platform, StageSend, -sent, p.Size)
		if err := sleep(ctx, pause+rand.N(pause)); err != nil {
			return w.registryError(op, err)
		}
		pause *= 2
	}
}

// errStalled means that the registry took no byte for Options.StallTimeout.
var errStalled = errors.New("the upload stalled")

// worthRetrying reports whether sending the same bytes again may help.
func worthRetrying(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStalled) {
		return false
	}
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		// 401: a token that ran out in the middle of a long upload.
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusUnauthorized
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// sendBlob stores a small blob or a manifest unless it is there.
func (w *push) sendBlob(ctx context.Context, op string, b artifact.Blob) error {
	exists, err := w.dest.Store.Exists(ctx, b.Descriptor)
	if err == nil && !exists {
		err = w.dest.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
	}
	if err != nil {
		return w.registryError(op, err)
	}
	return nil
}

// sendTag stores a manifest under a tag.
func (w *push) sendTag(ctx context.Context, op string, desc ocispec.Descriptor, data []byte, tag string) error {
	if err := w.dest.Store.PushReference(ctx, desc, bytes.NewReader(data), tag); err != nil {
		return w.registryError(op, err)
	}
	return nil
}

// isNotFound reports whether a registry says that something is not there.
func isNotFound(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.Is(err, errdef.ErrNotFound) || errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}
