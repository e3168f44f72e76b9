package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	maxResumes  = 5                      // the maximum number of resumptions in a row without progress
	minProgress = 1 << 20                // the number of bytes that count as progress
	resumePause = 250 * time.Millisecond // the wait before the first resumption, doubled for each further resumption in a row
)

// download requests a file of any size. It returns the file's content and its size in
// bytes, or -1 if the origin does not announce the size. If the connection of a file of
// known size is lost, the reader requests the rest of the file and continues. The
// download fails if the origin is too slow: see [pace].
func (c *client) download(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error) {
	d, err := c.downloadUnless(ctx, u, "")
	if err != nil {
		return nil, 0, err
	}
	return d, d.size, nil
}

// downloadUnless is like download. The error is [ErrNotModified] if the file still has the ETag known, which is not "".
func (c *client) downloadUnless(ctx context.Context, u *url.URL, known string) (*download, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &download{cancel: cancel, pace: newPace(cancel), client: c, url: u, body: http.NoBody}
	d.ctx = context.WithValue(ctx, paceKey{}, d.pace)
	d.pace.start()
	resp, err := d.ask(func(h http.Header) {
		if known != "" {
			h.Set("If-None-Match", known)
		}
	})
	d.pace.stop()
	if err != nil {
		if status, ok := errors.AsType[*statusError](err); ok && known != "" && status.status == http.StatusNotModified {
			err = ErrNotModified
		}
		err = d.explain(err)
		d.Close()
		return nil, err
	}
	d.size, d.etag = resp.ContentLength, resp.Header.Get("ETag")
	d.pace.expect(d.size)
	return d, nil
}

// download is a file that is being downloaded.
type download struct {
	ctx    context.Context // for all requests of the download
	cancel context.CancelCauseFunc
	pace   *pace
	client *client
	url    *url.URL
	etag   string // as the origin sent it; "" if it sent none
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

// strong returns the file's ETag if equal ETags mean equal bytes, or else "".
func (d *download) strong() string {
	if strings.HasPrefix(d.etag, `"`) {
		return d.etag
	}
	return ""
}

// ask requests the file, and sets d.body to the body of the response. prepare adds headers to the request.
func (d *download) ask(prepare func(http.Header)) (*http.Response, error) {
	resp, err := d.client.ask(d.ctx, d.client.downloads, http.MethodGet, d.url, func(req *http.Request) {
		// If the file were compressed in transit, its offsets would differ.
		req.Header.Set("Accept-Encoding", "identity")
		prepare(req.Header)
	})
	if err == nil {
		d.body = &pacedBody{resp.Body, d.pace}
	}
	return resp, err
}

func (d *download) Read(p []byte) (int, error) {
	d.pace.start()
	n, err := d.read(p)
	d.pace.stop()
	if err != nil && err != io.EOF {
		err = d.explain(err)
	}
	return n, err
}

// explain returns err, or the error of [pace.explain] if the origin is too slow.
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
	resp, err := d.ask(func(h http.Header) {
		h.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
		if etag := d.strong(); etag != "" {
			h.Set("If-Range", etag)
		}
	})
	if err == nil {
		err = d.position(resp)
	}
	if err != nil {
		return fmt.Errorf("%w; resuming it: %w", cause, err)
	}
	return nil
}

// position makes the body of a response continue at the current position. The body of a
// response with status 206 already begins there. Any other body is the whole file, so position
// skips the bytes that were read before. Callers later verify the checksum of the whole file.
func (d *download) position(resp *http.Response) error {
	if resp.StatusCode == http.StatusPartialContent {
		want := fmt.Sprintf("bytes %d-%d/%d", d.have, d.size-1, d.size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return fmt.Errorf("the origin sends %.80q, not %q", got, want)
		}
		return nil
	}
	if tag := resp.Header.Get("ETag"); resp.ContentLength != d.size || d.strong() != "" && tag != d.etag {
		return hint.New("the file has changed meanwhile", "run it again")
	}
	_, err := io.CopyN(io.Discard, d.body, d.have)
	return err
}

const (
	leastRate  = 16 << 10                                  // the lowest average rate of a package, in bytes per second
	paceWindow = 60 * time.Second                          // the period over which the average is computed
	leastBytes = leastRate * int64(paceWindow/time.Second) // must arrive in each paceWindow
)

// errTooSlow is the cancellation cause of a download whose origin is too slow.
var errTooSlow = errors.New("the origin is too slow")

// pace ends a download whose origin is too slow. It has two rules:
//
//   - Each leastBytes must arrive within paceWindow.
//   - The whole file must arrive within the time that its size takes at leastRate, plus
//     one paceWindow. Bytes that are read again after a break do not add to the size.
//
// The reader starts and stops the clock that measures these times. The clock runs only
// while the reader waits for the origin. The methods are not safe for concurrent use.
type pace struct {
	timer   *time.Timer   // cancels the download; runs while the clock runs
	since   time.Time     // when the clock was started
	window  time.Duration // the time left for the bytes of this window
	whole   time.Duration // the time left for the whole file
	silent  time.Duration // the time since the last byte
	brought int64         // the bytes received in this window
	size    int64         // the size of the whole file in bytes
}

// newPace returns a pace whose clock is stopped. The size of the file is unknown.
func newPace(cancel context.CancelCauseFunc) *pace {
	p := &pace{window: paceWindow, whole: math.MaxInt64}
	p.timer = time.AfterFunc(paceWindow, func() { cancel(errTooSlow) })
	p.timer.Stop()
	return p
}

// expect sets the time for the whole file from its size in bytes. -1 means no limit.
func (p *pace) expect(size int64) {
	if size >= 0 {
		p.size, p.whole = size, wholeTime(size)-(paceWindow-p.window)
	}
}

// wholeTime returns how long a file of the given size may take.
func wholeTime(size int64) time.Duration {
	const most = math.MaxInt64 / int64(2*time.Second) // so that the result fits into a Duration
	return paceWindow + time.Duration(min(size/leastRate, most))*time.Second
}

// start starts the clock. It does nothing on a nil pace.
func (p *pace) start() {
	if p != nil {
		p.since = time.Now()
		p.timer.Reset(min(p.window, p.whole))
	}
}

// stop stops the clock. It does nothing on a nil pace.
func (p *pace) stop() {
	if p != nil {
		p.timer.Stop()
		took := time.Since(p.since)
		p.window -= took
		p.whole -= took
		p.silent += took
	}
}

// count counts bytes that arrived while the clock ran, and begins the next window when the
// current window has enough bytes.
func (p *pace) count(n int) {
	if n == 0 {
		return
	}
	p.stop()
	p.silent = 0
	if p.brought += int64(n); p.brought >= leastBytes {
		p.window, p.brought = paceWindow, 0
	}
	p.start()
}

// explain returns an error that names the broken rule. The clock must be stopped.
func (p *pace) explain() error {
	found := fmt.Sprintf("the origin sent %d bytes in %s: at least %d KiB/s are needed", p.brought, paceWindow, leastRate>>10)
	switch {
	case p.window > 0:
		found = fmt.Sprintf("the origin took longer than %s for %d bytes: at least %d KiB/s are needed", wholeTime(p.size), p.size, leastRate>>10)
	case p.silent >= paceWindow:
		found = fmt.Sprintf("the origin sent nothing for %s", paceWindow)
	}
	return hint.New(found, "try again later; if it stays slow, look at the network and at proxies on the way to the origin")
}

// pacedBody is the body of a response. Its bytes are counted by a pace.
type pacedBody struct {
	io.ReadCloser
	pace *pace
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pace.count(n)
	return n, err
}

// paceKey is the key of the context value that holds the pace of a download.
type paceKey struct{}

// paceOf returns the pace of the download whose request has the context, or nil.
func paceOf(ctx context.Context) *pace {
	p, _ := ctx.Value(paceKey{}).(*pace)
	return p
}
