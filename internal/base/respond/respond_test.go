package respond_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ocibridge/ocibridge/internal/base/respond"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// pipes is a listener whose connections use virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil } // a server calls it once
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// protocols runs a test with HTTP/1.1 and HTTP/2, in virtual time. dial opens a connection to a server with the handler.
func protocols(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, client *http.Client)) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var speaks http.Protocols
				speaks.SetHTTP1(!http2)
				speaks.SetUnencryptedHTTP2(http2)
				l := pipes(make(chan net.Conn))
				server := &http.Server{Handler: new(respond.Documents).Handler(handler), Protocols: &speaks, WriteTimeout: respond.Whole}
				go server.Serve(l)
				defer server.Close()
				transport := &http.Transport{
					Protocols: &speaks, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
					DialContext: func(context.Context, string, string) (net.Conn, error) {
						mine, its := net.Pipe()
						l <- its
						return mine, nil
					},
				}
				defer transport.CloseIdleConnections()
				test(t, &http.Client{Transport: transport})
			})
		})
	}
}

var large = bytes.Repeat([]byte("document "), 1<<17)

// TestClientThatStops shows that a document ends if its client reads nothing for 30 s, and that a client that reads
// slowly gets it. The document may take 5 minutes in all.
func TestClientThatStops(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration // before each piece is read
		piece int
		gets  bool
	}{
		"nothing for 31 s":               {respond.Stall + time.Second, 256 << 10, false},
		"something each 25 s":            {25 * time.Second, 256 << 10, true},
		"too little to end in 5 minutes": {25 * time.Second, 64 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(large) }, func(t *testing.T, client *http.Client) {
				resp, err := client.Get("http://server/")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, buf := 0, make([]byte, tc.piece)
				for err == nil {
					time.Sleep(tc.pause)
					var n int
					n, err = io.ReadFull(resp.Body, buf)
					got += n
				}
				whole := got == len(large) && (err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF))
				if whole != tc.gets {
					t.Errorf("%d of %d bytes, %v", got, len(large), err)
				}
			})
		})
	}
}

// slow is an [http.ResponseWriter] whose client reads slowly, and nothing after some bytes.
type slow struct {
	*httptest.ResponseRecorder
	stops, got int
	pause      time.Duration // for each MiB
	deadline   time.Time
}

// SetWriteDeadline is called by [http.ResponseController.SetWriteDeadline].
func (w *slow) SetWriteDeadline(deadline time.Time) error { w.deadline = deadline; return nil }

// Write implements [io.Writer].
func (w *slow) Write(p []byte) (int, error) {
	w.got += len(p)
	ready := time.Now().Add(w.pause * time.Duration(len(p)) / (1 << 20))
	if w.got > w.stops || ready.After(w.deadline) {
		time.Sleep(time.Until(w.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(time.Until(ready))
	return len(p), nil
}

// TestClientThatStopsInALargeDocument is like [TestClientThatStops] for a response that does not fit into the buffer: its
// later writes also have a deadline each, and all together have [respond.Whole].
func TestClientThatStopsInALargeDocument(t *testing.T) {
	whole := bytes.Repeat(large, 9)
	for name, write := range map[string]func(w io.Writer){
		"in one write": func(w io.Writer) { w.Write(whole) },
		"in many writes": func(w io.Writer) {
			for range 9 {
				if _, err := w.Write(large); err != nil {
					return
				}
			}
		},
	} {
		for reads, tc := range map[string]struct {
			stops int           // after how many bytes the client reads nothing any more
			pause time.Duration // for each MiB
			took  time.Duration // until the handler returns
		}{
			"nothing":               {stops: 0, took: respond.Stall},
			"the first 9 MiB":       {stops: 9 << 20, took: respond.Stall},
			"all":                   {stops: len(whole), took: 0},
			"all, with many pauses": {stops: len(whole), pause: 25 * time.Second, took: time.Duration(len(whole)) * 25 * time.Second / (1 << 20)},
			"all, but too slowly":   {stops: len(whole), pause: 40 * time.Second, took: respond.Whole},
		} {
			t.Run(name+", reads "+reads, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &slow{ResponseRecorder: httptest.NewRecorder(), stops: tc.stops, pause: tc.pause, deadline: time.Now().Add(time.Hour)}
					start := time.Now()
					new(respond.Documents).Serve(w, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w) }))
					if took := time.Since(start); took != tc.took {
						t.Errorf("it took %s", took)
					}
				})
			})
		}
	}
}

// TestSmallDocumentEnds shows that a document that fits into the buffers of the server also ends after 30 s.
func TestSmallDocumentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipes(make(chan net.Conn))
		ended := make(chan struct{})
		documents := new(respond.Documents).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }))
		server := &http.Server{Handler: documents, WriteTimeout: respond.Whole, ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(ended)
			}
		}}
		go server.Serve(l)
		defer server.Close()
		mine, its := net.Pipe()
		defer mine.Close()
		l <- its
		start := time.Now()
		io.WriteString(mine, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-ended
		if took := time.Since(start); took != respond.Stall {
			t.Errorf("it ended after %s", took)
		}
	})
}

// blocked is an [http.ResponseWriter] whose client reads nothing until it leaves. It records where the bytes of the
// document are.
type blocked struct {
	*httptest.ResponseRecorder
	at   chan *byte
	gone chan struct{}
}

// Write implements [io.Writer].
func (w *blocked) Write(p []byte) (int, error) {
	w.at <- unsafe.SliceData(p)
	<-w.gone
	return 0, io.ErrClosedPipe
}

// TestEqualDocumentsAreHeldOnce shows that responses in flight with equal documents hold the same bytes, by both ways to
// send a document. It shows that no document is held when nobody reads it.
func TestEqualDocumentsAreHeldOnce(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter, data []byte){
		"Write": func(w http.ResponseWriter, data []byte) { w.Write(data[:1000]); w.Write(data[1000:]) },
		"Send":  func(w http.ResponseWriter, data []byte) { respond.Send(w, bytes.Clone(data), false) },
	} {
		t.Run(name, func(t *testing.T) {
			var d respond.Documents
			var all sync.WaitGroup
			gone := make(chan struct{})
			begin := func(text string) *byte {
				w := &blocked{httptest.NewRecorder(), make(chan *byte), gone}
				all.Go(func() {
					d.Serve(w, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, []byte(strings.Repeat(text, 10_000))) }))
				})
				return <-w.at
			}
			first, other := begin("a"), begin("b")
			if begin("a") != first || other == first || begin("b") != other {
				t.Error("equal documents have copies")
			}
			if n := d.Held(); n != 2 {
				t.Errorf("%d documents are held", n)
			}
			close(gone)
			all.Wait()
			if n := d.Held(); n != 0 {
				t.Errorf("%d documents are held by no response", n)
			}
		})
	}
}

// TestResponses compares the responses of handlers with those that they have without the package.
func TestResponses(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"error":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) },
		"two statuses": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			w.Write([]byte("x"))
			w.WriteHeader(202)
		},
		"text":  func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"large": func(w http.ResponseWriter, _ *http.Request) { w.Write(large) },
		"beyond bounds": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(203)
			for range 9 {
				w.Write(large)
			}
		},
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			w.Write([]byte("a"))
			http.NewResponseController(w).Flush()
			w.Write([]byte("b"))
		},
		"own deadline": func(w http.ResponseWriter, _ *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour))
			w.Write([]byte("b"))
		},
		"Send":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); respond.Send(w, large, true) },
		"Send, then more": func(w http.ResponseWriter, _ *http.Request) { respond.Send(w, []byte("a"), true); w.Write([]byte("b")) },
		"more, then Send": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("b")); respond.Send(w, []byte("a"), true) },
		"content": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.txt", time.Time{}, bytes.NewReader(large))
		},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			ask := func(h http.Handler) string {
				s := httptest.NewServer(h)
				defer s.Close()
				req, err := http.NewRequestWithContext(t.Context(), method, s.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := s.Client().Do(req)
				if err != nil {
					return err.Error()
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				resp.Header.Del("Date")
				return fmt.Sprint(resp.Status, resp.Header, len(body), bytes.Equal(body, large), err)
			}
			if got, want := ask(new(respond.Documents).Handler(handler)), ask(handler); got != want {
				t.Errorf("%s, %s: %s, want %s", name, method, got, want)
			}
		}
	}
}

// TestPanic shows that a handler that panics sends nothing.
func TestPanic(t *testing.T) {
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("no panic")
			}
		}()
		new(respond.Documents).Serve(w, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("half a document"))
			panic(http.ErrAbortHandler)
		}))
	}()
	if w.Body.Len() > 0 {
		t.Errorf("%q was sent", w.Body)
	}
}
