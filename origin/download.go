package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// stallTimeout is how long an origin may leave a download without a byte.
	stallTimeout = 60 * time.Second
	// maxResumes is how often in a row a download is resumed without having come
	// minProgress bytes further.
	maxResumes  = 5
	minProgress = 1 << 20
	// resumePause is the wait before a download is resumed, the first time; each
	// further one in a row is twice as long.
	resumePause = 250 * time.Millisecond
)

// download starts reading a file of any size and returns its size, -1 if it is
// not announced. A download that breaks off is resumed where it was, unseen by
// the reader. Where the origin sends nothing for stallTimeout it fails.
func (r *Registry) download(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error) {
	body, resp, err := r.open(ctx, u, func(req *http.Request) {
		// Compressed on the way, its offsets would be others.
		req.Header.Set("Accept-Encoding", "identity")
	})
	if err != nil {
		return nil, 0, err
	}
	d := &download{ctx: ctx, registry: r, url: u, body: body, size: resp.ContentLength}
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		d.etag = tag
	}
	return d, d.size, nil
}

// download is a file on its way.
type download struct {
	ctx      context.Context // as long as the file is read, and resumed
	registry *Registry
	url      *url.URL
	etag     string // a strong one, or ""
	size     int64  // -1 if not announced
	body     io.ReadCloser

	read    int64 // bytes so far
	resumed int   // in a row without progress
	since   int64 // where that row began
}

// Read implements [io.Reader].
func (d *download) Read(p []byte) (int, error) {
	for {
		n, err := d.body.Read(p)
		d.read += int64(n)
		whole := err == io.EOF && (d.size < 0 || d.read >= d.size)
		if n > 0 && !whole {
			// What broke shows again with the next read.
			return n, nil
		}
		if err == nil || whole {
			return n, err
		}
		if rerr := d.resume(err); rerr != nil {
			return n, hint.Wrap(rerr, brokeOff)
		}
	}
}

// Close implements [io.Closer].
func (d *download) Close() error { return d.body.Close() }

// resume opens the file again at the place where it broke off because of cause,
// or returns an error that says so.
func (d *download) resume(cause error) error {
	if cause == io.EOF {
		cause = io.ErrUnexpectedEOF
	}
	if d.read-d.since >= minProgress {
		d.resumed, d.since = 0, d.read
	}
	if d.size < 0 || d.ctx.Err() != nil || errors.Is(cause, errStalled) || d.resumed == maxResumes {
		return cause
	}
	pause := time.NewTimer(resumePause << d.resumed)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-d.ctx.Done():
		return cause
	}
	d.resumed++
	d.body.Close()
	body, resp, err := d.registry.open(d.ctx, d.url, func(req *http.Request) {
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.read))
		if d.etag != "" {
			req.Header.Set("If-Range", d.etag)
		}
	})
	if err != nil {
		d.body = http.NoBody
		return fmt.Errorf("%w; resuming it: %w", cause, err)
	}
	d.body = body
	if err := d.position(resp); err != nil {
		return fmt.Errorf("%w; resuming it: %w", cause, err)
	}
	return nil
}

// position makes the body of an answer go on at what was read: it does so by
// itself if the origin knows ranges, else what was read is read again and
// dropped. What follows is checked as a whole against the checksum anyway.
func (d *download) position(resp *http.Response) error {
	if resp.StatusCode == http.StatusPartialContent {
		want := fmt.Sprintf("bytes %d-%d/%d", d.read, d.size-1, d.size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return fmt.Errorf("the origin sends %q, not %q", got, want)
		}
		return nil
	}
	if tag := resp.Header.Get("ETag"); resp.ContentLength != d.size || d.etag != "" && tag != d.etag {
		return hint.New("the file has changed meanwhile", "run it again")
	}
	_, err := io.CopyN(io.Discard, d.body, d.read)
	return err
}

// open sends a GET whose answer's body fails when nothing comes.
func (r *Registry) open(ctx context.Context, u *url.URL, prepare func(*http.Request)) (io.ReadCloser, *http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &stallReader{ctx: ctx, cancel: cancel, timer: time.AfterFunc(stallTimeout, func() { cancel(errStalled) })}
	resp, err := r.ask(ctx, r.downloads, http.MethodGet, u, prepare)
	b.timer.Stop()
	if err != nil {
		err = b.explain(err)
		cancel(nil)
		return nil, nil, err
	}
	b.body = resp.Body
	return b, resp, nil
}

var errStalled = hint.New(fmt.Sprintf("the origin sent nothing for %s", stallTimeout), "run it again; if that does not help, is there a proxy in between?")

// stallReader reads a body and gives up when nothing comes.
type stallReader struct {
	ctx    context.Context // of the request, to tell a stall from other ends
	cancel context.CancelCauseFunc
	timer  *time.Timer
	body   io.ReadCloser
}

func (b *stallReader) Read(p []byte) (int, error) {
	b.timer.Reset(stallTimeout)
	n, err := b.body.Read(p)
	b.timer.Stop() // however long the reader takes until it reads on
	if err != nil && err != io.EOF {
		err = b.explain(err)
	}
	return n, err
}

// explain returns the stall in place of what it led to.
func (b *stallReader) explain(err error) error {
	if context.Cause(b.ctx) == errStalled {
		return errStalled
	}
	return err
}

func (b *stallReader) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.body.Close()
}
