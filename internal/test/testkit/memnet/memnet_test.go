package memnet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
)

const place = "server.test:80"

// pair returns the two ends of a connection.
func pair(t *testing.T, n *memnet.Network) (client, server net.Conn) {
	t.Helper()
	l, err := n.Listen(place)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = n.Dial(t.Context(), "tcp", place); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Listen(place)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Write(body)
		})}
		go server.Serve(l)
		transport := &http.Transport{DialContext: n.Dial}
		sent := bytes.Repeat([]byte("0123456789"), 100_000)
		resp, err := (&http.Client{Transport: transport}).Post("http://server.test/", "", bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if open := n.Open(); len(open) != 2 {
			t.Errorf("open: %v", open)
		}
		transport.CloseIdleConnections()
		server.Close()
		time.Sleep(time.Minute) // gives the servers time to close their connections
		if open := n.Open(); len(open) != 0 {
			t.Errorf("open: %v", open)
		}
	})
}

func TestEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end         func(client, server net.Conn)
		read, write error // the errors of the client's Read and Write
	}{
		"closed by the other":  {func(_, s net.Conn) { s.Close() }, io.EOF, syscall.EPIPE},
		"closed by itself":     {func(c, _ net.Conn) { c.Close() }, net.ErrClosed, net.ErrClosed},
		"reset":                {func(_, s net.Conn) { s.(interface{ Reset() }).Reset() }, syscall.ECONNRESET, syscall.ECONNRESET},
		"past its time":        {func(c, _ net.Conn) { c.SetDeadline(time.Now().Add(time.Hour)) }, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		"half closed by other": {func(_, s net.Conn) { s.(interface{ CloseWrite() error }).CloseWrite() }, io.EOF, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := pair(t, memnet.New())
				defer client.Close()
				defer server.Close()
				tc.end(client, server)
				if _, err := client.Read(make([]byte, 1)); !errors.Is(err, tc.read) {
					t.Errorf("read: %v", err)
				}
				if tc.write == nil {
					if _, err := client.Write([]byte("x")); err != nil {
						t.Errorf("write: %v", err)
					}
					return
				}
				if _, err := client.Write(make([]byte, 1<<20)); !errors.Is(err, tc.write) {
					t.Errorf("write: %v", err)
				}
			})
		})
	}
}

func TestDial(t *testing.T) {
	n := memnet.New()
	dial := func() error {
		c, err := n.Dial(t.Context(), "tcp", place)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial without a listener: %v", err)
	}
	l, err := n.Listen(place)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := n.Listen(place); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	if err := dial(); err != nil {
		t.Errorf("dial with a listener: %v", err)
	}
	var dns *net.DNSError
	n.Fail(place, memnet.Unknown("server.test"))
	if err := dial(); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Errorf("unknown host: %v", err)
	}
	n.Fail(place, nil)
	if err := dial(); err != nil {
		t.Errorf("dial after the fault has ended: %v", err)
	}
}
