package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// stallTimeout is the maximum time that one read from the body of a response may take.
const stallTimeout = 60 * time.Second

// ErrStalled means that a registry stopped in the middle of a response.
var ErrStalled = errors.New("the registry stopped in the middle of its answer")

// stallGuard is a transport that aborts a response if a read from its body takes longer
// than limit. The timeout of the next transport applies until a response begins.
type stallGuard struct {
	next  http.RoundTripper
	limit time.Duration
}

func (t stallGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = &guardedBody{resp.Body, t.limit, ctx, cancel}
	return resp, nil
}

// guardedBody limits the time of each read from a body, but not the time between two reads.
type guardedBody struct {
	io.ReadCloser
	limit  time.Duration
	ctx    context.Context // the context of the request
	cancel context.CancelCauseFunc
}

func (b *guardedBody) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.limit, func() { b.cancel(ErrStalled) })
	defer timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), ErrStalled) {
		err = ErrStalled
	}
	return n, err
}

func (b *guardedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
