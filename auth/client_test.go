package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// fakeRegistry is a registry with a token server. It serves tag listings, manifest
// uploads and blobs, refuses unauthorized requests, and logs one line for each request.
type fakeRegistry struct {
	*httptest.Server
	basic  map[string]string // the USER:PASSWORD of each repository; nil means that the registry uses Bearer
	realm  string            // the URL of the token server in challenges; "" means this server
	expire atomic.Bool       // refuse all tokens issued so far
	life   map[string]any    // additional fields in the token server's responses
	insist bool              // respond that the token's scope is insufficient
	never  string            // the method whose requests are always refused

	expireBefore string              // all tokens expire before the first request with this method
	before       func(*http.Request) // called before each request is handled
	refuseTokens atomic.Bool         // issue no tokens
	refusal      string              // the message of refusals
	redirect     string              // the URL that requests for blobs are redirected to; "" means no redirect

	mu    sync.Mutex
	log   []string
	seen  map[string]bool // user agents
	valid map[string]bool
}

// agents returns the user agents of all requests so far.
func (f *fakeRegistry) agents() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.seen))
}

func newFakeRegistry(t *testing.T, secure bool) *fakeRegistry {
	f := &fakeRegistry{
		valid: map[string]bool{}, seen: map[string]bool{},
		refusal: `{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}`,
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

// repository returns the address of a repository of the registry: the HOST:PORT where the
// registry listens, and name.
func (f *fakeRegistry) repository(t *testing.T, name string) ociaddr.Repository {
	return mustRepository(t, f.Listener.Addr().String()+"/"+name)
}

func (f *fakeRegistry) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.log
	f.log = nil
	return out
}

func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := r.Method + " " + r.URL.RequestURI()
	f.seen[strings.Join(r.Header.Values("User-Agent"), "|")] = true
	if f.before != nil {
		f.before(r)
	}
	if r.Method == f.expireBefore {
		f.expire.Store(true)
		f.expireBefore = ""
	}
	if r.URL.Path == "/token" {
		_ = r.ParseForm()
		if f.refuseTokens.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, f.refusal)
			return
		}
		user, password, _ := r.BasicAuth()
		scopes := strings.Join(r.Form["scope"], " ")
		f.log = append(f.log, strings.TrimSpace(fmt.Sprintf("%s token %s %s%s %s", r.Method, scopes, user, password, r.Form.Get("refresh_token"))))
		token := fmt.Sprintf("%s#%d", scopes, len(f.valid))
		f.valid[token] = true
		answer := map[string]any{"access_token": token}
		maps.Copy(answer, f.life)
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	f.log = append(f.log, line)
	name, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/x/")
	if !f.authorized(r, name) {
		w.Header().Set("Www-Authenticate", f.challenge(r, name))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, f.refusal)
		return
	}
	switch {
	case r.Method == http.MethodGet && blobPath.MatchString(r.URL.Path) && f.redirect != "":
		http.Redirect(w, r, f.redirect, http.StatusTemporaryRedirect)
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

func (f *fakeRegistry) authorized(r *http.Request, name string) bool {
	if r.Method == f.never {
		return false
	}
	if f.basic != nil {
		user, password, _ := r.BasicAuth()
		return f.basic[name] != "" && f.basic[name] == user+":"+password
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if f.expire.CompareAndSwap(true, false) {
		clear(f.valid)
		f.valid["expired"] = false
	}
	scopes, _, _ := strings.Cut(token, "#")
	return f.valid[token] && slices.Contains(strings.Fields(scopes), "repository:"+name+"/x:"+actions(r))
}

func actions(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return "pull"
	}
	return "pull,push"
}

func (f *fakeRegistry) challenge(r *http.Request, name string) string {
	if f.basic != nil {
		return `Basic realm="registry"`
	}
	realm := f.realm
	if realm == "" {
		realm = f.URL + "/token"
	}
	challenge := fmt.Sprintf(`Bearer realm=%q,service="registry",scope="repository:%s/x:%s"`, realm, name, actions(r))
	if f.insist {
		challenge += `,error="insufficient_scope"`
	}
	return challenge
}

// dialTo returns a transport that connects to srv for every host name. A test can then
// use a registry whose name is not a loopback name.
func dialTo(srv *httptest.Server) *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
		},
	}
}

func mustOpen(t *testing.T, c *Client, r ociaddr.Repository) *remote.Repository {
	t.Helper()
	repo, err := c.Repository(t.Context(), r)
	if err != nil {
		t.Fatalf("Repository(%s): %v", r, err)
	}
	return repo
}

func listTags(t *testing.T, c *Client, r ociaddr.Repository) error {
	t.Helper()
	return mustOpen(t, c, r).Tags(t.Context(), "", func([]string) error { return nil })
}

func pushManifest(t *testing.T, c *Client, r ociaddr.Repository) error {
	t.Helper()
	b, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    ocispec.DescriptorEmptyJSON,
		Subject:   &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("x"), Size: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(b), Size: int64(len(b))}
	return mustOpen(t, c, r).Push(t.Context(), desc, bytes.NewReader(b))
}

func wantRequests(t *testing.T, f *fakeRegistry, want ...string) {
	t.Helper()
	got := f.requests()
	for i, line := range got {
		if at := strings.Index(line, "sha256:"); at >= 0 {
			got[i] = line[:at] + "DIGEST"
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestBearerTokensPerRepositoryAndAction(t *testing.T) {
	f := newFakeRegistry(t, false)
	host := f.Listener.Addr().String()
	c := New(Options{Environment: environment("linux", nil, map[string]string{
		"/home/u/.docker/config.json": loginJSON(host + "=robot$a:pw"),
	})})
	a, b := f.repository(t, "a/x"), f.repository(t, "b/x")
	if got, want := c.Source(a), "the login for "+host+" in /home/u/.docker/config.json"; got != want {
		t.Errorf("source %q, want %q", got, want)
	}
	for _, r := range []ociaddr.Repository{a, b, a} {
		if err := listTags(t, c, r); err != nil {
			t.Fatal(err)
		}
	}
	wantRequests(t, f,
		"GET /v2/a/x/tags/list", "GET token repository:a/x:pull robot$apw", "GET /v2/a/x/tags/list",
		"GET /v2/b/x/tags/list", "GET token repository:b/x:pull robot$apw", "GET /v2/b/x/tags/list",
		"GET /v2/a/x/tags/list",
	)
	// Client.Repository makes oras-go assume that the registry has the referrers API.
	// Otherwise, oras-go would query the referrers of a manifest with a subject.
	for range 2 {
		if err := pushManifest(t, c, a); err != nil {
			t.Fatal(err)
		}
	}
	wantRequests(t, f,
		"PUT /v2/a/x/manifests/DIGEST", "GET token repository:a/x:pull,push robot$apw", "PUT /v2/a/x/manifests/DIGEST",
		"PUT /v2/a/x/manifests/DIGEST",
	)
	// After the token expired, one request to the token server fetches a new token.
	f.expire.Store(true)
	if err := listTags(t, c, a); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "GET token repository:a/x:pull robot$apw", "GET /v2/a/x/tags/list")
}

func TestAnonymousToken(t *testing.T) {
	f := newFakeRegistry(t, false)
	c := New(Options{})
	if err := listTags(t, c, f.repository(t, "a/x")); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "GET token repository:a/x:pull", "GET /v2/a/x/tags/list")
	if got := c.Source(f.repository(t, "a/x")); got != "" {
		t.Errorf("source %q", got)
	}
}

func TestRefreshToken(t *testing.T) {
	f := newFakeRegistry(t, false)
	file := fmt.Sprintf(`{"auths": {%q: {"auth": "MDAwMDo=", "identitytoken": "refresh-me"}}}`, f.Listener.Addr().String())
	c := New(Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": file})})
	if err := listTags(t, c, f.repository(t, "a/x")); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "POST token repository:a/x:pull  refresh-me", "GET /v2/a/x/tags/list")
}

func TestAccessToken(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.valid["repository:a/x:pull#ready"] = true
	file := fmt.Sprintf(`{"auths": {%q: {"registrytoken": "repository:a/x:pull#ready"}}}`, f.Listener.Addr().String())
	c := New(Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": file})})
	if err := listTags(t, c, f.repository(t, "a/x")); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
}

func TestBasicLoginsOfOneRegistryStayApart(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{"a": "user-a:pw:a", "b": "user-b:pw-b"}
	host := f.Listener.Addr().String()
	c := New(Options{Environment: environment("linux", nil, map[string]string{
		"/home/u/.config/containers/auth.json": loginJSON(host+"/a=user-a:pw:a", host+"/b/x=user-b:pw-b", "other.test=x:y"),
	})})
	for range 2 {
		for _, name := range []string{"a/x", "b/x"} {
			if err := listTags(t, c, f.repository(t, name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	wantRequests(t, f,
		"GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list", "GET /v2/b/x/tags/list", "GET /v2/b/x/tags/list",
		"GET /v2/a/x/tags/list", "GET /v2/b/x/tags/list",
	)
	err := c.Explain(listTags(t, c, f.repository(t, "c/x")), f.repository(t, "c/x"))
	if want := "no login for " + host + "/c/x was found; those for " + host + "/a, " + host + "/b/x are for other repositories; run: ocibridge login " + host + ", or docker login " + host; hint.Of(err) != want {
		t.Errorf("%v, hint %q, want %q", err, hint.Of(err), want)
	}
}

func TestRefusedLogin(t *testing.T) {
	const secret = "s3cr3t-pw"
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{"a": "u:right"}
	var out bytes.Buffer
	c := New(Options{
		Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Environment: environment("linux", nil, map[string]string{
			"/home/u/.docker/config.json": loginJSON(f.Listener.Addr().String() + "=u:" + secret),
		}),
	})
	r := f.repository(t, "a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(hint.Of(err), "used the login for "+string(r.Registry)+" in /home/u/.docker/config.json") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	if s := fmt.Sprint(err, hint.Of(err), out.String()); strings.Contains(s, secret) || strings.Contains(s, loginJSON("x=u:" + secret)[22:40]) {
		t.Errorf("the password shows: %s", s)
	}
	if !strings.Contains(out.String(), "/home/u/.docker/config.json") {
		t.Errorf("the log does not say which login was used: %s", &out)
	}
}

func TestHelperIsAskedOnlyWhenItIsTheChosenSource(t *testing.T) {
	asked := installHelper(t, "fake", `echo '{"Username": "u", "Secret": "from-helper"}'`)
	none := installHelper(t, "none", `echo "credentials not found in native keychain"; exit 1`)
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{"a": "u:from-helper", "b": "u:from-file"}
	host := f.Listener.Addr().String()
	files := map[string]string{
		"/home/u/.config/containers/auth.json": loginJSON(host + "/b=u:from-file"),
		"/home/u/.docker/config.json":          fmt.Sprintf(`{"auths": {%q: {}}, "credHelpers": {%q: "none"}, "credsStore": "fake"}`, host, host),
	}
	c := New(Options{Environment: environment("linux", nil, files)})
	a, b := f.repository(t, "a/x"), f.repository(t, "b/x")
	if err := listTags(t, c, b); err != nil {
		t.Fatal(err)
	}
	if asked()+none() != "" {
		t.Errorf("helpers were asked for what a file has: %q %q", asked(), none())
	}
	if want := "the helper docker-credential-none"; !strings.HasPrefix(c.Source(a), want) {
		t.Errorf("source before use %q", c.Source(a))
	}
	if err := listTags(t, c, a); err != nil {
		t.Fatal(err)
	}
	if none() == "" || asked() == "" {
		t.Errorf("asked %q, %q", none(), asked())
	}
	if want := "the helper docker-credential-fake (credsStore in /home/u/.docker/config.json)"; c.Source(a) != want {
		t.Errorf("source after use %q", c.Source(a))
	}
}

func TestFailingHelper(t *testing.T) {
	installHelper(t, "fake", `echo s3cr3t; echo "vault is sealed" >&2; exit 1`)
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{}
	c := New(Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": `{"credsStore": "fake"}`})})
	r := f.repository(t, "a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(err.Error(), "the helper docker-credential-fake (credsStore in /home/u/.docker/config.json): exit status 1: vault is sealed") ||
		!strings.Contains(hint.Of(err), "run it by hand") || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
}

func TestLoginFilesAreReadOnceAndLate(t *testing.T) {
	var reads atomic.Int32
	env := environment("linux", nil, nil)
	read := env.ReadFile
	env.ReadFile = func(name string) ([]byte, error) {
		reads.Add(1)
		return read(name)
	}
	c := New(Options{Environment: env})
	if reads.Load() != 0 {
		t.Error("New reads files")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { c.Source(mustRepository(t, "registry.test/a/b")) })
	}
	wg.Wait()
	if got, want := int(reads.Load()), len(env.loginFiles()); got != want {
		t.Errorf("%d reads of %d files", got, want)
	}
}

func TestLoopbackRegistriesAreAskedForTLS(t *testing.T) {
	plain, secure := newFakeRegistry(t, false), newFakeRegistry(t, true)
	const closed = "127.0.0.1:1" // the system never assigns this port
	for _, allPlain := range []bool{false, true} {
		c := New(Options{PlainHTTP: allPlain, RetryDelay: time.Millisecond, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}})
		dials := map[string]int{}
		c.schemes.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials[addr]++
			return newSchemes().dial(ctx, network, addr)
		}
		for range 2 {
			for _, tt := range []struct {
				name  string
				host  string
				plain bool
			}{
				{"plain server", plain.Listener.Addr().String(), true},
				{"TLS server", secure.Listener.Addr().String(), false},
				{"no server", closed, false},
			} {
				repo := mustOpen(t, c, mustRepository(t, tt.host+"/a/x"))
				if repo.PlainHTTP != tt.plain {
					t.Errorf("%s, PlainHTTP %t: plain = %t", tt.name, allPlain, repo.PlainHTTP)
				}
				if err := repo.Tags(t.Context(), "", func([]string) error { return nil }); err != nil && tt.name != "no server" {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
		}
		if dials[plain.Listener.Addr().String()] != 1 || dials[secure.Listener.Addr().String()] != 1 || dials[closed] != 2 {
			t.Errorf("probes: %v", dials)
		}
		for _, host := range []string{"registry.test:5000", "10.0.0.1:5000"} {
			if repo := mustOpen(t, c, mustRepository(t, host+"/a/x")); repo.PlainHTTP != allPlain {
				t.Errorf("%s: plain = %t with PlainHTTP %t", host, repo.PlainHTTP, allPlain)
			}
		}
	}
}

func TestProbeAddresses(t *testing.T) {
	errStop := errors.New("stop")
	for host, want := range map[string]string{"localhost": "localhost:443", "localhost:5000": "localhost:5000", "[::1]:5000": "[::1]:5000", "[::1]": "[::1]:443"} {
		s := newSchemes()
		got := ""
		s.dial = func(_ context.Context, _, addr string) (net.Conn, error) {
			got = addr
			return nil, errStop
		}
		if plain, err := s.plain(t.Context(), ociaddr.Registry(host)); plain || err != nil || got != want {
			t.Errorf("%s: dialled %s, %t, %v", host, got, plain, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newSchemes().plain(ctx, "localhost:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("probe after the caller gave up: %v", err)
	}
}

func TestPlainHTTPOfOtherHosts(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{"a": "u:p"}
	r := mustRepository(t, "registry.test:5000/a/x")
	env := environment("linux", nil, map[string]string{"/home/u/.docker/config.json": loginJSON("registry.test:5000=u:p")})

	c := New(Options{Environment: env, Transport: dialTo(f.Server)})
	err := c.Explain(listTags(t, c, r), r)
	if !errors.Is(err, http.ErrSchemeMismatch) || !strings.Contains(hint.Of(err), "--plain-http") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	wantRequests(t, f)

	c = New(Options{Environment: env, Transport: dialTo(f.Server), PlainHTTP: true})
	if err := listTags(t, c, r); err != nil {
		t.Error(err)
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
}

// TestCredentialDoesNotLeaveTheMachineInPlainHTTP shows that no credential is sent over
// plain HTTP to a token server on another machine. A registry on loopback, which may use
// plain HTTP itself, names that token server.
func TestCredentialDoesNotLeaveTheMachineInPlainHTTP(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.realm = "http://93.184.216.34/token"
	host := f.Listener.Addr().String()
	for name, entry := range map[string]string{"password": `"auth": "dTpw"`, "refresh token": `"identitytoken": "r"`} {
		t.Run(name, func(t *testing.T) {
			env := environment("linux", nil, map[string]string{"/home/u/.docker/config.json": fmt.Sprintf(`{"auths": {%q: {%s}}}`, host, entry)})
			c := New(Options{Environment: env, Transport: dialTo(f.Server)})
			r := f.repository(t, "a/x")
			err := c.Explain(listTags(t, c, r), r)
			if refused := (*PlainHTTPError)(nil); !errors.As(err, &refused) || refused.Host != "93.184.216.34" || !strings.Contains(hint.Of(err), "--plain-http") {
				t.Errorf("%v, hint %q", err, hint.Of(err))
			}
			wantRequests(t, f, "GET /v2/a/x/tags/list")
		})
	}
}

func TestRedirectCarriesNoCredentialAndNoQueryIntoErrors(t *testing.T) {
	const signature = "X-Amz-Signature=s3cr3t"
	var seen []string
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.RawQuery+" "+r.Header.Get("Authorization"))
		if r.URL.Path == "/denied" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "blob")
	}))
	defer storage.Close()
	target := storage.URL + "/blob"
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ := r.BasicAuth(); user != "u" {
			w.Header().Set("Www-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, target+"?"+signature, http.StatusTemporaryRedirect)
	}))
	defer registry.Close()

	host := registry.Listener.Addr().String()
	c := New(Options{
		RetryDelay:  time.Millisecond,
		Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": loginJSON(host + "=u:p")}),
	})
	r := mustRepository(t, host+"/a/x")
	desc := ocispec.Descriptor{MediaType: "archive/zip", Digest: digest.FromString("blob"), Size: 4}
	fetch := func() error {
		body, err := mustOpen(t, c, r).Blobs().Fetch(t.Context(), desc)
		if err != nil {
			return err
		}
		defer body.Close()
		if b, err := io.ReadAll(body); string(b) != "blob" {
			t.Errorf("blob %q, %v", b, err)
		}
		return nil
	}
	if err := fetch(); err != nil {
		t.Fatal(err)
	}
	if want := []string{signature + " "}; !slices.Equal(seen, want) {
		t.Errorf("storage saw %q, want %q", seen, want)
	}
	target = storage.URL + "/denied"
	denied := fetch()
	target = "http://127.0.0.1:1/blob"
	unreachable := fetch()
	for _, err := range []error{denied, unreachable} {
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("error %v", err)
		}
	}
	if !strings.Contains(denied.Error(), "/denied") || !strings.Contains(unreachable.Error(), "127.0.0.1:1") {
		t.Errorf("errors do not say where: %v; %v", denied, unreachable)
	}
}

func TestHTMLAnswers(t *testing.T) {
	page := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "\n  <!doctype html><title>Sign in</title>")
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		use     func(*testing.T, *remote.Repository) error
		html    bool
	}{
		{"page for a tag listing", func(w http.ResponseWriter, _ *http.Request) { page(w) }, tags, true},
		{"page by a redirect to a login", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/login" {
				page(w)
				return
			}
			http.Redirect(w, r, "/login?state=1", http.StatusFound)
		}, tags, true},
		{"page for a manifest", func(w http.ResponseWriter, _ *http.Request) { page(w) }, resolve, true},
		{"page for an upload", func(w http.ResponseWriter, _ *http.Request) { page(w) }, upload, true},
		{"tag listing with a wrong media type", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, ` {"tags": ["1.0.0"]}`)
		}, tags, false},
		{"upload with a framework's media type", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if r.Method == http.MethodPost {
				w.Header().Set("Location", "/v2/a/x/blobs/uploads/1")
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}, upload, false},
		{"blob that is a page", func(w http.ResponseWriter, _ *http.Request) { page(w) }, blob, false},
		{"page in place of a blob's first byte", func(w http.ResponseWriter, _ *http.Request) { page(w) }, firstByte, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.handler)
			defer srv.Close()
			c := New(Options{})
			r := mustRepository(t, srv.Listener.Addr().String()+"/a/x")
			err := c.Explain(tt.use(t, mustOpen(t, c, r)), r)
			var html *ForeignError
			if (errors.As(err, &html) && html.HTML) != tt.html || (err != nil) != tt.html {
				t.Fatalf("%v", err)
			}
			if tt.html && (html.Host != string(r.Registry) || !strings.Contains(err.Error(), "answered with HTML, not as an OCI registry") || hint.Of(err) == "") {
				t.Errorf("%v, hint %q", err, hint.Of(err))
			}
		})
	}
}

// TestPagesOfTooManyNames shows that a page with too many names is refused. When decoded,
// a page of short names takes many times its size in memory.
func TestPagesOfTooManyNames(t *testing.T) {
	tags, repositories := cost.Filled(4<<20-100, `{"name":"a/x","tags":[`, `""`, `]}`), cost.Filled(4<<20, `{"repositories":[`, `""`, `]}`)
	for name, tc := range map[string]struct {
		page      []byte
		elsewhere bool // whether the request for the list is redirected to the page
		accepted  bool
	}{
		"tags":                {page: tags},
		"tags, and spaces":    {page: append(slices.Clip(tags), strings.Repeat(" ", 200)...)},
		"tags by a redirect":  {page: tags, elsewhere: true},
		"tags among others":   {page: cost.Counted(249_000, `{"name":"a/x","tags":["1.0.0"],`, `"%06d":0`, `}`), accepted: true},
		"repositories":        {page: repositories},
		"repositories by one": {page: repositories, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			page := tc.page
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.elsewhere && r.URL.Path != "/v2/p" {
					http.Redirect(w, r, "/v2/p", http.StatusTemporaryRedirect)
					return
				}
				_, _ = w.Write(page)
			}))
			defer srv.Close()
			at := ociaddr.Registry(strings.TrimPrefix(srv.URL, "http://"))
			c := New(Options{})
			cost.Check(t, len(page), !tc.accepted, func() error {
				var err error
				if strings.HasPrefix(name, "tags") {
					var repo *remote.Repository
					if repo, err = c.Repository(t.Context(), ociaddr.Repository{Registry: at, Name: "a/x"}); err == nil {
						err = repo.Tags(t.Context(), "", func([]string) error { return nil })
					}
				} else {
					var registry *remote.Registry
					if registry, err = c.Registry(t.Context(), at); err == nil {
						err = registry.Repositories(t.Context(), "", func([]string) error { return nil })
					}
				}
				if !tc.accepted && !errors.Is(err, document.ErrTooLarge) {
					t.Errorf("error %v", err)
				}
				return err
			})
		})
	}
}

func TestForeignAnswers(t *testing.T) {
	tests := []struct {
		name    string
		status  int
		body    string
		foreign bool
	}{
		{"a registry's error", 404, `{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}`, false},
		{"a page", 404, "<html>default backend - 404</html>", true},
		{"text", 404, "404 page not found\n", true},
		{"nothing", 404, "", true},
		{"JSON without errors", 404, `{"message":"no Route matched"}`, true},
		{"an empty list of errors", 404, `{"errors":[]}`, true},
		{"errors without a code", 404, `{"errors":[{"message":"x"}]}`, true},
		{"tags", 200, `{"name":"a/x","tags":["1.0.0"]}`, false},
		{"no tags", 200, `{"name":"a/x","tags":null}`, false},
		{"nothing in JSON", 200, `{}`, true},
		{"null", 200, `null`, true},
		{"words of a proxy", 200, `{"error":"maintenance"}`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			r := ociaddr.Repository{Registry: ociaddr.Registry(strings.TrimPrefix(srv.URL, "http://")), Name: "a/x"}
			c := New(Options{})
			repo, err := c.Repository(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			asks := map[string]func() error{"tags": func() error { return tags(t, repo) }}
			if tt.status == http.StatusNotFound {
				asks["manifest"] = func() error { _, _, err := repo.FetchReference(t.Context(), "1.0.0"); return err }
			}
			for what, ask := range asks {
				err := c.Explain(ask(), r)
				var foreign *ForeignError
				if errors.As(err, &foreign) != tt.foreign || tt.foreign && hint.Of(err) == "" || (err == nil) != (tt.status == 200 && !tt.foreign) {
					t.Errorf("%s: %v (hint %q)", what, err, hint.Of(err))
				}
			}
		})
	}
}

func tags(t *testing.T, repo *remote.Repository) error {
	return repo.Tags(t.Context(), "", func([]string) error { return nil })
}

func resolve(t *testing.T, repo *remote.Repository) error {
	_, err := repo.Resolve(t.Context(), "1.0.0")
	return err
}

const blobText = "\n  <!doctype html><title>Sign in</title>"

func upload(t *testing.T, repo *remote.Repository) error {
	return repo.Blobs().Push(t.Context(), ocispec.Descriptor{Digest: digest.FromString(blobText), Size: int64(len(blobText))}, strings.NewReader(blobText))
}

func blob(t *testing.T, repo *remote.Repository) error {
	body, err := repo.Blobs().Fetch(t.Context(), ocispec.Descriptor{Digest: digest.FromString(blobText), Size: int64(len(blobText))})
	if err == nil {
		_ = body.Close()
	}
	return err
}

// firstByte sends a GET for the first byte of a blob, as clients do to find out whether
// the blob exists.
func firstByte(t *testing.T, repo *remote.Repository) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+repo.Reference.Host()+"/v2/a/x/blobs/"+digest.FromString(blobText).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", outgoing.FirstByte)
	resp, err := repo.Client.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestTokenServerThatAnswersHTML(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = io.WriteString(w, "<html>")
			return
		}
		w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token"`, r.Host))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer srv.Close()
	c := New(Options{})
	r := mustRepository(t, srv.Listener.Addr().String()+"/a/x")
	if err := c.Explain(listTags(t, c, r), r); !strings.Contains(hint.Of(err), "a login page answers there") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
}

func TestTagListingThatNeverEnds(t *testing.T) {
	var pages atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" && r.URL.RawQuery != "again" {
			t.Errorf("query %q", r.URL.RawQuery)
		}
		pages.Add(1)
		w.Header().Set("Link", `</v2/a/x/tags/list?again>; rel="next"`)
		_, _ = io.WriteString(w, `{"tags": ["1.0.0"]}`)
	}))
	defer srv.Close()
	c := New(Options{})
	if err := listTags(t, c, mustRepository(t, srv.Listener.Addr().String()+"/a/x")); err == nil || pages.Load() != maxTagPages {
		t.Errorf("%v after %d pages", err, pages.Load())
	}
}

func TestUserAgent(t *testing.T) {
	var agents []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents = append(agents, strings.Join(r.Header.Values("User-Agent"), "|"))
		_, _ = io.WriteString(w, `{"name":"a/x","tags":[]}`)
	}))
	defer srv.Close()
	r := mustRepository(t, srv.Listener.Addr().String()+"/a/x")
	for _, opts := range []Options{{}, {UserAgent: "ocibridge/1.2.3"}} {
		if err := listTags(t, New(opts), r); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"ocibridge", "ocibridge/1.2.3"}; !slices.Equal(agents, want) {
		t.Errorf("agents %q", agents)
	}
}

// addressesOf returns a lookup that knows the addresses of registry.test, separated by spaces.
// With none, the name is unknown.
func addressesOf(registry string) lookupFunc {
	return func(_ context.Context, _, host string) (addrs []netip.Addr, _ error) {
		for _, addr := range strings.Fields(registry) {
			addrs = append(addrs, netip.MustParseAddr(addr))
		}
		if host != "registry.test" || len(addrs) == 0 {
			return nil, &net.DNSError{Name: host, IsNotFound: true}
		}
		return addrs, nil
	}
}

func TestTokenServerInAPrivateNetwork(t *testing.T) {
	const nat64Outside = "64:ff9b::93.184.216.34"
	tests := []struct {
		name            string
		registry, realm string // the IP addresses of the registry's host, and the realm in the challenge
		allowed         bool
	}{
		{"both inside", "10.0.0.5", "https://10.0.0.6/token", true},
		{"both inside, in other ranges", "192.168.0.5", "https://172.16.0.6/token", true},
		{"both inside, IPv6", "fd00::5", "https://[fd00::6]/token", true},
		{"both inside, IPv4-mapped", "::ffff:10.0.0.5", "https://[::ffff:10.0.0.6]/token", true},
		{"both inside, NAT64", "64:ff9b::10.0.0.5", "https://[64:ff9b::10.0.0.6]/token", true},
		{"both inside, and a public IPv6 address", "10.0.0.5 2606:2800::5", "https://10.0.0.6/token", true},
		{"both versions inside, IPv4", "10.0.0.5 fd00::5", "https://10.0.0.6/token", true},
		{"both versions inside, IPv6", "10.0.0.5 fd00::5", "https://[fd00::6]/token", true},
		{"token server outside", "10.0.0.5", "https://93.184.216.34/token", true},
		{"both outside", "93.184.216.34", "https://93.184.216.35/token", true},
		{"both outside, NAT64", nat64Outside, "https://[64:ff9b::93.184.216.35]/token", true},
		{"registry outside", "93.184.216.34", "https://10.0.0.6/token", false},
		{"registry outside, IPv6", "2606:2800::5", "https://[fd00::6]/token", false},
		{"registry outside, IPv4-mapped", "93.184.216.34", "https://[::ffff:10.0.0.6]/token", false},
		{"registry outside, NAT64", nat64Outside, "https://[64:ff9b::10.0.0.6]/token", false},
		{"inside by IPv4 only", "10.0.0.5", "https://[fd00::6]/token", false},
		{"inside by IPv6 only", "fd00::5", "https://10.0.0.6/token", false},
		{"inside by NAT64 only", "64:ff9b::10.0.0.5", "https://[fd00::6]/token", false},
		{"metadata service", "10.0.0.5", "https://169.254.169.254/token", false},
		{"metadata service, IPv4-mapped", "10.0.0.5", "https://[::ffff:169.254.169.254]/token", false},
		{"metadata service, NAT64", "10.0.0.5", "https://[64:ff9b::169.254.169.254]/token", false},
		{"metadata service, NAT64 of this network", "10.0.0.5", "https://[64:ff9b:1::169.254.169.254]/token", false},
		{"metadata service of Amazon, from IPv4", "10.0.0.5", "https://[fd00:ec2::254]/token", false},
		{"metadata service of Amazon, from IPv6", "fd00::5", "https://[fd00:ec2::254]/token", false},
		{"metadata service of Google", "fd00::5", "https://[fd20:ce::254]/token", false},
		{"metadata service of Oracle", "10.0.0.5", "https://192.0.0.192/token", false},
		{"metadata service of Azure", "10.0.0.5", "https://168.63.129.16/token", false},
		{"metadata service in shared space", "10.0.0.5", "https://100.100.100.200/token", false},
		{"shared space", "10.0.0.5", "https://100.64.0.6/token", false},
		{"site-local", "fd00::5", "https://[fec0::6]/token", false},
		{"this machine", "10.0.0.5", "https://127.0.0.1/token", false},
		{"this machine, IPv6", "fd00::5", "https://[::1]/token", false},
		{"this machine, IPv4-compatible", "10.0.0.5", "https://[::127.0.0.1]/token", false},
		{"inside, and on the link of this machine", "10.0.0.5 169.254.0.5", "https://10.0.0.6/token", false},
		{"inside, and on the link of this machine, NAT64", "10.0.0.5 64:ff9b::169.254.0.5", "https://10.0.0.6/token", false},
		{"inside, and on the link of this machine, IPv6", "10.0.0.5 fe80::5%1", "https://10.0.0.6/token", false},
		{"inside, and in shared space", "10.0.0.5 100.100.100.200", "https://10.0.0.6/token", false},
		{"plain HTTP", "10.0.0.5", "http://10.0.0.6/token", false},
		{"registry that is not in the DNS", "", "https://10.0.0.6/token", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeRegistry(t, true)
			f.realm = tt.realm
			env := environment("linux", nil, map[string]string{"/home/u/.docker/config.json": loginJSON("registry.test=u:p")})
			c := New(Options{Environment: env, Transport: dialTo(f.Server)})
			c.lookup = addressesOf(tt.registry)
			r := mustRepository(t, "registry.test/a/x")
			for range 2 {
				err := c.Explain(listTags(t, c, r), r)
				if (err == nil) != tt.allowed || err != nil && !strings.Contains(hint.Of(err), "token server") {
					t.Fatalf("%v, hint %q", err, hint.Of(err))
				}
			}
			if tt.allowed {
				wantRequests(t, f, "GET /v2/a/x/tags/list", "GET token repository:a/x:pull up", "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
			} else {
				wantRequests(t, f, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
			}
		})
	}
}

// TestTokenServerThatRedirects shows that a token server may redirect to the same addresses
// that the registry may name as its token server.
func TestTokenServerThatRedirects(t *testing.T) {
	for to, allowed := range map[string]bool{"10.0.0.7": true, "93.184.216.34": true, "[fd00:ec2::254]": false, "169.254.169.254": false} {
		var asked []string
		c := New(Options{Transport: roundTripper(func(req *http.Request) *http.Response {
			asked = append(asked, req.URL.Host)
			switch {
			case req.URL.Host == "10.0.0.6":
				return answer(http.StatusTemporaryRedirect, http.Header{"Location": {"https://" + to + "/token"}}, "")
			case req.URL.Path == "/token":
				return tokenOf(8)()
			case req.Header.Get("Authorization") == "":
				return answer(http.StatusUnauthorized, http.Header{"Www-Authenticate": {`Bearer realm="https://10.0.0.6/token"`}}, "")
			}
			return answer(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, `{"name":"a/x","tags":[]}`)
		})})
		c.lookup = addressesOf("10.0.0.5")
		r := mustRepository(t, "registry.test/a/x")
		err := c.Explain(listTags(t, c, r), r)
		if (err == nil) != allowed || slices.Contains(asked, to) != allowed || err != nil && !strings.Contains(hint.Of(err), "token server") {
			t.Errorf("to %s: %v (hint %q), after requests to %q", to, err, hint.Of(err), asked)
		}
	}
}

// TestRegistryIsLookedUp shows that the registry's addresses are looked up for another
// host's token server only, and within the request's context.
func TestRegistryIsLookedUp(t *testing.T) {
	for realm, want := range map[string]int{"https://registry.test/token": 0, "https://10.0.0.6/token": 1} {
		f := newFakeRegistry(t, true)
		f.realm = realm
		c := New(Options{Transport: dialTo(f.Server)})
		looked := 0
		ctx, cancel := context.WithCancel(t.Context())
		c.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			looked++
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a lookup has no deadline")
			}
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		repo := mustOpen(t, c, mustRepository(t, "registry.test/a/x"))
		err := repo.Tags(ctx, "", func([]string) error { return nil })
		if cancel(); looked != want || (err == nil) != (want == 0) {
			t.Errorf("%s: %v after %d lookups", realm, err, looked)
		}
	}
}

func TestPrivateTokenServerThatRefuses(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "10.0.0.6" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Www-Authenticate", `Bearer realm="https://10.0.0.6/jwt/auth?client=x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer srv.Close()
	c := New(Options{Transport: dialTo(srv)})
	r := mustRepository(t, "10.0.0.5/a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(err.Error(), `"https://10.0.0.6/jwt/auth?client=x&scope=`) {
		t.Errorf("%v", err)
	}
}
