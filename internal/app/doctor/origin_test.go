package doctor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

var widget = provider.MustParseAddress("registry.acme.example/acme/widget")

// originOf serves an origin with a signed version 1.0.0 for linux_amd64. It returns the examination of this origin.
func originOf(t *testing.T, key ...pgp.Option) (Origin, *recorder.Recorder) {
	t.Helper()
	files := origin.New(origin.Options{}, release.For(t, release.Spec{
		Host: widget.Hostname(), Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: pgp.For(t, "Acme", key...),
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"README": []byte("text")}}},
	}))
	rec := recorder.New(files)
	server := httptest.NewServer(rec)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return Origin{
		Provider: widget, Name: widget.Hostname(), URL: u, Platform: provider.MustParsePlatform("windows_arm64"),
		Source: realorigin.NewRegistry(realorigin.RegistryOptions{Services: origin.Services(widget.Hostname(), server.URL), Transport: transport}),
	}, rec
}

// answering returns a handler for requests whose path ends in suffix.
func answering(suffix string, status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		w.WriteHeader(status)
		w.Write([]byte(body))
		return true
	}
}

func TestHealthyOrigin(t *testing.T) {
	x, rec := originOf(t)
	r := x.Examine(t.Context())
	got := checks(t, r)
	want(t, got, "origin", OK, "it lists 1 version; the newest one to push is 1.0.0")
	want(t, got, "keys", OK, "version 1.0.0 is signed by the key ")
	want(t, got, "package", OK, "_linux_amd64.zip arrives from 127.0.0.1: ")
	want(t, got, "clock", OK, "agree")
	if len(got) != 4 || r.Subject != "origin registry.acme.example of registry.acme.example/acme/widget" {
		t.Errorf("%+v", r)
	}
	if n := rec.Count(recorder.PathContains(".zip")); n != 1 {
		t.Errorf("%d requests for packages", n)
	}
}

// TestKeyForNewClients shows that doctor warns of a key that older clients do not read.
func TestKeyForNewClients(t *testing.T) {
	x, _ := originOf(t, pgp.Ed25519())
	got := checks(t, x.Examine(t.Context()))
	want(t, got, "keys", Warn, "but Terraform before 1.6 does not read the key ")
	if h := got["keys"].Hint; !strings.Contains(h, "through a network mirror") || !strings.Contains(h, "an RSA key") {
		t.Error(h)
	}
}

// TestUnhealthyOrigins shows the failed check for each fault of an origin.
func TestUnhealthyOrigins(t *testing.T) {
	for name, tc := range map[string]struct {
		change              func(*Origin)
		lie                 func(http.ResponseWriter, *http.Request) bool
		check, detail, hint string
	}{
		"absent provider": {nil, answering("/versions", 404, ""), "origin", "provider not found", "registry.acme.example does not know it"},
		"login page":      {nil, answering("/versions", 200, "<html>"), "origin", "HTML where JSON was wanted", "a login page in between"},
		"no versions":     {nil, answering("/versions", 200, `{"versions":[]}`), "origin", "it lists no version", "check the provider's address"},
		"no match": {func(x *Origin) {
			x.Versions, _ = provider.ParseConstraint("~> 2.0")
		}, nil, "origin", "nothing that it offers matches", "offers 1.0.0"},
		"refuses a login":  {nil, answering("/versions", 401, ""), "origin", "credentials refused", "TF_TOKEN_registry_acme_example"},
		"no SHA256SUMS":    {nil, answering("_SHA256SUMS", 404, ""), "keys", "SHA256SUMS", "no package can be checked"},
		"wrong signature":  {nil, answering(".sig", 200, "x"), "keys", "signature", ""},
		"key not pinned":   {func(x *Origin) { x.Policy = trust.Policy{Keys: []string{strings.Repeat("0", 40)}} }, nil, "keys", "signature", ""},
		"package is gone":  {nil, answering(".zip", 404, ""), "package", "404", ""},
		"package is HTML":  {nil, answering(".zip", 200, "<html>"), "package", "is no zip", "a login page in between"},
		"package is empty": {nil, answering(".zip", 200, ""), "package", "EOF", "a proxy in between"},
	} {
		t.Run(name, func(t *testing.T) {
			x, rec := originOf(t)
			rec.Intercept(tc.lie)
			if tc.change != nil {
				tc.change(&x)
			}
			got := checks(t, x.Examine(t.Context()))
			want(t, got, tc.check, Fail, tc.detail)
			if c := got[tc.check]; !strings.Contains(c.Hint, tc.hint) {
				t.Errorf("%+v, want the hint %q", c, tc.hint)
			}
		})
	}
}

// silent is an origin that does not answer.
type silent struct{ realorigin.Source }

func (silent) Versions(ctx context.Context, _ provider.Address) (*realorigin.Listing, error) {
	return nil, context.DeadlineExceeded
}

func TestSilentOrigin(t *testing.T) {
	got := checks(t, Origin{Provider: widget, Name: "registry.acme.example", Source: silent{}}.Examine(t.Context()))
	want(t, got, "origin", Fail, "no answer within 30s")
	if h := got["origin"].Hint; !strings.Contains(h, "whether registry.acme.example wants a proxy") {
		t.Error(h)
	}
}
