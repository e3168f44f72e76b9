// Package quirks imitates the OCI registries that people use. It wraps a real registry, which is distribution
// in this process. According to [Settings], it answers some requests as another registry would. It passes all
// other requests to the real registry.
//
// Harbor's behaviour was measured on a real Harbor. The behaviour of other registries comes from their
// documentation and their users' reports. [Profiles] lists the settings for each registry.
package quirks

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// Settings are the differences between a registry and distribution. The zero value behaves like distribution
// without a login.
type Settings struct {
	Paging
	Access
	Content
	Deletes
	Uploads

	// If EveryNth is n > 0, every n-th request gets status 429. The header Retry-After is then RetryAfter, in
	// seconds.
	EveryNth   int
	RetryAfter int
	// HTML selects the requests whose response is an HTML page with status 200.
	HTML func(*http.Request) bool
	// NoReferrers makes the referrers API return 404 as plain text, not as a registry error.
	NoReferrers bool
	// NoCatalog refuses requests to list repositories.
	NoCatalog bool
}

// Registry is a registry with quirks. [Registry.Set] can change its settings at any time.
type Registry struct {
	real    http.Handler
	dir     string     // the storage folder of the real registry; "" if unknown
	deletes sync.Mutex // held while a manifest is deleted

	mu       sync.Mutex
	s        Settings
	created  []string
	tokens   map[string]string // token -> its scopes, separated by spaces
	hidden   map[string]bool   // manifests that were refused once
	cached   map[string]bool   // content that proxy-cache projects have fetched, as name@reference
	used     map[string]int64  // project@digest -> bytes that count towards the quota
	pushed   map[string]int    // name:reference -> number of the last request that pushed it
	requests int
}

// New returns a registry that imitates another registry, and passes all other requests to real.
func New(real http.Handler, s Settings) *Registry {
	return &Registry{real: real, s: s, tokens: map[string]string{}, hidden: map[string]bool{}, cached: map[string]bool{}, used: map[string]int64{}, pushed: map[string]int{}}
}

// For returns a [New] registry that wraps a new, empty registry. The wrapped registry is closed at the end of
// the test.
func For(tb testkit.TB, s Settings) *Registry {
	tb.Helper()
	dir := testkit.MemoryDir(tb)
	e, err := embedded.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { e.Close() })
	q := New(e.Handler(), s)
	q.dir = filepath.Join(dir, "registry")
	return q
}

// Set changes the settings.
func (q *Registry) Set(change func(*Settings)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(&q.s)
}

// Create creates the project or repository with the given name, as its owner would before the first push.
// Repositories below this name then exist, too.
func (q *Registry) Create(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.created = append(q.created, name)
}

// request is one request of the registry API.
type request struct {
	*http.Request
	s    Settings
	name string // the repository; "" for /v2/ and the catalog
	kind string // tags, manifests, blobs, uploads, referrers or ""
	ref  string // the reference, digest or upload
}

var apiPath = regexp.MustCompile(`^/v2/(.+)/(tags|manifests|blobs|referrers)/(uploads/)?([^/]*)$`)

func parse(r *http.Request, s Settings) request {
	out := request{Request: r, s: s}
	if m := apiPath.FindStringSubmatch(r.URL.Path); m != nil {
		out.name, out.kind, out.ref = m[1], m[2], m[4]
		if m[3] != "" {
			out.kind = "uploads"
		}
	}
	return out
}

// reads reports whether the request is read-only.
func (r request) reads() bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// ServeHTTP implements [http.Handler].
func (q *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	q.requests++
	n, s := q.requests, q.s
	q.mu.Unlock()
	req := parse(r, s)
	for _, answer := range []func(http.ResponseWriter, request) bool{
		func(w http.ResponseWriter, r request) bool { return tooMany(w, r, n) },
		q.storage, q.token, page, q.policies, q.authorize, noAPI, q.repositories, q.proxied, q.hides, q.quota, q.tags, q.manifests, q.uploads, q.redirect,
	} {
		if answer(w, req) {
			return
		}
	}
	q.real.ServeHTTP(w, r)
}

func tooMany(w http.ResponseWriter, r request, n int) bool {
	if r.s.EveryNth == 0 || n%r.s.EveryNth != 0 {
		return false
	}
	w.Header().Set("Retry-After", fmt.Sprint(r.s.RetryAfter))
	refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "you have reached your rate limit")
	return true
}

func page(w http.ResponseWriter, r request) bool {
	if r.s.HTML == nil || !r.s.HTML(r.Request) {
		return false
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!DOCTYPE html><html><body>Something is not as it should be</body></html>")
	return true
}

// noAPI refuses requests to the APIs that the registry does not implement.
func noAPI(w http.ResponseWriter, r request) bool {
	switch {
	case r.kind == "referrers" && r.s.NoReferrers:
		http.NotFound(w, r.Request)
	case r.URL.Path == "/v2/_catalog" && r.s.NoCatalog:
		refuse(w, http.StatusForbidden, "DENIED", "the catalog is not for everybody")
	default:
		return false
	}
	return true
}

// refuse answers with an error in the format of the distribution specification.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// ask sends a request to the real registry.
func (q *Registry) ask(r request, method, path string) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(r.Context(), method, path, nil)
	req.Header.Set("Accept", r.Header.Get("Accept"))
	q.real.ServeHTTP(out, req)
	return out
}

// tagsOf returns the tags of a repository, sorted. The bool reports whether the repository exists.
func (q *Registry) tagsOf(r request) ([]string, bool) {
	answer := q.ask(r, http.MethodGet, "/v2/"+r.name+"/tags/list")
	var list struct{ Tags []string }
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &list) != nil {
		return nil, false
	}
	slices.Sort(list.Tags)
	return list.Tags, true
}

// repositories refuses requests for repositories that have an invalid name or that were not created.
func (q *Registry) repositories(w http.ResponseWriter, r request) bool {
	if r.name == "" {
		return false
	}
	if n := r.s.NameParts; n > 0 && strings.Count(r.name, "/")+1 != n {
		refuse(w, http.StatusBadRequest, "NAME_INVALID", fmt.Sprintf("a repository name has %d parts", n))
		return true
	}
	if r.s.MustExist && !q.exists(r.name) && r.s.Projects {
		w.Header().Set("Www-Authenticate", "")
		refuseHarbor(w, http.StatusUnauthorized, "UNAUTHORIZED", "project "+projectOf(r.name)+" not found")
		return true
	}
	if r.s.MustExist && !q.exists(r.name) {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", fmt.Sprintf("The repository with name '%s' does not exist in the registry", r.name))
		return true
	}
	return false
}

func (q *Registry) exists(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.created, func(c string) bool { return name == c || strings.HasPrefix(name, c+"/") })
}
