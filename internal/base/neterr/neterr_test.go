package neterr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestLost shows that Lost returns true for the errors of refused and broken
// connections, and false for other errors.
func TestLost(t *testing.T) {
	over := func(http2 bool, h http.HandlerFunc) error {
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		resp, err := server.Client().Get(server.URL)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	client, server := net.Pipe()
	server.Close()
	_, piped := client.Read(make([]byte, 1))
	const nobody = "127.0.0.1:1"
	_, refused := net.Dial("tcp", nobody)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, given := new(net.Dialer).DialContext(canceled, "tcp", nobody)
	for name, tc := range map[string]struct {
		err  error
		lost bool
	}{
		"HTTP/1.1, before an answer": {over(false, abort), true},
		"HTTP/2, before an answer":   {over(true, abort), true},
		"HTTP/2, while it is asked":  {errors.New("http2: client connection force closed via ClientConn.Close"), true},
		"refused":                    {fmt.Errorf("ask: %w", refused), true},
		"closed":                     {piped, true},
		"cut short":                  {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		"given up":                   {given, false},
		"another":                    {errors.New("no such host"), false},
	} {
		if tc.err == nil || Lost(tc.err) != tc.lost {
			t.Errorf("%s: %v: not %v", name, tc.err, tc.lost)
		}
	}
	if !Refused(refused) || Refused(piped) {
		t.Error("Refused does not tell a refused connection from a closed one")
	}
}

func TestNoSuchHost(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("ask: %w", &net.DNSError{IsNotFound: true}): true,
		&net.DNSError{IsTimeout: true}:                         false,
		io.EOF:                                                 false,
		nil:                                                    false,
	} {
		if NoSuchHost(err) != want {
			t.Errorf("%v: not %v", err, want)
		}
	}
}
