package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/respond"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets/*
var assetFiles embed.FS

// asset serves a style sheet, script or image of the pages.
func (p *page) asset(w http.ResponseWriter, r *http.Request) {
	name := mux.Vars(r)["name"]
	data, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		p.notFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "public, no-cache") // browsers revalidate the asset by its ETag
	h.Set("ETag", strconv.Quote(digest.FromBytes(data).String()))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

// views returns the templates of the pages by name, each with the layout. Only a gateway that shows pages parses them.
var views = sync.OnceValue(func() map[string]*template.Template {
	functions := template.FuncMap{"bytes": humanBytes, "utc": utc, "date": date, "code": newCode, "display": displayHost}
	layout := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	out := map[string]*template.Template{}
	for _, name := range []string{"front", "search", "provider", "module", "message"} {
		out[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return out
})

// codeView is a text with a button that copies it.
type codeView struct{ Label, Text string }

func newCode(label, text string) codeView { return codeView{label, text} }

// displayHost formats a host name for people, in Unicode.
func displayHost(name string) string { return svchost.Hostname(name).ForDisplay() }

// layout has the fields of every page.
type layout struct {
	Base       string // the relative URL of the root, with a slash at the end
	Title      string
	Query      string // in the search box
	Who        string // the name of the signed-in user
	Controlled bool   // there is access control, so users can sign in
	Front      bool   // this is the page at the root
	View       any
}

// base returns the relative URL from a request's path to the root.
func base(r *http.Request) string {
	if n := strings.Count(r.URL.Path, "/") - 1; n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

// render answers with a page. It executes the template before it sends anything, so an error never leaves half
// a page. It removes control characters and marks that change the direction of text, because every text on a
// page can come from the registry or from an origin.
func (p *page) render(w http.ResponseWriter, r *http.Request, status int, view string, l layout) {
	l.Base, l.Controlled, l.Who = base(r), p.Access != nil, access.NameOf(r.Context())
	var body bytes.Buffer
	if err := views()[view].ExecuteTemplate(&body, "layout.html", l); err != nil {
		p.Log.ErrorContext(r.Context(), "cannot write a page", "path", r.URL.Path, "err", err)
		http.Error(w, "this page cannot be written; the gateway's log says why", http.StatusInternalServerError)
		return
	}
	data, h := bytes.Map(hint.Printable, body.Bytes()), w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		respond.Send(w, data, false)
	}
}

// humanBytes formats a size for people.
func humanBytes(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, i := float64(n)/1000, 0
	for f >= 999.95 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// date formats a time of RFC 3339 as a date for people.
func date(rfc3339 string) string {
	t, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		return rfc3339
	}
	return t.UTC().Format("2 January 2006")
}
