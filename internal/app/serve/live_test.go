package serve

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"

	"github.com/ocibridge/ocibridge/internal/registries/registry"
)

// stubSite returns a site that answers each request with its name. Before each answer, the site waits until it can
// receive from the channel may. When the site is closed, it sends its name to the channel closed.
func stubSite(name string, may <-chan struct{}, closed chan<- string) *site {
	s := &site{repositories: &registry.Repositories{}, handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-may
		io.WriteString(w, name)
	})}
	s.onClose(func() error { closed <- name; return nil })
	return s
}

func testProcess(t *testing.T, log *slog.Logger) *process {
	t.Helper()
	p, err := newProcess(t.Context(), Options{Log: log, Getenv: os.Getenv}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8443}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.ops.Close)
	return p
}

// TestReplacedUnderWay shows that the site that accepted a request also answers the request, even if another site
// has replaced it. The old site is closed after its last request.
func TestReplacedUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testProcess(t, slog.New(slog.DiscardHandler))
		l := &live{process: p}
		closed := make(chan string, 3)
		ask := func() <-chan *httptest.ResponseRecorder {
			out := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				w := httptest.NewRecorder()
				l.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				out <- w
			}()
			synctest.Wait()
			return out
		}
		first, open := make(chan struct{}), make(chan struct{})
		close(open)
		l.replace(stubSite("first", first, closed))
		one, two := ask(), ask()
		l.replace(stubSite("second", open, closed))
		if got := (<-ask()).Body.String(); got != "second" {
			t.Errorf("after the site was replaced, %s answers", got)
		}
		first <- struct{}{}
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("the first site was closed while a request was running")
		}
		first <- struct{}{}
		if a, b := (<-one).Body.String(), (<-two).Body.String(); a != "first" || b != "first" {
			t.Errorf("earlier requests were answered by %s and %s", a, b)
		}
		if got := <-closed; got != "first" {
			t.Errorf("%s was closed", got)
		}
		l.replace(stubSite("idle", open, closed))
		if got := <-closed; got != "second" {
			t.Errorf("%s was closed", got)
		}
		p.draining.Store(true)
		if got := (<-ask()).Header().Get("Connection"); got != "close" {
			t.Errorf("Connection: %s while the process ends", got)
		}
		if err := l.Close(); err != nil || len(closed) != 1 {
			t.Errorf("at the end: %v, %d closed", err, len(closed))
		}
	})
}

// TestEndDoesNotWaitForEver shows that if a request never ends, Close returns an error instead of waiting forever.
func TestEndDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &live{process: testProcess(t, slog.New(slog.DiscardHandler))}
		closed, never := make(chan string, 1), make(chan struct{})
		l.replace(stubSite("only", never, closed))
		go l.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		synctest.Wait()
		if err := l.Close(); err == nil || len(closed) != 0 {
			t.Errorf("%v, %d closed", err, len(closed))
		}
		close(never)
		<-closed
	})
}
