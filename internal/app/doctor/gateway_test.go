package doctor

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

var null = provider.MustParseAddress("registry.opentofu.org/hashicorp/null")

// checks returns the checks of a report, by name. It fails the test if a failed check has no hint.
func checks(t *testing.T, r *Report) map[string]Check {
	t.Helper()
	out := map[string]Check{}
	for _, c := range r.Checks {
		if c.Status == Fail && c.Hint == "" {
			t.Errorf("no hint for %+v", c)
		}
		out[c.Name] = c
	}
	return out
}

func want(t *testing.T, got map[string]Check, name string, status Status, detail string) {
	t.Helper()
	if c := got[name]; c.Status != status || !strings.Contains(c.Detail, detail) {
		t.Errorf("%s: %+v, want %s: %s", name, c, status, detail)
	}
}

// gatewayOf serves a mirror over TLS, and diagnoses it as a client that has a token. It returns the recorded
// requests and the checks.
func gatewayOf(t *testing.T, h http.Handler) (*recorder.Recorder, map[string]Check) {
	t.Helper()
	rec := recorder.New(h)
	srv := httptest.NewTLSServer(rec)
	t.Cleanup(srv.Close)
	x := Gateway{
		URL: srv.URL + "/providers/", Subject: null, Platform: provider.Platform{OS: "linux", Arch: "amd64"},
		Prepare:     func(r *http.Request) { r.Header.Set("Authorization", "Bearer MARK-token") },
		TokenSource: "a test",
		// The certificates of this package's test servers have different authorities.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	r := x.Examine(t.Context())
	if s := fmt.Sprint(r); strings.Contains(s, "MARK-") {
		t.Errorf("a secret is in %s", s)
	}
	return rec, checks(t, r)
}

// TestProxyIsNotTheGateway shows that if a proxy fails, the report does not blame the gateway.
func TestProxyIsNotTheGateway(t *testing.T) {
	x := Gateway{
		URL: "https://gateway.example/providers/", Subject: null, Platform: provider.Platform{OS: "linux", Arch: "amd64"},
		Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})},
	}
	for _, c := range x.Examine(t.Context()).Checks {
		if c.Status == Fail && strings.Contains(c.Hint, "PROXY names, is not reached: correct the variable, or add gateway.example to NO_PROXY") {
			return
		}
		t.Logf("%+v", c)
	}
	t.Error("no check names the proxy")
}

func redirectTo(url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url+r.URL.Path, http.StatusFound) }
}

func TestGatewayThatRedirects(t *testing.T) {
	elsewhere := recorder.New(http.NotFoundHandler())
	plain, secure := httptest.NewServer(elsewhere), httptest.NewTLSServer(elsewhere)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)

	_, got := gatewayOf(t, redirectTo(plain.URL))
	want(t, got, "index.json", Fail, "redirects to "+plain.URL+", which is not https")
	if n := elsewhere.Count(); n > 0 {
		t.Errorf("%d requests went over plain HTTP", n)
	}

	rec, _ := gatewayOf(t, redirectTo(secure.URL))
	if rec.Count(recorder.Authorized()) != 1 || elsewhere.Count() == 0 || elsewhere.Count(recorder.Authorized()) != 0 {
		t.Errorf("the token was sent to another server: %+v, %+v", rec.Requests(), elsewhere.Requests())
	}

	loop := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }
	_, got = gatewayOf(t, http.HandlerFunc(loop))
	want(t, got, "index.json", Fail, "more than 5 redirects")
}

// TestGatewayOfAnUnknownAuthority shows that if the server's certificate has an unknown authority, the hint is
// about the certificate.
func TestGatewayOfAnUnknownAuthority(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // the client aborts the handshake
	srv.StartTLS()
	t.Cleanup(srv.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	got := checks(t, Gateway{URL: srv.URL + "/providers/", Subject: null, Transport: transport}.Examine(t.Context()))
	want(t, got, "index.json", Fail, "certificate signed by unknown authority")
	if hint := got["index.json"].Hint; !strings.HasPrefix(hint, "its certificate is by an authority that is not known here") {
		t.Errorf("hint %q", hint)
	}
}

// oneVersion returns a mirror with version 1.0.0, whose package for Linux is at the given URL. The handler archive answers
// all requests but those for the documents.
func oneVersion(url string, archive http.HandlerFunc) http.Handler {
	return withHashes(url, archive, someH1)
}

// someH1 is a well-formed h1: hash.
const someH1 = "h1:/7Et9aXUXJ5FAvFrmY3OTa6T1xkXVP0vDPnlyU9gvQc="

// withHashes is like oneVersion, with the given hashes of the package.
func withHashes(url string, archive http.HandlerFunc, hashes ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/index.json"):
			fmt.Fprint(w, `{"versions":{"1.0.0":{}}}`)
		case strings.HasSuffix(r.URL.Path, "/1.0.0.json"):
			list, err := json.Marshal(hashes)
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(w, `{"archives":{"linux_amd64":{"url":%q,"hashes":%s}}}`, url, list)
		default:
			archive(w, r)
		}
	})
}

// TestGatewayHashes has the verdict of clients on the hashes of a package: they refuse a package whose hashes all have unknown
// schemes, and a hash without a scheme. Beside a right hash, they ignore any other one.
func TestGatewayHashes(t *testing.T) {
	zh := "zh:" + strings.Repeat("ab", 32)
	for name, tt := range map[string]struct {
		hashes []string
		status Status // a failure if clients refuse the package
		detail string
	}{
		"both":                      {[]string{zh, someH1}, OK, "1 platform, with hashes"},
		"zh alone":                  {[]string{zh}, Warn, "without h1 hashes"},
		"none":                      {nil, Warn, "without hashes: clients install unverified"},
		"unknown beside right":      {[]string{"h2:abc", someH1}, Warn, `clients ignore the hashes "h2:abc"`},
		"unknown after right":       {[]string{zh, "sha512:ab"}, Warn, `clients ignore the hashes "sha512:ab"`},
		"impossible beside right":   {[]string{"zh:short", someH1}, Warn, `clients ignore the hashes "zh:short"`},
		"unknown alone":             {[]string{"h2:abc", "h3:abc"}, Fail, `only "h2:abc", "h3:abc": clients refuse the package`},
		"no scheme":                 {[]string{"abc"}, Fail, `the hash "abc" has no scheme`},
		"no scheme beside right":    {[]string{someH1, "abc"}, Fail, `the hash "abc" has no scheme`},
		"empty scheme beside right": {[]string{someH1, ":abc"}, Fail, `the hash ":abc" has no scheme`},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := gatewayOf(t, withHashes("null.zip", http.NotFound, tt.hashes...))
			want(t, got, "1.0.0.json", tt.status, tt.detail)
		})
	}
}

// TestGatewaysWithDifferentKeys shows that the check fails if one of two gateways behind an address refuses the link of the
// other one. Here, the second gateway gets the HEAD request.
func TestGatewaysWithDifferentKeys(t *testing.T) {
	_, got := gatewayOf(t, oneVersion("null.zip", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, zipMagic+"the rest")
	}))
	want(t, got, "archive", Fail, "answers 403")
	if help := got["archive"].Hint; help != helpLinks {
		t.Errorf("hint %q", help)
	}
}

// TestGatewayPackageElsewhere shows the diagnosis if the URL of a package contains secrets, or leads to another
// server. The report contains no secret.
func TestGatewayPackageElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		url    string
		detail string
	}{
		"a capability":     {"cap1.MARK-capability/null.zip", "/null/.../null.zip answers 404"},
		"a signature":      {"null.zip?X-Amz-Signature=MARK-signature", "/null/null.zip answers 404"},
		"nothing there":    {"https://127.0.0.1:1/null.zip?sig=MARK-signature", "https://127.0.0.1:1/null.zip: "},
		"no URL":           {"https://%zz/MARK-x", ""},
		"a redirected one": {"go/null.zip", "which is not https"},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := gatewayOf(t, oneVersion(tc.url, func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/go/") {
					http.Redirect(w, r, "http://127.0.0.1:1/null.zip?sig=MARK-signature", http.StatusFound)
					return
				}
				http.NotFound(w, r)
			}))
			if tc.detail == "" {
				want(t, got, "1.0.0.json", Fail, "the package's URL is none")
				return
			}
			want(t, got, "1.0.0.json", OK, "1 platform, with hashes")
			want(t, got, "archive", Fail, tc.detail)
		})
	}
}

// TestGatewayAtAnotherPath shows that the check fails if the mirror is at the path providers/ below the URL. A client with
// this URL would not find any provider.
func TestGatewayAtAnotherPath(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/providers/"+null.Path()+"/index.json" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"versions":{"1.0.0":{}}}`)
	}))
	t.Cleanup(srv.Close)
	got := checks(t, Gateway{
		URL: srv.URL + "/", Subject: null, Platform: provider.Platform{OS: "linux", Arch: "amd64"},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}.Examine(t.Context()))
	want(t, got, "index.json", Fail, "the path of the URL is wrong")
	if help := got["index.json"].Hint; help != "write the URL of the network mirror as "+srv.URL+"/providers/" {
		t.Errorf("hint %q", help)
	}
}

// TestGatewayNamesTheRightURL shows that the check gives the URL that the gateway names to a client with a wrong URL.
func TestGatewayNamesTheRightURL(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "write-the-url-as:https://gateway.example/tf/providers/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	t.Cleanup(srv.Close)
	got := checks(t, Gateway{
		URL: srv.URL + "/mirror/", Subject: null, Platform: provider.Platform{OS: "linux", Arch: "amd64"},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}.Examine(t.Context()))
	want(t, got, "index.json", Fail, "the path of the URL is wrong")
	if help := got["index.json"].Hint; help != "write the URL of the network mirror as https://gateway.example/tf/providers/" {
		t.Errorf("hint %q", help)
	}
}

// TestGatewayWithoutAProvider shows what is requested if the user names no provider, and what the answers mean.
func TestGatewayWithoutAProvider(t *testing.T) {
	const versions, release = `{"versions":{"1.0.0":{}}}`, `{"archives":{"linux_amd64":{"url":"x.zip","hashes":["h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="]}}}`
	acme := provider.MustParseAddress("registry.acme.example/acme/widget")
	const inner = "/hosts/registry.opentofu.org/.well-known/terraform.json"
	for name, tc := range map[string]struct {
		path    string
		answers map[string]string // by the path; a status, an HTML page or JSON
		check   string
		status  Status
		detail  string
		lacks   string
	}{
		"the catalog's provider":      {"/providers/", map[string]string{"/v2/_catalog": `{"repositories":["modules/a/b/c/d","` + acme.Path() + `"]}`, "/providers/" + acme.Path() + "/index.json": versions, "/providers/" + acme.Path() + "/1.0.0.json": release, "/providers/" + acme.Path() + "/x.zip": "PK\x03\x04"}, "archive", OK, "4 bytes", ""},
		"an example":                  {"/providers/", nil, "index.json", Warn, "hashicorp/null is not there", "page"},
		"a token with include":        {"/providers/", map[string]string{"/providers/" + null.Path() + "/index.json": "403"}, "index.json", Warn, "the token may not read registry.opentofu.org/hashicorp/null, which is only an example", ""},
		"an unknown token":            {"/providers/", map[string]string{"/providers/" + null.Path() + "/index.json": "401"}, "index.json", Fail, "401", ""},
		"the gateway's URL":           {"/", map[string]string{inner: "{}"}, "index.json", Fail, "this is the URL of a gateway, and not of its network mirror", ""},
		"the gateway's URL, a path":   {"/below/", map[string]string{"/below" + inner: "{}"}, "index.json", Fail, "this is the URL of a gateway", ""},
		"a mirror at another path":    {"/mirror/", nil, "index.json", Warn, "is not there", "page"},
		"the page":                    {"/providers/", map[string]string{"/": "<html>"}, "page", OK, "answers", ""},
		"the page fails":              {"/providers/", map[string]string{"/": "503"}, "page", Fail, "503", ""},
		"the page fails below a path": {"/below/providers/", map[string]string{"/below/": "503"}, "page", Fail, "/below/ answers 503", ""},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, found := tc.answers[r.URL.Path]
				status, err := strconv.Atoi(answer)
				switch {
				case !found:
					http.NotFound(w, r)
				case err == nil:
					http.Error(w, "no", status)
				case strings.HasPrefix(answer, "<"):
					w.Header().Set("Content-Type", "text/html")
					fmt.Fprint(w, answer)
				default:
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
					fmt.Fprint(w, answer)
				}
			}))
			t.Cleanup(srv.Close)
			got := checks(t, Gateway{
				URL: srv.URL + tc.path, Guesses: []provider.Address{null}, Inner: srv.URL + strings.TrimSuffix(tc.path, "/") + inner,
				Platform: provider.Platform{OS: "linux", Arch: "amd64"}, Prepare: func(*http.Request) {}, TokenSource: "a test",
				Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
			}.Examine(t.Context()))
			want(t, got, tc.check, tc.status, tc.detail)
			if c, found := got[tc.lacks]; found {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestForbiddenProvider shows that status 403 is not taken for a bad token if a token was sent.
func TestForbiddenProvider(t *testing.T) {
	_, got := gatewayOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	want(t, got, "index.json", Fail, "403")
	if help := got["index.json"].Hint; !strings.Contains(help, "it knows the token, which may not read this") {
		t.Errorf("hint %q", help)
	}
}

// TestGatewayOfAHostWithAPort shows that a provider address with a port causes a failed check. Clients would
// take such an address for a URL.
func TestGatewayOfAHostWithAPort(t *testing.T) {
	a := provider.MustParseAddress("localhost:8443/acme/null")
	got := checks(t, Gateway{URL: "https://localhost:1/providers/", Subject: a}.Examine(t.Context()))
	want(t, got, "provider", Fail, "clients cannot install localhost:8443/acme/null through a network mirror")
	if _, asked := got["index.json"]; asked {
		t.Error("the gateway was examined all the same")
	}
}

func TestGatewayURLs(t *testing.T) {
	for in, detail := range map[string]string{
		"https://u:MARK-secret@localhost:1/providers/":     "it holds a user name",
		"https://MARK-secret@localhost:1/providers/":       "it holds a user name",
		"https://u:MARK-%zz@localhost:1/providers/":        "it is none",
		"u:MARK-secret@localhost:1/providers/":             `refuse the scheme "u"`,
		"https://localhost:1/providers/?token=MARK-secret": "it has a query",
		"https:///providers/":                              "no host",
		"https://localhost:1/providers":                    "does not end in a slash",
		"http://localhost:1/providers/":                    `refuse the scheme "http"`,
	} {
		r := Gateway{URL: in, Subject: null}.Examine(t.Context())
		want(t, checks(t, r), "URL", Fail, detail)
		if s := fmt.Sprint(r); strings.Contains(s, "MARK-") {
			t.Errorf("a secret is in %s", s)
		}
	}
}
