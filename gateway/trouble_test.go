package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

const notFoundJSON = `{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}`

// respond returns a handler that answers with a status and a body.
func respond(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// hang accepts a request and never answers.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cut breaks the connection.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// TestTroubleIsNotAbsence shows that no failure of the registry makes the gateway report a provider, a module,
// a version or a file as absent.
func TestTroubleIsNotAbsence(t *testing.T) {
	testkit.LeaveToMake(t)
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{
		"500":                              {respond(500, "text/plain", "oops"), 502},
		"502":                              {respond(502, "text/html", "<html>Bad Gateway"), 502},
		"503":                              {respond(503, "application/json", `{"errors":[{"code":"UNAVAILABLE"}]}`), 503},
		"504":                              {respond(504, "text/html", "<html>"), 504},
		"429":                              {respond(429, "application/json", `{"errors":[{"code":"TOOMANYREQUESTS"}]}`), 503},
		"credentials rejected":             {respond(401, "application/json", `{"errors":[{"code":"UNAUTHORIZED"}]}`), 502},
		"forbidden":                        {respond(403, "application/json", `{"errors":[{"code":"DENIED"}]}`), 502},
		"denied, said with 404":            {respond(404, "application/json", `{"errors":[{"code":"DENIED"}]}`), 502},
		"unauthorized, said with 404":      {respond(404, "application/json", `{"errors":[{"code":"NAME_UNKNOWN"},{"code":"UNAUTHORIZED"}]}`), 502},
		"page with 200":                    {respond(200, "text/html", "<html>Welcome"), 502},
		"page with 404, as of a proxy":     {respond(404, "text/html", "<html>Not Found"), 502},
		"text with 404, as of net/http":    {respond(404, "text/plain", "404 page not found\n"), 502},
		"nothing with 404":                 {respond(404, "", ""), 502},
		"JSON of another API with 404":     {respond(404, "application/json", `{"message":"404 Not Found"}`), 502},
		"errors of another API with 404":   {respond(404, "application/json", `{"errors":[{"status":404,"message":"Not Found"}]}`), 502},
		"no errors with 404":               {respond(404, "application/json", `{"errors":[]}`), 502},
		"truncated JSON":                   {respond(200, "application/json", `{"name":"acme/widget","tags":["1.0.0"`), 502},
		"another code with 404":            {respond(404, "application/json", `{"errors":[{"code":"TOOMANYREQUESTS"}]}`), 502},
		"an unknown code with 404":         {respond(404, "application/json", `{"errors":[{"code":"UNKNOWN"}]}`), 502},
		"an empty object":                  {respond(200, "application/json", `{}`), 502},
		"null":                             {respond(200, "application/json", `null`), 502},
		"maintenance with 200":             {respond(200, "application/json", `{"status":"maintenance"}`), 502},
		"errors with 200":                  {respond(200, "application/json", `{"errors":[{"code":"UNAVAILABLE"}]}`), 502},
		"connection cut before the answer": {cut, 502},
		"connection cut in the answer":     {cutAfter(`{"tags":`), 502},
		"redirect to nowhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, 502},
		"redirects without end":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, 502},
		"stalled before the answer": {hang, 504},
		"stalled in the answer":     {hangAfter(`{"tags":`), 504},
		"asked to wait longer than clients": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
		}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			b.publishModule(netModule, "1.0.0", "1.0.0")
			if tc.status == http.StatusGatewayTimeout {
				b.limits = gateway.Limits{Metadata: 50 * time.Millisecond, Start: 50 * time.Millisecond}
			}
			b.lie("/v2/", tc.lie)
			c := b.serve()
			for _, path := range []string{
				prefix + "index.json", prefix + "1.0.0.json", prefix + "9.9.9.json", archivePath("1.0.0", linux),
				modulePrefix + "versions", modulePrefix + "1.0.0/download", modulePrefix + "9.9.9/download", modulePrefix + "1.0.0/net-1.0.0.zip",
			} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					b.checkTrouble(c.do(method, path), method+" "+path, tc.status)
				}
			}
			if !strings.Contains(b.log.String(), "level=ERROR") {
				t.Errorf("nothing in the log:\n%s", b.log)
			}
		})
	}
}

// checkTrouble checks that a response has the given status and a Retry-After, and reveals nothing about the
// registry.
func (b *bench) checkTrouble(a answer, what string, status int) {
	b.t.Helper()
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); a.status != status || err != nil || after <= 0 {
		b.t.Errorf("%s: %d, Retry-After %q; want %d", what, a.status, a.header.Get("Retry-After"), status)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s: Cache-Control %q", what, a.header.Get("Cache-Control"))
	}
	b.checkSilence(a)
}

func cutAfter(start string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, start)
		http.NewResponseController(w).Flush()
		cut(w, r)
	}
}

func hangAfter(start string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, start)
		http.NewResponseController(w).Flush()
		hang(w, r)
	}
}

// TestOverloadIsNotAbsence shows that clients get 503 if too many requests to the registry are in progress, or
// too many fetches of documents from origins.
func TestOverloadIsNotAbsence(t *testing.T) {
	for name, busy := range map[string]error{"questions": catalog.ErrBusy, "documents": fmt.Errorf("%w: %w", catalog.ErrSource, document.ErrBusy)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.options.Repository = func(context.Context, subject.Address) (catalog.Store, error) { return nil, busy }
			c := b.serve()
			for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
				b.checkTrouble(c.get(path), path, http.StatusServiceUnavailable)
			}
		})
	}
}

func TestRegistryIsDown(t *testing.T) {
	b := newBench(t)
	c := b.serve()
	b.stopRegistry()
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
		b.checkTrouble(c.get(path), path, http.StatusBadGateway)
	}
}

// TestOnlyTheTagListDecidesAbsence shows that a version is absent only if the list of tags says so. A listed
// version is not absent, even if the registry returns 404 for the version's index.
func TestOnlyTheTagListDecidesAbsence(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		listed string // status or body for a version in the list of tags
		absent string // status or body for a version that is not in the list of tags
	}{
		"page with 404":   {respond(404, "text/html", "<html>Not Found"), "502", noArchives},
		"404 of its own":  {respond(404, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`), "502", noArchives},
		"503":             {respond(503, "text/plain", ""), "503", "503"},
		"page with 200":   {respond(200, "text/html", "<html>"), "502", "502"},
		"GET but no HEAD": {func(w http.ResponseWriter, r *http.Request) { onlyGet(w, r) }, "502", "502"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			b.lie("/manifests/", tc.lie)
			c := b.serve()
			for path, want := range map[string]string{prefix + "1.0.0.json": tc.listed, prefix + "9.9.9.json": tc.absent} {
				if a := c.get(path); a.body != want && fmt.Sprint(a.status) != want {
					t.Errorf("%s: %d %s, want %s", path, a.status, a.body, want)
				}
			}
		})
	}
}

// onlyGet answers GET without a Content-Length, and HEAD with 500.
func onlyGet(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	http.NewResponseController(w).Flush()
	fmt.Fprint(w, "{}")
}

// TestTokenServerIsNotTheRegistry shows that the gateway does not report a provider or a version as absent if
// the token server returns 404. Only a 404 of the registry itself counts.
func TestTokenServerIsNotTheRegistry(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/token") {
			respond(404, "application/json", notFoundJSON)(w, r)
			return true
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+b.registry.Server.URL+`/token",service="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	b.options.Repository = func(_ context.Context, a subject.Address) (catalog.Store, error) {
		repo := b.repository(a)
		repo.Client = &auth.Client{Client: b.registry.Server.Client()}
		return repo, nil
	}
	c := b.serve()
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
		b.checkTrouble(c.get(path), path, http.StatusBadGateway)
	}
	if n := b.registry.Count(recorder.Path("/token")); n < 3 {
		t.Errorf("%d requests to the token server", n)
	}
}

// TestTagListWithoutEnd shows that the gateway stops reading a list of tags that has too many pages.
func TestTagListWithoutEnd(t *testing.T) {
	b := newBench(t)
	b.lie("/tags/list", func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("last"))
		if page < 2*artifact.MaxTagPages {
			w.Header().Set("Link", fmt.Sprintf(`<%s?last=%d>; rel="next"`, r.URL.Path, page+1))
		}
		respond(200, "application/json", `{"tags":["1.0.0"]}`)(w, r)
	})
	b.limits.Metadata = time.Minute // long enough for the limit on pages to be reached first
	a := b.serve().get(prefix + "index.json")
	b.checkTrouble(a, "index.json", http.StatusBadGateway)
	if n := b.registry.Count(); n != artifact.MaxTagPages+1 {
		t.Errorf("%d requests", n)
	}
}

// TestLaterPageOfTagsIsMissing shows that the gateway does not serve a truncated list of versions if the
// second page of the tags cannot be read.
func TestLaterPageOfTagsIsMissing(t *testing.T) {
	for name, second := range map[string]http.HandlerFunc{
		"503": respond(503, "text/plain", ""), "cut": cut, "page for people": respond(200, "text/html", "<html>"), "404 of a proxy": respond(404, "text/html", "<html>"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.lie("/tags/list", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("last") {
					second(w, r)
					return
				}
				w.Header().Set("Link", `<`+r.URL.Path+`?last=1.0.0>; rel="next"`)
				respond(200, "application/json", `{"tags":["1.0.0"]}`)(w, r)
			})
			if a := b.serve().get(prefix + "index.json"); a.status < 502 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestRepositoryCannotBeOpened shows that requests get 502 if the gateway cannot create a client for the
// registry. For example, the login file may be malformed.
func TestRepositoryCannotBeOpened(t *testing.T) {
	b := newBench(t)
	b.options.Repository = func(context.Context, subject.Address) (catalog.Store, error) {
		return nil, errors.New("config.json of acme: invalid character")
	}
	c := b.serve()
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
		b.checkTrouble(c.get(path), path, http.StatusBadGateway)
	}
}

// TestAnswerAfterClientIsGone shows that the response to a request whose client has left is 502, and not an
// empty success. A proxy that half-closes its connection sees this response.
func TestAnswerAfterClientIsGone(t *testing.T) {
	b := newBench(t)
	held := make(chan struct{})
	defer close(held)
	b.lie("/v2/", func(http.ResponseWriter, *http.Request) { <-held }) // otherwise the registry might answer before the gateway notices
	h := gateway.NewWithin(b.options, b.limits)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{prefix + "index.json", prefix + "1.0.0.json", archivePath("1.0.0", linux)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx))
		if w.Code != http.StatusBadGateway {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if strings.Contains(b.log.String(), "level=ERROR") {
		t.Errorf("a client's disconnect is logged as an error:\n%s", b.log)
	}
}

// TestLogSaysWhatToDo shows that the gateway logs the hint of an error, and does not send the hint to the
// client.
func TestLogSaysWhatToDo(t *testing.T) {
	b := newBench(t)
	b.options.Explain = func(a subject.Address, err error) error {
		return hint.Wrap(err, "log in where %s is kept", a)
	}
	b.lie("/v2/", respond(401, "application/json", `{"errors":[{"code":"UNAUTHORIZED"}]}`))
	a := b.serve().do(http.MethodGet, prefix+"index.json")
	if a.status != http.StatusBadGateway || strings.Contains(string(a.body), "log in") || !strings.Contains(b.log.String(), "log in where "+widget.String()+" is kept") {
		t.Errorf("%d %s\n%s", a.status, a.body, b.log)
	}
}
