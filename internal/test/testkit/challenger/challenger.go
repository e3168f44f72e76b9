// Package challenger provides a registry that asks for a credential, and logs what it gets.
package challenger

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Registry is a registry with a token server. It serves tag listings, manifest
// uploads and blobs, refuses unauthorized requests, and logs one line for each request.
type Registry struct {
	*httptest.Server
	Basic  map[string]string // the USER:PASSWORD of each repository; nil means that the registry uses Bearer
	Realm  string            // the URL of the token server in challenges; "" means this server
	Expire atomic.Bool       // refuse all tokens issued so far
	Life   map[string]any    // additional fields in the token server's responses
	Insist bool              // respond that the token's scope is insufficient
	Never  string            // the method whose requests are always refused

	ExpireBefore string              // all tokens expire before the first request with this method
	Before       func(*http.Request) // called before each request is handled
	RefuseTokens atomic.Bool         // issue no tokens
	Refusal      string              // the message of refusals
	Redirect     string              // the URL that requests for blobs are redirected to; "" means no redirect

	mu    sync.Mutex
	log   []string
	seen  map[string]bool // user agents
	Valid map[string]bool // from each token that was issued to whether it is accepted
}

// Agents returns the user agents of all requests so far.
func (f *Registry) Agents() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.seen))
}

// New starts a registry, which speaks TLS if secure is true.
func New(t testing.TB, secure bool) *Registry {
	f := &Registry{
		Valid: map[string]bool{}, seen: map[string]bool{},
		Refusal: `{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}`,
	}
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		f.StartTLS()
	} else {
		f.Start()
	}
	t.Cleanup(f.Close)
	return f
}

// Repository returns the address of a repository of the registry: the HOST:PORT where the
// registry listens, and name.
func (f *Registry) Repository(name string) ociaddr.Repository {
	return ociaddr.Repository{Registry: ociaddr.Registry(f.Listener.Addr().String()), Name: name}
}

// Requests returns the lines of the requests since the last call.
func (f *Registry) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.log
	f.log = nil
	return out
}

// ServeHTTP implements [http.Handler].
func (f *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := r.Method + " " + r.URL.RequestURI()
	f.seen[strings.Join(r.Header.Values("User-Agent"), "|")] = true
	if f.Before != nil {
		f.Before(r)
	}
	if r.Method == f.ExpireBefore {
		f.Expire.Store(true)
		f.ExpireBefore = ""
	}
	if r.URL.Path == "/token" {
		_ = r.ParseForm()
		if f.RefuseTokens.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, f.Refusal)
			return
		}
		user, password, _ := r.BasicAuth()
		scopes := strings.Join(r.Form["scope"], " ")
		f.log = append(f.log, strings.TrimSpace(fmt.Sprintf("%s token %s %s%s %s", r.Method, scopes, user, password, r.Form.Get("refresh_token"))))
		token := fmt.Sprintf("%s#%d", scopes, len(f.Valid))
		f.Valid[token] = true
		answer := map[string]any{"access_token": token}
		maps.Copy(answer, f.Life)
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	f.log = append(f.log, line)
	name, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/x/")
	if !f.authorized(r, name) {
		w.Header().Set("Www-Authenticate", f.challenge(r, name))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, f.Refusal)
		return
	}
	switch {
	case r.Method == http.MethodGet && blobPath.MatchString(r.URL.Path) && f.Redirect != "":
		http.Redirect(w, r, f.Redirect, http.StatusTemporaryRedirect)
	case r.Method == http.MethodGet && blobPath.MatchString(r.URL.Path):
		_, _ = io.WriteString(w, "the blob")
	case what == "tags/list":
		_, _ = io.WriteString(w, `{"tags": ["1.0.0"]}`)
	case r.Method == http.MethodPost && r.URL.Query().Has("mount"):
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPost:
		w.Header().Set("Location", r.URL.Path+"1")
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPut:
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (f *Registry) authorized(r *http.Request, name string) bool {
	if r.Method == f.Never {
		return false
	}
	if f.Basic != nil {
		user, password, _ := r.BasicAuth()
		return f.Basic[name] != "" && f.Basic[name] == user+":"+password
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if f.Expire.CompareAndSwap(true, false) {
		clear(f.Valid)
		f.Valid["expired"] = false
	}
	scopes, _, _ := strings.Cut(token, "#")
	return f.Valid[token] && slices.Contains(strings.Fields(scopes), "repository:"+name+"/x:"+actions(r))
}

func actions(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return "pull"
	}
	return "pull,push"
}

func (f *Registry) challenge(r *http.Request, name string) string {
	if f.Basic != nil {
		return `Basic realm="registry"`
	}
	realm := f.Realm
	if realm == "" {
		realm = f.URL + "/token"
	}
	challenge := fmt.Sprintf(`Bearer realm=%q,service="registry",scope="repository:%s/x:%s"`, realm, name, actions(r))
	if f.Insist {
		challenge += `,error="insufficient_scope"`
	}
	return challenge
}

var blobPath = regexp.MustCompile(`/blobs/[^/:]+:[^/]+$`)

// Want fails the test if the requests since the last call are others. DIGEST stands for a digest.
func (f *Registry) Want(t testing.TB, want ...string) {
	t.Helper()
	got := f.Requests()
	for i, line := range got {
		if at := strings.Index(line, "sha256:"); at >= 0 {
			got[i] = line[:at] + "DIGEST"
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// DialTo returns a transport that connects to srv for every host name. A test can then
// use a registry whose name is not a loopback name.
func DialTo(srv *httptest.Server) *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
		},
	}
}
