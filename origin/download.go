package origin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	// maxResumes is the maximum number of times that a download is resumed in a row
	// without progress. Fewer than minProgress bytes do not count as progress.
	maxResumes  = 5
	minProgress = 1 << 20
	// resumePause is the wait before a download is resumed for the first time. It doubles
	// with each further attempt in a row.
	resumePause = 250 * time.Millisecond
)

// download requests a file of any size. It returns the file's content and its size in
// bytes, or -1 if the origin does not announce the size. If the connection of a file of
// known size is lost, the reader requests the rest of the file and continues. The
// download fails if the origin is too slow: see [pace].
func (c *client) download(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &download{cancel: cancel, pace: newPace(cancel), client: c, url: u, body: http.NoBody}
	d.ctx = context.WithValue(ctx, paceKey{}, d.pace)
	d.pace.start()
	resp, err := d.ask("")
	d.pace.stop()
	if err != nil {
		err = d.explain(err)
		d.Close()
		return nil, 0, err
	}
	d.size = resp.ContentLength
	d.pace.expect(d.size)
	if tag := resp.Header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		d.etag = tag
	}
	return d, d.size, nil
}

// download is a file that is being downloaded.
type download struct {
	ctx    context.Context // for all requests of the download
	cancel context.CancelCauseFunc
	pace   *pace
	client *client
	url    *url.URL
	etag   string // a strong ETag, or ""
	size   int64  // -1 if not announced
	body   io.ReadCloser

	advance
}

// advance is the progress of a download.
type advance struct {
	have    int64 // bytes read so far
	resumed int   // the number of resumptions since the last progress
	since   int64 // the position at the last progress
}

// ask requests the file, or the given range of the file, and sets d.body to the body of
// the response.
func (d *download) ask(byteRange string) (*http.Response, error) {
	resp, err := d.client.ask(d.ctx, d.client.downloads, http.MethodGet, d.url, func(req *http.Request) {
		// If the file were compressed in transit, its offsets would differ.
		req.Header.Set("Accept-Encoding", "identity")
		if byteRange != "" {
			req.Header.Set("Range", byteRange)
			if d.etag != "" {
				req.Header.Set("If-Range", d.etag)
			}
		}
	})
	if err == nil {
		d.body = &pacedBody{resp.Body, d.pace}
	}
	return resp, err
}

// Read implements [io.Reader].
func (d *download) Read(p []byte) (int, error) {
	d.pace.start()
	n, err := d.read(p)
	d.pace.stop()
	if err != nil && err != io.EOF {
		err = d.explain(err)
	}
	return n, err
}

// explain returns err, unless the download was cancelled because the origin is too slow.
// In that case it returns the error of [pace.explain].
func (d *download) explain(err error) error {
	if context.Cause(d.ctx) == errTooSlow {
		return d.pace.explain()
	}
	return err
}

// read reads the next bytes, and resumes the download if it breaks off.
func (d *download) read(p []byte) (int, error) {
	for {
		n, err := d.body.Read(p)
		d.have += int64(n)
		whole := err == io.EOF && (d.size < 0 || d.have >= d.size)
		if n > 0 && !whole {
			// The next read returns the error again.
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
func (d *download) Close() error {
	d.pace.timer.Stop()
	d.cancel(nil)
	return d.body.Close()
}

// resume requests the rest of the file after a read failed with the error cause. If the
// rest is not available, resume returns an error that wraps cause.
func (d *download) resume(cause error) error {
	if cause == io.EOF {
		cause = io.ErrUnexpectedEOF
	}
	if d.have-d.since >= minProgress {
		d.resumed, d.since = 0, d.have
	}
	if d.size < 0 || d.ctx.Err() != nil || d.resumed == maxResumes {
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
	d.body = http.NoBody
	resp, err := d.ask(fmt.Sprintf("bytes=%d-", d.have))
	if err != nil {
		return fmt.Errorf("%w; resuming it: %w", cause, err)
	}
	if err := d.position(resp); err != nil {
		return fmt.Errorf("%w; resuming it: %w", cause, err)
	}
	return nil
}

// position makes the body of a response continue at the current position. The body of a
// response with status 206 already does. The body of any other response is the whole
// file, so position skips the bytes that were read before. Callers later verify the
// checksum of the whole file.
func (d *download) position(resp *http.Response) error {
	if resp.StatusCode == http.StatusPartialContent {
		want := fmt.Sprintf("bytes %d-%d/%d", d.have, d.size-1, d.size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return fmt.Errorf("the origin sends %.80q, not %q", got, want)
		}
		return nil
	}
	if tag := resp.Header.Get("ETag"); resp.ContentLength != d.size || d.etag != "" && tag != d.etag {
		return hint.New("the file has changed meanwhile", "run it again")
	}
	_, err := io.CopyN(io.Discard, d.body, d.have)
	return err
}
