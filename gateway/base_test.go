package gateway_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// described has the URLs in a download document.
type described struct {
	Archive   string `json:"download_url"`
	Sums      string `json:"shasums_url"`
	Signature string `json:"shasums_signature_url"`
}

func (d described) all() []string { return []string{d.Archive, d.Sums, d.Signature} }

// documentPath is the path of the download document of widget 1.0.0 for linux_amd64.
const documentPath = hostsPrefix + "1.0.0/download/linux/amd64"

// asks passes a request to a handler. If byTLS is true, the request seems to come over TLS.
func asks(h http.Handler, path, host string, byTLS bool, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host, r.TLS = host, nil
	if byTLS {
		r.TLS = &tls.ConnectionState{}
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// describes returns the URLs in a download document.
func describes(t *testing.T, w *httptest.ResponseRecorder) described {
	t.Helper()
	var d described
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return d
}

// filesOf returns the paths of a release's files, relative to VERSION/.
func filesOf(r *release.Release) []string {
	return []string{"linux_amd64/" + r.Package("linux", "amd64").Filename, "checksums/" + r.SHA256SUMSName(), "checksums/" + r.SHA256SUMSName() + ".sig"}
}

// TestURLsOfDocuments shows that the URLs in a download document begin with the public URL if there is one.
// Otherwise, they begin with the request's Host if the request came over TLS, and are relative if it did not.
func TestURLsOfDocuments(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	for name, tc := range map[string]struct {
		public, host string
		tls          bool
		base, vary   string
	}{
		"TLS":                       {host: "mirror.example", tls: true, base: "https://mirror.example", vary: "Host"},
		"TLS on a port":             {host: "Mirror.Example:8443", tls: true, base: "https://mirror.example:8443", vary: "Host"},
		"TLS at an IPv6 address":    {host: "[::1]:8443", tls: true, base: "https://[::1]:8443", vary: "Host"},
		"public URL":                {public: "https://providers.example.com/", host: "backend:8080", base: "https://providers.example.com"},
		"public URL below a path":   {public: "https://providers.example.com:444/a/b%20c/", host: "backend", base: "https://providers.example.com:444/a/b%20c"},
		"public URL and TLS":        {public: "https://providers.example.com/", host: "evil.example", tls: true, base: "https://providers.example.com"},
		"public URL, no valid Host": {public: "https://providers.example.com/", host: "a b", tls: true, base: "https://providers.example.com"},
		"plain HTTP":                {host: "mirror.example"},
		"plain HTTP, no valid Host": {host: "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			b := *p.bench
			b.options.PublicURL = nil
			if tc.public != "" {
				b.options.PublicURL = parseURL(t, tc.public)
			}
			w := asks(gateway.NewWithin(b.options, b.limits), documentPath, tc.host, tc.tls, "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "http")
			got := describes(t, w)
			for i, file := range filesOf(r) {
				want := tc.base + hostsPrefix + "1.0.0/" + file
				if tc.base == "" {
					want = "../../" + file
				}
				if got.all()[i] != want {
					t.Errorf("%s, want %s", got.all()[i], want)
				}
			}
			if vary := w.Header().Get("Vary"); vary != tc.vary {
				t.Errorf("Vary: %q, want %q", vary, tc.vary)
			}
		})
	}
}

// TestHostOfAnother shows that a request with a forged Host does not affect other clients. No cache and no
// ETag passes the forged Host on.
func TestHostOfAnother(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.catalog(catalog.Options{})
	h := gateway.NewBacked(p.options)
	evil, ours := asks(h, documentPath, "evil.example", true), asks(h, documentPath, "mirror.example", true)
	for w, want := range map[*httptest.ResponseRecorder]string{evil: "https://evil.example/", ours: "https://mirror.example/"} {
		for _, u := range describes(t, w).all() {
			if !strings.HasPrefix(u, want) {
				t.Errorf("%s, want %s", u, want)
			}
		}
		if w.Header().Get("Vary") != "Host" {
			t.Errorf("headers %v", w.Header())
		}
	}
	if w := asks(h, documentPath, "mirror.example", true, "If-None-Match", evil.Header().Get("ETag")); w.Code != http.StatusOK {
		t.Errorf("the tag of another base: %d", w.Code)
	}
	if w := asks(h, documentPath, "MIRROR.example", true, "If-None-Match", ours.Header().Get("ETag")); w.Code != http.StatusNotModified || w.Header().Get("Vary") != "Host" {
		t.Errorf("the same base: %d %v", w.Code, w.Header())
	}
}

func TestHostThatIsNone(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	h := gateway.NewWithin(p.options, p.limits)
	p.registry.Reset()
	for _, name := range []string{"", "a b", "user@mirror.example", "mirror.example/path", "mirror.example:", "mirror.example:99999", `x"y`, "[::1", "-", "a..b", strings.Repeat("a", 300)} {
		if w := asks(h, documentPath, name, true); w.Code != http.StatusBadRequest || len(name) > 1 && strings.Contains(w.Body.String(), name) || w.Header().Get("Vary") != "Host" {
			t.Errorf("Host %q: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
	if n := p.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
	if log := p.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("log:\n%s", log)
	}
}

// TestMadeUpHostsTakeNoMemory shows that many requests for a document do not fill the cache if each request
// has another Host.
func TestMadeUpHostsTakeNoMemory(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	c := p.catalog(catalog.Options{})
	h := gateway.NewBacked(p.options)
	describes(t, asks(h, documentPath, "mirror.example", true))
	before := c.Size()
	for i := range 200 {
		describes(t, asks(h, documentPath, fmt.Sprintf("%d.example", i), true))
	}
	if after := c.Size(); after != before {
		t.Errorf("%+v, and after 200 hosts %+v", before, after)
	}
}

// outside is a client of a gateway, with the URL at which clients reach the gateway.
type outside struct {
	*client
	url string // the gateway's URL, without a slash at the end

	mu    sync.Mutex
	asked []string // the requested paths below url, without capabilities
}

// reach serves a gateway over TLS or plain HTTP. If public is not "", the gateway is behind a proxy. The proxy
// speaks TLS to clients, sends its own Host to the gateway, and removes the path of the public URL.
func (b *bench) reach(public string, byTLS bool) *outside {
	b.t.Helper()
	options, at := b.options, ""
	if public != "" {
		options.PublicURL = parseURL(b.t, public)
		at = strings.TrimSuffix(options.PublicURL.Path, "/")
	}
	inner := gateway.NewWithin(options, b.limits)
	o := &outside{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, at)
		o.mu.Lock()
		o.asked = append(o.asked, strings.Replace(path, capabilityOf(path), "", 1))
		o.mu.Unlock()
		if public != "" {
			r.Host, r.TLS = "backend.internal:8080", nil
		}
		http.StripPrefix(at, inner).ServeHTTP(w, r)
	})
	o.client = b.start(httptest.NewUnstartedServer(h), byTLS || public != "")
	if o.url = o.s.URL; public != "" {
		// The certificate of the test's server is also valid for example.com.
		o.url = "https://example.com" + at
		transport := o.http.Transport.(*http.Transport).Clone()
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, o.s.Listener.Addr().String())
		}
		o.http = &http.Client{Transport: transport}
	}
	return o
}

// fetch sends a GET request for a URL through the given client.
func (o *outside) fetch(c *client, u string) answer {
	o.t.Helper()
	resp, err := c.http.Get(u)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// capabilityOf returns the capability in a path and the slash after the capability. It returns "" if the path
// has no capability.
func capabilityOf(path string) string {
	_, found, ok := strings.Cut(path, "/cap1.")
	if !ok {
		return ""
	}
	found, _, _ = strings.Cut(found, "/")
	return "cap1." + found + "/"
}

// TestTerragrunt shows that Terragrunt's provider cache server works with a host block. That server treats the
// URL of a document as a folder when it resolves relative URLs.
func TestTerragrunt(t *testing.T) {
	right := []string{"versions", "1.0.0/download/linux/amd64", "1.0.0/linux_amd64/ZIP", "1.0.0/checksums/SUMS", "1.0.0/checksums/SUMS.sig"}
	for name, tc := range map[string]struct {
		public string
		tls    bool
		paths  []string // the expected requests, as paths below the provider
	}{
		"TLS":                     {tls: true, paths: right},
		"public URL":              {public: "https://example.com/", paths: right},
		"public URL below a path": {public: "https://example.com/tf/", paths: right},
		"plain HTTP": {paths: []string{"versions", "1.0.0/download/linux/amd64",
			"1.0.0/download/linux_amd64/ZIP", "1.0.0/download/checksums/SUMS", "1.0.0/download/checksums/SUMS.sig"}},
	} {
		for _, controlled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, access controlled %v", name, controlled), func(t *testing.T) {
				p := newPublisher(newBench(t))
				r := p.push(widget, "1.0.0")
				if controlled {
					p.controlled()
				}
				o := p.reach(tc.public, tc.tls)
				withToken := o.as("acme-token")
				if a := o.fetch(withToken, o.url+hostsPrefix+"versions"); a.status != http.StatusOK {
					t.Fatalf("%+v", a)
				}
				at := o.url + documentPath
				a := o.fetch(withToken, at)
				var d described
				if err := json.Unmarshal([]byte(a.body), &d); err != nil {
					t.Fatalf("%v: %+v", err, a)
				}
				document := parseURL(t, at)
				for i, want := range [][]byte{r.Package("linux", "amd64").Data, r.SHA256SUMS, r.Signature} {
					u := d.all()[i]
					if controlled != strings.Contains(u, "/cap1.") {
						t.Errorf("capability in %s", u)
					}
					if !strings.HasPrefix(u, document.Scheme) {
						u = document.JoinPath(u).String()
					}
					if a := o.fetch(o.client, u); a.status != http.StatusOK || a.body != string(want) {
						t.Errorf("%s: %d with %d bytes, want %d", u, a.status, len(a.body), len(want))
					}
				}
				o.sees(r, hostsPrefix, tc.paths)
			})
		}
	}
}

// sees checks that exactly the wanted paths below a prefix were requested. In these paths, ZIP, MAC and SUMS
// stand for the names of the release's files.
func (o *outside) sees(r *release.Release, prefix string, want []string) {
	o.t.Helper()
	names := strings.NewReplacer("ZIP", r.Package("linux", "amd64").Filename, "MAC", r.Package("darwin", "arm64").Filename, "SUMS", r.SHA256SUMSName())
	var all []string
	for _, path := range want {
		all = append(all, prefix+names.Replace(path))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := strings.Join(o.asked, "\n"); got != strings.Join(all, "\n") {
		o.t.Errorf("asked for\n%s\nwant\n%s", got, strings.Join(all, "\n"))
	}
}

// TestJoinedPaths shows that the paths that Terragrunt joins open the same files as the right paths. The same
// clients may read them.
func TestJoinedPaths(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.controlled()
	anybody := p.serve()
	acme := anybody.as("acme-token")
	var d described
	if err := json.Unmarshal([]byte(acme.get(documentPath).body), &d); err != nil {
		t.Fatal(err)
	}
	join := func(ref string) string { return (&url.URL{Path: documentPath}).JoinPath(ref).Path }
	archive, sums := join(d.Archive), join(d.Sums)
	plain := hostsPrefix + "1.0.0/download/" + filesOf(r)[0]
	for name, tc := range map[string]struct {
		client *client
		path   string
		status int
	}{
		"package":                         {anybody, archive, 200},
		"checksums":                       {anybody, sums, 200},
		"without a capability":            {anybody, plain, 401},
		"by a token":                      {acme, plain, 200},
		"by another token":                {anybody.as("other-token"), plain, 403},
		"another version":                 {anybody, strings.Replace(archive, "/1.0.0/", "/2.0.0/", 1), 403},
		"another provider":                {anybody, strings.Replace(archive, "/widget/", "/gadget/", 1), 403},
		"the capability of the checksums": {anybody, strings.Replace(archive, capabilityOf(archive), capabilityOf(sums), 1), 403},
		"a file that is none":             {acme, plain + "x", 404},
		"a platform that is none":         {acme, strings.Replace(plain, "linux_amd64/", "Linux_amd64/", 1), 404},
	} {
		if a := tc.client.get(tc.path); a.status != tc.status {
			t.Errorf("%s: %s: %d, want %d", name, tc.path, a.status, tc.status)
		}
	}
}

// TestRenovate shows that Renovate's datasource and its lock file code work if the registry URL is /hosts/HOST
// at the gateway. Renovate appends relative URLs to the registry URL.
func TestRenovate(t *testing.T) {
	join := func(base, ref string) string {
		if strings.HasPrefix(ref, "https://") {
			return ref
		}
		return strings.TrimSuffix(base, "/") + "/" + strings.TrimPrefix(ref, "/")
	}
	for name, public := range map[string]string{"TLS": "", "public URL": "https://example.com/", "public URL below a path": "https://example.com/tf/"} {
		for _, controlled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, access controlled %v", name, controlled), func(t *testing.T) {
				p := newPublisher(newBench(t))
				r := p.push(widget, "1.0.0")
				if controlled {
					p.controlled()
				}
				o := p.reach(public, true)
				withToken := o.as("acme-token")
				get := func(c *client, u string, out any) string {
					t.Helper()
					a := o.fetch(c, u)
					if a.status != http.StatusOK {
						t.Fatalf("%s: %+v", u, a)
					}
					if err := json.Unmarshal([]byte(a.body), out); out != nil && err != nil {
						t.Fatalf("%s: %v", u, err)
					}
					return a.body
				}
				registry := o.url + "/hosts/" + host
				var services map[string]string
				get(withToken, join(registry, ".well-known/terraform.json"), &services)
				backend := join(registry, services["providers.v1"])
				var listed struct {
					Versions []struct{ Platforms []struct{ OS, Arch string } }
				}
				get(withToken, join(backend, "acme/widget/versions"), &listed)
				for _, on := range listed.Versions[0].Platforms {
					var d described
					get(withToken, join(backend, "acme/widget/1.0.0/download/"+on.OS+"/"+on.Arch), &d)
					if sums := get(o.client, d.Sums, nil); sums != string(r.SHA256SUMS) {
						t.Errorf("%s: %q", d.Sums, sums)
					}
					if data := get(o.client, d.Archive, nil); data != string(r.Package(on.OS, on.Arch).Data) {
						t.Errorf("%s: %d bytes", d.Archive, len(data))
					}
				}
				o.sees(r, "/hosts/"+host+"/", []string{
					".well-known/terraform.json", "v1/providers/acme/widget/versions",
					"v1/providers/acme/widget/1.0.0/download/darwin/arm64", "v1/providers/acme/widget/1.0.0/checksums/SUMS", "v1/providers/acme/widget/1.0.0/darwin_arm64/MAC",
					"v1/providers/acme/widget/1.0.0/download/linux/amd64", "v1/providers/acme/widget/1.0.0/checksums/SUMS", "v1/providers/acme/widget/1.0.0/linux_amd64/ZIP",
				})
			})
		}
	}
}

// TestDiscoveryOfHosts checks the URL of the registry protocol in the discovery document of a mirrored host.
func TestDiscoveryOfHosts(t *testing.T) {
	b := newBench(t)
	for name, tc := range map[string]struct {
		public, hostname, host string
		tls                    bool
		status                 int
		want                   string
	}{
		"TLS":                    {hostname: host, host: "mirror.example:8443", tls: true, status: 200, want: "https://mirror.example:8443/hosts/" + host + "/v1/providers/"},
		"public URL":             {public: "https://example.com/tf/", hostname: host, status: 200, want: "https://example.com/tf/hosts/" + host + "/v1/providers/"},
		"plain HTTP":             {hostname: host, host: "mirror.example", status: 200, want: "../v1/providers/"},
		"a host with a port":     {public: "https://example.com/", hostname: "localhost:9443", status: 200, want: "https://example.com/hosts/localhost:9443/v1/providers/"},
		"a Host that is none":    {hostname: host, host: "a b", tls: true, status: 400},
		"a name that is no host": {public: "https://example.com/", hostname: "a_b", status: 404},
	} {
		b.options.PublicURL = nil
		if tc.public != "" {
			b.options.PublicURL = parseURL(t, tc.public)
		}
		w := asks(gateway.NewWithin(b.options, b.limits), "/hosts/"+tc.hostname+"/.well-known/terraform.json", tc.host, tc.tls)
		if w.Code != tc.status || tc.want != "" && (w.Body.String() != fmt.Sprintf(`{"modules.v1":%q,"providers.v1":%q}`, strings.Replace(tc.want, "v1/providers", "v1/modules", 1), tc.want) || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, tc.status, tc.want)
		}
	}
	if n := b.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
}
