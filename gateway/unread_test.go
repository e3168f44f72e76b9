package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/provider"
)

// firstByte is an [http.ResponseWriter] that records where the bytes of its first write are.
type firstByte struct {
	*httptest.ResponseRecorder
	at *byte
}

// Write implements [io.Writer].
func (w *firstByte) Write(p []byte) (int, error) {
	if w.at == nil {
		w.at = unsafe.SliceData(p)
	}
	return w.ResponseRecorder.Write(p)
}

// TestResponsesShareADocument shows that all responses with a list of versions hold the same bytes, and that a
// version that has changed changes the list at once.
func TestResponsesShareADocument(t *testing.T) {
	p := newPublisher(newBench(t).modules())
	p.push(widget, "1.0.0")
	p.publishModule(netModule, "1.0.0", "1.0.0")
	h := gateway.NewWithin(p.options, p.limits)
	ask := func(path string, status int) *firstByte {
		w := &firstByte{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != status {
			t.Fatalf("%s: %d", path, w.Code)
		}
		return w
	}
	const versions = hostsPrefix + "versions"
	for _, path := range []string{prefix + "index.json", versions, "/hosts/" + host + "/v1/modules/acme/net/aws/versions"} {
		if first, second := ask(path, http.StatusOK), ask(path, http.StatusOK); first.at != second.at {
			t.Errorf("%s: the second response has a copy of the document", path)
		}
	}
	// The list of tags stays the same if the tag of a version names another index.
	p.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	ask(versions, http.StatusNotFound) // this index is not signed
	p.push(widget, "1.1.0")
	if first, second := ask(versions, http.StatusOK), ask(versions, http.StatusOK); first.at != second.at || strings.Contains(first.Body.String(), `"1.0.0"`) {
		t.Errorf("after a change: %s", first.Body)
	}
}

// TestListPanics shows that a bug in the making of a list ends neither the process nor later lists. All waiting
// clients get an error, and the log has the panic.
func TestListPanics(t *testing.T) {
	var log bytes.Buffer
	shared := gateway.SharedList(slog.New(slog.NewTextHandler(&log, nil)))
	err := shared(t.Context(), "list", func(context.Context) error { panic("a bug") })
	if err == nil || gateway.StatusOf(err) != http.StatusInternalServerError {
		t.Errorf("%v, status %d", err, gateway.StatusOf(err))
	}
	if text := log.String(); !strings.Contains(text, `panic="a bug"`) || !strings.Contains(text, "unread_test.go") {
		t.Errorf("the log has %s", text)
	}
	if err := shared(t.Context(), "list", func(context.Context) error { return nil }); err != nil {
		t.Errorf("the next list: %v", err)
	}
}

// TestListIsMadeOnce shows that concurrent requests for a list share it while it is made, that it does not end
// with the client that requested it first, and that the clients wait no longer than a document may take.
func TestListIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := gateway.SharedList(slog.New(slog.DiscardHandler))
		var made atomic.Int32
		ready := make(chan struct{})
		list := func(ctx context.Context) error {
			made.Add(1)
			select {
			case <-ready:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		first, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- shared(first, "list", list) }()
		synctest.Wait()
		var others sync.WaitGroup
		for range 8 {
			others.Go(func() {
				if err := shared(t.Context(), "list", list); err != nil {
					t.Errorf("a client that waits: %v", err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the client that left: %v", err)
		}
		close(ready)
		others.Wait()
		if n := made.Load(); n != 1 {
			t.Errorf("the list was made %d times", n)
		}

		ready = nil
		start := time.Now()
		if err := shared(t.Context(), "list", list); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 8*time.Second {
			t.Errorf("a list that is not made: %v after %s", err, time.Since(start))
		}
	})
}

// TestResponsesHaveADeadline shows that each response is written with a deadline, which stays for the bytes that the
// server sends after the handler has returned. It shows that a blob of the embedded registry is not buffered.
func TestResponsesHaveADeadline(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	var w *deadlineWriter
	p.options.Registry = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		io.WriteString(out, "content")
		if sent := w.written.Load() > 0; sent != strings.Contains(r.URL.Path, "/blobs/") {
			t.Errorf("%s: sent before the handler has returned: %t", r.URL.Path, sent)
		}
	})
	p.options.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "metrics") })
	h := gateway.NewBacked(p.options)
	for _, path := range []string{
		prefix + "index.json", prefix + "index.json", prefix + "1.0.0.json", hostsPrefix + "versions", hostsPrefix + "1.0.0/download/linux/amd64",
		archivePath("1.0.0", linux), "/.well-known/terraform.json", "/healthz", "/metrics", "/absent",
		"/v2/" + widget.Path() + "/tags/list", "/v2/" + widget.Path() + "/blobs/" + digest.FromString("content").String(),
	} {
		recorded := httptest.NewRecorder()
		w = &deadlineWriter{ResponseWriter: recorded}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if recorded.Body.Len() == 0 || w.unguarded.Load() > 0 || w.armed.Load() == 0 {
			t.Errorf("%s: %d, %d of %d writes have no deadline, and there is a deadline after the last one: %t", path, recorded.Code, w.unguarded.Load(), w.written.Load(), w.armed.Load() > 0)
		}
	}
}
