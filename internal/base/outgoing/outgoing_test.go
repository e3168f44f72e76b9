package outgoing

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// TestLongHeaders shows which lengths of headers the transport and its clone accept.
// The accepted lengths are below the limit, because servers add header fields of their
// own.
func TestLongHeaders(t *testing.T) {
	testkit.WithoutRace(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Header().Set("Www-Authenticate", strings.Repeat("x", n))
	})
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(handler)
			srv.EnableHTTP2 = protocol == "HTTP/2.0"
			srv.StartTLS()
			defer srv.Close()
			first := Transport()
			first.TLSClientConfig = &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
			for name, transport := range map[string]*http.Transport{"first": first, "copy": first.Clone()} {
				defer transport.CloseIdleConnections()
				for n, ok := range map[int]bool{0: true, 16 << 10: true, 60 << 10: true, 65 << 10: false, 200 << 10: false, 9 << 20: false} {
					resp, err := (&http.Client{Transport: transport}).Get(srv.URL + "/?n=" + strconv.Itoa(n))
					if (err == nil) != ok {
						t.Errorf("%s: headers of %d bytes: %.200v", name, n, err)
					}
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						if resp.Proto != protocol {
							t.Errorf("%s answers by %s", name, resp.Proto)
						}
					}
				}
			}
		})
	}
}

// other is an [http.RoundTripper] that is not an [*http.Transport].
type other struct{ http.RoundTripper }

func TestOtherDefaultTransport(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = other{before}
	if got := Transport(); got.MaxResponseHeaderBytes != maxHeader || got.Proxy == nil {
		t.Errorf("at most %d bytes of headers; with a proxy: %t", got.MaxResponseHeaderBytes, got.Proxy != nil)
	}
}
