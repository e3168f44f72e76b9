package access_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

var archive = digest.FromString("the archive")

func selector(patterns ...string) subject.Selector {
	var s subject.Selector
	for _, p := range patterns {
		s.Include = append(s.Include, provider.MustParsePattern(p))
	}
	return s
}

func token(name, text string, patterns ...string) access.Token {
	return access.Token{Name: name, SHA256: sha256.Sum256([]byte(text)), Selector: selector(patterns...)}
}

// door is a handler behind a control. It serves a document at HOST/NAMESPACE/TYPE/doc, and files at all
// other paths below HOST/NAMESPACE/TYPE.
type door struct {
	t       *testing.T
	control *access.Control
	content digest.Digest // the digest of every file
	through int           // requests that reached a document or file
	seen    []string      // paths and URLs that the handler behind the control received
	attrs   []slog.Attr
}

func newDoor(t *testing.T, o access.Options) *door {
	return &door{t: t, control: access.New(o), content: archive}
}

func address(r *http.Request) (provider.Address, error) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) < 5 {
		return provider.Address{}, fmt.Errorf("no address")
	}
	return provider.AddressFromPath(parts[1], parts[2], parts[3])
}

func (d *door) handler() http.Handler {
	guarded := access.Guard(d.control, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.Covers(r.Context(), d.content) {
			d.control.ForbidCapability(w)
			return
		}
		d.through++
		a, _ := address(r)
		fmt.Fprint(w, d.control.Link(r, a, "1.0.0/linux_amd64/widget.zip", archive))
	}))
	return d.control.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.seen = append(d.seen, r.URL.Path, r.RequestURI, r.URL.String())
		guarded.ServeHTTP(w, r)
		d.attrs = access.LogAttrs(r.Context())
	}))
}

// get sends a request with the given Authorization headers.
func (d *door) get(path string, authorization ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header["Authorization"] = authorization
	w := httptest.NewRecorder()
	d.handler().ServeHTTP(w, r)
	return w
}

// link returns the link to widget's archive in the document that a client with the given token gets.
func (d *door) link(text string) string {
	d.t.Helper()
	w := d.get("/registry.acme.example/acme/widget/doc", "Bearer "+text)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "/linux_amd64/cap1.") || !strings.HasSuffix(w.Body.String(), "/widget.zip") {
		d.t.Fatalf("%d %s", w.Code, w.Body)
	}
	return "/registry.acme.example/acme/widget/" + w.Body.String()
}

func TestWhoMayRead(t *testing.T) {
	expired := token("old", "old-token")
	expired.Expires = time.Now().Add(-time.Hour)
	later := token("later", "later-token")
	later.Expires = time.Now().Add(time.Hour)
	barred := token("barred", "barred-token")
	barred.Selector.Exclude = selector("registry.acme.example/acme/*").Include
	n := &telemetry.AccessCounters{}
	refused := map[int]uint64{}
	d := newDoor(t, access.Options{Counters: n, Tokens: []access.Token{
		token("all", "all-token"), expired, token("acme", "acme-token", "registry.acme.example/acme/*"),
		later, barred, token("secret", "secret-token", "registry.acme.example/secret/*"),
	}})
	const doc = "/registry.acme.example/acme/widget/doc"
	for name, tt := range map[string]struct {
		path          string
		authorization []string
		status        int
	}{
		"none":               {doc, nil, 401},
		"empty":              {doc, []string{"Bearer "}, 401},
		"unknown":            {doc, []string{"Bearer nonsense"}, 401},
		"expired":            {doc, []string{"Bearer old-token"}, 401},
		"the sum":            {doc, []string{fmt.Sprintf("Bearer %x", sha256.Sum256([]byte("all-token")))}, 401},
		"the first":          {doc, []string{"Bearer all-token"}, 200},
		"lower case":         {doc, []string{"bearer all-token"}, 200},
		"not expired":        {doc, []string{"Bearer later-token"}, 200},
		"included":           {doc, []string{"Bearer acme-token"}, 200},
		"not included":       {doc, []string{"Bearer secret-token"}, 403},
		"the last":           {"/registry.acme.example/secret/widget/doc", []string{"Bearer secret-token"}, 200},
		"excluded":           {doc, []string{"Bearer barred-token"}, 403},
		"two":                {doc, []string{"Bearer all-token", "Bearer all-token"}, 401},
		"no scheme":          {doc, []string{"all-token"}, 401},
		"as password":        {doc, []string{basic("all-token")}, 401},
		"longer":             {doc, []string{"Bearer all-tokens"}, 401},
		"huge":               {doc, []string{"Bearer " + strings.Repeat("x", 1<<20)}, 401},
		"no address":         {"/a/b", []string{"Bearer all-token"}, 404},
		"no address, no one": {"/a/b", nil, 401},
		"encoded dots":       {"/registry.acme.example/secret/%2e%2e/acme/widget/doc", []string{"Bearer acme-token"}, 404},
		"another's case":     {"/Registry.acme.example/acme/widget/doc", []string{"Bearer acme-token"}, 404},
	} {
		before := d.through
		w := d.get(tt.path, tt.authorization...)
		refused[w.Code]++
		if w.Code != tt.status || (d.through > before) != (tt.status == 200) {
			t.Errorf("%s: %d, reached: %t; want %d", name, w.Code, d.through > before, tt.status)
		}
		if got := w.Header().Get("WWW-Authenticate"); (got == `Bearer realm="ocibridge"`) != (tt.status == 401) {
			t.Errorf("%s: WWW-Authenticate: %q", name, got)
		}
		if got := w.Header().Get("Cache-Control"); got != "private, no-store" {
			t.Errorf("%s: Cache-Control: %q", name, got)
		}
	}
	if n.Unknown.Load() != refused[401] || n.Forbidden.Load() != refused[403] || n.Capability.Load() != 0 || refused[401] == 0 {
		t.Errorf("counted %d unknown, %d forbidden, %d by capability; were %v", n.Unknown.Load(), n.Forbidden.Load(), n.Capability.Load(), refused)
	}
	// An expired token gets the same response as an unknown token.
	old, unknown := d.get(doc, "Bearer old-token"), d.get(doc, "Bearer nonsense")
	if fmt.Sprint(old.Code, old.Header(), old.Body) != fmt.Sprint(unknown.Code, unknown.Header(), unknown.Body) {
		t.Errorf("%v %v; %v %v", old.Header(), old.Body, unknown.Header(), unknown.Body)
	}
}

func TestTokenExpiresWhileServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := token("short", "short-token")
		short.Expires = time.Now().Add(5 * time.Minute)
		n := &telemetry.AccessCounters{}
		d := newDoor(t, access.Options{Tokens: []access.Token{short}, Counters: n})
		link := d.link("short-token")
		time.Sleep(5*time.Minute - time.Second)
		if w := d.get(link); w.Code != http.StatusOK {
			t.Errorf("before: %d", w.Code)
		}
		time.Sleep(time.Second)
		if w := d.get("/registry.acme.example/acme/widget/doc", "Bearer short-token"); w.Code != http.StatusUnauthorized {
			t.Errorf("a document: %d", w.Code)
		}
		if w := d.get(link); w.Code != http.StatusForbidden {
			t.Errorf("a file: %d", w.Code)
		}
		if n.Unknown.Load() != 1 || n.Capability.Load() != 1 || n.Forbidden.Load() != 0 {
			t.Errorf("counted %d unknown, %d by capability", n.Unknown.Load(), n.Capability.Load())
		}
	})
}

func TestWithoutAccessControl(t *testing.T) {
	d := &door{t: t, content: archive}
	w := d.get("/registry.acme.example/acme/widget/doc")
	if w.Code != http.StatusOK || w.Body.String() != "1.0.0/linux_amd64/widget.zip" || w.Header().Get("Cache-Control") != "" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

func TestOperator(t *testing.T) {
	operator, expired := token("op", "op-token"), token("old", "old-token")
	operator.Operator, expired.Operator = true, true
	expired.Expires = time.Now().Add(-time.Second)
	c := access.New(access.Options{Tokens: []access.Token{token("user", "user-token"), operator, expired}})
	h := c.Handler(c.GuardOperator(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for text, status := range map[string]int{"op-token": 200, "user-token": 403, "old-token": 401, "nonsense": 401, "": 401} {
		r := httptest.NewRequest(http.MethodPost, "/-/refresh", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != status || w.Header().Get("Cache-Control") != "private, no-store" || (w.Header().Get("WWW-Authenticate") != "") != (status == 401) {
			t.Errorf("%q: %d %v, want %d", text, w.Code, w.Header(), status)
		}
	}
}

// TestSecretsStayInside shows that the token and the capability of a request reach neither the log nor the
// handler behind the control.
func TestSecretsStayInside(t *testing.T) {
	var log bytes.Buffer
	d := newDoor(t, access.Options{
		Tokens: []access.Token{token("ci", "marked-token", "registry.acme.example/acme/*")},
		Log:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	link := d.link("marked-token")
	_, capability, _ := strings.Cut(link, "cap1.")
	capability, _, _ = strings.Cut(capability, "/")
	d.get(link)
	if got := fmt.Sprint(d.attrs); !strings.Contains(got, "capability=REDACTED") || !strings.Contains(got, "subject=token ci") {
		t.Errorf("the log is told %v", d.attrs)
	}
	d.get(strings.Replace(link, "cap1.", "%63ap1.", 1))
	d.get("/registry.acme.example/secret/widget/doc", "Bearer marked-token")
	said := log.String() + strings.Join(d.seen, "\n") + fmt.Sprint(d.attrs)
	for _, s := range []string{"marked-token", capability[:40]} {
		if strings.Contains(said, s) {
			t.Errorf("%s is in\n%s", s, said)
		}
	}
}
