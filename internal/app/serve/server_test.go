package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/memnet"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// Addresses on the in-memory network.
const (
	gatewayAddress = "gateway.test:443"
	metricsAddress = "gateway.test:9090"
)

// served is a running gateway on an in-memory network, in virtual time.
type served struct {
	t      *testing.T
	net    *memnet.Network
	ca     *tlsca.CA
	server *live
}

// inServed runs f in a synctest bubble, while a gateway serves over TLS.
func inServed(t *testing.T, l *live, f func(*served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &served{t: t, net: memnet.New(), ca: tlsca.For(t), server: l}
		issued, err := s.ca.ServerConfig("gateway.test")
		if err != nil {
			t.Fatal(err)
		}
		spoken := serverConfig()
		spoken.Certificates = issued.Certificates
		fixed, err := files.Watch(l.process.log, func([][]byte) (*tls.Config, error) { return spoken, nil })
		if err != nil {
			t.Fatal(err)
		}
		l.current.Load().certificates = &certificates{current: fixed}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		listener := s.listen(gatewayAddress)
		go func() { ended <- l.serve(ctx, listener) }()
		f(s)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.wantNoneOpen()
	})
}

// wantNoneOpen fails the test if the server has an open connection.
func (s *served) wantNoneOpen() {
	s.t.Helper()
	synctest.Wait()
	for _, end := range s.net.Open() {
		if strings.HasPrefix(end, "server") {
			s.t.Errorf("still open: the %s", end)
		}
	}
}

func (s *served) listen(address string) net.Listener {
	s.t.Helper()
	listener, err := s.net.Listen(address)
	if err != nil {
		s.t.Fatal(err)
	}
	return listener
}

// rawClient is a connection on which a test sends raw text and reads HTTP responses.
type rawClient struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

// dial connects to an address. It speaks TLS to the gateway's address, and plain HTTP to any other address.
func (s *served) dial(address string) *rawClient {
	s.t.Helper()
	conn, err := s.net.Dial(s.t.Context(), "tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	if address == gatewayAddress {
		conn = tls.Client(conn, &tls.Config{RootCAs: s.ca.CertPool(), ServerName: "gateway.test"})
	}
	s.t.Cleanup(func() { conn.Close() })
	return &rawClient{conn, s.t, bufio.NewReader(conn)}
}

func (c *rawClient) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads the next response, which answers a request with the given method.
func (c *rawClient) receive(method string) (status int, body string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// wantClosed fails the test unless the server closes the connection immediately, and sends nothing more.
func (c *rawClient) wantClosed() {
	c.t.Helper()
	start := time.Now()
	rest, err := io.ReadAll(c.r)
	if took := time.Since(start); err != nil || len(rest) > 0 || took > 0 {
		c.t.Errorf("the connection ends after %s, %q and %v", took, rest, err)
	}
}

// echoing returns a gateway that answers each request with its method and path.
func echoing(t *testing.T) *live {
	l := &live{process: testProcess(t, slog.New(slog.DiscardHandler))}
	l.replace(&site{settings: Settings{Config: &config.Config{}}, repositories: &registry.Repositories{}, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Method+" "+r.URL.Path)
	})})
	t.Cleanup(func() { l.Close() })
	return l
}

func question(method, path string, headers ...string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: gateway.test\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

func get(path string, headers ...string) string { return question("GET", path, headers...) }

// TestPipelinedRequests shows that the server answers a request that arrives in two parts. The first part arrives
// together with the previous request, and the second part arrives much later.
func TestPipelinedRequests(t *testing.T) {
	second := get("/second")
	for early := range len(second) + 1 {
		inServed(t, echoing(t), func(s *served) {
			c := s.dial(gatewayAddress)
			c.send(get("/first") + second[:early])
			if status, body := c.receive(http.MethodGet); status != http.StatusOK || body != "GET /first" {
				t.Errorf("with %d bytes of the next request: %d %s", early, status, body)
			}
			time.Sleep(headerTimeout / 2)
			c.send(second[early:])
			if status, body := c.receive(http.MethodGet); status != http.StatusOK || body != "GET /second" {
				t.Errorf("after %d early bytes: %d %s", early, status, body)
			}
		})
	}
}

// TestConnectionClose shows that after a request with "Connection: close", the server closes the connection.
func TestConnectionClose(t *testing.T) {
	last := get("/last", "Connection: close")
	for name, before := range map[string]string{"alone": "", "pipelined": get("/first")} {
		t.Run(name, func(t *testing.T) {
			inServed(t, echoing(t), func(s *served) {
				c := s.dial(gatewayAddress)
				c.send(before + last)
				for range strings.Count(before+last, "GET ") {
					c.receive(http.MethodGet)
				}
				c.wantClosed()
			})
		})
	}
}

// TestIdleConnectionEnds shows that the server closes connections that are idle for too long.
func TestIdleConnectionEnds(t *testing.T) {
	inServed(t, echoing(t), func(s *served) {
		c := s.dial(gatewayAddress)
		for range 3 {
			c.send(get("/"))
			c.receive(http.MethodGet)
			time.Sleep(idleTimeout - time.Second)
		}
		time.Sleep(time.Second)
		c.wantClosed()

		s.ask2(s.http2(), http.MethodGet, "/", "", nil)
		time.Sleep(idleTimeout + 2*time.Second) // the server sends GOAWAY, and closes a second later
		s.wantNoneOpen()
	})
}

// TestHandshakes shows that failed handshakes end in time and are logged. A client that speaks plain HTTP gets a
// response with status 400.
func TestHandshakes(t *testing.T) {
	for sent, want := range map[string]string{
		"":                 "",
		"\x16\x03\x01\x01": "",
		get("/"):           "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
	} {
		log := &collected.Text{}
		gateway := echoing(t)
		gateway.process.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		inServed(t, gateway, func(s *served) {
			conn, err := s.net.Dial(s.t.Context(), "tcp", gatewayAddress)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			start := time.Now()
			io.WriteString(conn, sent)
			answer, err := io.ReadAll(conn)
			if took := time.Since(start); string(answer) != want || err != nil || took > headerTimeout {
				t.Errorf("%q: %q and %v after %s", sent, answer, err, took)
			}
			synctest.Wait()
			if n := log.Count(`level=WARN msg="a TLS handshake failed" client=`); n != 1 {
				t.Errorf("%q: %d errors are logged", sent, n)
			}
		})
	}
}

// http2 returns a client transport that keeps its HTTP/2 connections open.
func (s *served) http2() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		DialContext: s.net.Dial, Protocols: &protocols,
		TLSClientConfig: &tls.Config{RootCAs: s.ca.CertPool(), ServerName: "gateway.test"},
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// ask2 sends a request over HTTP/2, and returns the status of the response.
func (s *served) ask2(transport *http.Transport, method, path, token string, body io.Reader) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+gatewayAddress+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ProtoMajor != 2 {
		s.t.Errorf("%s: %v", resp.Proto, err)
	}
	return resp.StatusCode
}
