package page_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

// TestOverviews shows that a list of providers describes the newest stored version of each provider. The number of
// requests does not depend on the number of versions, and none goes to an origin.
func TestOverviews(t *testing.T) {
	b := newBench(t)
	b.pulls()
	b.push(widget, "1.0.0", true)
	gauge, offered := provider.MustParseAddress(host+"/acme/gauge"), provider.MustParseAddress(host+"/acme/offered")
	for i := range 25 {
		b.index(gauge, fmt.Sprintf("1.%d.0", i), artifact.Version{})
	}
	b.index(gauge, "2.0.0-beta.1", artifact.Version{})
	b.offer(offered, "1.0.0", b.signer)
	denied, err := provider.ParseConstraint("1.24.0")
	b.must(err)
	b.catalog.Deny = []catalog.Deny{{Pattern: gauge.Pattern(), Versions: denied}}
	b.catalog.TagTTL = time.Hour
	b.options.Configured = []subject.Address{widget, gauge, offered, provider.MustParseAddress("elsewhere.example/acme/none")}
	c := b.serve(nil)
	b.registry.Reset()
	b.origin.Reset()
	for _, path := range []string{"/", "/search", escaped("acme")} {
		widgetName, gaugeName := widget.String(), gauge.String()
		if path == "/" {
			widgetName, gaugeName = "widget", "gauge" // below the namespace
		}
		a := c.want(path, 200, "4 providers", widgetName+" 1.0.0 1 2 ", " B signed "+b.signer.Fingerprint()[24:], gaugeName+" 1.23.0 26 1 ", "no evidence", "offered", "none")
		if strings.Contains(a.text(), "offered 1.0.0") {
			t.Errorf("%s: a version at the origin counts as stored:\n%s", path, a.text())
		}
	}
	// Of each provider, it reads the list of tags and one index. All pages after the first are answered from the cache.
	if n := b.registry.Count(recorder.PathContains("/acme/gauge/")); n > 3 {
		t.Errorf("%d requests about a provider with 26 versions: %v", n, b.registry.Requests())
	}
	if n := b.origin.Count(); n != 0 {
		t.Errorf("%d requests to the origin", n)
	}
}

// TestOverviewsWithoutAnAnswer shows that a list waits only briefly for a registry that does not answer, and has all
// names.
func TestOverviewsWithoutAnAnswer(t *testing.T) {
	b := newBench(t)
	b.index(widget, "1.0.0", artifact.Version{})
	b.options.Configured = []subject.Address{widget}
	b.catalog.Timeout = time.Hour
	b.lie("/tags/list", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if a := b.serve(nil).want("/", 200, host+"/acme widget"); strings.Contains(a.text(), "widget 1.0.0") {
		t.Errorf("the list says\n%s", a.text())
	}
}

var downloads = regexp.MustCompile(`<a href="([^"]*)" download="([^"]*)"`)

// TestDownloads shows that a provider's page links all files of a release. If access is controlled, the links work
// without a token, and only for the linked files.
func TestDownloads(t *testing.T) {
	b := newBench(t)
	r := b.push(widget, "1.0.0", true)
	b.push(widget, "1.1.0", false)
	want := map[string]string{
		r.SHA256SUMSName(): string(r.SHA256SUMS), r.SHA256SUMSName() + ".sig": string(r.Signature),
		"terraform-provider-widget_1.0.0_keys.asc": r.Keys[0].ASCIIArmor,
	}
	for _, p := range r.Packages {
		want[p.Filename] = string(p.Data)
	}
	control := access.New(access.Options{Tokens: []access.Token{token("acme", "acme-token", host+"/acme/*")}})
	for name, reader := range map[string]*client{"open": b.serve(nil), "controlled": b.serve(control)} {
		anybody := *reader
		if name == "controlled" {
			reader.authorization = "Bearer acme-token"
		}
		found := downloads.FindAllStringSubmatch(reader.want(widgetPage+"/1.0.0", 200).body, -1)
		if len(found) != len(want) {
			t.Errorf("%s: %d downloads, want %d", name, len(found), len(want))
		}
		for _, m := range found {
			path := "/" + strings.TrimLeft(m[1], "./")
			if a := anybody.want(path, 200); a.body != want[m[2]] {
				t.Errorf("%s: %s is %.80q, want %.80q", name, m[1], a.body, want[m[2]])
			}
			if name == "controlled" {
				anybody.want(strings.Replace(path, "1.0.0", "1.1.0", -1), 403)
			}
		}
		unsigned := reader.want(widgetPage+"/1.1.0", 200)
		if n := len(downloads.FindAllString(unsigned.body, -1)); n != len(r.Packages) {
			t.Errorf("%s: an unsigned version has %d downloads, want %d", name, n, len(r.Packages))
		}
	}
}
