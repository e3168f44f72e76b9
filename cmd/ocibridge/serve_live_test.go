package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// stubSite answers with a name, once it may.
func stubSite(name string, may <-chan struct{}, closed chan<- string) *site {
	s := &site{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-may
		io.WriteString(w, name)
	})}
	s.closing(func() error { closed <- name; return nil })
	return s
}

func testProcess() *process {
	return newProcess(slog.New(slog.DiscardHandler), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8443})
}

// TestReplacedUnderWay has requests end on the site that they began with, and that
// site close after them.
func TestReplacedUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testProcess()
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
			t.Errorf("after it was replaced, %s answers", got)
		}
		first <- struct{}{}
		synctest.Wait()
		if len(closed) != 0 {
			t.Error("the first was closed while a request was under way")
		}
		first <- struct{}{}
		if a, b := (<-one).Body.String(), (<-two).Body.String(); a != "first" || b != "first" {
			t.Errorf("what began before was answered by %s and %s", a, b)
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
			t.Errorf("Connection: %s while it ends", got)
		}
		if err := l.Close(); err != nil || len(closed) != 1 {
			t.Errorf("at the end: %v, %d closed", err, len(closed))
		}
	})
}

// TestEndDoesNotWaitForEver has a request that does not end.
func TestEndDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &live{process: testProcess()}
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

type closer struct{ closed int }

func (c *closer) Close() error { c.closed++; return nil }

func TestPool(t *testing.T) {
	var p pool
	opened := 0
	open := func() (*closer, error) { opened++; return &closer{}, nil }
	a, doneA, err := share(&p, "key", open)
	if err != nil {
		t.Fatal(err)
	}
	b, doneB, _ := share(&p, "key", open)
	other, _, _ := share(&p, "other", open)
	if a != b || a == other || opened != 2 {
		t.Errorf("%d opened for two keys", opened)
	}
	doneA()
	if a.closed != 0 {
		t.Error("closed while it is used")
	}
	doneB()
	if a.closed != 1 || other.closed != 0 {
		t.Errorf("closed %d and %d times", a.closed, other.closed)
	}
	if c, _, _ := share(&p, "key", open); c == a {
		t.Error("what is closed is given again")
	}
	trouble := errors.New("trouble")
	for range 2 {
		if _, _, err := share(&p, "bad", func() (*closer, error) { return nil, trouble }); err != trouble {
			t.Errorf("%v", err)
		}
	}
}
