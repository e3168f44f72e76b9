package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	// leastRate is the lowest average rate at which an origin may send a package, in bytes
	// per second.
	leastRate = 16 << 10
	// paceWindow is the period over which the average is computed.
	paceWindow = 60 * time.Second
	// leastBytes is how many bytes must arrive in each paceWindow.
	leastBytes = leastRate * int64(paceWindow/time.Second)
)

// errTooSlow is the cancellation cause of the context of a download whose origin is too
// slow. The reader of the download gets the error of [pace.explain].
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

// expect sets the time that is left for the whole file from the file's size in bytes. A
// size of -1 means no limit.
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

// count counts bytes that arrived while the clock ran. If the window has enough bytes, it
// begins the next window.
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

// explain returns an error that names the rule that the origin broke. The clock must be
// stopped.
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

// Read implements [io.Reader].
func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pace.count(n)
	return n, err
}

// paceKey is the key of the context value that holds the pace of a download.
type paceKey struct{}

// paceOf returns the pace of a download, given the context of one of its requests. It
// returns nil for the context of any other request.
func paceOf(ctx context.Context) *pace {
	p, _ := ctx.Value(paceKey{}).(*pace)
	return p
}
