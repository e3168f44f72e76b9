package gateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// moduleOrigin is an origin that has the versions 1.0.0 and 2.0.0 of netModule, in a folder.
type moduleOrigin struct {
	catalog.Origin
	b *bench

	mu             sync.Mutex
	err            error  // of each call
	storeErr       error  // of Store
	before         func() // is called by Store first
	unseen         bool   // Store succeeds, but the registry does not show the version
	stored, listed int
}

func (o *moduleOrigin) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *moduleOrigin) Selects(a subject.Address) bool { return a == subject.Address(netModule) }

func (o *moduleOrigin) Offers(context.Context, subject.Address) ([]catalog.Offer, []string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listed++
	return []catalog.Offer{{Version: provider.MustParseVersion("1.0.0")}, {Version: provider.MustParseVersion("2.0.0")}}, nil, o.err
}

func (o *moduleOrigin) Complete(_ context.Context, a subject.Address, v provider.Version, stored *artifact.Version) (*artifact.Version, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if stored != nil || o.err != nil {
		return stored, o.err
	}
	if v.String() != "1.0.0" && v.String() != "2.0.0" {
		return nil, nil
	}
	zip := artifact.Package{Filename: artifact.ZipName(a, v), Size: artifact.UnknownSize}
	return &artifact.Version{Owner: a, Version: v, Packages: []artifact.Package{zip}, Provenance: artifact.Provenance{Folder: "sub"}}, nil
}

func (o *moduleOrigin) Store(_ context.Context, a module.Address, v provider.Version) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stored++
	if o.before != nil {
		o.before()
	}
	if o.storeErr == nil && !o.unseen {
		o.b.publishModule(a, v.String(), v.String())
	}
	return o.storeErr
}

func (o *moduleOrigin) Forget(subject.Address) {}

// pulledModules makes the gateway pull netModule through. Version 1.1.0 is in the registry alone.
func pulledModules(t *testing.T, deny ...catalog.Deny) (*bench, *moduleOrigin) {
	b := newBench(t).modules()
	b.publishModule(netModule, "1.1.0", "v1.1.0")
	o := &moduleOrigin{b: b}
	b.options.Log = slog.New(slog.NewTextHandler(b.log, nil))
	b.catalog(catalog.Options{Origin: o, Deny: deny, TagTTL: time.Hour})
	return b, o
}

// TestPulledModules shows that a list has the versions of the registry and of the origin, and that a version is announced at once.
// A HEAD request for its archive stores nothing. A GET request stores the version once, and clients then get it from the registry.
func TestPulledModules(t *testing.T) {
	b, o := pulledModules(t)
	var used []string
	b.options.Used = func(a subject.Address, v provider.Version) { used = append(used, a.String()+" "+v.String()) }
	c := b.serve()
	if a := c.get(moduleVersions); a.body != `{"modules":[{"versions":[{"version":"1.0.0"},{"version":"1.1.0"},{"version":"2.0.0"}]}]}` {
		t.Errorf("versions: %+v", a)
	}
	location := c.location(moduleDownload)
	if !strings.HasSuffix(location, "./net-1.0.0.zip//sub?archive=zip") {
		t.Errorf("download: %s", location)
	}
	if a := c.do(http.MethodHead, moduleArchive); a.status != http.StatusOK || o.stored != 0 || a.header.Get("Content-Length") != "" {
		t.Errorf("HEAD: %+v, %d stored", a, o.stored)
	}
	if a := c.get(modulePrefix + "1.0.0/other.zip"); a.status != http.StatusNotFound || o.stored != 0 {
		t.Errorf("another file: %+v, %d stored", a, o.stored)
	}
	first := c.get(moduleArchive)
	if first.status != http.StatusOK || len(first.body) == 0 || first.header.Get("ETag") == "" || o.stored != 1 {
		t.Errorf("GET: %+v, %d stored", first, o.stored)
	}
	if again := c.get(moduleArchive); again.body != first.body || o.stored != 1 {
		t.Errorf("again: %+v, %d stored", again, o.stored)
	}
	if location := c.location(moduleDownload); strings.Contains(location, "//sub") {
		t.Errorf("after it is stored: %s", location)
	}
	if a := c.get(modulePrefix + "1.1.0/net-1.1.0.zip"); a.status != http.StatusOK || o.stored != 1 {
		t.Errorf("a stored version: %+v, %d stored", a, o.stored)
	}
	if want := netModule.String() + " 1.0.0"; len(used) != 3 || used[0] != want || used[2] != netModule.String()+" 1.1.0" {
		t.Errorf("used: %q", used)
	}
	for _, path := range []string{modulePrefix + "9.0.0/download", modulePrefix + "9.0.0/net-9.0.0.zip", "/hosts/" + host + "/v1/modules/acme/other/aws/versions"} {
		if a := c.get(path); a.status != http.StatusNotFound || o.stored != 1 {
			t.Errorf("%s: %+v, %d stored", path, a, o.stored)
		}
	}
}

// TestPulledModulesFail shows that a failed origin is never taken for the absence of a module, and that a refused version is not
// served. What the registry has is served.
func TestPulledModulesFail(t *testing.T) {
	unavailable := fmt.Errorf("%w: 500", catalog.ErrSource)
	for name, tc := range map[string]struct {
		err, storeErr     error
		unseen            bool
		download, archive int
		says              string
	}{
		"the origin fails":            {err: unavailable, download: http.StatusBadGateway, archive: http.StatusBadGateway, says: "the origin is unavailable"},
		"the fetch fails":             {storeErr: unavailable, download: http.StatusOK, archive: http.StatusBadGateway, says: "the origin is unavailable"},
		"a refused version":           {storeErr: errors.New("two tags for one version"), download: http.StatusOK, archive: http.StatusBadGateway, says: "the gateway's log says why"},
		"a limit is reached":          {storeErr: &catalog.BusyError{Limit: "max_per_day", RetryAfter: time.Hour}, download: http.StatusOK, archive: http.StatusServiceUnavailable, says: "limit"},
		"stored, and not shown":       {unseen: true, download: http.StatusOK, archive: http.StatusBadGateway, says: "registry"},
		"the origin has withdrawn it": {storeErr: fmt.Errorf("%w: gone", catalog.ErrAbsent), download: http.StatusOK, archive: http.StatusNotFound, says: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			b, o := pulledModules(t)
			o.err, o.storeErr, o.unseen = tc.err, tc.storeErr, tc.unseen
			c := b.serve()
			if a := c.get(moduleDownload); a.status != tc.download {
				t.Errorf("download: %+v", a)
			}
			if a := c.get(moduleArchive); a.status != tc.archive || !strings.Contains(a.body, tc.says) {
				t.Errorf("archive: %+v", a)
			}
			want := `{"modules":[{"versions":[{"version":"1.0.0"},{"version":"1.1.0"},{"version":"2.0.0"}]}]}`
			if tc.err != nil {
				want = `{"modules":[{"versions":[{"version":"1.1.0"}]}]}`
			}
			if a := c.get(moduleVersions); a.body != want {
				t.Errorf("versions: %+v", a)
			}
			if a := c.get(modulePrefix + "1.1.0/net-1.1.0.zip"); a.status != http.StatusOK {
				t.Errorf("a stored version: %+v", a)
			}
			if tc.archive != http.StatusNotFound && !strings.Contains(b.log.String(), "cannot answer") {
				t.Errorf("the log: %s", b.log.String())
			}
		})
	}
}

// TestPulledModuleOfAnotherGateway shows that a version that another writer stores in the meantime is served, and not stored again.
func TestPulledModuleOfAnotherGateway(t *testing.T) {
	b, o := pulledModules(t)
	c := b.serve()
	c.location(moduleDownload)
	b.publishModule(netModule, "1.0.0", "v1.0.0")
	if a := c.get(moduleArchive); a.status != http.StatusOK || o.stored != 0 {
		t.Errorf("stored before the request: %+v, %d stored", a, o.stored)
	}
	c.location(modulePrefix + "2.0.0/download")
	o.set(func() {
		o.storeErr = errors.New("the origin has changed the version")
		o.before = func() { b.publishModule(netModule, "2.0.0", "2.0.0") }
	})
	if a := c.get(modulePrefix + "2.0.0/net-2.0.0.zip"); a.status != http.StatusOK || o.stored != 1 {
		t.Errorf("stored during the request: %+v, %d stored", a, o.stored)
	}
}

// TestWhoMayPullModules shows that only a request that may fetch sees what the origin has, and only with a token or a capability
// for the module. The capability of an announced version is for that version alone.
func TestWhoMayPullModules(t *testing.T) {
	b, o := pulledModules(t)
	b.options.Fetches = func(r *http.Request) bool { return r.Header.Get("Via") == "" }
	b.options.Access = access.New(access.Options{Tokens: []access.Token{
		{Name: "all", SHA256: sha256.Sum256([]byte("all-token"))},
		{Name: "other", SHA256: sha256.Sum256([]byte("other-token")), Selector: subject.Selector{Include: []subject.Pattern{otherModule.Pattern()}}},
	}})
	c := b.serve()
	via := *c.as("all-token").http
	via.Transport = withHeader{"Via", "1.1 own", via.Transport}
	passed := &client{c.t, c.s, &via}
	if a := passed.get(moduleVersions); a.body != `{"modules":[{"versions":[{"version":"1.1.0"}]}]}` {
		t.Errorf("passed on: %+v", a)
	}
	for name, got := range map[string]answer{
		"passed on": passed.get(moduleArchive), "without a token": c.get(moduleArchive), "with a token for another": c.as("other-token").get(moduleArchive),
		"the list without a token": c.get(moduleVersions),
	} {
		if !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, got.status) || o.stored > 0 {
			t.Errorf("%s: %+v, %d stored", name, got, o.stored)
		}
	}
	link := relative(moduleDownload, c.as("all-token").location(moduleDownload))
	link, _, _ = strings.Cut(link, "//")
	for _, changed := range []string{strings.Replace(link, "1.0.0", "2.0.0", 2), strings.Replace(link, "/net/", "/other/", 1)} {
		if a := c.get(changed); a.status != http.StatusForbidden || o.stored > 0 {
			t.Errorf("%s: %+v, %d stored", changed, a, o.stored)
		}
	}
	for range 2 {
		if a := c.get(link); a.status != http.StatusOK || o.stored != 1 {
			t.Errorf("with a capability: %+v, %d stored", a, o.stored)
		}
	}
}

// TestDeniedPulledModules shows that rules hide versions of the origin, and that they are never stored.
func TestDeniedPulledModules(t *testing.T) {
	versions, err := provider.ParseConstraint("< 1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	b, o := pulledModules(t, catalog.Deny{Pattern: netModule.Pattern(), Versions: versions, Reason: "it opens port 22"})
	c := b.serve()
	if a := c.get(moduleVersions); strings.Contains(a.body, "1.0.0") || !strings.Contains(a.body, "2.0.0") {
		t.Errorf("versions: %+v", a)
	}
	for _, path := range []string{moduleDownload, moduleArchive} {
		if a := c.get(path); a.status != http.StatusUnavailableForLegalReasons || !strings.Contains(a.body, "port 22") || o.stored > 0 {
			t.Errorf("%s: %+v, %d stored", path, a, o.stored)
		}
	}
}

// TestPulledModulesStayDirect shows that clients download a stored version from its repository, and an announced one from the
// gateway.
func TestPulledModulesStayDirect(t *testing.T) {
	b, _ := pulledModules(t)
	b.options.ModuleRepository = func(module.Address) (ociaddr.Repository, bool) {
		return ociaddr.Repository{Registry: "registry.example", Name: "net"}, true
	}
	b.options.ModuleOrigin = func(context.Context, module.Address) (*url.URL, error) { return nil, nil }
	c := b.serve()
	var got []string
	for range 2 {
		a := c.get(moduleDownload)
		got = append(got, a.header.Get("X-Terraform-Get"))
		c.get(moduleArchive)
	}
	if !strings.HasPrefix(got[0], "./net-1.0.0.zip") || !strings.HasPrefix(got[1], "oci://registry.example/net?digest=") {
		t.Errorf("locations %q", got)
	}
}
