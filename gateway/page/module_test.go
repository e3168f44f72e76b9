package page_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

var net = module.MustParseAddress(host + "/acme/net/aws")

const netPage = "/m/" + host + "/acme/net/aws"

// modules makes the gateway serve the modules of the bench's registry, and the page show their repositories.
func (b *bench) modules() *bench {
	providers := b.catalog.Repository
	b.catalog.Repository = func(ctx context.Context, of subject.Address) (catalog.Store, error) {
		if a, ok := of.(module.Address); ok && a.Hostname() != "elsewhere.example" {
			return b.moduleRepository(a), nil
		}
		return providers(ctx, of)
	}
	b.options.ModuleRepository = func(gateway string, a module.Address) string {
		return strings.TrimPrefix(gateway, "https://") + "modules/" + a.Path()
	}
	return b
}

func (b *bench) moduleRepository(a module.Address) *remote.Repository {
	repo := b.repository(widget)
	repo.Reference.Repository = "modules/" + a.Path()
	return repo
}

// pushModule stores a version of a module under a tag.
func (b *bench) pushModule(a module.Address, version, tag, revision string) (artifact.Version, []byte) {
	b.t.Helper()
	content, err := release.Zip(map[string][]byte{"main.tf": []byte("# " + a.String() + " " + version)})
	b.must(err)
	m := artifact.Version{Owner: a, Version: provider.MustParseVersion(version), Packages: []artifact.Package{{Digest: digest.FromBytes(content), Size: int64(len(content))}}, Revision: revision}
	m.Zip().H1, err = provider.ParseHash("h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
	b.must(err)
	manifest, err := artifact.EncodeZip(m)
	b.must(err)
	m.Index = manifest.Descriptor
	repo := b.moduleRepository(a)
	for _, blob := range []artifact.Blob{artifact.Config(), {Descriptor: m.Zip().Layer(), Data: content}, manifest} {
		b.must(repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
	}
	b.must(repo.Tag(b.t.Context(), manifest.Descriptor, tag))
	return m, content
}

func TestModule(t *testing.T) {
	b := newBench(t).modules()
	const commit = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
	m, content := b.pushModule(net, "1.2.0", "1.2.0", commit)
	b.pushModule(net, "1.3.0-beta.1", "v1.3.0-beta.1", "")
	b.pushModule(net, "1.1.0", "1.1.0", "")
	bad, err := provider.ParseConstraint("1.1.0")
	b.must(err)
	b.catalog.Deny = []catalog.Deny{{Pattern: net.Pattern(), Versions: bad, Reason: "it <b>leaks</b>"}}
	c := b.serve(nil)
	a := c.want(netPage, 200, net.String()+" 1.2.0 module newest",
		"module &#34;net&#34; { source = &#34;"+net.String()+"&#34; version = &#34;~&gt; 1.2&#34; }", "a host block for that name",
		"source = &#34;oci://gateway.example/modules/"+net.Path()+"?tag=1.2.0&#34;", "Constraint ~&gt; 1.2", "net-1.2.0.zip", fmt.Sprintf("Size %d B", len(content)),
		m.Zip().Digest.String(), strings.ReplaceAll(m.Zip().H1.String(), "+", "&#43;"), "Commit "+commit, "stated the hash of the files and the commit.", "gateway.example/modules/"+net.Path()+":1.2.0", m.Index.Digest.String(),
		"Versions 3", "1.3.0-beta.1", "1.1.0 denied it &lt;b&gt;leaks&lt;/b&gt;", "Confirmed by the registry")
	if strings.Contains(a.body, netPage+"/1.1.0") || strings.Contains(a.text(), "verdict") {
		t.Errorf("a link to a denied version, or a verdict:\n%s", a.text())
	}
	beta := c.want(netPage+"/1.3.0-beta.1", 200, "1.3.0-beta.1 module prerelease", "version = &#34;1.3.0-beta.1&#34;", "?tag=v1.3.0-beta.1", ":v1.3.0-beta.1")
	if strings.Contains(beta.text(), "Commit") || strings.Contains(beta.text(), "Constraint") {
		t.Errorf("a version without a commit and a constraint:\n%s", beta.text())
	}
	c.want(netPage+"?q=beta", 200, "1 of 3 versions match")
	c.want(netPage+"/1.1.0", http.StatusUnavailableForLegalReasons, "This version is denied", "The operator’s reason: it &lt;b&gt;leaks&lt;/b&gt;")
	c.want(netPage+"/1.2.0/", http.StatusSeeOther)
	c.want("/", 200, "1 module", "Modules Module Newest Versions Size Last change "+host+"/acme net/aws 1.2.0 3 "+fmt.Sprintf("%d B", len(content)))
	if a := c.want(escaped("net"), 200, "1 module whose address matches"); !strings.Contains(a.body, `href="./m/`+net.Path()+`"`) {
		t.Errorf("no link to the module:\n%s", a.body)
	}

	b.catalog.Deny[0].Versions = provider.VersionSet{}
	b.serve(nil).want(netPage, 200, "This gateway serves no version: each one is denied or not approved")
}

// TestPushed shows when a version was pushed, on the pages of providers and of modules.
func TestPushed(t *testing.T) {
	b := newBench(t).modules()
	b.pushModule(net, "1.2.0", "1.2.0", "")
	b.push(widget, "1.0.0", true)
	for at, want := range map[time.Time]bool{time.Date(2026, 3, 4, 23, 6, 7, 0, time.UTC): true, {}: false} {
		b.options.Changed = func(subject.Address, provider.Version) time.Time { return at }
		c := b.serve(nil)
		for _, page := range []string{netPage, widgetPage} {
			if a := c.want(page, 200); a.has("Pushed 4 March 2026") != want || a.has("Pushed") != want {
				t.Errorf("%s, pushed at %s:\n%s", page, at, a.text())
			}
		}
	}
}

// TestDeprecated shows that the lists and the pages of deprecated versions give the reason, as text.
func TestDeprecated(t *testing.T) {
	b := newBench(t).modules()
	b.pushModule(net, "1.2.0", "1.2.0", "")
	b.pushModule(net, "2.0.0", "2.0.0", "")
	b.index(widget, "1.0.0", artifact.Version{})
	b.index(widget, "2.0.0", artifact.Version{})
	old, err := provider.ParseConstraint("< 2.0.0")
	b.must(err)
	for _, p := range []subject.Pattern{net.Pattern(), widget.Pattern()} {
		b.catalog.Deprecate = append(b.catalog.Deprecate, catalog.Deny{Pattern: p, Versions: old, Reason: "use <b>2.x</b>"})
	}
	c := b.serve(nil)
	const reason = "use &lt;b&gt;2.x&lt;/b&gt;"
	for page, old := range map[string]string{netPage: "1.2.0", widgetPage: "1.0.0"} {
		if a := c.want(page, 200, "2.0.0", "Versions 2", "deprecated "+reason); strings.Count(a.text(), reason) != 1 || strings.Contains(a.text(), "Deprecated: ") {
			t.Errorf("the newest version is deprecated, too:\n%s", a.text())
		}
		c.want(page+"/"+old, 200, "Deprecated: "+reason, "Use it")
	}
}

// TestModuleAfterRestart shows that the page links the digest if it does not know the tag, because the answer is from
// disk.
func TestModuleAfterRestart(t *testing.T) {
	b := newBench(t).modules()
	b.pushModule(net, "1.2.0", "v1.2.0", "")
	b.catalog.Directory, b.catalog.StaleIfError, b.catalog.TagTTL = t.TempDir(), 0, 0
	c := b.serve(nil)
	c.want(netPage, 200, "?tag=v1.2.0")
	b.must(b.options.Catalog.Close())
	b.lie("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusServiceUnavailable) })
	b.serve(nil).want(netPage, 200, "?tag=v1.2.0", "gateway.example/modules/"+net.Path()+":v1.2.0")
}

// TestModuleOfTheGateway shows that modules with the gateway's own host name need no configuration, and that their
// source has the gateway's port.
func TestModuleOfTheGateway(t *testing.T) {
	b := newBench(t).modules()
	b.pushModule(net, "0.2.0", "0.2.0", "")
	b.options.ModuleHost = func(gateway string, host svchost.Hostname, providers bool) string {
		return fmt.Sprintf("block=%s%s,%t", gateway, host, providers)
	}
	b.serve(nil).want(netPage, 200, "To get the modules of this host from this gateway, they need this block", "block=https://gateway.example/"+host+",false")
	b.options.Configured = []subject.Address{widget}
	b.serve(nil).want(netPage, 200, "block=https://gateway.example/"+host+",true")
	modulesOnly := token("modules", "modules-token", host+"/acme/*")
	modulesOnly.Selector = subject.Selector{Include: []subject.Pattern{net.Pattern()}}
	private := b.serve(access.New(access.Options{Tokens: []access.Token{modulesOnly}}))
	private.authorization = "Bearer modules-token"
	private.want(netPage, 200, "block=https://gateway.example/"+host+",false") // this client may not know of the provider
	b.options.PublicURL, _ = url.Parse("https://" + host + ":8443/")
	a := b.serve(nil).want(netPage, 200, "source = &#34;"+host+":8443/acme/net/aws&#34; version = &#34;~&gt; 0.2.0&#34;")
	if strings.Contains(a.text(), "block=") || strings.Contains(a.text(), "host block") {
		t.Errorf("the page wants a host block:\n%s", a.text())
	}
	b.options.ModuleRepository = nil
	if a := b.serve(nil).want(netPage, 200, "Manifest sha256:"); strings.Contains(a.text(), "oci://") || strings.Contains(a.text(), "Reference") {
		t.Errorf("a repository that nobody can read:\n%s", a.text())
	}
}

// TestNeverAWrongNotFoundModule is like TestNeverAWrongNotFound, for modules.
func TestNeverAWrongNotFoundModule(t *testing.T) {
	b := newBench(t).modules()
	b.pushModule(net, "1.0.0", "1.0.0", "")
	b.pushModule(net, "1.0.1", "1.1.0", "") // under the tag of another version
	b.options.ModuleOrigin = func(_ context.Context, a module.Address) (*url.URL, error) {
		if a.Name() != "outside" {
			return nil, nil
		}
		return url.Parse("https://origin.example/v1/modules/")
	}
	c := b.serve(nil)
	absent := "/m/" + host + "/acme/absent/aws"
	for path, texts := range map[string][]string{
		absent:                              {"There is no such module", "ocibridge module push &#39;" + host + "/acme/absent/aws@&gt;= 0&#39;"},
		"/m/" + host + "/acme/outside/aws":  {"There is no such module", "redirects clients to its origin, " + host},
		"/m/elsewhere.example/acme/net/aws": {"Not served here", "no repository for such modules."},
		netPage + "/9.9.9":                  {"There is no such version", "Other versions of this module"},
		netPage + "/one":                    {"There is no such version"},
		"/m/" + host + "/acme/net/AWS":      {"This is not a module address"},
	} {
		if a := c.want(path, 404, texts...); a.header.Get("Retry-After") != "" {
			t.Errorf("%s: an absence has Retry-After", path)
		}
	}
	c.want(netPage, 200, "The newest version, 1.1.0, cannot be shown", "1.1.0 refused")
	c.want(netPage+"/1.1.0", 502, "This version cannot be served", "belongs to another module or version.")
	b.lie("/manifests/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) })
	b.serve(nil).want(netPage, 200, "1.0.0 not known now")
	b.lie("/tags/list", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "secret.internal", http.StatusServiceUnavailable)
	})
	for _, path := range []string{netPage, netPage + "/1.0.0", absent} {
		if a := c.want(path, 503, "does not mean that the module does not exist"); a.header.Get("Retry-After") != "5" || strings.Contains(a.body, "secret.internal") {
			t.Errorf("%v\n%s", a.header, a.body)
		}
	}
}

// TestModuleAccess shows that users see only the modules that they may read, and that the link to the zip works without a
// token, for this zip alone.
func TestModuleAccess(t *testing.T) {
	b := newBench(t).modules()
	_, content := b.pushModule(net, "1.0.0", "1.0.0", "")
	secret := module.MustParseAddress(host + "/others/secret/aws")
	b.pushModule(secret, "1.0.0", "1.0.0", "")
	b.index(widget, "1.0.0", artifact.Version{})
	b.options.List = func(context.Context) page.Names {
		return page.Names{All: []subject.Address{widget, net, secret}, Complete: true}
	}
	b.options.Setup = func(_ string, _ bool, _, modules []svchost.Hostname) page.Setup {
		return page.Setup{Hosts: fmt.Sprintf("hosts=%v", modules)}
	}
	ours := token("modules", "modules-token", host+"/acme/*")
	ours.Selector = subject.Selector{Include: []subject.Pattern{module.MustParsePattern(host + "/acme/*/*")}}
	anybody := b.serve(access.New(access.Options{Tokens: []access.Token{ours, token("providers", "providers-token", "*/*/*")}}))
	as := func(token string) *client {
		c := *anybody
		c.authorization = "Bearer " + token
		return &c
	}
	modules, providers := as("modules-token"), as("providers-token")
	for path, want := range map[string][3]int{ // anybody, modules, providers
		netPage: {401, 200, 403}, netPage + "/9.9.9": {401, 404, 403}, widgetPage: {401, 403, 200},
		"/m/" + secret.Path(): {401, 403, 403}, "/m/" + host + "/others/absent/aws": {401, 403, 403},
	} {
		for i, c := range []*client{anybody, modules, providers} {
			c.want(path, want[i])
		}
	}
	modules.want("/", 200, "hosts=["+host+"]")
	providers.want("/", 200, "hosts=[]")
	anybody.want("/", 200, "hosts=[]")
	for _, path := range []string{"/", "/search", escaped("acme.example")} {
		if a := modules.want(path, 200, "net/aws 1.0.0"); strings.Contains(a.text(), "secret") || strings.Contains(a.text(), "widget") {
			t.Errorf("%s: what others may read is listed:\n%s", path, a.text())
		}
		if a := providers.want(path, 200, "widget 1.0.0"); strings.Contains(a.text(), "/aws") {
			t.Errorf("%s: modules are listed:\n%s", path, a.text())
		}
	}
	found := downloads.FindAllStringSubmatch(modules.want(netPage, 200).body, -1)
	if len(found) != 1 || found[0][2] != "net-1.0.0.zip" {
		t.Fatalf("downloads %q", found)
	}
	path := "/" + strings.TrimLeft(found[0][1], "./")
	if a := anybody.want(path, 200); a.body != string(content) {
		t.Errorf("%s is %.80q", path, a.body)
	}
	anybody.want(strings.ReplaceAll(strings.ReplaceAll(path, "/acme/net/", "/others/secret/"), "net-1", "secret-1"), 403)
}
