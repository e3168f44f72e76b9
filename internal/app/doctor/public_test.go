package doctor

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/dns"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestPublicURL shows the report about public_url for each fault of the server that it names.
func TestPublicURL(t *testing.T) {
	dns.Default()
	noName := strings.Repeat("a", 64) + ".example" // too long, so it is not looked up
	ca := tlsca.For(t)
	for name, tc := range map[string]struct {
		host, announced string // the announced URL is relative to the gateway's
		status          int
		check           string
		want            Status
		detail, hint    string
		closed          bool
	}{
		"healthy":      {host: "localhost", announced: "hosts/h/v1/providers/", status: 200, check: "gateway", want: OK, detail: "with this public_url"},
		"by address":   {host: "192.0.2.7", announced: "hosts/h/v1/providers/", status: 200, check: "connection", want: Fail, detail: "not 192.0.2.7", hint: "for other names"},
		"another one":  {host: "localhost", announced: "other/hosts/h/v1/providers/", status: 200, check: "gateway", want: Fail, detail: "another gateway answers", hint: "public_url"},
		"no gateway":   {host: "localhost", status: 404, check: "gateway", want: Fail, detail: "no ocibridge gateway answers at this URL", hint: "start the gateway"},
		"proxy alone":  {host: "localhost", status: 502, check: "gateway", want: Fail, detail: "502", hint: "have it forward"},
		"not there":    {host: "localhost", closed: true, check: "connection", want: Fail, detail: "refused", hint: "nothing usable answers there"},
		"unknown name": {host: noName, check: "name", want: Fail, detail: "no such host", hint: "add the name to the DNS"},
	} {
		t.Run(name, func(t *testing.T) {
			base := ""
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				fmt.Fprintf(w, `{"providers.v1": %q}`, base+tc.announced)
			}))
			var err error
			if server.TLS, err = ca.ServerConfig("localhost"); err != nil {
				t.Fatal(err)
			}
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients abort handshakes
			server.StartTLS()
			defer server.Close()
			base = "https://" + tc.host + server.URL[strings.LastIndex(server.URL, ":"):] + "/"
			if tc.closed {
				server.Close()
			}
			transport := ca.HTTPClient().Transport.(*http.Transport)
			defer transport.CloseIdleConnections()
			transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			r := Public{
				URL: base, Announced: base + "hosts/h/v1/providers/", Discovery: base + "hosts/h/.well-known/terraform.json", Transport: transport,
			}.Examine(t.Context())
			got := checks(t, r)
			want(t, got, tc.check, tc.want, tc.detail)
			if h := got[tc.check].Hint; !strings.Contains(h, tc.hint) {
				t.Errorf("hint %q, want %q", h, tc.hint)
			}
			if last := r.Checks[len(r.Checks)-1]; last.Name != tc.check {
				t.Errorf("the last check is %+v", last)
			}
		})
	}
}
