package page_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/ports"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// listing makes the page list widget and net, or fail as a registry that does not answer.
func (b *bench) listing() (fails *atomic.Bool) {
	fails = &atomic.Bool{}
	b.options.ListTTL = time.Nanosecond
	b.options.List = func(context.Context) page.Names {
		if fails.Load() {
			return page.Names{Failed: true}
		}
		return page.Names{All: []subject.Address{widget, net}, Complete: true}
	}
	return fails
}

// stop makes the registry refuse connections.
func (b *bench) stop() {
	b.t.Helper()
	b.registry.Server.Close()
	held := &ports.Held{}
	held.Hold(b.registry.Server.Listener.Addr().String())
	b.t.Cleanup(held.Release)
}

func (a answer) lacks(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if a.has(text) {
			t.Errorf("the page says %q:\n%s", text, a.text())
		}
	}
}

const (
	unanswered = "The registry cannot answer now. This page shows its last answers, from "
	noList     = "The registry has failed to send its list of repositories"
	unknownYet = "are known yet"
)

// rowOf returns the text of the row of widget 1.0.0, or of net 1.2.0, on a page.
func rowOf(of subject.Address, path string) string {
	switch {
	case of == subject.Address(widget) && path == "/":
		return "acme widget 1.0.0 1 2 "
	case of == subject.Address(widget):
		return widget.String() + " 1.0.0 1 2 "
	case path == "/":
		return "acme net/aws 1.2.0 1 "
	}
	return net.String() + " module 1.2.0 1 "
}

// TestRegistryStopped shows that pages say when the registry is down, and how old their answers are. They find what is in memory and,
// after a restart, what is on disk.
func TestRegistryStopped(t *testing.T) {
	b := newBench(t).modules()
	b.push(widget, "1.0.0", true)
	b.pushModule(net, "1.2.0", "1.2.0", "")
	b.catalog.Directory, b.catalog.StaleIfError, b.catalog.TagTTL = t.TempDir(), time.Hour, -1
	fails := b.listing()
	c := b.serve(nil)
	pages := []string{"/", "/search", escaped("widget"), widgetPage, netPage, widgetPage + "/1.0.0"}
	for _, path := range pages {
		c.want(path, 200).lacks(t, "The registry cannot", noList, "has not answered")
	}
	b.stop()
	fails.Store(true)
	for _, when := range []string{"in memory", "on disk"} {
		for _, path := range pages {
			a := c.want(path, 200, unanswered, " ago .")
			a.lacks(t, unknownYet, "No known", "has no earlier answer", "does not list all")
			if path != netPage && !a.has("widget") || path == "/" && !a.has(rowOf(net, path)) {
				t.Errorf("%s: %s lacks what is known:\n%s", when, path, a.text())
			}
			if !strings.Contains(a.body, `<time datetime="`) {
				t.Errorf("%s: %s does not say when:\n%s", when, path, a.body)
			}
		}
		b.must(b.options.Catalog.Close())
		c = b.serve(nil)
	}
}

// TestRegistryStoppedWithoutAnswers shows that a gateway that knows nothing yet says so, in place of an empty list.
func TestRegistryStoppedWithoutAnswers(t *testing.T) {
	b := newBench(t).modules()
	b.listing().Store(true)
	b.stop()
	c := b.serve(nil)
	for _, path := range []string{"/", "/search", escaped("widget")} {
		c.want(path, 200, noList+": providers and modules may be missing here.").lacks(t, unknownYet, "does not list all")
	}
	b.options.Configured = []subject.Address{widget}
	c = b.serve(nil)
	for path, shown := range map[string]string{"/": "acme widget", "/search": widget.String(), escaped("widget"): widget.String()} {
		c.want(path, 200, "The registry cannot answer now, and the gateway has no earlier answer. This does not mean", shown).lacks(t, unknownYet)
	}
	c.want(widgetPage, 502, "does not mean that the provider does not exist")
}

// TestCatalogFails shows that pages say when only the registry's list of repositories fails, and keep the names of the last list.
func TestCatalogFails(t *testing.T) {
	b := newBench(t).modules()
	b.push(widget, "1.0.0", true)
	b.pushModule(net, "1.2.0", "1.2.0", "")
	fails := b.listing()
	c := b.serve(nil)
	c.want("/", 200, rowOf(widget, "/"))
	fails.Store(true)
	for _, path := range []string{"/", "/search", escaped("acme")} {
		c.want(path, 200, noList+". This list is from", "ago : what was pushed since then may be missing", rowOf(widget, path), rowOf(net, path)).
			lacks(t, unknownYet, "cannot answer", "does not list all")
	}
	c.want(widgetPage, 200, "1.0.0 newest").lacks(t, noList, "cannot answer")
	b.lie("/acme/widget/tags/list", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) })
	c.want(escaped("nothing"), 200, noList, "No known provider or module has a matching address.")
}

// TestCommandsToAdd shows the commands that a page prints for what is missing.
func TestCommandsToAdd(t *testing.T) {
	b := newBench(t).modules()
	b.index(widget, "1.0.0", artifact.Version{})
	b.options.PublicURL = &url.URL{Scheme: "https", Host: "own.example", Path: "/"}
	c := b.serve(nil)
	own, ownModule := provider.MustParseAddress("own.example/acme/gauge"), module.MustParseAddress("own.example/acme/net/aws")
	const fetches, takes = `data-copy="command that adds it"`, `data-copy="command that adds your own"`
	public := "registry.opentofu.org/acme/absent"
	for path, tc := range map[string]struct{ fetch, own string }{
		"/p/" + host + "/acme/absent":         {"ocibridge push &#39;" + host + "/acme/absent@&gt;= 0&#39;", "ocibridge push --release-dir dist --public-key release-key.asc --as " + host + "/acme/absent@1.0.0"},
		widgetPage + "/9.9.9":                 {"ocibridge push " + host + "/acme/widget@9.9.9", "ocibridge push --release-dir dist --public-key release-key.asc --as " + host + "/acme/widget@9.9.9"},
		widgetPage + "/v9":                    {"ocibridge push &#39;" + host + "/acme/widget@&gt;= 0&#39;", "ocibridge push --release-dir dist --public-key release-key.asc --as " + host + "/acme/widget@1.0.0"},
		netPage:                               {"ocibridge module push &#39;" + net.String() + "@&gt;= 0&#39;", "ocibridge module push . --as " + net.String() + "@1.0.0"},
		"/p/" + own.Path():                    {"", "ocibridge push --release-dir dist --public-key release-key.asc --as " + own.String() + "@1.0.0"},
		"/p/" + own.Path() + "/2.1.0":         {"", "ocibridge push --release-dir dist --public-key release-key.asc --as " + own.String() + "@2.1.0"},
		"/m/" + ownModule.Path() + "/2.0.0-a": {"", "ocibridge module push . --as " + ownModule.String() + "@2.0.0-a"},
		"/p/" + public:                        {"ocibridge push &#39;" + public + "@&gt;= 0&#39;", ""},
		"/m/" + public + "/aws":               {"ocibridge module push &#39;" + public + "/aws@&gt;= 0&#39;", ""},
		"/p/acme/absent/thing":                {"", "ocibridge push --release-dir dist --public-key release-key.asc --as acme/absent/thing@1.0.0"},
	} {
		a := c.want(path, 404, tc.fetch, tc.own)
		if strings.Contains(a.body, fetches) != (tc.fetch != "") || strings.Contains(a.body, takes) != (tc.own != "") {
			t.Errorf("%s: the commands to copy are others:\n%s", path, a.body)
		}
	}
	if a := c.want("/p/acme/absent/thing", 404, "names the host acme, which is no public registry, because its name has no dot. Do you mean a module"); !strings.Contains(a.body, `href="../../../m/registry.terraform.io/acme/absent/thing"`) {
		t.Errorf("no link to a module:\n%s", a.body)
	}
	c.want("/p/elsewhere.example/acme/widget", 404).lacks(t, "ocibridge push")
}

// TestRegistryHangsAfterRestart shows that a list has its details if the registry does not answer in time, also from disk.
func TestRegistryHangsAfterRestart(t *testing.T) {
	b := newBench(t).modules()
	b.push(widget, "1.0.0", true)
	b.pushModule(net, "1.2.0", "1.2.0", "")
	b.catalog.Directory, b.catalog.StaleIfError, b.catalog.TagTTL = t.TempDir(), time.Hour, -1
	fails := b.listing()
	c := b.serve(nil)
	c.want("/", 200, rowOf(widget, "/"))
	b.must(b.options.Catalog.Close())
	fails.Store(true)
	b.lie("/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c = b.serve(nil)
	c.want("/", 200, rowOf(widget, "/"), " B signed", rowOf(net, "/")).lacks(t, "not known now", unknownYet)
}
