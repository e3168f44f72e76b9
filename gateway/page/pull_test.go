package page_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
)

// offer makes the origin offer a release.
func (b *bench) offer(a provider.Address, version string, signer *pgp.Signer) *release.Release {
	b.t.Helper()
	r := release.For(b.t, release.Spec{
		Host: a.Hostname(), Namespace: a.Namespace(), Type: a.Type(), Version: version, Protocols: []string{"6.0"}, Signer: signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-" + a.Type() + "_v" + version: []byte(version)}}},
	})
	b.origin.Add(r)
	return r
}

// pulls makes the gateway fetch missing versions of acme's providers.
func (b *bench) pulls() { b.pullsFor(host + "/acme/*") }

// pullsFor makes the gateway fetch missing versions of the providers that a pattern covers.
func (b *bench) pullsFor(pattern string) {
	scope := pull.Scope{Selector: subject.Selector{Include: []subject.Pattern{provider.MustParsePattern(pattern)}}}
	p, err := pull.New(pull.Options{
		Origin: origin.Client(host, b.source.URL),
		Scope:  scope, Spool: b.t.TempDir(), Log: slog.New(slog.NewTextHandler(b.log, nil)),
	})
	b.must(err)
	b.t.Cleanup(func() { p.Close() })
	b.catalog.Origin = p
	b.options.Pulls = p.Selects
}

// TestPullThroughOnPages shows that the page distinguishes stored versions from versions that the
// gateway can fetch. The page names the origin of the versions that the gateway can fetch.
func TestPullThroughOnPages(t *testing.T) {
	b := newBench(t)
	b.pulls()
	b.push(widget, "1.0.0", true)
	later := b.offer(widget, "2.0.0", b.signer)
	b.offer(widget, "3.0.0-beta.1", b.signer)
	unsigned := provider.MustParseAddress(host + "/acme/unsigned")
	b.offer(unsigned, "1.0.0", nil)
	c := b.serve(nil)

	if front := c.get("/"); !front.has("fetches a missing version from its origin when a client first requests it") {
		t.Errorf("the front says\n%s", front.text())
	}
	b.origin.Reset()
	widgets := c.get("/p/" + widget.Path() + "/1.0.0")
	for _, want := range []string{"1.0.0 signed", "2.0.0 at its origin linux_amd64", "3.0.0-beta.1 at its origin", "1.0.0 signed Use it", "Index sha256:", "Source " + host} {
		if !widgets.has(want) {
			t.Errorf("no %q in\n%s", want, widgets.text())
		}
	}
	if widgets.has("not there yet") {
		t.Errorf("the page says that a stored version is not stored:\n%s", widgets.text())
	}
	if n := b.origin.Count(recorder.PathContains("/2.0.0/")) + b.origin.Count(recorder.PathContains("/3.0.0")); n != 0 {
		t.Errorf("listing versions caused %d requests to the origin for single versions", n)
	}
	newest := c.get("/p/" + widget.Path())
	for _, want := range []string{"2.0.0 newest", later.Package("linux", "amd64").Filename + " at its origin", "It is not there yet.", "the gateway fetches it from " + host, "Source " + host, b.signer.Fingerprint(), "zh:" + later.Package("linux", "amd64").SHA256} {
		if !newest.has(want) {
			t.Errorf("no %q in\n%s", want, newest.text())
		}
	}
	if newest.has("Index sha256:") || newest.has(" 0 B") {
		t.Errorf("a version that is not stored has an index, or a size:\n%s", newest.text())
	}
	if n := b.origin.Count(recorder.PathSuffix(".zip"), recorder.Method(http.MethodGet)); n != 0 {
		t.Errorf("opening pages fetched %d packages", n)
	}
	// Before a client has requested a provider, a search does not find it if only its origin has it.
	if found := c.get("/search?q=unsigned"); found.has("acme/unsigned") || !found.has("can fetch other providers from their origins") {
		t.Errorf("before its first request:\n%s", found.text())
	}
	if refused := c.get("/p/" + unsigned.Path() + "/1.0.0"); refused.status != http.StatusBadGateway || !refused.has("This version is refused") || refused.has("The registry cannot") {
		t.Errorf("%d\n%s", refused.status, refused.text())
	}
	if found := c.get("/search?q=unsigned"); !found.has("acme/unsigned") {
		t.Errorf("after its first request:\n%s", found.text())
	}
	for path, want := range map[string]string{
		"/p/" + host + "/acme/absent":        "The registry has no version of it, and its origin",
		"/p/" + widget.Path() + "/9.0.0":     "The registry does not have it, and its origin",
		"/p/" + host + "/tools/absent":       "If its origin has it, this adds it to the registry: ocibridge push &#39;" + host + "/tools/absent@&gt;= 0&#39;",
		"/p/" + host + "/tools/absent/1.0.0": "The registry says",
	} {
		if got := c.get(path); got.status != http.StatusNotFound || !got.has(want) || strings.HasPrefix(path, "/p/"+host+"/acme/") && got.has("ocibridge push") {
			t.Errorf("%s: %d\n%s", path, got.status, got.text())
		}
	}
	b.source.Close()
	if got := c.get("/p/" + host + "/acme/unheard-of"); got.status/100 != 5 || !got.has("The origin cannot answer now") || !got.has("If it is a provider of your own, run this where the folder dist has its release, and release-key.asc is the public key that signed it: ocibridge push --release-dir dist --public-key release-key.asc --as "+host+"/acme/unheard-of@1.0.0") {
		t.Errorf("without its origin: %d\n%s", got.status, got.text())
	}
}

// TestHostWithoutADot shows that an address without a host name is no outage of an origin: pages and protocols say that there is
// no such provider, and no request leaves for it.
func TestHostWithoutADot(t *testing.T) {
	b := newBench(t)
	b.pullsFor("*/*/*")
	b.index(provider.MustParseAddress("local/acme/kept"), "1.0.0", artifact.Version{})
	c := b.serve(nil)
	a := c.want("/p/terraform-aws-modules/vpc/aws", 404, "There is no such provider", "names the host terraform-aws-modules, which is no public registry", "once include of the pull_through block names it")
	for _, want := range []string{`href="../../../m/registry.opentofu.org/terraform-aws-modules/vpc/aws"`, `href="../../../m/registry.terraform.io/terraform-aws-modules/vpc/aws"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s in\n%s", want, a.body)
		}
	}
	c.want("/p/terraform-aws-modules/vpc/aws/1.0.0", 404, "There is no such provider", "If it is a provider of your own, run this where")
	c.want("/p/local/acme/kept", 200, "1.0.0")
	for path, status := range map[string]int{"terraform-aws-modules/vpc/aws/index.json": 404, "local/acme/kept/index.json": 200} {
		if got := c.get("/providers/" + path); got.status != status {
			t.Errorf("%s: %d, want %d", path, got.status, status)
		}
	}
}

// moduleOrigin is an origin that has version 2.0.0 of the module net.
type moduleOrigin struct{ catalog.Origin }

func (moduleOrigin) Selects(a subject.Address) bool { return a == subject.Address(net) }

func (moduleOrigin) Offers(context.Context, subject.Address) ([]catalog.Offer, []string, error) {
	return []catalog.Offer{{Version: provider.MustParseVersion("2.0.0")}}, nil, nil
}

func (moduleOrigin) Complete(_ context.Context, a subject.Address, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	if stored != nil || v.String() != "2.0.0" {
		return stored, nil
	}
	zip := artifact.Package{Filename: artifact.ZipName(a, v), Size: artifact.UnknownSize}
	return &artifact.Version{Owner: a, Version: v, Packages: []artifact.Package{zip}, Provenance: artifact.Provenance{Location: "git::https://git.example/net?ref=v2.0.0"}}, nil
}

// TestPulledModulesOnPages shows that the page distinguishes stored versions of a module from those that only its origin has. The
// origin's versions have no zip, and no link that would fetch one.
func TestPulledModulesOnPages(t *testing.T) {
	b := newBench(t).modules()
	b.pushModule(net, "1.0.0", "1.0.0", "")
	b.catalog.Origin, b.options.Pulls = moduleOrigin{}, moduleOrigin{}.Selects
	c := b.serve(nil)
	newest := c.get(netPage)
	for _, want := range []string{"2.0.0 module newest", "2.0.0 at its origin", "It is not there yet.", "the gateway fetches it from git::https://git.example/net?ref=v2.0.0", "fetched, verified and stored when a client first requests it"} {
		if !newest.has(want) {
			t.Errorf("no %q in\n%s", want, newest.text())
		}
	}
	if newest.has("net-2.0.0.zip") || newest.has("Manifest sha256:") {
		t.Errorf("a version that is not stored has a zip:\n%s", newest.text())
	}
	if stored := c.get(netPage + "/1.0.0"); !stored.has("net-1.0.0.zip") || stored.has("not there yet") {
		t.Errorf("a stored version:\n%s", stored.text())
	}
	if absent := c.get(netPage + "/3.0.0"); !absent.has("its origin, "+host+", does not offer it") || absent.has("redirects") {
		t.Errorf("an absent version:\n%s", absent.text())
	}
}
