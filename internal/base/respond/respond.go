// Package respond sends documents to clients that may read slowly, or not at all.
//
// A response with a document holds the document's bytes until the client has read them. [Documents] buffers each response
// until its handler has returned, so that the response then holds nothing else. Responses with equal documents hold the
// bytes once, however many clients do not read them.
//
// Invariants:
//
//   - A response breaks off if the client reads less than 32 KiB in [Stall], or needs longer than [Whole] for the document.
//   - If the handler panics, nothing of a buffered response is sent.
//   - If a handler flushes, or sets a write deadline, its response is streamed without a buffer. The handler itself then
//     limits the client's time.
//   - A redirect's Location has only printable ASCII.
package respond

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// Stall is how long a client can take to read a piece of a document.
	Stall = 30 * time.Second
	// Whole is how long a client can take to read a document.
	Whole = 5 * time.Minute
	// piece is the size of a piece in bytes. If the document is smaller, the piece is the document.
	piece = 32 << 10
	// minShared is the minimum size in bytes of a document for which equal documents are looked up.
	minShared = 4 << 10
	// maxDocument is the maximum size in bytes of a response that is buffered. A longer one is sent as it is written.
	maxDocument = 8 << 20
)

// Documents sends documents. Its zero value is ready for use.
type Documents struct {
	mu     sync.Mutex
	bodies map[[sha256.Size]byte]*body // the documents that are being sent
}

// body is a document that is being sent.
type body struct {
	data  []byte
	users int
}

// Serve passes a request to a handler, and sends the document that the handler writes.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	out := &response{ResponseWriter: w, client: http.NewResponseController(w)}
	handler.ServeHTTP(out, r)
	if out.streams {
		return
	}
	data := out.body
	if !out.shared && len(data) >= minShared {
		var release func()
		data, release = d.share(data)
		defer release()
	}
	out.body = nil
	if out.status != 0 {
		w.WriteHeader(out.status)
	}
	_, _ = send(w, data, time.Now().Add(Whole)) // an error means that the client has left
}

// Handler returns a handler that calls [Documents.Serve].
func (d *Documents) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.Serve(w, r, next) })
}

// share returns the bytes of an equal document that is being sent, or else data. The caller must call release after it
// has sent these bytes.
func (d *Documents) share(data []byte) (shared []byte, release func()) {
	key := sha256.Sum256(data)
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.bodies[key]
	if b == nil {
		b = &body{data: data}
		if d.bodies == nil {
			d.bodies = map[[sha256.Size]byte]*body{}
		}
		d.bodies[key] = b
	}
	b.users++
	return b.data, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if b.users--; b.users == 0 {
			delete(d.bodies, key)
		}
	}
}

// Send sends a whole document, which the caller must not change any more. If w is or wraps the writer that
// [Documents.Serve] passes to a handler, the document is sent when the handler has returned. If shared is true, Send
// does not look up equal documents, because the caller keeps the document in memory anyway. Send returns the number of
// bytes that were sent or will be sent.
func Send(w http.ResponseWriter, data []byte, shared bool) int {
	if out := responseOf(w); out != nil && !out.streams && len(out.body) == 0 {
		out.body, out.shared = data, shared
		return len(data)
	}
	n, _ := send(w, data, time.Now().Add(Whole)) // an error means that the client has left
	return n
}

// Redirect answers with a temporary redirect that nobody may cache. It percent-encodes all characters that are not
// printable ASCII, because the URL can come from a registry or an origin.
func Redirect(w http.ResponseWriter, to string) {
	var location strings.Builder
	for _, b := range []byte(to) {
		if b > ' ' && b < 0x7f {
			location.WriteByte(b)
		} else {
			fmt.Fprintf(&location, "%%%02X", b)
		}
	}
	w.Header().Set("Location", location.String())
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// responseOf returns the response that w wraps, or nil.
func responseOf(w http.ResponseWriter) *response {
	for {
		switch t := w.(type) {
		case *response:
			return t
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

// send writes a document in pieces, each with its own deadline. No deadline is after end.
func send(w http.ResponseWriter, data []byte, end time.Time) (sent int, err error) {
	client := http.NewResponseController(w)
	for len(data) > 0 && err == nil {
		deadline := time.Now().Add(Stall)
		if deadline.After(end) {
			deadline = end
		}
		_ = client.SetWriteDeadline(deadline) // it never fails for the ResponseWriters of net/http's server
		var n int
		n, err = w.Write(data[:min(piece, len(data))])
		sent, data = sent+n, data[n:]
	}
	return sent, err
}

// response is an [http.ResponseWriter] that buffers a document.
type response struct {
	http.ResponseWriter
	client  *http.ResponseController
	status  int // 0: the handler has set none
	body    []byte
	shared  bool // the body belongs to the caller of Send
	streams bool // nothing is buffered any more
	// end is the deadline of a response that did not fit into the buffer. It is zero if the handler limits the client's
	// time.
	end time.Time
}

func (r *response) WriteHeader(status int) {
	switch {
	case r.streams || status < http.StatusOK:
		r.ResponseWriter.WriteHeader(status)
	case r.status == 0:
		r.status = status
	}
}

func (r *response) Write(p []byte) (int, error) {
	if !r.streams && (r.shared || len(r.body)+len(p) > maxDocument) {
		r.end = time.Now().Add(Whole)
		if err := r.stream(); err != nil {
			return 0, err
		}
	}
	switch {
	case r.streams && !r.end.IsZero():
		return send(r.ResponseWriter, p, r.end)
	case r.streams:
		return r.ResponseWriter.Write(p)
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// stream sends the bytes in the buffer, and ends the buffering.
func (r *response) stream() error {
	if r.streams {
		return nil
	}
	r.streams = true
	if r.status != 0 {
		r.ResponseWriter.WriteHeader(r.status)
	}
	data := r.body
	r.body = nil
	end := r.end
	if end.IsZero() {
		end = time.Now().Add(Whole)
	}
	_, err := send(r.ResponseWriter, data, end)
	return err
}

// SetWriteDeadline is called by [http.ResponseController.SetWriteDeadline].
func (r *response) SetWriteDeadline(deadline time.Time) error {
	if err := r.stream(); err != nil {
		return err
	}
	r.end = time.Time{}
	return r.client.SetWriteDeadline(deadline)
}

// FlushError is called by [http.ResponseController.Flush].
func (r *response) FlushError() error {
	if err := r.stream(); err != nil {
		return err
	}
	return r.client.Flush()
}

func (r *response) Flush() { _ = r.FlushError() }

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
