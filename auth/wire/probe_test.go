package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
	"github.com/ocibridge/ocibridge/ociaddr"
)

func TestLoopbackRegistriesAreAskedForTLS(t *testing.T) {
	plain, secure := challenger.New(t, false), challenger.New(t, true)
	const closed = "127.0.0.1:1" // the system never assigns this port
	for _, allPlain := range []bool{false, true} {
		c := newClient(Options{PlainHTTP: allPlain, RetryDelay: time.Millisecond, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}, account{})
		dials := map[string]int{}
		dial := c.dialTLS
		c.dialTLS = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials[addr]++
			return dial(ctx, network, addr)
		}
		for range 2 {
			for _, tt := range []struct {
				name  string
				host  string
				plain bool
			}{
				{"plain server", plain.Listener.Addr().String(), true},
				{"TLS server", secure.Listener.Addr().String(), false},
				{"no server", closed, false},
			} {
				repo := mustOpen(t, c, mustRepository(t, tt.host+"/a/x"))
				if repo.PlainHTTP != tt.plain {
					t.Errorf("%s, PlainHTTP %t: plain = %t", tt.name, allPlain, repo.PlainHTTP)
				}
				if err := repo.Tags(t.Context(), "", func([]string) error { return nil }); err != nil && tt.name != "no server" {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
		}
		if dials[plain.Listener.Addr().String()] != 1 || dials[secure.Listener.Addr().String()] != 1 || dials[closed] != 2 {
			t.Errorf("probes: %v", dials)
		}
		for _, host := range []string{"registry.test:5000", "10.0.0.1:5000"} {
			if repo := mustOpen(t, c, mustRepository(t, host+"/a/x")); repo.PlainHTTP != allPlain {
				t.Errorf("%s: plain = %t with PlainHTTP %t", host, repo.PlainHTTP, allPlain)
			}
		}
	}
}

func TestProbeAddresses(t *testing.T) {
	errStop := errors.New("stop")
	for host, want := range map[string]string{"localhost": "localhost:443", "localhost:5000": "localhost:5000", "[::1]:5000": "[::1]:5000", "[::1]": "[::1]:443"} {
		c := New(Options{})
		got := ""
		c.dialTLS = func(_ context.Context, _, addr string) (net.Conn, error) {
			got = addr
			return nil, errStop
		}
		if plain, err := c.speaksPlainHTTP(t.Context(), ociaddr.Registry(host)); plain || err != nil || got != want {
			t.Errorf("%s: dialled %s, %t, %v", host, got, plain, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(Options{}).speaksPlainHTTP(ctx, "localhost:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("probe after the caller gave up: %v", err)
	}
}

// TestReachableQuotesNoStatusLine shows that the error of Reachable does not quote the
// text after the status code in the server's status line.
func TestReachableQuotesNoStatusLine(t *testing.T) {
	c := New(Options{Transport: roundTripper(func(*http.Request) *http.Response {
		resp := answer(502, nil, "")
		resp.Status = "502 " + strings.Repeat("x", 1<<20)
		return resp
	})})
	if err := c.Reachable(t.Context(), ociaddr.Registry("registry.test")); err == nil || err.Error() != "ask registry.test: it answers 502 Bad Gateway" {
		t.Errorf("%.300v", err)
	}
}
