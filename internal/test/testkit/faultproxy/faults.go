package faultproxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// Status responds with the given status and a JSON body that belongs to no known API. If retryAfter is not "",
// the response has that Retry-After header.
func Status(status int, retryAfter string) Fault {
	return func(x *Exchange) {
		if retryAfter != "" {
			x.W.Header().Set("Retry-After", retryAfter)
		}
		respond(x.W, status, "application/json", `{"message":"there is trouble"}`)
	}
}

// HTML responds with status 200 and an HTML page, as a login portal or a proxy does.
func HTML() Fault {
	return func(x *Exchange) {
		respond(x.W, http.StatusOK, "text/html; charset=utf-8", "<!DOCTYPE html><html><body>Please log in</body></html>")
	}
}

func respond(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// An error means that the client has disconnected.
	_, _ = io.WriteString(w, body)
}

// Cut resets the connection without any response.
func Cut() Fault { return (*Exchange).Cut }

// CutAt resets the connection after n bytes of the response body, or after the whole body if it is shorter. In
// virtual time, the client always gets these bytes before the reset. On a real network, it usually does.
func CutAt(n int) Fault {
	return func(x *Exchange) {
		cut := func() {
			x.pause(time.Millisecond) // a reset can overtake bytes that were sent before
			x.Cut()
		}
		x.Next.ServeHTTP(&writer{ResponseWriter: x.W, left: n, after: cut}, x.R)
		cut()
	}
}

// CutUpload resets the connection after n bytes of the request body.
func CutUpload(n int) Fault {
	return func(x *Exchange) {
		_, _ = io.CopyN(io.Discard, x.R.Body, int64(n)) // the body may be shorter
		x.Cut()
	}
}

// Stall sends no response until the fault ends, and then resets the connection.
func Stall() Fault { return (*Exchange).stall }

// StallAt sends n bytes of the response body, and then stalls like [Stall].
func StallAt(n int) Fault {
	return func(x *Exchange) {
		x.Next.ServeHTTP(&writer{ResponseWriter: x.W, left: n, after: x.stall}, x.R)
		x.stall()
	}
}

// Drip sends the response body byte by byte, with a pause before each byte, until the fault ends.
func Drip(pause time.Duration) Fault {
	return func(x *Exchange) {
		x.Next.ServeHTTP(&writer{ResponseWriter: x.W, left: -1, each: func() { x.pause(pause) }}, x.R)
	}
}

// Late passes the request on after a delay.
func Late(by time.Duration) Fault {
	return func(x *Exchange) {
		x.pause(by)
		x.Next.ServeHTTP(x.W, x.R)
	}
}

// Alter inverts one byte of the response body, at the given offset. In a response to HEAD, Alter changes the
// announced digest instead.
func Alter(at int) Fault {
	return func(x *Exchange) {
		if x.R.Method == http.MethodHead {
			w := &writer{ResponseWriter: x.W, left: -1, header: func(h http.Header) {
				if d := h.Get("Docker-Content-Digest"); d != "" {
					h.Set("Docker-Content-Digest", d[:len(d)-1]+map[bool]string{true: "1", false: "0"}[d[len(d)-1] == '0'])
				}
			}}
			x.Next.ServeHTTP(w, x.R)
			if !w.began {
				w.WriteHeader(http.StatusOK)
			}
			return
		}
		x.Next.ServeHTTP(&writer{ResponseWriter: x.W, left: -1, change: func(offset int, p []byte) {
			if i := at - offset; i >= 0 && i < len(p) {
				p[i] ^= 0xff
			}
		}}, x.R)
	}
}

// Half sends the first half of the response body as if it were the whole body.
func Half() Fault {
	return whole(func(h http.Header, body []byte) []byte {
		return body[:len(body)/2]
	})
}

// Length adds a number, by, to the announced length of the response body. If the number is positive, the missing
// bytes never arrive. If it is negative, the end of the body is not sent.
func Length(by int) Fault {
	return whole(func(h http.Header, body []byte) []byte {
		n := max(0, len(body)+by)
		h.Set("Content-Length", strconv.Itoa(n))
		return body[:min(n, len(body))]
	})
}

// Date adds a duration to the time in the response's Date header.
func Date(by time.Duration) Fault {
	return func(x *Exchange) {
		x.W.Header().Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
		x.Next.ServeHTTP(x.W, x.R)
	}
}

// Expire simulates an expired token. It removes the first token that it sees, from that request and from all
// later requests. Therefore the server responds to these requests with a challenge.
func Expire() Fault {
	var mu sync.Mutex
	ended := ""
	return func(x *Exchange) {
		mu.Lock()
		token := x.R.Header.Get("Authorization")
		if ended == "" {
			ended = token
		}
		if token == ended {
			x.R.Header.Del("Authorization")
		}
		mu.Unlock()
		x.Next.ServeHTTP(x.W, x.R)
	}
}

// whole returns a fault that changes the headers and the body of a complete response.
func whole(change func(http.Header, []byte) []byte) Fault {
	return func(x *Exchange) {
		answer := httptest.NewRecorder()
		x.Next.ServeHTTP(answer, x.R)
		h := x.W.Header()
		for name, values := range answer.Header() {
			h[name] = values
		}
		h.Del("Content-Length")
		body := change(h, answer.Body.Bytes())
		if h.Get("Content-Length") == "" {
			h.Set("Content-Length", fmt.Sprint(len(body)))
		}
		x.W.WriteHeader(answer.Code)
		// An error means that the client has disconnected.
		_, _ = x.W.Write(body)
	}
}

// writer passes on a response and applies a fault to it.
type writer struct {
	http.ResponseWriter
	header func(http.Header)             // changes the announced headers
	change func(offset int, data []byte) // changes a piece of the body
	each   func()                        // called before each byte; if it is set, the body is sent byte by byte
	left   int                           // the number of body bytes before after is called; negative means never
	after  func()

	offset int
	began  bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	if w.header != nil && !w.began {
		w.header(w.Header())
	}
	w.began = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (n int, err error) {
	if !w.began {
		w.WriteHeader(http.StatusOK)
	}
	for n < len(p) && err == nil {
		piece := p[n:]
		if w.each != nil {
			piece = piece[:1]
			w.each()
		}
		if w.left >= 0 {
			piece = piece[:min(len(piece), w.left)]
		}
		var m int
		m, err = w.send(piece)
		n += m
		if w.left >= 0 {
			if w.left -= m; w.left == 0 && w.after != nil {
				w.Flush()
				w.after()
			}
		}
	}
	return n, err
}

// send changes a piece of the body, and sends it.
func (w *writer) send(p []byte) (int, error) {
	if w.change != nil {
		p = append([]byte(nil), p...)
		w.change(w.offset, p)
	}
	n, err := w.ResponseWriter.Write(p)
	w.offset += n
	if w.each != nil {
		w.Flush()
	}
	return n, err
}

// Flush implements [http.Flusher].
func (w *writer) Flush() {
	// An error only means that the client has to wait longer.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}
