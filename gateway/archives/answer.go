package archives

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// CopyBuffer is the number of bytes of an archive that a response or a fetch holds in memory.
const CopyBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([CopyBuffer]byte) }}

// answer is an [http.ResponseWriter] that sends an archive's bytes to a client. It withholds the
// last bytes until the whole archive is verified. It limits the time that the client may take to
// read each piece.
type answer struct {
	http.ResponseWriter
	content content
	client  *http.ResponseController
	stall   time.Duration
	ranges  bool  // whether the client may request ranges
	left    int64 // the number of bytes that are not sent yet
	sent    int64
	err     error // the reason why the response ends early, or nil
}

func newAnswer(w http.ResponseWriter, c content, stall time.Duration) *answer {
	return &answer{ResponseWriter: w, content: c, client: http.NewResponseController(w), stall: stall}
}

func (a *answer) WriteHeader(status int) {
	if status == http.StatusOK || status == http.StatusPartialContent {
		a.left, a.err = strconv.ParseInt(a.Header().Get("Content-Length"), 10, 64)
		if !a.ranges {
			a.Header().Set("Accept-Ranges", "none")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.err == nil && int64(len(p)) >= a.left {
		a.err = a.content.verify()
	}
	if a.err != nil {
		return 0, a.err
	}
	_ = a.client.SetWriteDeadline(time.Now().Add(a.stall)) // does not fail for the writers of net/http's server
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	if a.left -= int64(n); a.left > 0 {
		_ = a.client.Flush() // shows the client that its archive has begun, even if the registry is slow
		// Without this, HTTP/2 would enforce the deadline while the gateway waits for the registry.
		_ = a.client.SetWriteDeadline(time.Time{})
	}
	a.err = err
	return n, err
}

// ReadFrom implements [io.ReaderFrom], so that io.Copy allocates no buffer.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	sent, err := io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buf[:])
	if a.err == nil {
		a.err = err
	}
	return sent, err
}

// end returns the reason why the response is incomplete, or nil.
func (a *answer) end() error {
	if a.err == nil && a.left > 0 {
		return io.ErrUnexpectedEOF
	}
	return a.err
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
