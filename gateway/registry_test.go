package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// hostsPrefix begins the paths of widget in the provider registry protocol.
const hostsPrefix = "/hosts/" + host + "/v1/providers/acme/widget/"

// publisher signs releases of widget, which an origin registry offers, and pushes
// them into the bench's registry.
type publisher struct {
	*bench
	signer *pgp.Signer
	origin *origin.Origin
	server *httptest.Server
}

func newPublisher(b *bench) *publisher {
	p := &publisher{bench: b, signer: pgp.For(b.t, "Acme"), origin: origin.New(origin.Options{})}
	p.server = httptest.NewServer(p.origin)
	b.t.Cleanup(p.server.Close)
	return p
}

// registryClient is our own client of the protocol, to whom widget's host has this
// base URL.
func registryClient(base string, transport http.RoundTripper) *realorigin.Registry {
	services := disco.New()
	services.ForceHostServices(svchost.Hostname(host), map[string]any{"providers.v1": base})
	return realorigin.NewRegistry(realorigin.RegistryOptions{Services: services, Transport: transport})
}

// spec is a release of widget for two platforms.
func (p *publisher) spec(version string) release.Spec {
	s := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: version, Protocols: []string{"5.0", "6.1"}, Signer: p.signer}
	for _, platform := range []provider.Platform{linux, darwin} {
		s.Contents = append(s.Contents, release.Content{OS: platform.OS, Arch: platform.Arch,
			Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(version + " for " + platform.String())}})
	}
	return s
}

// push has the origin offer a signed release, and pushes it as provider a.
func (p *publisher) push(a provider.Address, version string) *release.Release {
	p.t.Helper()
	r := release.For(p.t, p.spec(version))
	r.Keys[0].TrustSignature, r.Keys[0].Source, r.Keys[0].SourceURL = "<&>", "Acme", "https://acme.example/"
	p.origin.Add(r)
	services := disco.New()
	services.ForceHostServices(a.ServiceHost(), map[string]any{"providers.v1": p.server.URL + origin.ServicePath})
	p.pushFrom(realorigin.NewRegistry(realorigin.RegistryOptions{Services: services}), a, version, trust.Policy{})
	return r
}

func (p *publisher) pushFrom(from *realorigin.Registry, a provider.Address, version string, policy trust.Policy) {
	p.t.Helper()
	to := pusher.New(pusher.Options{Policy: func(provider.Address) trust.Policy { return policy }, Destination: func(context.Context, provider.Address) (pusher.Destination, error) {
		return pusher.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: a.Path()}, Store: p.repository(a)}, nil
	}})
	if _, err := to.Push(p.t.Context(), fetch(p.t, from, a, version)); err != nil {
		p.t.Fatal(err)
	}
	p.registry.Reset()
}

// pushUnsigned pushes a release that nobody signed.
func (p *publisher) pushUnsigned(version string) {
	p.t.Helper()
	spec := p.spec(version)
	spec.Signer = nil
	p.origin.Add(release.For(p.t, spec))
	p.pushFrom(registryClient(p.server.URL+origin.ServicePath, nil), widget, version, trust.Policy{AllowUnsigned: true})
}

func fetch(t testing.TB, from *realorigin.Registry, a provider.Address, version string) *realorigin.Release {
	t.Helper()
	listing, err := from.Versions(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	r, err := from.Release(t.Context(), a, listing, provider.MustParseVersion(version), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sameRelease compares all that a client can learn of a release.
func sameRelease(t *testing.T, got, want *realorigin.Release) {
	t.Helper()
	if !jsonEqual(t, got.Claims.SigningKeys, want.Claims.SigningKeys) {
		t.Errorf("signing keys\n%s\nwant\n%s", got.Claims.SigningKeys, want.Claims.SigningKeys)
	}
	g, w := got.Claims, want.Claims
	g.SigningKeys, w.SigningKeys = nil, nil
	if !reflect.DeepEqual(g, w) || !slices.Equal(got.Protocols, want.Protocols) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if len(got.Packages) != len(want.Packages) {
		t.Fatalf("%d packages, want %d", len(got.Packages), len(want.Packages))
	}
	for _, p := range got.Packages {
		i := slices.IndexFunc(want.Packages, func(q realorigin.Package) bool { return q.Platform == p.Platform && q.Filename == p.Filename })
		if i < 0 || !bytes.Equal(content(t, p), content(t, want.Packages[i])) {
			t.Errorf("%s for %s is another one", p.Filename, p.Platform)
		}
	}
}

func content(t *testing.T, p realorigin.Package) []byte {
	t.Helper()
	body, _, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func jsonEqual(t *testing.T, a, b []byte) bool {
	t.Helper()
	return reflect.DeepEqual(decode(t, string(a)), decode(t, string(b)))
}

// TestRegistryRoundTrip reads a mirrored host's release as it is read from its
// origin.
func TestRegistryRoundTrip(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		p := newPublisher(newBench(t))
		for _, version := range []string{"1.0.0", "1.1.0-rc.1", "1.1.0+build.5"} {
			p.push(widget, version)
			c := p.serveOver(http2)
			from := registryClient(gateway.RegistryURL(c.s.URL+"/", host), c.http.Transport)
			got := fetch(t, from, widget, version)
			sameRelease(t, got, fetch(t, registryClient(p.server.URL+origin.ServicePath, nil), widget, version))
			if sums, err := (trust.Policy{}).Accept(got.Claims); err != nil || sums.Verdict() != trust.Signed || sums.Signer().Fingerprint != p.signer.Fingerprint() {
				t.Errorf("%s: %v, by %+v", version, err, sums)
			}
		}
	})
}

// TestOwnHostByDiscovery finds the gateway's own providers as clients do: by the
// host name in their address alone, on the port that it implies.
func TestOwnHostByDiscovery(t *testing.T) {
	for name, public := range map[string]string{"plain": "https://example.com/", "other port": "https://Example.com:8443/", "below a path": "https://example.com/tf/"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			own := provider.MustParseAddress("example.com/acme/widget")
			p := newPublisher(b)
			p.push(own, "1.0.0")
			b.options.PublicURL = parseURL(t, public)
			path := strings.TrimSuffix(b.options.PublicURL.Path, "/")
			h := gateway.New(b.options)
			// What stands before the gateway takes the path away, but for discovery.
			proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/.well-known/terraform.json" {
					h.ServeHTTP(w, r)
					return
				}
				http.StripPrefix(path, h).ServeHTTP(w, r)
			}))
			t.Cleanup(proxy.Close)
			transport := proxy.Client().Transport.(*http.Transport).Clone()
			var asked []string
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				asked = append(asked, addr)
				return (&net.Dialer{}).DialContext(ctx, network, proxy.Listener.Addr().String())
			}
			got := fetch(t, realorigin.NewRegistry(realorigin.RegistryOptions{Transport: transport}), own, "1.0.0")
			if sums, err := (trust.Policy{}).Accept(got.Claims); err != nil || sums.Verdict() != trust.Signed {
				t.Errorf("%v, %+v", err, sums)
			}
			for _, pkg := range got.Packages {
				if len(content(t, pkg)) == 0 {
					t.Errorf("%s is empty", pkg.Filename)
				}
			}
			if len(asked) == 0 || slices.ContainsFunc(asked, func(a string) bool { return a != "example.com:443" }) {
				t.Errorf("asked at %v", asked)
			}
		})
	}
}

func parseURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDiscoveryDocument(t *testing.T) {
	for public, want := range map[string]string{
		"https://providers.example.com/":         `{"providers.v1":"/v1/providers/"}`,
		"https://providers.example.com:8443/":    `{"providers.v1":"/v1/providers/"}`,
		"https://providers.example.com/a/b%20c/": `{"providers.v1":"/a/b%20c/v1/providers/"}`,
		"https://bücher.example/":                `{"providers.v1":"/v1/providers/"}`,
		"https://[::1]:8443/":                    "",
		"":                                       "",
	} {
		b := newBench(t)
		if public != "" {
			b.options.PublicURL = parseURL(t, public)
		}
		a := b.serve().get("/.well-known/terraform.json")
		if want == "" && a.status == http.StatusNotFound {
			continue
		}
		if a.status != http.StatusOK || a.body != want || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %+v", public, a)
		}
	}
}

// TestHostHeaderNamesNoProvider asks in the name of other hosts, as an attacker
// may, and as a proxy does that writes its backend's.
func TestHostHeaderNamesNoProvider(t *testing.T) {
	b := newBench(t)
	p := newPublisher(b)
	p.push(provider.MustParseAddress("gateway.example/acme/widget"), "1.0.0")
	b.options.PublicURL = parseURL(t, "https://gateway.example:8443/")
	h := gateway.NewWithin(b.options, b.limits)
	for _, name := range []string{"gateway.example", "gateway.example:8443", "localhost:8443", host, "", "x/../y", "elsewhere.example"} {
		b.registry.Reset()
		r := httptest.NewRequest(http.MethodGet, "/v1/providers/acme/widget/versions", nil)
		r.Host = name
		r.Header.Set("X-Forwarded-Host", host)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || b.registry.Count() == 0 || b.registry.Count() != b.registry.Count(recorder.PathContains("/gateway.example/acme/widget/")) {
			t.Errorf("Host %q: %d, requests %v", name, w.Code, b.registry.Requests())
		}
	}
}

func TestNoOwnHost(t *testing.T) {
	b := newBench(t)
	newPublisher(b).push(widget, "1.0.0")
	c := b.serve()
	for _, path := range []string{"/.well-known/terraform.json", "/v1/providers/acme/widget/versions", "/v1/providers/acme/widget/1.0.0/download/linux/amd64"} {
		if a := c.get(path); a.status != http.StatusNotFound {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if n := b.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
}

// TestListingReadsEachIndexOnce compares the answer with the origin's, and counts
// requests.
func TestListingReadsEachIndexOnce(t *testing.T) {
	p := newPublisher(newBench(t))
	for _, v := range []string{"1.10.0", "1.2.0", "2.0.0-rc.1"} {
		p.push(widget, v)
	}
	a := p.serve().get(hostsPrefix + "versions")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%+v", a)
	}
	const platforms = `"protocols":["5.0","6.1"],"platforms":[{"os":"darwin","arch":"arm64"},{"os":"linux","arch":"amd64"}]`
	if want := `{"versions":[{"version":"1.2.0",` + platforms + `},{"version":"1.10.0",` + platforms + `},{"version":"2.0.0-rc.1",` + platforms + `}]}`; a.body != want {
		t.Errorf("got\n%s\nwant\n%s", a.body, want)
	}
	if n := p.registry.Count(); n != 1+3 {
		t.Errorf("%d requests: %v", n, p.registry.Requests())
	}
}

// TestDownload compares the answer with the origin's.
func TestDownload(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	resp, err := http.Get(p.server.URL + origin.ServicePath + "acme/widget/1.0.0/download/linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var want map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&want); err != nil {
		t.Fatal(err)
	}
	c := p.serve()
	p.registry.Reset()
	a := c.get(hostsPrefix + "1.0.0/download/linux/amd64")
	if n := p.registry.Count(); n != 6 {
		t.Errorf("%d requests, want the index, the evidence's manifest and its four layers: %v", n, p.registry.Requests())
	}
	got, ok := decode(t, a.body).(map[string]any)
	if !ok || a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%+v", a)
	}
	packages := map[string]any{}
	for _, pkg := range c.archives(t, "1.0.0") {
		packages[pkg.platform] = map[string]any{"hashes": pkg.hashes, "package_size": float64(r.Package(pkg.os, pkg.arch).Size)}
	}
	if !reflect.DeepEqual(got["packages"], any(packages)) || len(packages) != 2 {
		t.Errorf("packages\n%v\nwant\n%v", got["packages"], packages)
	}
	delete(got, "packages")
	for name, data := range map[string][]byte{"download_url": r.Package("linux", "amd64").Data, "shasums_url": r.SHA256SUMS, "shasums_signature_url": r.Signature} {
		u := parseURL(t, c.s.URL+hostsPrefix+"1.0.0/download/linux/amd64").ResolveReference(parseURL(t, got[name].(string)))
		if f := c.get(u.Path); f.status != http.StatusOK || f.body != string(data) {
			t.Errorf("%s: %s is answered %d, with %d bytes", name, u, f.status, len(f.body))
		}
		if wantName := want[name].(string); u.Path[strings.LastIndex(u.Path, "/"):] != wantName[strings.LastIndex(wantName, "/"):] || strings.Contains(got[name].(string), "?") {
			t.Errorf("%s: %s, the origin has %s", name, got[name], wantName)
		}
		delete(got, name)
		delete(want, name)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

type servedArchive struct {
	platform, os, arch string
	hashes             any
}

// archives returns what the network mirror says of a version.
func (c *client) archives(t *testing.T, version string) []servedArchive {
	t.Helper()
	var doc struct {
		Archives map[string]struct{ Hashes any }
	}
	if err := json.Unmarshal([]byte(c.get(prefix+version+".json").body), &doc); err != nil {
		t.Fatal(err)
	}
	var out []servedArchive
	for platform, a := range doc.Archives {
		goos, arch, _ := strings.Cut(platform, "_")
		out = append(out, servedArchive{platform, goos, arch, a.Hashes})
	}
	return out
}

// TestUnsignedVersionsAreAbsent has a version that was accepted by its checksums,
// and one that another tool pushed.
func TestUnsignedVersionsAreAbsent(t *testing.T) {
	p := newPublisher(newBench(t))
	p.pushUnsigned("1.0.0")
	p.pushByRecipe("1.1.0")
	c := p.serve()
	if a := c.get(hostsPrefix + "versions"); a.status != http.StatusNotFound {
		t.Errorf("nothing is signed: %+v", a)
	}
	p.push(widget, "0.9.0")
	var doc struct{ Versions []struct{ Version string } }
	if a := c.get(hostsPrefix + "versions"); json.Unmarshal([]byte(a.body), &doc) != nil || len(doc.Versions) != 1 || doc.Versions[0].Version != "0.9.0" {
		t.Errorf("%+v", a)
	}
	for _, path := range []string{
		"1.0.0/download/linux/amd64", "1.1.0/download/linux/amd64", "9.9.9/download/linux/amd64",
		"1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "1.1.0/checksums/terraform-provider-widget_1.1.0_SHA256SUMS.sig",
		"0.9.0/download/plan9/amd64", "0.9.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "0.9.0/checksums/x",
	} {
		if a := c.get(hostsPrefix + path); a.status != http.StatusNotFound {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if strings.Contains(p.log.String(), "level=ERROR") {
		t.Errorf("absence is logged as an error:\n%s", p.log)
	}
}

func TestProviderIsAbsent(t *testing.T) {
	b := newBench(t)
	c := b.serve()
	for _, path := range []string{hostsPrefix, "/hosts/elsewhere.example/v1/providers/acme/widget/"} {
		for _, what := range []string{"versions", "1.0.0/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS"} {
			if a := c.get(path + what); a.status != http.StatusNotFound {
				t.Errorf("%s: %+v", path+what, a)
			}
		}
	}
}

// reindex changes the index of a version in place.
func (p *publisher) reindex(version string, change func(*ocispec.Index)) {
	p.t.Helper()
	_, body, err := p.repo.FetchReference(p.t.Context(), version)
	if err != nil {
		p.t.Fatal(err)
	}
	defer body.Close()
	var index ocispec.Index
	if err := json.NewDecoder(body).Decode(&index); err != nil {
		p.t.Fatal(err)
	}
	change(&index)
	p.tagIndex(index, version)
}

func evidenceEntry(index *ocispec.Index) *ocispec.Descriptor {
	return &index.Manifests[slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType == artifact.TypeEvidence })]
}

// TestAnnotationsDecideNothing has indexes that lie about their evidence, or say
// nothing of it.
func TestAnnotationsDecideNothing(t *testing.T) {
	const verdict = "io.github.ocibridge.verdict"
	p := newPublisher(newBench(t))
	p.pushUnsigned("1.0.0")
	p.push(widget, "2.0.0")
	c := p.serve()
	p.reindex("1.0.0", func(i *ocispec.Index) { evidenceEntry(i).Annotations[verdict] = "signed" })
	for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS"} {
		if a := c.get(hostsPrefix + path); a.status != http.StatusNotFound {
			t.Errorf("an index that lies: %s: %+v", path, a)
		}
	}
	for _, v := range []string{"1.0.0", "2.0.0"} {
		p.reindex(v, func(i *ocispec.Index) { evidenceEntry(i).Annotations = nil })
	}
	p.registry.Reset()
	if a := c.get(hostsPrefix + "versions"); !strings.Contains(a.body, `"2.0.0"`) || strings.Contains(a.body, `"1.0.0"`) {
		t.Errorf("indexes that do not say: %+v", a)
	}
	if n := p.registry.Count(); n != 1+2+2 {
		t.Errorf("%d requests, want the tags, two indexes and two manifests: %v", n, p.registry.Requests())
	}
}

// TestDamagedVersionStaysListed hides no version because of another, and has
// nobody take an older one because of it.
func TestDamagedVersionStaysListed(t *testing.T) {
	for name, damage := range map[string]func(*publisher){
		"no provider": func(p *publisher) {
			p.tagIndex(ocispec.Index{Versioned: specs2, MediaType: ocispec.MediaTypeImageIndex}, "2.0.0")
		},
		"another provider's": func(p *publisher) {
			p.reindex("2.0.0", func(i *ocispec.Index) { i.Annotations["io.github.ocibridge.provider"] = host + "/acme/gadget" })
		},
		"evidence twice": func(p *publisher) {
			p.reindex("2.0.0", func(i *ocispec.Index) { i.Manifests = append(i.Manifests, *evidenceEntry(i)) })
		},
		"its index is lost": func(p *publisher) {
			p.lie("/manifests/2.0.0", respond(404, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.push(widget, "2.0.0")
			damage(p)
			c := p.serve()
			a := c.get(hostsPrefix + "versions")
			var doc struct{ Versions []map[string]any }
			if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK || len(doc.Versions) != 2 {
				t.Fatalf("%+v", a)
			}
			if doc.Versions[0]["platforms"] == nil || !reflect.DeepEqual(doc.Versions[1], map[string]any{"version": "2.0.0"}) {
				t.Errorf("%s", a.body)
			}
			p.checkTrouble(c.get(hostsPrefix+"2.0.0/download/linux/amd64"), "download of what is damaged", http.StatusBadGateway)
			if a := c.get(hostsPrefix + "1.0.0/download/linux/amd64"); a.status != http.StatusOK {
				t.Errorf("the other version: %+v", a)
			}
			if !strings.Contains(p.log.String(), "2.0.0") {
				t.Errorf("the log does not say why:\n%s", p.log)
			}
		})
	}
}

// TestDamagedEvidence is never absence, nor served.
func TestDamagedEvidence(t *testing.T) {
	for name, lie := range map[string]http.HandlerFunc{
		"lost":   respond(404, "application/json", `{"errors":[{"code":"BLOB_UNKNOWN"}]}`),
		"a page": respond(200, "text/html", "<html>"),
		"500":    respond(500, "text/plain", ""),
		"cut":    cut,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.lie("/blobs/", lie)
			c := p.serve()
			for _, path := range []string{"1.0.0/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS.sig"} {
				p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusBadGateway)
			}
		})
	}
}

// TestPackageThatNobodySigned has an index with a package that the signed document
// does not list, or lists with another digest: it is not served, and its hashes
// are shown to nobody, since OpenTofu may lock them.
func TestPackageThatNobodySigned(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.reindex("1.0.0", func(i *ocispec.Index) {
		for j := range i.Manifests {
			if e := &i.Manifests[j]; e.Platform != nil && e.Platform.OS == "darwin" {
				forged := *e
				forged.Platform = &ocispec.Platform{OS: "plan9", Architecture: "amd64"}
				i.Manifests = append(i.Manifests, forged)
				i.Manifests[len(i.Manifests)-1].Annotations = map[string]string{
					"io.github.ocibridge.layer.digest": e.Annotations["io.github.ocibridge.layer.digest"],
					"io.github.ocibridge.layer.size":   "1", "io.github.ocibridge.filename": "terraform-provider-widget_1.0.0_plan9_amd64.zip",
				}
				e.Annotations["io.github.ocibridge.layer.digest"] = "sha256:" + strings.Repeat("0", 64)
				break
			}
		}
	})
	c := p.serve()
	for _, path := range []string{"1.0.0/download/darwin/arm64", "1.0.0/download/plan9/amd64"} {
		p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusBadGateway)
	}
	a := c.get(hostsPrefix + "1.0.0/download/linux/amd64")
	var doc struct{ Packages map[string]any }
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || len(doc.Packages) != 1 || doc.Packages["linux_amd64"] == nil || !strings.Contains(a.body, r.Package("linux", "amd64").SHA256) {
		t.Errorf("%+v", a)
	}
}

// TestRegistryTroubleIsNotAbsence is the network mirror's first rule, here.
func TestRegistryTroubleIsNotAbsence(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{
		"500":                          {respond(500, "text/plain", "oops"), 502},
		"503":                          {respond(503, "application/json", `{"errors":[{"code":"UNAVAILABLE"}]}`), 503},
		"429":                          {respond(429, "application/json", `{"errors":[{"code":"TOOMANYREQUESTS"}]}`), 503},
		"504":                          {respond(504, "text/html", "<html>"), 504},
		"credentials rejected":         {respond(401, "application/json", `{"errors":[{"code":"UNAUTHORIZED"}]}`), 502},
		"denied, said with 404":        {respond(404, "application/json", `{"errors":[{"code":"DENIED"}]}`), 502},
		"page with 404, as of a proxy": {respond(404, "text/html", "<html>Not Found"), 502},
		"connection cut in the answer": {cutAfter(`{"tags":`), 502},
		"connection cut before":        {cut, 502},
		"no errors with 404":           {respond(404, "application/json", `{"errors":[]}`), 502},
		"page with 200":                {respond(200, "text/html", "<html>Welcome"), 502},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.options.PublicURL = parseURL(t, "https://"+host+"/")
			p.lie("/v2/", tc.lie)
			c := p.serve()
			for _, base := range []string{hostsPrefix, "/v1/providers/acme/widget/"} {
				for _, path := range []string{"versions", "1.0.0/download/linux/amd64", "9.9.9/download/linux/amd64", "1.0.0/checksums/terraform-provider-widget_1.0.0_SHA256SUMS", "1.0.0/linux_amd64/" + provider.PackageFilename(widget, provider.MustParseVersion("1.0.0"), linux)} {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						p.checkTrouble(c.do(method, base+path), method+" "+base+path, tc.status)
					}
				}
			}
		})
	}
}

// TestTroubleWithOneVersionIsTroubleWithTheList does not leave out, nor list as
// signed, what cannot be read now.
func TestTroubleWithOneVersionIsTroubleWithTheList(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{"503": {respond(503, "text/plain", ""), 503}, "429": {respond(429, "text/plain", ""), 503}, "500": {respond(500, "text/plain", ""), 502}, "cut": {cut, 502}} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(newBench(t))
			p.push(widget, "1.0.0")
			p.push(widget, "2.0.0")
			p.lie("/manifests/2.0.0", tc.lie)
			p.checkTrouble(p.serve().get(hostsPrefix+"versions"), "versions", tc.status)
		})
	}
}

// TestListingIsBounded counts the requests that one listing has under way.
func TestListingIsBounded(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	var tags []string
	for i := range 4 * gateway.VersionReads {
		tags = append(tags, fmt.Sprintf(`"1.0.%d"`, i))
	}
	var now, most atomic.Int32
	full := make(chan struct{})
	p.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			respond(200, "application/json", `{"tags":[`+strings.Join(tags, ",")+`]}`)(w, r)
			return true
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == gateway.VersionReads {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-full // nobody goes on before as many as may be are there
		respond(404, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`)(w, r)
		return true
	})
	if a := p.serve().get(hostsPrefix + "versions"); a.status != http.StatusOK || strings.Count(a.body, `"version"`) != len(tags) {
		t.Errorf("%+v", a)
	}
	if most.Load() != gateway.VersionReads {
		t.Errorf("%d at once", most.Load())
	}
}

// TestProtocolsThatAreNone would have clients refuse the whole answer.
func TestProtocolsThatAreNone(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.push(widget, "2.0.0")
	p.reindex("1.0.0", func(i *ocispec.Index) { i.Annotations["io.github.ocibridge.protocols"] = "x,5.1,../,6.0.0.0" })
	p.reindex("2.0.0", func(i *ocispec.Index) { delete(i.Annotations, "io.github.ocibridge.protocols") })
	c := p.serve()
	if a := c.get(hostsPrefix + "versions"); strings.Count(a.body, "protocols") != 1 || !strings.Contains(a.body, `"protocols":["5.1"]`) {
		t.Errorf("%s", a.body)
	}
	for version, want := range map[string]string{"1.0.0": `"protocols":["5.1"]`, "2.0.0": `"protocols":["5.0","6.1"]`} {
		if a := c.get(hostsPrefix + version + "/download/linux/amd64"); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s, want %s", version, a.body, want)
		}
	}
}

// TestRegistryMethods answers HEAD as GET, ranges of documents, and nothing else.
func TestRegistryMethods(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.options.PublicURL = parseURL(t, "https://"+host+"/")
	c := p.serve()
	const own = "/v1/providers/acme/widget/"
	sums := "1.0.0/checksums/" + r.SHA256SUMSName()
	archive := "1.0.0/linux_amd64/" + r.Package("linux", "amd64").Filename
	for _, path := range []string{
		"/.well-known/terraform.json", own + "versions", hostsPrefix + "versions", own + "1.0.0/download/linux/amd64", hostsPrefix + "1.0.0/download/linux/amd64",
		own + sums, hostsPrefix + sums, hostsPrefix + sums + ".sig", own + archive, hostsPrefix + archive,
	} {
		get, head := c.get(path), c.do(http.MethodHead, path)
		get.header.Del("Date")
		head.header.Del("Date")
		if get.status != http.StatusOK || head.status != http.StatusOK || head.body != "" || !reflect.DeepEqual(get.header, head.header) {
			t.Errorf("%s:\nGET  %d %v\nHEAD %d %v", path, get.status, get.header, head.status, head.header)
		}
		if get.header.Get("Content-Length") != fmt.Sprint(len(get.body)) || get.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v for %d bytes", path, get.header, len(get.body))
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			if a := c.do(method, path); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %+v", method, path, a)
			}
		}
	}
	if a := c.get(hostsPrefix + sums); !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || a.header.Get("ETag") == "" {
		t.Errorf("%v", a.header)
	}
	if a := c.get(hostsPrefix + sums + ".sig"); a.header.Get("Content-Type") != "application/pgp-signature" {
		t.Errorf("%v", a.header)
	}
}

// TestStalledEvidence ends within what clients wait.
func TestStalledEvidence(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.limits = gateway.Limits{Metadata: 1} // at once
	p.lie("/", hang)
	c := p.serve()
	for _, path := range []string{"versions", "1.0.0/download/linux/amd64"} {
		p.checkTrouble(c.get(hostsPrefix+path), path, http.StatusGatewayTimeout)
	}
}

// TestRegistryPathsThatLeadNowhere shows that malformed paths reach no registry.
func TestRegistryPathsThatLeadNowhere(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.options.PublicURL = parseURL(t, "https://"+host+"/")
	c := p.serve()
	p.registry.Reset()
	archive := r.Package("linux", "amd64").Filename
	const base = "/hosts/" + host + "/v1/providers/"
	for what, path := range map[string]string{
		"two slashes":                    base + "/acme/widget/versions",
		"two slashes before":             "//hosts/" + host + "/v1/providers/acme/widget/versions",
		"no host":                        "/hosts//v1/providers/acme/widget/versions",
		"climbing out of the host":       "/hosts/../v1/providers/acme/widget/versions",
		"climbing, encoded":              "/hosts/%2e%2e/v1/providers/acme/widget/versions",
		"climbing as a namespace":        base + "../widget/versions",
		"climbing as a version":          hostsPrefix + "../download/linux/amd64",
		"climbing as a platform":         hostsPrefix + "1.0.0/download/../amd64",
		"climbing from checksums":        hostsPrefix + "1.0.0/checksums/..%2f..%2fversions",
		"climbing in own":                "/v1/providers/../widget/versions",
		"encoded slash after the host":   "/hosts/" + host + "%2fv1/providers/acme/widget/versions",
		"encoded slash in the host":      "/hosts/" + host + "%2fx/v1/providers/acme/widget/versions",
		"encoded slash in a namespace":   base + "acme%2fwidget/versions",
		"encoded slash in own":           "/v1/providers/acme%2fwidget/versions",
		"encoded slash in a platform":    hostsPrefix + "1.0.0/download/linux%2famd64",
		"encoded slash in a version":     hostsPrefix + "1.0.0%2fdownload/linux/amd64",
		"NUL":                            hostsPrefix + "1.0.0%00/download/linux/amd64",
		"NUL in the host":                "/hosts/" + host + "%00/v1/providers/acme/widget/versions",
		"backslash":                      base + `acme\widget/versions`,
		"host in upper case":             "/hosts/Registry.acme.example/v1/providers/acme/widget/versions",
		"host with a user":               "/hosts/user@" + host + "/v1/providers/acme/widget/versions",
		"host with a scheme":             "/hosts/https:/" + host + "/v1/providers/acme/widget/versions",
		"host with the default port":     "/hosts/" + host + ":443/v1/providers/acme/widget/versions",
		"host with a port that is none":  "/hosts/" + host + ":x/v1/providers/acme/widget/versions",
		"host in Unicode":                "/hosts/" + url.PathEscape("испытание.com") + "/v1/providers/acme/widget/versions",
		"host that is no Punycode":       "/hosts/xn--a/v1/providers/acme/widget/versions",
		"host that is an IPv6 address":   "/hosts/[::1]/v1/providers/acme/widget/versions",
		"namespace in upper case":        base + "Acme/widget/versions",
		"legacy namespace":               base + "-/widget/versions",
		"no type":                        base + "acme//versions",
		"no version":                     hostsPrefix + "download/linux/amd64",
		"version with a v":               hostsPrefix + "v1.0.0/download/linux/amd64",
		"version of two numbers":         hostsPrefix + "1.0/download/linux/amd64",
		"version as its tag":             hostsPrefix + "1.0.0_b/download/linux/amd64",
		"version beyond 64 bits":         hostsPrefix + "18446744073709551616.0.0/download/linux/amd64",
		"version that is a tag":          hostsPrefix + "latest/download/linux/amd64",
		"platform in upper case":         hostsPrefix + "1.0.0/download/Linux/amd64",
		"platform with an underscore":    hostsPrefix + "1.0.0/download/linux_amd64/x_y",
		"platform with a NUL":            hostsPrefix + "1.0.0/download/linux%00/amd64",
		"platform of one part":           hostsPrefix + "1.0.0/download/linux",
		"platform of three parts":        hostsPrefix + "1.0.0/download/linux/amd64/v3",
		"platform that is empty":         hostsPrefix + "1.0.0/download//amd64",
		"platform that is very long":     hostsPrefix + "1.0.0/download/linux/" + strings.Repeat("a", 9000),
		"download as a platform":         hostsPrefix + "1.0.0/download/" + archive,
		"checksums with a blank":         hostsPrefix + "1.0.0/checksums/a%20b",
		"checksums without a name":       hostsPrefix + "1.0.0/checksums/",
		"below checksums":                hostsPrefix + "1.0.0/checksums/" + r.SHA256SUMSName() + "/x",
		"slash after versions":           hostsPrefix + "versions/",
		"versions in upper case":         hostsPrefix + "Versions",
		"service without a provider":     base,
		"another version of the service": "/hosts/" + host + "/v2/providers/acme/widget/versions",
		"host within own":                "/v1/providers/" + host + "/acme/widget/versions",
		"discovery of a host":            "/hosts/" + host + "/.well-known/terraform.json",
		"discovery in upper case":        "/.Well-Known/terraform.json",
		"semicolon":                      hostsPrefix + "versions;x=y",
	} {
		resp := c.getRaw(path)
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: GET %s is answered %d", what, path, resp.StatusCode)
		}
		if l := resp.Header.Get("Location"); l != "" {
			t.Errorf("%s: GET %s leads to %s", what, path, l)
		}
	}
	if n := p.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry: %v", n, p.registry.Requests())
	}
}

// TestOriginClientSeesAbsence has our own client tell what is not there.
func TestOriginClientSeesAbsence(t *testing.T) {
	b := newBench(t)
	c := b.serve()
	_, err := registryClient(gateway.RegistryURL(c.s.URL, host), nil).Versions(t.Context(), widget)
	if !errors.Is(err, realorigin.ErrProviderNotFound) {
		t.Errorf("%v", err)
	}
}
