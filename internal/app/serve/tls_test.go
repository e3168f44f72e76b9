package serve

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCertificateFiles shows that a new certificate takes effect only together with its key, although users replace one
// file after the other.
func TestCertificateFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := tlsca.New()
		if err != nil {
			t.Fatal(err)
		}
		var pairs []*tlsca.Cert
		for range 2 {
			pair, err := ca.Issue("localhost")
			if err != nil {
				t.Fatal(err)
			}
			pairs = append(pairs, pair)
		}
		dir := t.TempDir()
		names := config.TLS{CertFile: filepath.Join(dir, "tls.pem"), KeyFile: filepath.Join(dir, "tls.key")}
		write(t, names.CertFile, pairs[0].CertPEM)
		write(t, names.KeyFile, pairs[0].KeyPEM)
		log := &collected.Text{}
		certs, err := newCertificates(certificates{settings: names, log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		current := func() string {
			c, err := certs.configFor(nil)
			if err != nil {
				t.Fatal(err)
			}
			return c.Certificates[0].Leaf.SerialNumber.String()
		}
		first := current()
		if c, _ := certs.configFor(nil); c != mustConfig(t, certs) {
			t.Error("session tickets are lost with each handshake")
		}
		write(t, names.CertFile, pairs[1].CertPEM)
		if current() != first {
			t.Error("files are checked at every handshake")
		}
		for range 5 {
			time.Sleep(2 * time.Second)
			if current() != first {
				t.Error("a certificate without its key is used")
			}
		}
		if n := log.Count("cannot be used"); n != 1 {
			t.Errorf("the log reports the failure %d times", n)
		}
		write(t, names.KeyFile, pairs[1].KeyPEM)
		time.Sleep(2 * time.Second)
		second := current()
		if got := certs.expires(); !got.Equal(mustConfig(t, certs).Certificates[0].Leaf.NotAfter) {
			t.Errorf("the certificate expires at %s", got)
		}
		if second == first || log.Count("are in force") != 1 {
			t.Error("the new pair is not used, or the log does not say so")
		}
		if err := os.Remove(names.KeyFile); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if current() != second || log.Count("no such file") != 1 {
			t.Error("without its files, the certificate is not kept")
		}
	})
}

func mustConfig(t *testing.T, c *certificates) *tls.Config {
	t.Helper()
	out, err := c.configFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestExpiredCertificateIsLogged shows that the gateway warns if it reads a certificate that has expired.
func TestExpiredCertificateIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, err := tlsca.For(t).Issue("localhost")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{false, true} {
			var log strings.Builder
			c := &certificates{settings: config.TLS{CertFile: "tls.pem", KeyFile: "tls.key"}, log: slog.New(slog.NewTextHandler(&log, nil))}
			if _, err := c.compile([][]byte{cert.CertPEM, cert.KeyPEM}); err != nil || strings.Contains(log.String(), "the certificate has expired") != want {
				t.Errorf("%v, %q", err, &log)
			}
			time.Sleep(48 * time.Hour) // test certificates are valid for a day
		}
	})
}

// TestLocalCertificateIsRenewed shows that the gateway renews its certificate while it runs. At any time, the
// certificate is valid for at least 30 more days.
func TestLocalCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		own, err := localCertificate(t.TempDir(), []string{"localhost"}, log)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := newCertificates(certificates{own: own, log: log})
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			time.Sleep(45 * 24 * time.Hour)
			cert, err := mustConfig(t, certs).GetCertificate(&tls.ClientHelloInfo{ServerName: "localhost"})
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(cert.Leaf.NotAfter); left < 30*24*time.Hour {
				t.Fatalf("on %s, the certificate has %s left", time.Now(), left)
			}
			if got := certs.expires(); !got.Equal(cert.Leaf.NotAfter) {
				t.Fatalf("on %s, the certificate of %s expires at %s", time.Now(), cert.Leaf.NotAfter, got)
			}
		}
	})
}

func TestClientCertificates(t *testing.T) {
	ca, err := tlsca.New()
	if err != nil {
		t.Fatal(err)
	}
	other, err := tlsca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue("localhost")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var names config.TLS
	if names.CertFile, names.KeyFile, err = cert.WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	clientCAs, err := ca.WriteFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	names.ClientCAFile = clientCAs
	certs, err := newCertificates(certificates{settings: names, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	server.TLSConfig = &tls.Config{GetConfigForClient: certs.configFor}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.ServeTLS(listener, "", "")
	defer server.Close()
	// get sends a request with a client certificate of the given CA. It sends the request without a certificate if the CA
	// is nil.
	get := func(by *tlsca.CA) error {
		t.Helper()
		client := ca.HTTPClient()
		defer client.CloseIdleConnections()
		if by != nil {
			shown, err := by.IssueClient("proxy")
			if err != nil {
				t.Fatal(err)
			}
			pair, err := tls.X509KeyPair(shown.CertPEM, shown.KeyPEM)
			if err != nil {
				t.Fatal(err)
			}
			// The client sends its certificate even if the server does not name the authority of this certificate.
			client.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		resp, err := client.Get("https://" + listener.Addr().String())
		if err != nil {
			return err
		}
		if resp.ProtoMajor != 1 {
			t.Errorf("a client that offers both protocols gets %s", resp.Proto)
		}
		return resp.Body.Close()
	}
	for name, tt := range map[string]struct {
		by *tlsca.CA
		ok bool
	}{"none": {nil, false}, "by the authority": {ca, true}, "by another": {other, false}} {
		if err := get(tt.by); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A file without a certificate does not replace the current authority. A file with the certificate of another
	// authority replaces it.
	replace := func(pem []byte) {
		t.Helper()
		if err := os.WriteFile(clientCAs, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace([]byte("nothing of use"))
	time.Sleep(files.Interval) // the interval at which files are checked
	if err := get(ca); err != nil {
		t.Errorf("after an unusable file: %v", err)
	}
	replace(other.CertPEM())
	time.Sleep(files.Interval)
	deadline := time.Now().Add(time.Minute)
	for err = get(other); err != nil && time.Now().Before(deadline); err = get(other) {
		time.Sleep(files.Interval / 10)
	}
	if err != nil {
		t.Errorf("certificate of the new authority: %v", err)
	}
	if err := get(ca); err == nil {
		t.Error("a certificate of the old authority is still accepted")
	}
	if err := get(nil); err == nil {
		t.Error("no certificate is required any more")
	}
	names.ClientCAFile = names.KeyFile
	if _, err := newCertificates(certificates{settings: names, log: slog.New(slog.DiscardHandler)}); err == nil || hint.Of(err) == "" {
		t.Errorf("a file without certificates: %v", err)
	}
}

// pipes is a listener whose connections use virtual time.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p.conns); return nil } // a server calls it once
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestSlowClients shows that the server closes the connection of a client that sends or reads too slowly, or that sends
// nothing.
func TestSlowClients(t *testing.T) {
	large := make([]byte, 1<<20)
	for name, tt := range map[string]struct {
		send   string
		within time.Duration
	}{
		"says nothing":  {"", headerTimeout},
		"asks slowly":   {"GET / HTTP/1.1\r\nHost: a\r\n", headerTimeout},
		"sends slowly":  {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx", bodyTimeout},
		"takes nothing": {"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", answerTimeout},
		"asks no more":  {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/large" {
						w.Write(large)
					}
				}), slog.New(slog.DiscardHandler))
				l := pipes{make(chan net.Conn)}
				go server.Serve(l)
				mine, its := net.Pipe()
				l.conns <- its
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					io.WriteString(mine, tt.send)
					if name != "takes nothing" {
						io.Copy(io.Discard, mine)
						return
					}
					// This client reads nothing, so only a failed write shows that the server has closed the connection.
					for {
						if _, err := mine.Write([]byte("x")); err != nil {
							return
						}
					}
				}()
				start := time.Now()
				<-closed
				if after := time.Since(start); after > tt.within+time.Second { // of virtual time
					t.Errorf("the connection is closed after %s", after)
				}
				mine.Close()
				server.Close()
			})
		})
	}
}

func TestHeadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
		l := pipes{make(chan net.Conn)}
		go server.Serve(l)
		mine, its := net.Pipe()
		l.conns <- its
		go io.WriteString(mine, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
		answer := make([]byte, len("HTTP/1.1 431"))
		if _, err := io.ReadFull(mine, answer); err != nil || string(answer) != "HTTP/1.1 431" {
			t.Errorf("headers that are too large: %s, %v", answer, err)
		}
		mine.Close()
		server.Close()
		time.Sleep(time.Second) // a server waits a moment for bytes that are under way
	})
}
