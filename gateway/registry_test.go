package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// hostsPrefix is the path prefix of widget in the provider registry protocol.
const hostsPrefix = "/hosts/" + host + "/v1/providers/acme/widget/"

// publisher makes an origin offer signed releases, and pushes them to the bench's registry.
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

// registryClient returns package origin's client of the provider registry protocol. The client finds the
// service of host at base.
func registryClient(base string, transport http.RoundTripper) *realorigin.Registry {
	services := disco.New()
	services.ForceHostServices(svchost.Hostname(host), map[string]any{"providers.v1": base})
	return realorigin.NewRegistry(realorigin.RegistryOptions{Services: services, Transport: transport})
}

// warned is an origin that returns a warning, and offers no versions.
type warned struct{ catalog.Origin }

func (warned) Selects(subject.Address) bool { return true }

func (warned) Offers(context.Context, subject.Address) ([]catalog.Offer, []string, error) {
	return nil, []string{"it has moved to <acme/void>"}, nil
}

func (warned) Complete(_ context.Context, _ subject.Address, _ provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	return stored, nil
}

func (warned) Blob(provider.Address, digest.Digest) ([]byte, bool) { return nil, false }

// TestRequestsThatMayNotFetch shows that a request that must not cause fetches gets only the versions in the
// registry. Other requests get the origin's versions, too, even while both documents are in memory.
func TestRequestsThatMayNotFetch(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.options.Catalog = p.bench.catalog(catalog.Options{Origin: offering{}})
	p.options.Fetches = func(r *http.Request) bool { return r.Header.Get("Via") == "" }
	c := p.serve()
	list := func(via string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.s.URL+prefix+"index.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		if via != "" {
			r.Header.Set("Via", via)
		}
		resp, err := c.s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for range 2 { // the second answer comes from memory
		if got, want := list(""), `{"versions":{"1.0.0":{},"9.0.0":{}}}`; got != want {
			t.Errorf("request that may fetch: %s, want %s", got, want)
		}
		if got, want := list("1.1 x"), `{"versions":{"1.0.0":{}}}`; got != want {
			t.Errorf("request that may not fetch: %s, want %s", got, want)
		}
	}
}

// offering is an origin that offers version 9.0.0.
type offering struct{ warned }

func (offering) Offers(context.Context, subject.Address) ([]catalog.Offer, []string, error) {
	return []catalog.Offer{{Version: provider.MustParseVersion("9.0.0")}}, nil, nil
}

// TestWarnings shows that the list of versions contains the origin's warnings, which clients show to users.
func TestWarnings(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	without := p.serve().get(hostsPrefix + "versions")
	p.options.Catalog = p.bench.catalog(catalog.Options{TagTTL: -1, Origin: warned{}})
	with := p.serve().get(hostsPrefix + "versions")
	var got struct{ Versions, Warnings []any }
	if err := json.Unmarshal([]byte(with.body), &got); err != nil || len(got.Versions) != 1 || fmt.Sprint(got.Warnings) != "[it has moved to <acme/void>]" {
		t.Errorf("%v: %s", err, with.body)
	}
	if strings.Contains(without.body, "warnings") || without.header.Get("ETag") == with.header.Get("ETag") {
		t.Errorf("without a warning: %s, ETag %s", without.body, without.header.Get("ETag"))
	}
}

// spec returns the specification of a signed release of widget for two platforms.
func (p *publisher) spec(version string) release.Spec {
	s := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: version, Protocols: []string{"5.0", "6.1"}, Signer: p.signer}
	for _, platform := range []provider.Platform{linux, darwin} {
		s.Contents = append(s.Contents, release.Content{OS: platform.OS, Arch: platform.Arch,
			Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(version + " for " + platform.String())}})
	}
	return s
}

// push makes the origin offer a signed release of the given provider, and pushes the release.
func (p *publisher) push(a provider.Address, version string) *release.Release {
	p.t.Helper()
	spec := p.spec(version)
	spec.Namespace = a.Namespace()
	r := release.For(p.t, spec)
	r.Keys[0].TrustSignature, r.Keys[0].Source, r.Keys[0].SourceURL = "<&>", "Acme", "https://acme.example/"
	p.origin.Add(r)
	p.pushFrom(origin.Client(a.Hostname(), p.server.URL), a, version, trust.Policy{})
	return r
}

func (p *publisher) pushFrom(from *realorigin.Registry, a provider.Address, version string, policy trust.Policy) {
	p.t.Helper()
	p.pushRelease(origin.Fetch(p.t, from, a, version), policy)
}

// pushRelease pushes a release to the bench's registry.
func (p *publisher) pushRelease(r *realorigin.Release, policy trust.Policy) {
	p.t.Helper()
	p.registry.Push(r, policy)
	p.registry.Reset()
}

// pushUnsigned makes the origin offer an unsigned release of widget, and pushes the release.
func (p *publisher) pushUnsigned(version string) {
	p.t.Helper()
	spec := p.spec(version)
	spec.Signer = nil
	p.origin.Add(release.For(p.t, spec))
	p.pushFrom(registryClient(p.server.URL+origin.ServicePath, nil), widget, version, trust.Policy{AllowUnsigned: true})
}

// sameRelease checks that two origins describe a release in the same way, and serve the same packages.
func sameRelease(t *testing.T, got, want *realorigin.Release) {
	t.Helper()
	if !jsonEqual(t, got.Claims.SigningKeys, want.Claims.SigningKeys) {
		t.Errorf("signing keys\n%s\nwant\n%s", got.Claims.SigningKeys, want.Claims.SigningKeys)
	}
	g, w := got.Claims, want.Claims
	g.SigningKeys, w.SigningKeys = nil, nil
	if len(g.Reported) < len(g.Announced) {
		t.Errorf("hashes and sizes of %d files, want all", len(g.Reported))
	}
	g.Reported, w.Reported = nil, nil // only some origins report hashes
	if !reflect.DeepEqual(g, w) || !slices.Equal(got.Protocols, want.Protocols) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if len(got.Packages) != len(want.Packages) {
		t.Fatalf("%d packages, want %d", len(got.Packages), len(want.Packages))
	}
	for _, p := range got.Packages {
		i := slices.IndexFunc(want.Packages, func(q realorigin.Package) bool { return q.Platform == p.Platform && q.Filename == p.Filename })
		if i < 0 || !bytes.Equal(content(t, p), content(t, want.Packages[i])) {
			t.Errorf("%s for %s differs", p.Filename, p.Platform)
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

// TestRegistryRoundTrip shows that a client gets the same release from the gateway as from its origin.
func TestRegistryRoundTrip(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		p := newPublisher(newBench(t))
		for _, version := range []string{"1.0.0", "1.1.0-rc.1", "1.1.0+build.5"} {
			p.push(widget, version)
			c := p.serveOver(http2)
			from := registryClient(gateway.RegistryURL(c.s.URL+"/", host), c.http.Transport)
			got := origin.Fetch(t, from, widget, version)
			sameRelease(t, got, origin.Fetch(t, registryClient(p.server.URL+origin.ServicePath, nil), widget, version))
			if sums, err := (trust.Policy{}).Accept(t.Context(), got.Claims); err != nil || sums.Verdict() != trust.Signed || sums.Signer().Fingerprint != p.signer.Fingerprint() {
				t.Errorf("%s: %v, by %+v", version, err, sums)
			}
		}
	})
}

// TestListingReadsEachIndexOnce checks the list of signed versions. It shows that the list needs one request
// to the registry for the tags, one for the state, which this repository lacks, and one for each index.
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
	if n := p.registry.Count(); n != 1+1+3 {
		t.Errorf("%d requests: %v", n, p.registry.Requests())
	}
}

// TestDownload shows that the gateway's download document is the same as the origin's document, except for
// the URLs and the hashes of packages.
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

// archives returns the archives in a version's document of the network mirror.
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

// TestUnsignedVersionsAreAbsent shows that the registry protocol treats unsigned versions as absent. It does
// not matter whether ocibridge or another tool has pushed them.
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

// TestInvalidProtocolsAreOmitted shows that the gateway omits invalid protocol versions. Otherwise clients
// would refuse the whole response.
func TestInvalidProtocolsAreOmitted(t *testing.T) {
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

// TestAboutAVersion checks the source and the publication date of a version. A second gateway can read both
// from the download document of the first.
func TestAboutAVersion(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(widget, "1.0.0")
	p.origin.About("https://git.example/acme/widget", "2026-01-02T04:04:05+01:00")
	p.push(widget, "2.0.0")
	p.pushUnsigned("3.0.0")
	c := p.serve()
	for version, want := range map[string]answer{
		"1.0.0": {status: 200, body: `{"source":null}`},
		"2.0.0": {status: 200, body: `{"source":"https://git.example/acme/widget","published_at":"2026-01-02T03:04:05Z"}`},
		"3.0.0": {status: 404, body: "not found\n"},
		"4.0.0": {status: 404, body: "not found\n"},
		"1.0":   {status: 404, body: "not found\n"},
	} {
		if a := c.get(hostsPrefix + version); a.status != want.status || a.body != want.body {
			t.Errorf("%s: %d %s", version, a.status, a.body)
		}
	}
	for version, want := range map[string]provider.About{"1.0.0": {}, "2.0.0": {Source: "https://git.example/acme/widget", PublishedAt: "2026-01-02T03:04:05Z"}} {
		if got := origin.Fetch(t, registryClient(gateway.RegistryURL(c.s.URL, host), nil), widget, version).About; got != want {
			t.Errorf("%s by a second gateway: %+v", version, got)
		}
	}
	p.stopRegistry()
	if a := c.get(hostsPrefix + "2.0.0"); a.status != http.StatusBadGateway {
		t.Errorf("%+v", a)
	}
}

// TestOriginClientSeesAbsence shows that the client in package origin recognises the gateway's response for
// an absent provider.
func TestOriginClientSeesAbsence(t *testing.T) {
	b := newBench(t)
	c := b.serve()
	_, err := registryClient(gateway.RegistryURL(c.s.URL, host), nil).Versions(t.Context(), widget)
	if !errors.Is(err, realorigin.ErrProviderNotFound) {
		t.Errorf("%v", err)
	}
}
