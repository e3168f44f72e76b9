package parking_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/parking"
	"github.com/ocibridge/ocibridge/internal/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/testkit/memnet"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
)

const host = "gateway.test"

var ca *tlsca.CA // made in real time, which a bubble's clock is put to

func TestMain(m *testing.M) {
	var err error
	if ca, err = tlsca.New(); err != nil {
		panic(err)
	}
	leaks.Main(m)
}

const (
	idleTimeout   = 2 * time.Minute
	headerTimeout = 10 * time.Second
)

// served is a server on a network in memory.
type served struct {
	t      *testing.T
	net    *memnet.Network
	server *http.Server
	ended  chan error

	mu    sync.Mutex
	conns map[net.Conn]http.ConnState // that the server has
}

// inServed runs f with a server in virtual time, and ends that. wrap may change its
// listener.
func inServed(t *testing.T, wrap func(net.Listener) net.Listener, f func(*served)) {
	t.Helper()
	config, err := ca.ServerConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now))
		s := &served{t: t, net: memnet.New(), ended: make(chan error, 1), conns: map[net.Conn]http.ConnState{}}
		inner, err := s.net.Listen(host + ":443")
		if err != nil {
			t.Fatal(err)
		}
		if wrap != nil {
			inner = wrap(inner)
		}
		s.server = &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					time.Sleep(time.Minute)
				}
				fmt.Fprint(w, strings.TrimPrefix(r.Method, "GET"), r.URL.Path, " ", r.TLS.ServerName)
			}),
			TLSConfig: config, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
			ConnState: func(c net.Conn, state http.ConnState) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.conns[c] = state; state == http.StateClosed {
					delete(s.conns, c)
				}
			},
		}
		listener := parking.Listen(inner, s.server)
		go func() { s.ended <- s.server.Serve(listener) }()
		f(s)
		if err := s.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		synctest.Wait()
		for _, left := range s.net.Open() {
			if strings.Contains(left, "server") {
				t.Errorf("left open: the %s", left)
			}
		}
	})
}

// inServer is how many connections the server has.
func (s *served) inServer() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// client is a connection of HTTP/1.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (s *served) dial() *client {
	s.t.Helper()
	raw, err := s.net.Dial(s.t.Context(), "tcp", host+":443")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { raw.Close() })
	c := tls.Client(raw, &tls.Config{RootCAs: ca.CertPool(), ServerName: host})
	return &client{c, s.t, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

func question(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

func (c *client) want(path string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("%s: %v", path, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != path+" "+host {
		c.t.Fatalf("%s: %s, %q, %v", path, resp.Status, body, err)
	}
}

// end waits until the other end closes the connection, and returns how long that
// took.
func (c *client) end() time.Duration {
	c.t.Helper()
	start := time.Now()
	if b, err := c.r.ReadByte(); err == nil {
		c.t.Errorf("there is an answer that begins with %q", b)
	}
	return time.Since(start)
}

// TestParked answers on connections that idled, however often, of which the server
// has none meanwhile.
func TestParked(t *testing.T) {
	inServed(t, nil, func(s *served) {
		c := s.dial()
		for i, idle := range []time.Duration{0, 500 * time.Millisecond, time.Minute, idleTimeout - time.Second, time.Minute} {
			time.Sleep(idle)
			if n := s.inServer(); idle > time.Second && n != 0 {
				t.Errorf("the server has %d connections after %s", n, idle)
			}
			path := fmt.Sprint("/", i)
			c.send(question(path))
			c.want(path)
		}
		if took := c.end(); took != idleTimeout {
			t.Errorf("it is closed after %s", took)
		}
	})
}

// TestParkedClientGoes ends what is left of one that closes its end.
func TestParkedClientGoes(t *testing.T) {
	inServed(t, nil, func(s *served) {
		c := s.dial()
		c.send(question("/"))
		c.want("/")
		time.Sleep(10 * time.Second)
		c.Close()
		synctest.Wait()
		if left := s.net.Open(); len(left) != 0 {
			t.Errorf("left open: %v", left)
		}
	})
}

// TestShutdownOfParked closes connections that idle at once, parked or not, and lets
// a request under way be answered.
func TestShutdownOfParked(t *testing.T) {
	inServed(t, nil, func(s *served) {
		parked := s.dial()
		parked.send(question("/"))
		parked.want("/")
		time.Sleep(10 * time.Second)
		idle, busy := s.dial(), s.dial()
		idle.send(question("/"))
		idle.want("/")
		busy.send(question("/slow"))
		synctest.Wait()
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { s.server.Shutdown(context.Background()) })
		for _, c := range []*client{parked, idle} {
			if took := c.end(); took > time.Second {
				t.Errorf("it is closed after %s", took)
			}
		}
		busy.want("/slow")
		busy.end()
	})
}

// TestAhead has clients send a part of their next request before the first is
// answered, and the rest late: none of it is lost.
func TestAhead(t *testing.T) {
	inServed(t, nil, func(s *served) {
		c := s.dial()
		next := question("/next")
		c.send(question("/slow"))
		synctest.Wait()
		c.send(next[:1])
		c.want("/slow")
		time.Sleep(30 * time.Second)
		c.send(next[1:])
		c.want("/next")
		c.send(question("/1") + question("/2"))
		c.want("/1")
		c.want("/2")
		c = s.dial()
		c.send(question("/"))
		c.want("/")
		c.send(next[:10])
		time.Sleep(5 * time.Second)
		c.send(next[10:])
		c.want("/next")
	})
}

// TestSlowAfterParked bounds how long a request may take to come that begins on a
// parked connection.
func TestSlowAfterParked(t *testing.T) {
	inServed(t, nil, func(s *served) {
		c := s.dial()
		c.send(question("/"))
		c.want("/")
		time.Sleep(time.Minute)
		c.send("G")
		start := time.Now()
		if answer, _ := io.ReadAll(c.r); strings.Contains(string(answer), "200") || time.Since(start) != headerTimeout {
			t.Errorf("after %s: %q", time.Since(start), answer)
		}
	})
}

// TestHTTP2 leaves its connections to the server.
func TestHTTP2(t *testing.T) {
	inServed(t, nil, func(s *served) {
		transport := &http.Transport{DialContext: s.net.Dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ca.CertPool()}}
		for range 2 {
			resp, err := (&http.Client{Transport: transport}).Get("https://" + host + "/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.ProtoMajor != 2 {
				t.Error(resp.Proto)
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(idleTimeout)
		if left := s.net.Open(); len(left) != 0 {
			t.Errorf("left open: %v", left)
		}
	})
}

// TestHandshake bounds it, and tells who speaks plain HTTP.
func TestHandshake(t *testing.T) {
	inServed(t, nil, func(s *served) {
		for text, want := range map[string]string{"": "", "\x16\x03\x01\x01": "", question("/"): "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"} {
			c, err := s.net.Dial(s.t.Context(), "tcp", host+":443")
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, text)
			start := time.Now()
			answer, _ := io.ReadAll(c)
			if took := time.Since(start); string(answer) != want || took > headerTimeout {
				t.Errorf("%q: %q after %s", text, answer, took)
			}
			c.Close()
		}
	})
}

// failing fails to accept at first.
type failing struct {
	net.Listener
	left int
}

type temporary struct{ error }

func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }

func (f *failing) Accept() (net.Conn, error) {
	if f.left > 0 {
		f.left--
		return nil, temporary{errors.New("too many open files")}
	}
	return f.Listener.Accept()
}

// TestAcceptFails goes on after what is temporary.
func TestAcceptFails(t *testing.T) {
	inServed(t, func(l net.Listener) net.Listener { return &failing{l, 5} }, func(s *served) {
		c := s.dial()
		c.send(question("/"))
		c.want("/")
	})
}
