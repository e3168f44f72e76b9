package page

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/providerdoc"
)

// docsView is the stored documentation of a version of a provider: the list of its pages and, if a request names one, a page.
type docsView struct {
	State   string     // why there is no list: manualUnreadable, manualUnknown, or ""
	Kinds   []docsKind // without the overview
	Version string     // the path of the version's page
	// Overview is the query of the overview, or "" if there is none.
	Overview string

	Path string // the page that the request names, or ""
	// The page. Title is "" if there is no such page.
	Title, Kind, Subcategory string
	HTML                     template.HTML
	PageState                string // why the page is not shown: manualUnreadable, manualUnknown, or ""
}

// docsKind lists the pages of one kind.
type docsKind struct {
	Title  string
	Count  int
	Open   bool // the list of the kind is unfolded: it has the page that is shown, or there are few pages
	Groups []docsGroup
}

// docsGroup lists the pages of one subcategory, which may be "".
type docsGroup struct {
	Subcategory string
	Pages       []docsLink
}

// docsUnfolded is the maximum number of pages that the list shows without a click.
const docsUnfolded = 12

// docsLink is a link to a page.
type docsLink struct {
	Title, Query string
	Current      bool
}

// kindTitles are the titles of the lists of pages, and of one page.
var kindTitles = map[providerdoc.Kind][2]string{
	providerdoc.Overview:  {"", ""},
	providerdoc.Guide:     {"Guides", "Guide"},
	providerdoc.Resource:  {"Resources", "Resource"},
	providerdoc.Data:      {"Data sources", "Data source"},
	providerdoc.Ephemeral: {"Ephemeral resources", "Ephemeral resource"},
	providerdoc.List:      {"List resources", "List resource"},
	providerdoc.Action:    {"Actions", "Action"},
	providerdoc.Function:  {"Functions", "Function"},
}

// docs returns the documentation of a version, or nil if none is stored, or if the gateway reads none.
func (p *page) docs(ctx context.Context, r *http.Request, view catalog.View, item *catalog.Item) *docsView {
	stored := item.Stored()
	if p.Manuals == nil || stored == nil || stored.Docs == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, manualWithin)
	defer cancel()
	a := item.Address
	from := manuals.DocsSource{Provider: a, Version: item.Version, Store: view.Metadata(a), Blob: func(zip artifact.Package) archives.Blob {
		return p.Catalog.StoredPackage(context.WithoutCancel(ctx), a, zip)
	}}
	out := &docsView{Version: entry{a}.versionPage(item.Version), Path: r.URL.Query().Get("doc")}
	read, err := p.Manuals.Docs(ctx, stored, from)
	if err != nil {
		p.Log.WarnContext(r.Context(), "cannot show the documentation", "path", r.URL.Path, "version", item.Version.String(), "err", hint.Brief(err))
		out.State = manualState(err)
		return out
	}
	out.list(read.Docs)
	if shown := read.Page(out.Path); shown != nil {
		out.Title, out.Kind, out.Subcategory = shown.Title, kindTitles[shown.Kind][1], shown.Subcategory
		if out.HTML, err = p.Manuals.DocsPage(ctx, read, shown, from, docQuery); err != nil {
			if !errors.Is(err, manuals.ErrUnreadable) {
				p.Log.WarnContext(r.Context(), "cannot show the documentation", "path", r.URL.Path, "version", item.Version.String(), "err", hint.Brief(err))
			}
			out.PageState = manualState(err)
		}
	}
	return out
}

// list sets the list of pages.
func (v *docsView) list(d *providerdoc.Docs) {
	var last providerdoc.Kind
	for _, page := range d.Pages {
		if page.Kind == providerdoc.Overview {
			v.Overview = docQuery(page.Path)
			continue
		}
		if page.Kind != last {
			v.Kinds, last = append(v.Kinds, docsKind{Title: kindTitles[page.Kind][0]}), page.Kind
		}
		k := &v.Kinds[len(v.Kinds)-1]
		if n := len(k.Groups); n == 0 || k.Groups[n-1].Subcategory != page.Subcategory {
			k.Groups = append(k.Groups, docsGroup{Subcategory: page.Subcategory})
		}
		g := &k.Groups[len(k.Groups)-1]
		current := page.Path == v.Path
		g.Pages = append(g.Pages, docsLink{page.Title, docQuery(page.Path), current})
		k.Count, k.Open = k.Count+1, k.Open || current || len(d.Pages) <= docsUnfolded
	}
}

// title returns the title of a page of documentation, within a provider with the given title.
func (v *docsView) title(provider string) string {
	if v.Title == "" {
		return provider
	}
	return v.Title + " · " + provider
}

// docQuery returns the link to a page of documentation, from the page of its version.
func docQuery(at string) string { return "?doc=" + url.QueryEscape(at) }
