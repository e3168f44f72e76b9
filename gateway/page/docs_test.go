package page_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/registries/providerdoc"
	"github.com/ocibridge/ocibridge/provider"
)

// pushDocs stores a version of a provider with documentation: the given pages, or the bytes of a zip.
func (b *bench) pushDocs(a provider.Address, version string, pages map[string]string, zip []byte) {
	b.t.Helper()
	if pages != nil {
		dir := b.t.TempDir()
		for name, text := range pages {
			path := filepath.Join(dir, filepath.FromSlash(name))
			b.must(os.MkdirAll(filepath.Dir(path), 0o755))
			b.must(os.WriteFile(path, []byte(text), 0o644))
		}
		var err error
		zip, _, err = providerdoc.Pack(b.t.Context(), dir)
		b.must(err)
	}
	docs, err := artifact.EncodeDocs(artifact.Docs{Provider: a, Version: provider.MustParseVersion(version), Zip: artifact.DocsZip(zip)})
	b.must(err)
	repo := b.repository(a)
	for _, blob := range []artifact.Blob{{Descriptor: artifact.DocsZip(zip), Data: zip}, artifact.Config(), docs} {
		if ok, err := repo.Exists(b.t.Context(), blob.Descriptor); err == nil && !ok {
			b.must(repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)))
		}
	}
	b.index(a, version, artifact.Version{Docs: &docs.Descriptor})
}

func widgetDocs() map[string]string {
	return map[string]string{
		"index.md":                 "---\npage_title: Acme\n---\n# Acme Provider\n\nIt makes *widgets*: [one](docs/resources/widget), [two](resources/widget.md#schema) and [none](resources/none.md).\n",
		"resources/widget.md":      "---\nsubcategory: \"Shop & Floor\"\n---\n# acme_widget (Resource)\n\n~> **Note:** sharp\n\n## Schema\n\n[gadget](gadget), [data](../data-sources/widget.md), [home](../index.md), [legacy](/docs/x), ![a picture](https://example.com/x.png)\n\n| a | b |\n|---|---|\n| c | d |\n",
		"resources/gadget.md":      "# acme_gadget (Resource)\n",
		"data-sources/widget.md":   "# acme_widget (Data Source)\n",
		"guides/upgrade.md":        "---\npage_title: Upgrade to 2\n---\n",
		"functions/add.md":         "# function: add\n",
		"guides/long.md":           strings.Repeat("* ", 100_000),
		"list-resources/widget.md": "",
	}
}

// TestDocs checks the list of the pages of documentation, and the pages.
func TestDocs(t *testing.T) {
	b := newBench(t).withManuals()
	b.push(widget, "1.0.0", true)
	b.pushDocs(widget, "1.1.0", widgetDocs(), nil)
	c := b.serve(nil)
	if a := c.want(widgetPage+"/1.0.0", 200, "Signature"); strings.Contains(a.text(), "Documentation") {
		t.Errorf("a version without documentation:\n%s", a.text())
	}
	c.want(widgetPage, 200, "Documentation Overview Guides 2", "Upgrade to 2", "Resources 2 acme_gadget Shop &amp; Floor acme_widget", "Data sources 1 acme_widget", "List resources 1 widget", "Functions 1 add")
	a := c.want(widgetPage+"/1.1.0?doc=index", 200, "1.1.0 newest", "Overview It makes widgets : one , two and none.", "The publisher’s signature does not cover it")
	for _, want := range []string{`<a href="?doc=resources%2Fwidget" rel="nofollow noreferrer">one</a>`, `<a href="?doc=resources%2Fwidget#doc-schema" rel="nofollow noreferrer">two</a>`, "and none.", `aria-current="page">Overview</a>`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s in\n%s", want, a.body)
		}
	}
	a = c.want(widgetPage+"/1.1.0?doc=resources/widget", 200, "acme_widget Resource", "Note: sharp", "gadget , data , home , legacy, a picture")
	for _, want := range []string{`href="?doc=resources%2Fgadget"`, `href="?doc=data-sources%2Fwidget"`, `href="?doc=index"`, `<h3 id="doc-schema">Schema</h3>`, "<blockquote>", `<div class="scroll" tabindex="0"`, "<details open>\n<summary>Resources"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s in\n%s", want, a.body)
		}
	}
	if strings.Contains(a.body, "x.png") || strings.Contains(a.body, "/docs/x") {
		t.Errorf("%s", a.body)
	}
	if n := strings.Count(a.body, "<details open>"); n != 5 { // there are few pages
		t.Errorf("%d lists of pages are unfolded:\n%s", n, a.body)
	}
	many := widgetDocs()
	for i := range 5 {
		many[fmt.Sprintf("data-sources/gadget%d.md", i)] = "# acme_gadget (Data Source)\n"
	}
	b.pushDocs(widget, "1.0.1", many, nil)
	if a := c.want(widgetPage+"/1.0.1?doc=resources/widget", 200); strings.Count(a.body, "<details open>") != 1 || !strings.Contains(a.body, "<details open>\n<summary>Resources") {
		t.Errorf("more than the list of the page is unfolded:\n%s", a.body)
	}
	c.want(widgetPage+"/1.1.0?doc=resources/none", 200, "There is no such page", "Resources 2")
	c.want(widgetPage+"/1.1.0?doc=guides/long", 200, "This page is too long to be shown.")
	c.want(widgetPage+"/1.0.0?doc=index", 200, "Signature")
}

// TestDocsStayText shows that no text of documentation becomes markup, and that the page loads nothing for it.
func TestDocsStayText(t *testing.T) {
	b := newBench(t).withManuals()
	const evil = `<script>alert(1)</script><img src=x onerror=alert(1)>`
	b.pushDocs(widget, "1.0.0", map[string]string{
		"index.md":       "# A\n",
		"guides/a.md":    "---\npage_title: '" + evil + "'\nsubcategory: '" + evil + "'\n---\n# " + evil + "\n\n" + evil + "\n\n[a](javascript:alert(1)) <a href=\"javascript:alert(1)\" onclick=\"alert(1)\">b</a>\n\n<iframe src=\"https://example.com\"></iframe>\n<form action=/x><button>c</button></form>\n<h2 id=\"main\" style=\"color:red\">d</h2>\n\n![e](https://example.com/e.png)\n",
		"resources/b.md": "# " + evil + "b\n",
	}, nil)
	c := b.serve(nil)
	for _, path := range []string{"", "?doc=guides/a", "?doc=resources/b", "?doc=" + "%3Cscript%3Ealert(1)%3C/script%3E"} {
		a := c.want(widgetPage+path, 200)
		for _, bad := range []string{"<script>", "onerror=alert(1)>", "javascript:", "<iframe", "<form action=/x", "<button>c", `id="main" style`, "<img src=x", "e.png"} {
			if strings.Contains(a.body, bad) {
				t.Errorf("%s: %s in\n%s", path, bad, a.body)
			}
		}
		if strings.Count(a.body, "<img") != 1 || strings.Count(a.body, "<script") != 2 {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// TestDocsFail shows the page of a version whose documentation cannot be read.
func TestDocsFail(t *testing.T) {
	b := newBench(t).withManuals()
	b.pushDocs(widget, "1.0.0", nil, []byte("PK no zip"))
	b.pushDocs(widget, "2.0.0", widgetDocs(), nil)
	c := b.serve(nil)
	for _, path := range []string{"", "?doc=index"} {
		c.want(widgetPage+"/1.0.0"+path, 200, "The documentation is not shown: what is stored is no documentation.")
	}
	b.lie("/blobs/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "secret.internal", http.StatusServiceUnavailable)
	})
	if a := b.serve(nil).want(widgetPage+"/2.0.0?doc=index", 200, "The documentation cannot be read now. Load the page again in a moment."); strings.Contains(a.body, "secret.internal") {
		t.Errorf("%s", a.body)
	}
}
