package archives

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// CopyBuffer is how much of an archive is held in memory for an answer or a
// fetch.
const CopyBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([CopyBuffer]byte) }}

// answer is the way of an archive's bytes to a client. It lets the last of them
// pass once the whole is verified, and gives the client so long to take each
// piece.
type answer struct {
	http.ResponseWriter
	content content
	client  *http.ResponseController
	stall   time.Duration
	ranges  bool  // whether ranges are honoured
	left    int64 // bytes that the answer still lacks
	sent    int64
	err     error // why it ends early
}

func newAnswer(w http.ResponseWriter, c content, stall time.Duration) *answer {
	return &answer{ResponseWriter: w, content: c, client: http.NewResponseController(w), stall: stall}
}

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if status == http.StatusOK || status == http.StatusPartialContent {
		a.left, a.err = strconv.ParseInt(a.Header().Get("Content-Length"), 10, 64)
		if !a.ranges {
			a.Header().Set("Accept-Ranges", "none")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (a *answer) Write(p []byte) (int, error) {
	if a.err == nil && int64(len(p)) >= a.left {
		a.err = a.content.verify()
	}
	if a.err != nil {
		return 0, a.err
	}
	// Not every ResponseWriter has deadlines; those of a server do.
	_ = a.client.SetWriteDeadline(time.Now().Add(a.stall))
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	if a.left -= int64(n); a.left > 0 {
		// HTTP/2 would enforce it while we wait for the registry, too.
		_ = a.client.SetWriteDeadline(time.Time{})
	}
	a.err = err
	return n, err
}

// ReadFrom implements [io.ReaderFrom], for io.Copy to need no buffer of its own.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[CopyBuffer]byte)
	defer buffers.Put(buf)
	var sent int64
	for {
		n, err := a.fill(r, buf[:], sent == 0)
		if n > 0 {
			m, err := a.Write(buf[:n])
			if sent += int64(m); err != nil {
				return sent, err
			}
			if n < len(buf) && a.left > 0 {
				_ = a.client.Flush() // not every ResponseWriter can
			}
		}
		switch {
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return sent, nil
		case err != nil:
			a.err = err
			return sent, err
		}
	}
}

// fill reads a piece. The first one goes out as soon as anything is there: where it
// comes from afar, the client sees that its archive has begun.
func (a *answer) fill(r io.Reader, buf []byte, first bool) (int, error) {
	if first {
		return io.ReadAtLeast(r, buf, 1)
	}
	return io.ReadFull(r, buf)
}

// end returns why the answer is not complete, nil if it is.
func (a *answer) end() error {
	if a.err == nil && a.left > 0 {
		return io.ErrUnexpectedEOF
	}
	return a.err
}

// Unwrap gives http.ResponseController the writer below.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
