package page

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/respond"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
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

// caPath is the path of the CA's certificate. Every client gets it, because it needs the certificate before it can send a token.
const caPath = "/assets/ca.pem"

// authority serves the CA's certificate.
func (p *page) authority(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	http.ServeContent(w, r, caPath, time.Time{}, bytes.NewReader(p.CA))
}

// views returns the templates of the pages by name, each with the layout. Only a gateway that shows pages parses them.
var views = sync.OnceValue(func() map[string]*template.Template {
	functions := template.FuncMap{"bytes": hint.Bytes, "utc": utc, "date": date, "ago": ago, "code": newCode, "display": displayHost, "day": day, "pieces": pieces, "parts": pathParts, "keyID": keyID, "tab": newTab}
	layout := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/manual.html", "templates/docsnav.html"))
	out := map[string]*template.Template{}
	for _, name := range []string{"front", "search", "provider", "docs", "module", "message"} {
		out[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return out
})

// codeView is a text with a button that copies it.
type codeView struct{ Label, Text string }

func newCode(label, text string) codeView { return codeView{label, text} }

// tabView is a control that shows one part of the client setup.
type tabView struct {
	ID, Title string
	Checked   bool
}

func newTab(id, title, checked string) tabView { return tabView{id, title, id == checked} }

// pieces splits a name at the places where a line may break: after each -, _, . and /.
func pieces(name string) (out []string) {
	for from := 0; from < len(name); {
		n := strings.IndexAny(name[from:], "-_./")
		if n < 0 {
			return append(out, name[from:])
		}
		out, from = append(out, name[from:from+n+1]), from+n+1
	}
	return out
}

// pathParts splits an address after each slash. A line breaks inside a part only if the part is longer than a line.
func pathParts(address string) []string {
	return slices.DeleteFunc(strings.SplitAfter(address, "/"), func(part string) bool { return part == "" })
}

// keyID returns the 64-bit ID of an OpenPGP key with a fingerprint.
func keyID(fingerprint string) string {
	if len(fingerprint) == 64 {
		return fingerprint[:16] // of version 6
	}
	return fingerprint[max(0, len(fingerprint)-16):]
}

func displayHost(name string) string { return svchost.Hostname(name).ForDisplay() }

// layout has the fields of every page.
type layout struct {
	Base       string // the relative URL of the root, with a slash at the end
	Title      string
	Query      string // in the search box
	Who        string // the name of the signed-in user
	Controlled bool   // there is access control, so users can sign in
	Front      bool   // this is the page at the root
	Suggests   bool   // the search box may ask for answers while the user types
	View       any
}

// base returns the relative URL from a request's path to the root.
func base(r *http.Request) string {
	if n := strings.Count(r.URL.Path, "/") - 1; n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

// render answers with a page. It executes the template before it sends anything, so an error never leaves half a page.
// It removes control characters and marks that change the direction of text, because texts can come from anywhere.
func (p *page) render(w http.ResponseWriter, r *http.Request, status int, view string, l layout) {
	l.Base, l.Controlled, l.Who = base(r), p.Access != nil, access.NameOf(r.Context())
	l.Suggests = !l.Controlled || l.Who != ""
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

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ago formats the age of a time for people.
func ago(t time.Time) string {
	switch age := max(time.Since(t), time.Second); {
	case age < 2*time.Minute:
		return hint.Count(int(age/time.Second), "second") + " ago"
	case age < 2*time.Hour:
		return hint.Count(int(age/time.Minute), "minute") + " ago"
	case age < 48*time.Hour:
		return hint.Count(int(age/time.Hour), "hour") + " ago"
	default:
		return hint.Count(int(age/(24*time.Hour)), "day") + " ago"
	}
}

// date formats a time of RFC 3339 as a date for people.
func date(rfc3339 string) string {
	t, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		return rfc3339
	}
	return t.UTC().Format("2 January 2006")
}

// messageView is a page with only a message. The templates have the texts.
type messageView struct {
	Kind   string // one of the kinds in the template "heading"
	Status int
	What   string // "provider" or "module"; "" if the message is about neither
	// Address and Version are the requested address and version; they may be "".
	Address, Version string
	Pulled           bool               // the gateway fetches missing versions
	Origin           string             // the host from which the gateway fetches missing versions, or to which it redirects clients, or ""
	Reason           string             // why the configuration denies the version, or ""
	Approvals        []approval.Missing // the approvals that the version lacks
	Add              *addView           // how to add what is missing, or nil
	Host             string             // the host in Address, if its name has no dot
	Instead          []entry            // the modules that Address may mean then
	Who              string             // the name of the client
	Again            int                // seconds until a retry may succeed; 0 if the error is not temporary
	RequestID        string
}

// addView has the commands that add a missing version to the registry. One of them is "" if it cannot work.
type addView struct {
	Fetch string // fetches it from its origin
	Own   string // takes it from a folder, for providers and modules of the user's own
}

// add returns the commands that add a version, or the newest version if the text is no version. The hosts of the public
// registries are origins, and the gateway is the origin of nothing. Any other host may be the host of an origin, or only the
// name under which an organisation keeps its own.
func (p *page) add(e entry, version string) *addView {
	command, folder := "ocibridge push", "--release-dir dist --public-key release-key.asc"
	if e.Kind() == subject.Module {
		command, folder = "ocibridge module push", "."
	}
	out := &addView{Fetch: fmt.Sprintf("%s '%s@>= 0'", command, e), Own: fmt.Sprintf("%s %s --as %s@1.0.0", command, folder, e)}
	if v, err := provider.ParseVersion(version); err == nil {
		out.Fetch, out.Own = fmt.Sprintf("%s %s@%s", command, e, v), fmt.Sprintf("%s %s --as %s@%s", command, folder, e, v)
	}
	switch host := e.Hostname(); {
	case host == p.OwnHost() || lacksHost(e):
		out.Fetch = ""
	case host == openTofuHost || host == terraformHost:
		out.Own = ""
	}
	return out
}

// kindOf returns the kind of message for err. version is "" if err concerns a whole provider.
func kindOf(err error, version string) string {
	switch status := gateway.StatusOf(err); {
	case errors.Is(err, catalog.ErrNotServed):
		return "not served"
	case status == http.StatusNotFound && version != "":
		return "no version"
	case status == http.StatusNotFound:
		return "no provider"
	case errors.Is(err, approval.ErrNotApproved):
		return "not approved"
	case status == http.StatusUnavailableForLegalReasons:
		return "denied"
	case isInvalid(err):
		return "invalid"
	case trust.Refused(err):
		return "refused"
	case errors.Is(err, catalog.ErrSource):
		return "origin unavailable"
	}
	return "registry unavailable"
}

// reasonOf returns the reason of the rule that denies a version, or "".
func reasonOf(err error) string {
	denied := &catalog.DeniedError{}
	errors.As(err, &denied)
	return denied.Reason
}

// missingOf returns the approvals that a version lacks.
func missingOf(err error) []approval.Missing {
	if missing, ok := errors.AsType[*approval.NotApproved](err); ok {
		return missing.Missing
	}
	return nil
}

// notFound answers requests for unknown paths.
func (p *page) notFound(w http.ResponseWriter, r *http.Request) {
	p.say(w, r, messageView{Kind: "no page", Status: http.StatusNotFound})
}

func (p *page) say(w http.ResponseWriter, r *http.Request, m messageView) {
	m.RequestID = w.Header().Get("X-Request-Id")
	if m.Again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(m.Again))
	}
	p.render(w, r, m.Status, "message", layout{View: m})
}

// refuse answers a request without a valid token. err is the error of [access.Control.Person].
func (p *page) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p.Access.Refused(err)
	if errors.Is(err, access.ErrUnavailable) {
		p.say(w, r, messageView{Kind: "unknown token", Status: http.StatusServiceUnavailable, Again: gateway.RetryAfterOf(err)})
		return
	}
	w.Header().Set("WWW-Authenticate", access.Challenge)
	p.say(w, r, messageView{Kind: "no token", Status: http.StatusUnauthorized})
}

// forbid answers a request for a provider or module that the client may not read, whether or not it exists.
func (p *page) forbid(w http.ResponseWriter, r *http.Request, who *access.Client, e entry) {
	p.Access.Refused(nil)
	p.say(w, r, messageView{Kind: "not allowed", Status: http.StatusForbidden, What: e.What(), Address: e.String(), Who: who.Name()})
}

// fail answers a request for a provider or module that cannot be shown. If version is not "", the request is for that
// version. The page does not show err, apart from the reason of a rule that denies the version.
func (p *page) fail(w http.ResponseWriter, r *http.Request, e entry, version string, err error) {
	m := messageView{Kind: kindOf(err, version), Status: gateway.StatusOf(err), What: e.What(), Address: e.String(), Version: version, Reason: reasonOf(err), Approvals: missingOf(err)}
	if p.reachesOrigin(r, e, m.Status) {
		m.Origin, m.Pulled = displayHost(e.Hostname()), p.Pulls(e.Address)
		// The organisation's own host names often have no origin.
		if add := p.add(e, mux.Vars(r)["version"]); m.Kind == "origin unavailable" && add.Own != "" {
			m.Add = &addView{Own: add.Own}
		}
	} else if m.Kind == "no provider" || m.Kind == "no version" {
		m.Add = p.add(e, mux.Vars(r)["version"])
		if lacksHost(e) {
			m.Host, m.Instead, m.Pulled = displayHost(e.Hostname()), atPublicRegistries(e.String()), p.pulls
		}
	}
	if m.Status >= 500 {
		m.Again = gateway.RetryAfterOf(err)
		w.Header().Set("Cache-Control", "no-store")
		if p.Access != nil {
			w.Header().Set("Cache-Control", access.Private)
		}
		level := slog.LevelError
		if r.Context().Err() != nil || errors.Is(err, verify.ErrRefused) {
			level = slog.LevelDebug // the client has left, or the reason is already in the log
		}
		p.Log.Log(r.Context(), level, "cannot show", "path", r.URL.Path, "status", m.Status, "err", hint.Brief(err))
	}
	p.say(w, r, m)
}

// reachesOrigin reports whether clients get a missing version of an entry from its origin, given the page's status.
func (p *page) reachesOrigin(r *http.Request, e entry, status int) bool {
	a, isModule := e.Address.(module.Address)
	if !isModule || p.Pulls(a) {
		return p.Pulls(e.Address)
	}
	if p.ModuleOrigin == nil || status != http.StatusNotFound {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), metadataTimeout)
	defer cancel()
	base, err := p.ModuleOrigin(ctx, a)
	return err == nil && base != nil
}

// isInvalid reports whether err means that the stored version is invalid, or that the evidence does not prove the
// version's origin.
func isInvalid(err error) bool { return artifact.IsInvalid(err) || errors.Is(err, verify.ErrRefused) }
