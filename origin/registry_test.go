package origin_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

func TestRelease(t *testing.T) {
	b := newBench(t)
	r := b.mustGet()
	if r.Provider() != widget || r.Version() != v1 || r.Origin != host || r.Partial || !slices.Equal(r.Protocols, []string{"5.0", "6.0"}) {
		t.Errorf("release %+v", r)
	}
	if names(r) != allPlatforms {
		t.Errorf("platforms %s", names(r))
	}
	c := r.Claims
	if string(c.SHA256SUMS) != string(b.release.SHA256SUMS) || string(c.Signature) != string(b.release.Signature) ||
		!slices.Equal(c.Keys, []string{b.signer.ArmoredPublicKey()}) || !strings.Contains(string(c.SigningKeys), b.signer.KeyID()) {
		t.Errorf("claims %+v", c)
	}
	for _, p := range r.Packages {
		want := b.release.Package(p.Platform.OS, p.Platform.Arch)
		if data, size := read(t, p); data != string(want.Data) || size != want.Size || p.Filename != want.Filename {
			t.Errorf("%s: %s with %d bytes, announced %d", p.Platform, p.Filename, len(data), size)
		}
		if sum := c.Announced[p.Filename]; fmt.Sprintf("%x", sum) != want.SHA256 {
			t.Errorf("%s: announced %x", p.Filename, sum)
		}
	}
	if _, err := (trust.Policy{}).Accept(t.Context(), c); err != nil {
		t.Error(err)
	}
	if n := b.asked.Count(recorder.PathContains("SHA256SUMS")); n != 2 {
		t.Errorf("%d requests for SHA256SUMS and signature of one version", n)
	}
}

func TestPlatformsWanted(t *testing.T) {
	for name, tc := range map[string]struct {
		listed bool // the origin lists platforms
		want   []string
		get    string
		part   bool
	}{
		"one":                 {true, []string{"linux_amd64"}, "linux_amd64", true},
		"two in any order":    {true, []string{"linux_amd64", "darwin_arm64"}, "darwin_arm64 linux_amd64", true},
		"one said twice":      {true, []string{"linux_amd64", "linux_amd64"}, "linux_amd64", true},
		"all of them":         {true, []string{"windows_amd64", "linux_amd64", "darwin_arm64"}, allPlatforms, false},
		"unlisted":            {false, []string{"linux_amd64"}, "linux_amd64", true},
		"unlisted, twice":     {false, []string{"linux_amd64", "linux_amd64"}, "linux_amd64", true},
		"unlisted, unordered": {false, []string{"windows_amd64", "darwin_arm64"}, "darwin_arm64 windows_amd64", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if !tc.listed {
				b.answer("/versions", text("application/json", `{"versions":[{"version":"1.0.0"}]}`))
			}
			r := b.mustGet(tc.want...)
			if names(r) != tc.get || r.Partial != tc.part {
				t.Errorf("%s, partial %v", names(r), r.Partial)
			}
		})
	}
}

// TestDiscovery shows, for each form of a base URL, the host and the path of the request for
// the versions.
func TestDiscovery(t *testing.T) {
	for name, tc := range map[string]struct {
		document http.HandlerFunc
		host     string // the host that lists the versions
		path     string
	}{
		"absolute path":          {doc(`{"providers.v1":"/v1/providers/"}`), host, "/v1/providers/acme/widget/versions"},
		"relative path":          {doc(`{"providers.v1":"providers/"}`), host, "/.well-known/providers/acme/widget/versions"},
		"whole URL":              {doc(`{"providers.v1":"https://api.acme.example/p/"}`), "api.acme.example", "/p/acme/widget/versions"},
		"without trailing slash": {doc(`{"providers.v1":"/v1/providers"}`), host, "/v1/acme/widget/versions"},
		"without path":           {doc(`{"providers.v1":"https://api.acme.example"}`), "api.acme.example", "/acme/widget/versions"},
		"beside other services":  {doc(`{"modules.v1":"/m/","login.v1":{"client":"x"},"providers.v1":"/p/"}`), host, "/p/acme/widget/versions"},
		"with a charset":         {text("application/json; charset=utf-8", `{"providers.v1":"/p/"}`), host, "/p/acme/widget/versions"},
		"redirected, relative to where it is found": {redirect("https://api.acme.example/disco/terraform.json"), "api.acme.example", "/disco/p/acme/widget/versions"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			mux := http.NewServeMux()
			mux.HandleFunc(host+"/.well-known/terraform.json", tc.document)
			mux.HandleFunc("/disco/terraform.json", doc(`{"providers.v1":"p/"}`))
			mux.HandleFunc("/", doc(`{"versions":[{"version":"1.0.0"}]}`))
			servers := map[string]*recorder.Recorder{host: n.serve(host, mux), "api.acme.example": n.serve("api.acme.example", mux)}
			client, _ := n.client("")
			l, err := client.Versions(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			if len(l.Versions) != 1 || servers[tc.host].Count(recorder.Path(tc.path)) != 1 {
				t.Errorf("the requests are %+v and %+v", servers[host].Requests(), servers["api.acme.example"].Requests())
			}
		})
	}
}

func doc(body string) http.HandlerFunc { return text("application/json", body) }

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

func TestDiscoveryRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		document http.HandlerFunc
		says     string
	}{
		"not there":           {http.NotFound, "does not provide a providers service"},
		"other services":      {doc(`{"modules.v1":"/m/"}`), "does not provide a providers service"},
		"other protocol":      {doc(`{"providers.v2":"/m/"}`), "does not support providers version 1"},
		"wrong content type":  {text("text/plain", `{"providers.v1":"/v1/"}`), "unsupported Content-Type"},
		"no content type":     {text("", `{"providers.v1":"/v1/"}`), "Content-Type"},
		"HTML":                {text("text/html", `<html>`), "unsupported Content-Type"},
		"not JSON":            {doc(`providers.v1`), "failed to decode"},
		"a list":              {doc(`["providers.v1"]`), "failed to decode"},
		"scheme":              {doc(`{"providers.v1":"ftp://registry.acme.example/"}`), "unsupported scheme ftp"},
		"password in the URL": {doc(`{"providers.v1":"https://user:secret@registry.acme.example/"}`), "embedded username/password"},
		"no host":             {doc(`{"providers.v1":"https:///v1/providers/"}`), "names no host"},
		"redirects for ever":  {redirect("https://" + host + "/.well-known/terraform.json"), "more than 10 redirects"},
		"too long":            {doc(`{"providers.v1":"` + strings.Repeat("x", 64<<10) + `"}`), "more than 65536 bytes"},
		"too many values":     {doc(string(cost.Counted(1_000, `{"providers.v1":"/v1/","x":[`, `0`, `]}`))), "more than 1000 values"},
		"URL too long":        {doc(`{"providers.v1":"/` + strings.Repeat("x", 2<<10) + `"}`), "more than 2048"},
		"redirect too long":   {redirect("https://" + host + "/" + strings.Repeat("x", 8<<10)), "redirected to a URL of"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			n.serve(host, tc.document)
			client, _ := n.client("")
			_, err := client.Versions(t.Context(), widget)
			checkError(t, err, tc.says, "")
			var wait *outgoing.LaterError
			if asked := name == "429" || name == "503"; errors.As(err, &wait) != asked {
				t.Errorf("%v carries a Retry-After: %t, want %t", err, !asked, asked)
			}
			if !strings.Contains(err.Error(), "service discovery of "+host) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestRefusedDiscovery shows the errors for a host that refuses its discovery document. Such
// a host may still be a provider registry.
func TestRefusedDiscovery(t *testing.T) {
	const free = "registry.acme.example refuses its discovery document, which is usually public: a firewall may answer so. If the host wants a token, set TF_TOKEN_registry_acme_example"
	later := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600") // too long to be honoured
			w.WriteHeader(status)
		}
	}
	for name, tc := range map[string]struct {
		document http.HandlerFunc
		is       error
		says     string
		hint     string
	}{
		"401":              {status(http.StatusUnauthorized), origin.ErrUnauthorized, "answered 401 Unauthorized", free},
		"403":              {status(http.StatusForbidden), origin.ErrUnauthorized, "answered 403 Forbidden", free},
		"403 with a page":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>blocked", http.StatusForbidden) }, origin.ErrUnauthorized, "answered 403 Forbidden", free},
		"429":              {later(http.StatusTooManyRequests), nil, "answered 429 Too Many Requests", host + " reports a server error: run it again later"},
		"500":              {later(http.StatusInternalServerError), nil, "answered 500 Internal Server Error", host + " reports a server error: run it again later"},
		"503":              {later(http.StatusServiceUnavailable), nil, "answered 503 Service Unavailable", host + " reports a server error: run it again later"},
		"410":              {status(http.StatusGone), nil, "answered 410 Gone", "is it the host of a provider registry?"},
		"redirect to 403":  {redirect("https://" + host + "/blocked"), origin.ErrUnauthorized, "https://" + host + "/blocked answered 403 Forbidden", free},
		"redirect to self": {redirect("https://" + host + "/.well-known/terraform.json"), nil, "more than 10 redirects", host + " redirects in a circle"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			mux := http.NewServeMux()
			mux.HandleFunc("/", tc.document)
			mux.HandleFunc("/blocked", status(http.StatusForbidden))
			n.serve(host, mux)
			client, _ := n.client("")
			_, err := client.Versions(t.Context(), widget)
			checkError(t, err, tc.says, tc.hint)
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is no %v", err, tc.is)
			}
			if !strings.Contains(err.Error(), "service discovery of "+host) || strings.Count(err.Error(), "https://") != 1 {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestProxyInTheWay shows that an error caused by a proxy blames the proxy and not the host.
func TestProxyInTheWay(t *testing.T) {
	login := httptest.NewServer(status(http.StatusProxyAuthRequired))
	defer login.Close()
	for name, tc := range map[string]struct{ proxy, at, says, hint string }{
		"not there":     {"127.0.0.1:1", "https://mirror.example/", "proxyconnect", "which HTTPS_PROXY names, is not reached: correct the variable, or add mirror.example to NO_PROXY"},
		"wants a login": {login.Listener.Addr().String(), "https://mirror.example/", "answered 407", "which HTTPS_PROXY names, wants a login"},
		"wants a login for plain HTTP": {login.Listener.Addr().String(), "http://mirror.example/", "answered 407",
			"which HTTP_PROXY names, wants a login: write the variable as http://USER:PASSWORD@HOST:PORT, or add mirror.example to NO_PROXY"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
				t.Setenv(variable, "") // the hint names the variable that is set
			}
			transport := outgoing.Transport()
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: tc.proxy})
			defer transport.CloseIdleConnections()
			base, err := url.Parse(tc.at)
			if err != nil {
				t.Fatal(err)
			}
			registry := origin.NewRegistry(origin.RegistryOptions{Transport: transport, Services: origin.NewDiscovery(transport)})
			_, err = registry.NetworkMirror(base).Versions(t.Context(), widget)
			checkError(t, err, tc.says, tc.hint)
			if base.Scheme == "https" {
				_, err = registry.Versions(t.Context(), widget) // the first request is for service discovery
				checkError(t, err, tc.says, "which HTTPS_PROXY names,")
			}
		})
	}
}

// TestLargeAnswersInPlaceOfDiscovery shows the error for a login page that is larger than
// any discovery document. The error must not say that the connection broke off.
func TestLargeAnswersInPlaceOfDiscovery(t *testing.T) {
	long := strings.Repeat("[x],", 64<<10)
	for name, tc := range map[string]struct {
		document   http.HandlerFunc
		says, hint string
	}{
		"page":     {text("text/html", "<html><script>"+long), `unsupported Content-Type "text/html"`, "is it the host of a provider registry?"},
		"document": {doc(`{"x":"` + long + `"}`), "more than 65536 bytes", "ask the operator of the origin"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			n.serve(host, tc.document)
			client, _ := n.client("")
			_, err := client.Versions(t.Context(), widget)
			checkError(t, err, tc.says, tc.hint)
		})
	}
}

// TestNoConnection shows that the hint for a failed connection names what failed.
func TestNoConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*network)
		hint    string
	}{
		"unknown host":    {func(*network) {}, "check its name"},
		"nothing listens": {func(n *network) { n.addrs.Store(host+":443", "127.0.0.1:1") }, "nothing answers there"},
		"authority unknown": {func(n *network) {
			n.ca = tlsca.For(n.t) // the client trusts another CA than the server's
			n.serve(host, http.NotFoundHandler())
			n.ca = tlsca.For(n.t)
		}, "SSL_CERT_FILE"},
		"certificate of another host": {func(n *network) {
			n.serve("other.example", http.NotFoundHandler())
			n.addrs.Store(host+":443", n.addr("other.example:443"))
		}, "for other hosts"},
		"plain HTTP there": {func(n *network) {
			n.servePlain(host, http.NotFoundHandler())
			n.addrs.Store(host+":443", n.addr(host+":80"))
		}, "proxy"},
		"cut off": {func(n *network) {
			n.serve(host, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		}, "run it again"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			tc.prepare(n)
			client, _ := n.client("")
			_, err := client.Versions(t.Context(), widget)
			checkError(t, err, "https://"+host+"/.well-known/terraform.json: ", tc.hint)
		})
	}
}

// TestHostOverride shows that a host block replaces discovery.
func TestHostOverride(t *testing.T) {
	b := newBench(t)
	gateway := b.serve("gateway.example.com", b.origin)
	client, services := b.network.client("secret")
	services.ForceHostServices(widget.ServiceHost(), map[string]any{"providers.v1": "https://gateway.example.com" + testorigin.ServicePath})
	l, err := client.Versions(t.Context(), widget)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Release(t.Context(), widget, l, v1, nil); err != nil {
		t.Fatal(err)
	}
	if n := b.asked.Count(); n != 0 {
		t.Errorf("%d requests to the host itself", n)
	}
	// The requests carry the token for the provider's host, as in clients.
	if json, tokens := gateway.Count(recorder.PathContains("/v1/providers/")), gateway.Count(recorder.Authorized()); json != 4 || tokens != json {
		t.Errorf("%d requests for JSON, %d requests with a token", json, tokens)
	}

	services.ForceHostServices(widget.ServiceHost(), nil)
	_, err = client.Versions(t.Context(), widget)
	checkError(t, err, "does not provide a providers service", "")
}

func TestTokenGoesToJSONAlone(t *testing.T) {
	n := newNetwork(t)
	rel := build(t, pgp.For(t, "Acme"), "1.0.0")
	asked := n.serve(host, testorigin.New(testorigin.Options{Token: "secret"}, rel))
	client, _ := n.client("secret")
	l, err := client.Versions(t.Context(), widget)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Release(t.Context(), widget, l, v1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Packages {
		read(t, p)
	}
	isJSON := func(r recorder.Request) bool {
		return strings.HasPrefix(r.Path, testorigin.ServicePath) || r.Path == "/.well-known/terraform.json"
	}
	for _, r := range asked.Requests() {
		if r.Authorized != isJSON(r) {
			t.Errorf("%s: with credentials: %v", r.Path, r.Authorized)
		}
	}
	if files := asked.Count(recorder.PathContains("/files/")); files != 5 {
		t.Errorf("%d requests for files", files)
	}
}

// TestTokenAndRedirects shows which redirected requests still carry the token.
func TestTokenAndRedirects(t *testing.T) {
	for _, from := range []string{"/.well-known/terraform.json", "/v1/providers/acme/widget/versions"} {
		for name, tc := range map[string]struct {
			to      string
			follows bool
		}{
			"same host":        {"https://" + host + "/elsewhere", true},
			"relative":         {"/elsewhere", true},
			"another host":     {"https://other.example/elsewhere", false},
			"a subdomain":      {"https://sub." + host + "/elsewhere", false},
			"plain HTTP":       {"http://" + host + "/elsewhere", false},
			"HTTP elsewhere":   {"http://other.example/elsewhere", false},
			"by another host":  {"https://other.example/onwards", false},
			"by its subdomain": {"https://sub." + host + "/onwards", false},
		} {
			t.Run(name+" from "+from, func(t *testing.T) {
				n := newNetwork(t)
				mux := http.NewServeMux()
				mux.HandleFunc("/.well-known/terraform.json", doc(`{"providers.v1":"https://`+host+`/v1/providers/"}`))
				mux.HandleFunc("/elsewhere", doc(`{"versions":[],"providers.v1":"https://`+host+`/v1/providers/"}`))
				mux.HandleFunc("/onwards", redirect("https://third.example/elsewhere"))
				mux.HandleFunc("/v1/providers/acme/widget/versions", doc(`{"versions":[]}`))
				first := n.serve(host, mux)
				servers := []*recorder.Recorder{first, n.serve("other.example", mux), n.serve("sub."+host, mux), n.serve("third.example", mux), n.servePlain(host, mux), n.servePlain("other.example", mux)}
				first.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == from {
						redirect(tc.to)(w, r)
					}
					return r.URL.Path == from
				})
				client, _ := n.client("secret")
				if _, err := client.Versions(t.Context(), widget); err != nil {
					t.Fatal(err)
				}
				if r := first.Requests(recorder.Path(from)); len(r) != 1 || !r[0].Authorized {
					t.Errorf("the requests are %+v", r)
				}
				arrived := 0
				for _, s := range servers {
					for _, r := range s.Requests(recorder.Path("/elsewhere")) {
						arrived++
						if r.Authorized != tc.follows {
							t.Errorf("credentials followed: %v", r.Authorized)
						}
					}
					if s != first && s.Count(recorder.Authorized()) > 0 {
						t.Errorf("credentials went to %+v", s.Requests(recorder.Authorized()))
					}
				}
				if arrived != 1 {
					t.Errorf("the redirect was followed %d times", arrived)
				}
			})
		}
	}
}

// TestTokenNeverGoesUnencrypted shows that no request is sent to a base URL with plain HTTP
// if there is a token for the host.
func TestTokenNeverGoesUnencrypted(t *testing.T) {
	n := newNetwork(t)
	n.serve(host, doc(`{"providers.v1":"http://registry.acme.example/v1/providers/"}`))
	plain := n.servePlain(host, doc(`{"versions":[]}`))
	with, _ := n.client("secret")
	_, err := with.Versions(t.Context(), widget)
	checkError(t, err, "unencrypted", "https")
	if strings.Contains(err.Error(), "secret") || plain.Count() != 0 {
		t.Errorf("error %v after %d requests", err, plain.Count())
	}
	without, _ := n.client("")
	if _, err := without.Versions(t.Context(), widget); err != nil {
		t.Error(err)
	}
}

func TestVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		answer   string
		versions string
		warnings []string // substrings of the warnings
	}{
		"sorted": {`{"versions":[{"version":"1.10.0"},{"version":"1.2.0"},{"version":"1.10.0-rc1"},{"version":"1.2.0+b"}]}`,
			"1.2.0 1.2.0+b 1.10.0-rc1 1.10.0", nil},
		"none":           {`{"versions":[]}`, "", nil},
		"null":           {`{"versions":null}`, "", nil},
		"unknown fields": {`{"id":"acme/widget","x":{"y":[]},"versions":[{"version":"1.0.0","protocols":["5.0"],"z":1}]}`, "1.0.0", nil},
		"not versions": {`{"versions":[{"version":"v1.0.0"},{"version":"1.0.0"},{"version":""},{"version":"../1.0.0"},{"version":"1\n\u001b[31m"},{}]}`,
			"1.0.0", []string{`lists entries that are not versions and are ignored: "v1.0.0", "", "../1.0.0", "1\n\x1b[31m", ""`}},
		"many that are not": {`{"versions":[{"version":"1.0.0"}` + strings.Repeat(`,{"version":"latest"}`, 100) + `]}`, "1.0.0", []string{`"latest" and 92 more`}},
		"one twice":         {`{"versions":[{"version":"1.0.0"},{"version":"1.0.0"}]}`, "1.0.0", []string{"versions more than once, which count once: 1.0.0"}},
		"bad platforms": {`{"versions":[{"version":"1.0.0","platforms":[{"os":"Linux","arch":"amd64"},{"os":"","arch":""},{"os":"a/b","arch":".."}]},{"version":"1.1.0"}]}`,
			"1.0.0 1.1.0", []string{`not platforms and are ignored: 1.0.0 for "Linux_amd64", 1.0.0 for "_", 1.0.0 for "a/b_.."`}},
		"the origin's warnings": {`{"versions":[{"version":"1.0.0"}],"warnings":["moved to acme2/widget","","red \u001b[31m\nand\u202e two lines"]}`,
			"1.0.0", []string{"moved to acme2/widget", "red [31m and two lines"}},
		"a long warning": {`{"versions":[],"warnings":["` + strings.Repeat("ü", 600) + `"]}`, "", []string{strings.Repeat("ü", 500) + "..."}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.answer("/versions", doc(tc.answer))
			l, err := b.client.Versions(t.Context(), widget)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range l.Versions {
				got = append(got, v.String())
			}
			if strings.Join(got, " ") != tc.versions {
				t.Errorf("versions %v", got)
			}
			if len(l.Warnings) != len(tc.warnings) {
				t.Fatalf("warnings %q", l.Warnings)
			}
			for i, w := range l.Warnings {
				if !strings.Contains(w, tc.warnings[i]) || strings.ContainsAny(w, "\n\x1b") {
					t.Errorf("warning %q, want %q", w, tc.warnings[i])
				}
			}
		})
	}
}

// TestOriginWarnings shows that OriginWarnings contains the origin's messages without our
// own warnings.
func TestOriginWarnings(t *testing.T) {
	b := newBench(t)
	b.answer("/versions", doc(`{"versions":[{"version":"1.0.0"},{"version":"x"}],"warnings":["moved\n\u001b[2J to \u202eacme/void"," "]}`))
	l, err := b.client.Versions(t.Context(), widget)
	if err != nil || len(l.Warnings) != 2 || fmt.Sprintf("%q", l.OriginWarnings) != `["moved [2J to acme/void"]` {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestVersionListedTwice shows that a version with two entries in the list has the platforms
// of both entries.
func TestVersionListedTwice(t *testing.T) {
	b := newBench(t)
	b.answer("/versions", doc(`{"versions":[
		{"version":"1.0.0","platforms":[{"os":"linux","arch":"amd64"}]},
		{"version":"1.0.0","platforms":[{"os":"linux","arch":"amd64"},{"os":"darwin","arch":"arm64"}]}]}`))
	if r := b.mustGet(); names(r) != "darwin_arm64 linux_amd64" {
		t.Errorf("platforms %s", names(r))
	}
}

// repeated returns n elements of a JSON array.
func repeated(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

func versions(n int, version string) string { return `{"versions":[` + repeated(n, version) + `]}` }

func ofPlatforms(n int) string { return `{"platforms":[` + repeated(n, "{}") + `]}` }

func TestVersionsRefused(t *testing.T) {
	tooLarge := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"versions":[`)
		for spaces := strings.Repeat(" ", 1<<20); ; {
			if _, err := io.WriteString(w, spaces); err != nil {
				return
			}
		}
	}
	compressed := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for spaces := make([]byte, 1<<20); ; {
			if _, err := z.Write(spaces); err != nil {
				return
			}
		}
	}
	for name, tc := range map[string]struct {
		answer     http.HandlerFunc
		is         error
		says, hint string
	}{
		"an empty object":              {doc(`{}`), nil, `no list of versions: "versions" is missing`, "does not keep to the provider registry protocol"},
		"null":                         {doc(`null`), nil, "no list of versions", "does not keep to the provider registry protocol"},
		"warnings alone":               {doc(`{"warnings":["x"]}`), nil, "no list of versions", "does not keep to the provider registry protocol"},
		"404":                          {http.NotFound, origin.ErrProviderNotFound, "answered 404 Not Found", "check the address"},
		"401":                          {status(http.StatusUnauthorized), origin.ErrUnauthorized, "answered 401", "tofu login registry.acme.example, or set TF_TOKEN_registry_acme_example"},
		"403":                          {status(http.StatusForbidden), origin.ErrUnauthorized, "answered 403", "TF_TOKEN_registry_acme_example"},
		"204":                          {status(http.StatusNoContent), nil, "answered 204", "again"},
		"418":                          {status(http.StatusTeapot), nil, "answered 418", host + " refuses the request, and would refuse it again: check the address"},
		"410":                          {status(http.StatusGone), nil, "answered 410 Gone", host + " has withdrawn it: choose another version"},
		"451":                          {status(http.StatusUnavailableForLegalReasons), nil, "answered 451", host + " refuses the request"},
		"HTML with 200":                {text("text/html; charset=utf-8", "<html>log in</html>"), nil, "HTML where JSON was wanted", "login page"},
		"not JSON":                     {text("text/plain", "hello"), nil, "is not the JSON", "protocol"},
		"empty":                        {doc(""), nil, "is not the JSON", "protocol"},
		"truncated":                    {doc(`{"versions":[{"version":"1.0`), nil, "is not the JSON", "protocol"},
		"more after it":                {doc(`{"versions":[]}{}`), nil, "is not the JSON", "protocol"},
		"wrong types":                  {doc(`{"versions":"1.0.0"}`), nil, "is not the JSON", "protocol"},
		"a list":                       {doc(`[]`), nil, "is not the JSON", "protocol"},
		"nested for ever":              {doc(strings.Repeat("[", 100_000)), nil, "nest more than 63 deep", "so large"},
		"too many versions":            {doc(versions(10_001, "{}")), document.ErrTooLarge, "more than 10000 elements", "so large"},
		"too many platforms":           {doc(versions(1, ofPlatforms(129))), document.ErrTooLarge, "129 platforms of one version, more than 128", "so large"},
		"too many platforms in all":    {doc(versions(200, ofPlatforms(3_000))), document.ErrTooLarge, "more than 400000 values", "so large"},
		"too many protocols":           {doc(versions(1, `{"protocols":[`+repeated(17, `"5.0"`)+`]}`)), document.ErrTooLarge, "17 protocols of one version, more than 16", "so large"},
		"too many warnings":            {doc(`{"warnings":[` + repeated(65, `"x"`) + `]}`), document.ErrTooLarge, "65 warnings, more than 64", "so large"},
		"too large":                    {tooLarge, nil, "more than 8388608 bytes", "so large"},
		"small on the way":             {compressed, nil, "more than 8388608 bytes", "so large"},
		"redirect to file":             {redirect("file:///etc/passwd"), nil, "redirected to file:///etc/passwd", "https or http"},
		"redirect to cloud metadata":   {redirect("http://169.254.169.254/latest/"), nil, "an origin on another machine refers to it", "this machine"},
		"redirect to this machine":     {redirect("https://127.0.0.1:1/"), nil, "an origin on another machine refers to it", "this machine"},
		"redirect to this machine, v6": {redirect("https://[::ffff:127.0.0.1]:1/"), nil, "an origin on another machine refers to it", "this machine"},
		"redirect to localhost":        {redirect("http://x.localhost:1/"), nil, "an origin on another machine refers to it", "this machine"},
		"redirect to a number":         {redirect("http://2130706433/"), nil, "an origin on another machine refers to it", "this machine"},
		"redirect to FTP":              {redirect("ftp://" + host + "/versions"), nil, "redirected to ftp://", "https or http"},
		"secret in the URL": {redirect("https://user:secret@" + host + "/gone?X-Amz-Signature=secret"), origin.ErrProviderNotFound,
			"https://" + host + "/gone answered 404", ""},
		"secret in a URL not reached": {redirect("https://user:secret@gone.example/x?X-Amz-Signature=secret"), nil, "https://gone.example/x: ", "check its name"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.answer("/versions", tc.answer)
			_, err := b.client.Versions(t.Context(), widget)
			checkError(t, err, tc.says, tc.hint)
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v is not %v", err, tc.is)
			}
			if !strings.Contains(err.Error(), widget.String()) || strings.Contains(err.Error()+hint.Of(err), "secret") {
				t.Errorf("error %v", err)
			}
			if n := b.asked.Count(recorder.PathSuffix("/versions")); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestNotThere(t *testing.T) {
	b := newBench(t)
	for i := range 12 {
		b.origin.Add(build(t, b.signer, fmt.Sprintf("2.%d.0", i)))
	}
	l, err := b.client.Versions(t.Context(), widget)
	if err != nil {
		t.Fatal(err)
	}
	const newest = host + " offers 2.11.0, 2.10.0, 2.9.0, 2.8.0, 2.7.0, 2.6.0, 2.5.0, 2.4.0 and 5 more"

	_, err = b.client.Release(t.Context(), widget, l, provider.MustParseVersion("3.0.0"), nil)
	checkError(t, err, widget.String()+" 3.0.0: version not found", newest)
	if !errors.Is(err, origin.ErrVersionNotFound) {
		t.Errorf("error %v", err)
	}

	set, err := provider.ParseConstraint("> 3")
	if err != nil {
		t.Fatal(err)
	}
	err = l.NoMatch(widget, set)
	checkError(t, err, widget.String()+" > 3: version not found", newest)
	if !errors.Is(err, origin.ErrVersionNotFound) {
		t.Errorf("error %v", err)
	}

	_, err = b.client.Release(t.Context(), widget, l, v1, platforms("linux_amd64", "plan9_386"))
	checkError(t, err, widget.String()+" 1.0.0 for plan9_386: platform not found", "its platforms are darwin_arm64, linux_amd64, windows_amd64")
	if !errors.Is(err, origin.ErrPlatformNotFound) {
		t.Errorf("error %v", err)
	}

	b.answer("/versions", doc(`{"versions":[{"version":"1.0.0"}]}`))
	_, err = b.get()
	checkError(t, err, "does not say for which platforms", "--platform")
	_, err = b.get("linux_amd64", "plan9_386")
	checkError(t, err, "for plan9_386: platform not found", "--platform")
	if !errors.Is(err, origin.ErrPlatformNotFound) {
		t.Errorf("error %v", err)
	}

	b.answer("/versions", doc(`{"versions":[]}`))
	_, err = b.get()
	checkError(t, err, "version not found", "offers nothing")
}

// manyPackages returns reports about the packages of all platforms and about n more
// packages. Each report has m hashes.
func manyPackages(n, m int) map[string]any {
	out := map[string]any{}
	names := []string{"windows_amd64", "linux_amd64", "darwin_arm64"}
	for i := range n {
		names = append(names, fmt.Sprint("other_", i))
	}
	for _, name := range names {
		out[name] = map[string]any{"package_size": 1, "hashes": slices.Repeat([]string{"h9:x"}, m)}
	}
	return out
}

// TestPackageAnswerRefused shows that each kind of error in a document about a package leads
// to a refusal.
func TestPackageAnswerRefused(t *testing.T) {
	set := func(key string, value any) func(map[string]any) {
		return func(m map[string]any) {
			if value == nil {
				delete(m, key)
			} else {
				m[key] = value
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(map[string]any)
		says   string
	}{
		"too many protocols":         {set("protocols", slices.Repeat([]string{"5.0"}, 17)), "17 protocols, more than 16"},
		"too many packages":          {set("packages", manyPackages(126, 1)), "129 packages of one version, more than 128"},
		"too many hashes":            {set("packages", manyPackages(0, 65)), "65 hashes of one package, more than 64"},
		"another system":             {set("os", "plan9"), `is about "plan9_`},
		"another architecture":       {set("arch", "386"), `_386"`},
		"no platform":                {func(m map[string]any) { delete(m, "os"); delete(m, "arch") }, `is about "_"`},
		"file name of a folder":      {set("filename", "a/b.zip"), `file name "a/b.zip"`},
		"file name above":            {set("filename", "../b.zip"), "file name"},
		"file name with backslash":   {set("filename", `a\b.zip`), "file name"},
		"file name is dots":          {set("filename", ".."), "file name"},
		"hidden file name":           {set("filename", ".zip"), "file name"},
		"file name of an option":     {set("filename", "-rf.zip"), "file name"},
		"file name of two lines":     {set("filename", "a\nb.zip"), "file name"},
		"no file name":               {set("filename", nil), `file name ""`},
		"sum too short":              {set("shasum", "abcd"), `SHA-256 "abcd"`},
		"sum not hexadecimal":        {set("shasum", strings.Repeat("x", 64)), "SHA-256"},
		"no sum":                     {set("shasum", nil), `SHA-256 ""`},
		"package in a file":          {set("download_url", "file:///etc/passwd"), "not of the scheme https or http"},
		"package by FTP":             {set("download_url", "ftp://"+host+"/x.zip"), "not of the scheme https or http"},
		"package on this machine":    {set("download_url", "http://localhost:1/x.zip"), "an origin on another machine refers to it"},
		"package next to it":         {set("download_url", "http://[fe80::1]/x.zip"), "an origin on another machine refers to it"},
		"checksums on this machine":  {set("shasums_url", "//127.1/x"), "an origin on another machine refers to it"},
		"package without host":       {set("download_url", "https:///x.zip"), "download_url"},
		"package of opaque URL":      {set("download_url", "https:x.zip"), "download_url"},
		"package URL too long":       {set("download_url", "https://"+host+"/"+strings.Repeat("x", 8<<10)), "more than 8192 bytes"},
		"package nowhere":            {set("download_url", nil), `download_url ""`},
		"package URL unreadable":     {set("download_url", "http://[::1"), "download_url"},
		"checksums in a file":        {set("shasums_url", "file:///etc/passwd"), "shasums_url"},
		"checksums nowhere":          {set("shasums_url", nil), `shasums_url ""`},
		"signature in a file":        {set("shasums_signature_url", "file:///etc/passwd"), "shasums_signature_url"},
		"signature URL of two lines": {set("shasums_signature_url", "https://a\nb/"), "shasums_signature_url"},
		"signing keys of wrong type": {set("signing_keys", "ABCD"), "signing_keys"},
		"signing keys as a list":     {set("signing_keys", map[string]any{"gpg_public_keys": []any{"ABCD"}}), "signing_keys"},
		"one name, two sums": {func(m map[string]any) {
			m["filename"] = "terraform-provider-widget_1.0.0.zip"
		}, "two SHA-256 sums for terraform-provider-widget_1.0.0.zip"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.alter(tc.change)
			_, err := b.get()
			checkError(t, err, tc.says, "")
			if !strings.Contains(err.Error(), widget.String()+" 1.0.0") {
				t.Errorf("error %v", err)
			}
			if n := b.asked.Count(recorder.PathSuffix(".zip")); n != 0 {
				t.Errorf("%d packages fetched", n)
			}
		})
	}
}

// TestPackageURLs shows how URLs in the document about a package are resolved.
func TestPackageURLs(t *testing.T) {
	b := newBench(t)
	files := "/files/acme/widget/1.0.0/"
	cdn := b.serve("cdn.example", b.origin)
	plain := b.servePlain("cdn.example", b.origin)
	b.alter(func(m map[string]any) {
		m["download_url"] = "http://cdn.example" + files + m["filename"].(string) + "?token=1"
		m["shasums_url"] = "//cdn.example" + files + b.release.SHA256SUMSName()
		m["shasums_signature_url"] = files + b.release.SignatureName()
	})
	r := b.mustGet("linux_amd64")
	if data, _ := read(t, r.Packages[0]); data != string(b.release.Package("linux", "amd64").Data) {
		t.Errorf("read %d bytes", len(data))
	}
	if p := plain.Requests(); len(p) != 1 || p[0].Query != "token=1" {
		t.Errorf("by HTTP %+v", p)
	}
	if cdn.Count(recorder.PathSuffix("_SHA256SUMS")) != 1 || b.asked.Count(recorder.PathSuffix(".sig")) != 1 {
		t.Errorf("the requests are %+v and %+v", cdn.Requests(), b.asked.Requests())
	}
}

// TestAbout shows which source and publication time come from the document about a package.
func TestAbout(t *testing.T) {
	const repository = "https://github.com/acme/terraform-provider-widget"
	for name, tc := range map[string]struct {
		source, published any
		download          string
		want              provider.About
	}{
		"nothing":                       {},
		"both":                          {source: repository, published: "2026-01-02T03:04:05Z", want: provider.About{Source: repository, PublishedAt: "2026-01-02T03:04:05Z"}},
		"another time zone":             {published: "2026-01-02T03:04:05.5+01:00", want: provider.About{PublishedAt: "2026-01-02T02:04:05Z"}},
		"no URL and no time":            {source: "javascript:x", published: "yesterday"},
		"wrong types":                   {source: 5, published: map[string]any{"x": 1}},
		"a release of a repository":     {download: repository + "/releases/download/v1.0.0/x.zip", want: provider.About{Source: repository}},
		"a release, and another source": {source: "https://git.example/w", download: repository + "/releases/download/v1.0.0/x.zip", want: provider.About{Source: "https://git.example/w"}},
		"a file that is in no release":  {download: "https://github.com/acme/releases/download/v1.0.0/x.zip"},
		"a folder in a release":         {download: repository + "/releases/download/v1.0.0/a/x.zip"},
		"a release, and a password":     {download: "https://user:secret@github.com/acme/w/releases/download/v1.0.0/x.zip", want: provider.About{Source: "https://github.com/acme/w"}},
		"a release, and a signed query": {download: "https://github.com/acme/w/releases/download/v1.0.0/x.zip?token=secret", want: provider.About{Source: "https://github.com/acme/w"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.alter(func(m map[string]any) {
				if tc.source != nil {
					m["source"] = tc.source
				}
				if tc.published != nil {
					m["published_at"] = tc.published
				}
				if tc.download != "" {
					m["download_url"] = tc.download
				}
			})
			if r := b.mustGet("linux_amd64"); r.About != tc.want {
				t.Errorf("%+v, want %+v", r.About, tc.want)
			}
		})
	}
}

// TestUnsigned shows that a release without keys has claims without keys. Its signature is optional. Package trust
// decides whether such claims are acceptable.
func TestUnsigned(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(map[string]any)
		signature bool // whether the claims have the origin's signature
	}{
		"no keys":                      {func(m map[string]any) { m["signing_keys"] = map[string]any{"gpg_public_keys": []any{}} }, true},
		"null":                         {func(m map[string]any) { m["signing_keys"] = nil }, true},
		"no signing_keys":              {func(m map[string]any) { delete(m, "signing_keys") }, true},
		"neither keys nor a signature": {func(m map[string]any) { delete(m, "signing_keys"); delete(m, "shasums_signature_url") }, false},
		"no keys, and a signature that is not there": {func(m map[string]any) { delete(m, "signing_keys"); m["shasums_signature_url"] = "/no-such-file" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.alter(tc.change)
			r := b.mustGet()
			if len(r.Claims.Keys) != 0 || (r.Claims.Signature != nil) != tc.signature || string(r.Claims.SigningKeys) == "null" {
				t.Errorf("claims %+v", r.Claims)
			}
			if _, err := (trust.Policy{}).Accept(t.Context(), r.Claims); !errors.Is(err, trust.ErrUnsigned) {
				t.Errorf("error %v", err)
			}
			if _, err := (trust.Policy{AllowUnsigned: true}).Accept(t.Context(), r.Claims); err != nil {
				t.Errorf("allowed: %v", err)
			}
		})
	}
	t.Run("released so", func(t *testing.T) {
		b := newBench(t)
		b.origin.Add(build(t, nil, "1.0.0"))
		if r := b.mustGet(); len(r.Claims.Keys) != 0 {
			t.Errorf("claims %+v", r.Claims)
		}
	})
}

// TestUncleanArmour shows that a key whose armour Terraform cannot read is replaced by clean armour, with a warning.
func TestUncleanArmour(t *testing.T) {
	b := newBench(t)
	want := b.mustGet("linux_amd64")
	b.alter(func(m map[string]any) {
		key := m["signing_keys"].(map[string]any)["gpg_public_keys"].([]any)[0].(map[string]any)
		key["ascii_armor"] = strings.ReplaceAll(key["ascii_armor"].(string), "\n", " \n")
	})
	got := b.mustGet("linux_amd64")
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], trust.ErrArmour.Error()) || !strings.Contains(got.Warnings[0], "stored in clean armour") {
		t.Errorf("warnings %q", got.Warnings)
	}
	if len(want.Warnings) != 0 || len(got.Claims.Keys) != 1 || trust.CheckArmour(got.Claims.Keys[0]) != nil {
		t.Errorf("warnings %q, keys %q", want.Warnings, got.Claims.Keys)
	}
	if keys, err := trust.ParseSigningKeys(got.Claims.SigningKeys); err != nil || !slices.Equal(keys, got.Claims.Keys) {
		t.Errorf("stored are %q, %v", keys, err)
	}
}

func TestDocumentsRefused(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 1<<20+1)) }
	for name, tc := range map[string]struct {
		spoil      func(*bench)
		is         error
		says, hint string
	}{
		"signature 404": {func(b *bench) { b.answer(".sig", http.NotFound) }, trust.ErrUnsigned, "SHA256SUMS.sig answered 404", "signing keys"},
		"signature 403": {func(b *bench) { b.answer(".sig", status(http.StatusForbidden)) }, nil, "answered 403", "signing keys"},
		"no signature URL": {func(b *bench) { b.alter(func(m map[string]any) { delete(m, "shasums_signature_url") }) },
			trust.ErrUnsigned, "no shasums_signature_url", "signing keys"},
		"signature too large":  {func(b *bench) { b.answer(".sig", long) }, nil, "more than 1048576 bytes", "so large"},
		"checksums 404":        {func(b *bench) { b.answer("_SHA256SUMS", http.NotFound) }, nil, "SHA256SUMS answered 404", "checksum document"},
		"checksums too large":  {func(b *bench) { b.answer("_SHA256SUMS", long) }, nil, "more than 1048576 bytes", "so large"},
		"package 404 in JSON":  {func(b *bench) { b.answer("/download/linux/amd64", http.NotFound) }, origin.ErrPlatformNotFound, "for linux_amd64", "--platform"},
		"package 401 in JSON":  {func(b *bench) { b.answer("/download/linux/amd64", status(401)) }, origin.ErrUnauthorized, "for linux_amd64", "TF_TOKEN_"},
		"package HTML in JSON": {func(b *bench) { b.answer("/download/linux/amd64", text("text/html", "<html>")) }, nil, "HTML", "login page"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tc.spoil(b)
			_, err := b.get()
			checkError(t, err, tc.says, tc.hint)
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v is not %v", err, tc.is)
			}
			if got := errors.Is(err, trust.ErrUnsigned); got != (tc.is == trust.ErrUnsigned) {
				t.Errorf("unsigned: %v", got)
			}
		})
	}
}

func TestDownload(t *testing.T) {
	b := newBench(t)
	p := b.mustGet("linux_amd64").Packages[0]
	want := b.release.Package("linux", "amd64")

	b.answer(".zip", redirect("https://cdn.example/x.zip?X-Amz-Signature=secret"))
	_, _, err := p.Open(t.Context())
	checkError(t, err, "download "+want.Filename+": https://cdn.example/x.zip: ", "check its name")
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}

	cdn := b.serve("cdn.example", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush() // so that the length is not announced
		w.Write(want.Data)
	}))
	if data, size := read(t, p); data != string(want.Data) || size != -1 {
		t.Errorf("%d bytes, announced %d", len(data), size)
	}
	if n := cdn.Count(recorder.Authorized()); n != 0 {
		t.Errorf("%d requests with credentials", n)
	}

	b.answer(".zip", http.NotFound)
	_, _, err = p.Open(t.Context())
	checkError(t, err, "download "+want.Filename+": https://"+host+"/files/acme/widget/1.0.0/"+want.Filename+" answered 404 Not Found", "nothing was stored")
}

// TestUserAgent shows that every request has the headers that name the program and the party
// on whose behalf it acts.
func TestUserAgent(t *testing.T) {
	b := newBench(t)
	b.asked.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if got := r.UserAgent(); got != "ocibridge/test" && r.URL.Path != "/.well-known/terraform.json" {
			t.Errorf("%s: user agent %q", r.URL.Path, got)
		}
		if got := r.Header.Get("Via"); got != "1.1 test" && r.URL.Path != "/.well-known/terraform.json" {
			t.Errorf("%s: via %q", r.URL.Path, got)
		}
		return false
	})
	read(t, b.mustGet("linux_amd64").Packages[0])
}

// TestSharedPackage shows that one package may serve several platforms.
func TestSharedPackage(t *testing.T) {
	b := newBench(t)
	linux := b.release.Package("linux", "amd64")
	b.alter(func(m map[string]any) { m["filename"], m["shasum"] = linux.Filename, linux.SHA256 })
	r := b.mustGet()
	if sum := r.Claims.Announced[linux.Filename]; len(r.Packages) != 3 || len(r.Claims.Announced) != 1 || fmt.Sprintf("%x", sum) != linux.SHA256 {
		t.Errorf("claims %+v", r.Claims)
	}
}

// TestBuildMetadata shows that a version with a plus sign is requested at the same URL as by
// clients.
func TestBuildMetadata(t *testing.T) {
	b := newBench(t)
	b.origin.Add(release.For(t, release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: "1.0.0+b.1", Signer: b.signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"x": nil}}}}))
	l, err := b.client.Versions(t.Context(), widget)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.client.Release(t.Context(), widget, l, provider.MustParseVersion("1.0.0+b.1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Packages[0].Filename != "terraform-provider-widget_1.0.0+b.1_linux_amd64.zip" {
		t.Errorf("package %+v", r.Packages[0])
	}
	read(t, r.Packages[0])
}
