package page_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/lastuse"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	widgetZip = "/providers/" + host + "/acme/widget/1.0.0/linux_amd64/terraform-provider-widget_1.0.0_linux_amd64.zip"
	netZip    = "/hosts/" + host + "/v1/modules/acme/net/aws/1.2.0/net-1.2.0.zip"
	now       = `Last use \d+ seconds? ago , through this gateway$`
	unused    = "Last use None through this gateway since 20"
)

// lastUse returns what a page says about the last use.
func (c *client) lastUse(path string) string {
	c.t.Helper()
	text := c.want(path, 200).text()
	return regexp.MustCompile(`Last use .*?(UTC|this gateway|$)( since \S+ \S+ UTC)?`).FindString(text)
}

// send sends a request with headers, and checks the status of the response.
func (c *client) send(method, path string, status int, headers ...string) {
	c.t.Helper()
	req := httptest.NewRequest(method, "https://gateway.example"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if a := c.do(req); a.status != status {
		c.t.Errorf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
}

// TestLastUse shows that the page of a version says when it was last used, by the requests that "ocibridge usage" counts, too.
func TestLastUse(t *testing.T) {
	b := newBench(t).modules()
	b.options.LastUses = lastuse.New()
	b.index(widget, "1.0.0", artifact.Version{})
	b.index(widget, "2.0.0", artifact.Version{})
	b.pushModule(net, "1.2.0", "1.2.0", "")
	denied, err := provider.ParseConstraint("2.0.0")
	b.must(err)
	b.catalog.Deny = []catalog.Deny{{Pattern: widget.Pattern(), Versions: denied}}
	c := b.serve(nil)
	pages := []string{widgetPage, widgetPage + "/1.0.0", netPage, netPage + "/1.2.0"}
	used := func(want func(said string) bool, pages ...string) {
		t.Helper()
		for _, page := range pages {
			if said := c.lastUse(page); !want(said) {
				t.Errorf("%s says %q", page, said)
			}
		}
	}
	never := func(said string) bool { return strings.HasPrefix(said, unused) && strings.HasSuffix(said, " UTC") }
	recently := regexp.MustCompile("^" + now).MatchString
	for _, path := range []string{widgetZip, netZip} {
		c.send(http.MethodHead, path, 200)
	}
	for path, status := range map[string]int{
		strings.ReplaceAll(widgetZip, "1.0.0", "3.0.0"):  404,
		strings.ReplaceAll(widgetZip, "1.0.0", "2.0.0"):  451,
		strings.ReplaceAll(netZip, "1.2.0", "3.0.0"):     404,
		"/providers/" + host + "/acme/widget/index.json": 200,
	} {
		c.send(http.MethodGet, path, status)
	}
	used(never, pages...)
	c.send(http.MethodGet, "/providers/"+host+"/acme/widget/1.0.0.json", 200)
	used(recently, widgetPage, widgetPage+"/1.0.0")
	c = b.serve(nil)
	c.send(http.MethodGet, widgetZip, 200)
	used(recently, widgetPage, widgetPage+"/1.0.0")
	used(never, netPage)
	c.send(http.MethodGet, netZip, 200)
	used(recently, pages...)
	c.send(http.MethodGet, widgetZip, 304, "If-None-Match", "*")

	b.options.LastUses = nil
	if a := b.serve(nil).want(widgetPage, 200); a.has("Last use") {
		t.Errorf("a gateway that remembers nothing:\n%s", a.text())
	}
}

// TestLastUseIsRecorded shows that the page knows the uses that the registry recorded before the gateway started. The last use
// may be later, and the page says so.
func TestLastUseIsRecorded(t *testing.T) {
	b := newBench(t)
	b.options.LastUses = lastuse.New()
	b.index(widget, "1.0.0", artifact.Version{})
	var recorded time.Time
	b.options.Recorded = func(a subject.Address, v provider.Version) time.Time {
		if a != widget || v.String() != "1.0.0" {
			t.Errorf("asked for %s %s", a, v)
		}
		return recorded
	}
	c := b.serve(nil)
	wants := func(want string) {
		t.Helper()
		if said := c.lastUse(widgetPage); !regexp.MustCompile("^" + want).MatchString(said) {
			t.Errorf("the page says %q, want %q", said, want)
		}
	}
	wants(unused)
	recorded = time.Date(2026, 3, 12, 23, 0, 0, 0, time.UTC)
	wants("Last use 12 March 2026 or later, but none through this gateway since 20")
	recorded = time.Now().Add(time.Second) // by another process with the same data folder
	wants(now)
	recorded = time.Date(2026, 3, 12, 23, 0, 0, 0, time.UTC)
	c.send(http.MethodGet, widgetZip, 200)
	wants(now)
}

// TestWhoSeesLastUses shows that only readers of a version see when it was last used, that nobody sees who used it, and that
// refused requests are no use.
func TestWhoSeesLastUses(t *testing.T) {
	b := newBench(t)
	b.options.LastUses = lastuse.New()
	b.index(widget, "1.0.0", artifact.Version{})
	control := access.New(access.Options{Tokens: []access.Token{token("acme", "acme-token", host+"/acme/*"), token("bob", "bob-token", host+"/acme/*"), token("other", "other-token", "other.example/*/*")}})
	c := b.serve(control)
	as := func(name string) *client {
		out := *c
		out.authorization = "Bearer " + name + "-token"
		return &out
	}
	c.send(http.MethodGet, widgetZip, 401)
	as("other").send(http.MethodGet, widgetZip, 403)
	if said := as("acme").lastUse(widgetPage); !strings.HasPrefix(said, unused) {
		t.Errorf("after refused requests: %q", said)
	}
	as("bob").send(http.MethodGet, widgetZip, 200)
	if a := as("acme").want(widgetPage, 200, "ago , through this gateway"); a.has("bob") {
		t.Errorf("the page names the user:\n%s", a.text())
	}
	for reader, status := range map[*client]int{c: 401, as("other"): 403} {
		if a := reader.want(widgetPage, status); a.has("Last use") || a.has("ago") {
			t.Errorf("a stranger sees\n%s", a.text())
		}
	}
}
