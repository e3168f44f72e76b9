package serve

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// absentBodies are sets of headers that announce a body that the client does not send.
var absentBodies = map[string][]string{
	"length":          {"Content-Length: 10"},
	"great length":    {"Content-Length: 100000000"},
	"chunks":          {"Transfer-Encoding: chunked"},
	"after a 100":     {"Content-Length: 10", "Expect: 100-continue"},
	"last":            {"Content-Length: 10", "Connection: close"},
	"HTTP/1.0's last": {"Content-Length: 10", "Connection: keep-alive"},
}

// deniedPath is the path of a version that the gateway denies. To deny the version, the gateway needs no request to the
// registry, which runs outside the synctest bubble.
const deniedPath = "/providers/registry.acme.example/acme/absent/1.0.0.json"

// denying returns a gateway over TLS that denies the version at deniedPath.
func denying(t *testing.T) *reloading {
	t.Helper()
	return newReloading(t, strings.Replace(withToken("  deny = [\"registry.acme.example/acme/absent\"]\n"), "  http = true\n", "", 1))
}

// TestBodiesThatNeverCome shows that a request whose body never arrives immediately gets a response from every part of
// the server. The status is the same as for a request without a body.
func TestBodiesThatNeverCome(t *testing.T) {
	r := denying(t)
	inServed(t, r.live, func(s *served) {
		metrics := newServer(r.ops.handler(), r.process.log)
		go metrics.Serve(s.listen(metricsAddress))
		defer metrics.Close()
		all := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
		for _, tc := range []struct {
			address, path string
			methods       []string
		}{
			{gatewayAddress, deniedPath, all},
			{gatewayAddress, "/v2/", all},
			{gatewayAddress, "/v2/registry.acme.example/acme/absent/blobs/uploads/", all},
			{gatewayAddress, "/-/refresh?provider=registry.acme.example/acme/absent", all},
			{gatewayAddress, "/healthz", all},
			{gatewayAddress, "/sign-in", all},
			{gatewayAddress, "/nowhere", all},
			{gatewayAddress, "*", []string{"OPTIONS"}},
			{metricsAddress, "/healthz", all},
			{metricsAddress, "/nowhere", all},
			{metricsAddress, "/metrics", []string{"POST", "PUT"}},
			{metricsAddress, "*", []string{"OPTIONS"}},
		} {
			for _, method := range tc.methods {
				s.wantBodyIgnored(tc.address, method, tc.path)
				s.wantBodyIgnored(tc.address, method, tc.path, "Authorization: Bearer "+testToken)
			}
		}
	})
}

// wantBodyIgnored fails the test unless the server answers a request immediately although its body does not arrive. The
// status must be the same as for a request without a body.
func (s *served) wantBodyIgnored(address, method, path string, headers ...string) {
	s.t.Helper()
	c := s.dial(address)
	c.send(question(method, path, headers...))
	want, _ := c.receive(method)
	for name, body := range absentBodies {
		sent := question(method, path, append(body, headers...)...)
		if strings.HasPrefix(name, "HTTP/1.0") {
			sent = strings.Replace(sent, "HTTP/1.1", "HTTP/1.0", 1)
		}
		c := s.dial(address)
		c.send(sent)
		start := time.Now()
		got, _ := c.receive(method)
		if took := time.Since(start); got != want || took > 0 {
			s.t.Errorf("%s, %s: %s %s %q is answered with %d after %s, want %d immediately", address, name, method, path, headers, got, took, want)
		}
		c.Close()
	}
}

// TestBodiesThatNeverComeHTTP2 shows that a request over HTTP/2 whose body never arrives also gets an immediate
// response, and that the server keeps the connection open.
func TestBodiesThatNeverComeHTTP2(t *testing.T) {
	inServed(t, denying(t).live, func(s *served) {
		client := s.http2()
		start := time.Now()
		for _, method := range []string{"GET", "POST", "PUT"} {
			for _, path := range []string{deniedPath, "/v2/", "/nowhere"} {
				for _, token := range []string{"", testToken} {
					want := s.ask2(client, method, path, token, nil)
					body, never := io.Pipe()
					if got := s.ask2(client, method, path, token, body); got != want {
						s.t.Errorf("%s %s with token %q: %d, want %d", method, path, token, got, want)
					}
					never.Close()
				}
			}
		}
		if took := time.Since(start); took > 0 {
			s.t.Errorf("the answers took %s", took)
		}
		if open := s.net.Open(); len(open) != 2 {
			s.t.Errorf("open connections %v, want both ends of one connection", open)
		}
	})
}

// TestBodyIsNoRequest shows that the server never answers a request in the body of another request, even if the body
// arrives after the response.
func TestBodyIsNoRequest(t *testing.T) {
	inServed(t, echoing(t), func(s *served) {
		smuggled := get("/smuggled")
		for _, late := range []time.Duration{0, time.Second, 2 * bodyTimeout} {
			for _, body := range []string{"Content-Length: 4", fmt.Sprint("Content-Length: ", len(smuggled)), "Content-Length: 100000000", "Transfer-Encoding: chunked"} {
				c := s.dial(gatewayAddress)
				c.send(question("POST", "/first", body))
				c.receive("POST")
				time.Sleep(late)
				io.WriteString(c, smuggled) // to a connection that may be closed
				if rest, err := io.ReadAll(c.r); len(rest) > 0 {
					s.t.Errorf("%s, sent after %s: %q, %v", body, late, rest, err)
				}
				c.Close()
			}
		}
	})
}

// TestAnswerReachesSender shows that a client that is still sending its body can read the response, because the server
// does not close the connection immediately.
func TestAnswerReachesSender(t *testing.T) {
	inServed(t, echoing(t), func(s *served) {
		for _, length := range []int{100 << 10, 100 << 20} {
			c := s.dial(gatewayAddress)
			c.send(question("PUT", "/first", fmt.Sprint("Content-Length: ", length)))
			synctest.Wait()
			c.send(strings.Repeat("x", 32<<10))
			if status, body := c.receive("PUT"); status != http.StatusOK || body != "PUT /first" {
				s.t.Errorf("%d bytes: %d %s", length, status, body)
			}
			c.Close()
		}
	})
}
