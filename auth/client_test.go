package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
	"github.com/ocibridge/ocibridge/ociaddr"
)

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

func TestBearerTokensPerRepositoryAndAction(t *testing.T) {
	f := challenger.New(t, false)
	host := f.Listener.Addr().String()
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{
		"/home/u/.docker/config.json": loginfiles.JSON(host + "=robot$a:pw"),
	})}})
	a, b := f.Repository("a/x"), f.Repository("b/x")
	if got, want := source(t, c, a), "the login for "+host+" in /home/u/.docker/config.json"; got != want {
		t.Errorf("source %q, want %q", got, want)
	}
	for _, r := range []ociaddr.Repository{a, b, a} {
		if err := listTags(t, c, r); err != nil {
			t.Fatal(err)
		}
	}
	f.Want(t,
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
	f.Want(t,
		"PUT /v2/a/x/manifests/DIGEST", "GET token repository:a/x:pull,push robot$apw", "PUT /v2/a/x/manifests/DIGEST",
		"PUT /v2/a/x/manifests/DIGEST",
	)
	// After the token expired, one request to the token server fetches a new token.
	f.Expire.Store(true)
	if err := listTags(t, c, a); err != nil {
		t.Fatal(err)
	}
	f.Want(t, "GET /v2/a/x/tags/list", "GET token repository:a/x:pull robot$apw", "GET /v2/a/x/tags/list")
}

func TestAnonymousToken(t *testing.T) {
	f := challenger.New(t, false)
	c := New(Options{})
	if err := listTags(t, c, f.Repository("a/x")); err != nil {
		t.Fatal(err)
	}
	f.Want(t, "GET /v2/a/x/tags/list", "GET token repository:a/x:pull", "GET /v2/a/x/tags/list")
	if got := source(t, c, f.Repository("a/x")); got != "" {
		t.Errorf("source %q", got)
	}
}

func TestRefreshToken(t *testing.T) {
	f := challenger.New(t, false)
	file := fmt.Sprintf(`{"auths": {%q: {"auth": "MDAwMDo=", "identitytoken": "refresh-me"}}}`, f.Listener.Addr().String())
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": file})}})
	if err := listTags(t, c, f.Repository("a/x")); err != nil {
		t.Fatal(err)
	}
	f.Want(t, "GET /v2/a/x/tags/list", "POST token repository:a/x:pull  refresh-me", "GET /v2/a/x/tags/list")
}

func TestAccessToken(t *testing.T) {
	f := challenger.New(t, false)
	f.Valid["repository:a/x:pull#ready"] = true
	file := fmt.Sprintf(`{"auths": {%q: {"registrytoken": "repository:a/x:pull#ready"}}}`, f.Listener.Addr().String())
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": file})}})
	if err := listTags(t, c, f.Repository("a/x")); err != nil {
		t.Fatal(err)
	}
	f.Want(t, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
}

func TestBasicLoginsOfOneRegistryStayApart(t *testing.T) {
	f := challenger.New(t, false)
	f.Basic = map[string]string{"a": "user-a:pw:a", "b": "user-b:pw-b"}
	host := f.Listener.Addr().String()
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{
		"/home/u/.config/containers/auth.json": loginfiles.JSON(host+"/a=user-a:pw:a", host+"/b/x=user-b:pw-b", "other.test=x:y"),
	})}})
	for range 2 {
		for _, name := range []string{"a/x", "b/x"} {
			if err := listTags(t, c, f.Repository(name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	f.Want(t,
		"GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list", "GET /v2/b/x/tags/list", "GET /v2/b/x/tags/list",
		"GET /v2/a/x/tags/list", "GET /v2/b/x/tags/list",
	)
	err := c.Explain(listTags(t, c, f.Repository("c/x")), f.Repository("c/x"))
	if want := "no login for " + host + "/c/x was found; those for " + host + "/a, " + host + "/b/x are for other repositories; run: ocibridge login " + host + ", or docker login " + host; hint.Of(err) != want {
		t.Errorf("%v, hint %q, want %q", err, hint.Of(err), want)
	}
}

func TestRefusedLogin(t *testing.T) {
	const secret = "s3cr3t-pw"
	f := challenger.New(t, false)
	f.Basic = map[string]string{"a": "u:right"}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := New(Options{
		Login: login.Options{Log: log, Environment: environment("linux", nil, map[string]string{
			"/home/u/.docker/config.json": loginfiles.JSON(f.Listener.Addr().String() + "=u:" + secret),
		})},
		Wire: wire.Options{Log: log},
	})
	r := f.Repository("a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(hint.Of(err), "used the login for "+string(r.Registry)+" in /home/u/.docker/config.json") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	if s := fmt.Sprint(err, hint.Of(err), out.String()); strings.Contains(s, secret) || strings.Contains(s, loginfiles.JSON("x=u:" + secret)[22:40]) {
		t.Errorf("the password shows: %s", s)
	}
	if !strings.Contains(out.String(), "/home/u/.docker/config.json") {
		t.Errorf("the log does not say which login was used: %s", &out)
	}
}

func TestHelperIsAskedOnlyWhenItIsTheChosenSource(t *testing.T) {
	asked := loginfiles.Helper(t, "fake", `echo '{"Username": "u", "Secret": "from-helper"}'`)
	none := loginfiles.Helper(t, "none", `echo "credentials not found in native keychain"; exit 1`)
	f := challenger.New(t, false)
	f.Basic = map[string]string{"a": "u:from-helper", "b": "u:from-file"}
	host := f.Listener.Addr().String()
	files := map[string]string{
		"/home/u/.config/containers/auth.json": loginfiles.JSON(host + "/b=u:from-file"),
		"/home/u/.docker/config.json":          fmt.Sprintf(`{"auths": {%q: {}}, "credHelpers": {%q: "none"}, "credsStore": "fake"}`, host, host),
	}
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, files)}})
	a, b := f.Repository("a/x"), f.Repository("b/x")
	if err := listTags(t, c, b); err != nil {
		t.Fatal(err)
	}
	if asked()+none() != "" {
		t.Errorf("helpers were asked for what a file has: %q %q", asked(), none())
	}
	if want := "the helper docker-credential-none"; !strings.HasPrefix(source(t, c, a), want) {
		t.Errorf("source before use %q", source(t, c, a))
	}
	if err := listTags(t, c, a); err != nil {
		t.Fatal(err)
	}
	if none() == "" || asked() == "" {
		t.Errorf("asked %q, %q", none(), asked())
	}
	if want := "the helper docker-credential-fake (credsStore in /home/u/.docker/config.json)"; source(t, c, a) != want {
		t.Errorf("source after use %q", source(t, c, a))
	}
}

func TestFailingHelper(t *testing.T) {
	loginfiles.Helper(t, "fake", `echo s3cr3t; echo "vault is sealed" >&2; exit 1`)
	f := challenger.New(t, false)
	f.Basic = map[string]string{}
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": `{"credsStore": "fake"}`})}})
	r := f.Repository("a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(err.Error(), "the helper docker-credential-fake (credsStore in /home/u/.docker/config.json): exit status 1: vault is sealed") ||
		!strings.Contains(hint.Of(err), "run it by hand") || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
}

func TestPlainHTTPOfOtherHosts(t *testing.T) {
	f := challenger.New(t, false)
	f.Basic = map[string]string{"a": "u:p"}
	r := mustRepository(t, "registry.test:5000/a/x")
	env := environment("linux", nil, map[string]string{"/home/u/.docker/config.json": loginfiles.JSON("registry.test:5000=u:p")})

	c := New(Options{Login: login.Options{Environment: env}, Wire: wire.Options{Transport: challenger.DialTo(f.Server)}})
	err := c.Explain(listTags(t, c, r), r)
	if !errors.Is(err, http.ErrSchemeMismatch) || !strings.Contains(hint.Of(err), "--plain-http") {
		t.Errorf("%v, hint %q", err, hint.Of(err))
	}
	f.Want(t)

	c = New(Options{Login: login.Options{Environment: env}, Wire: wire.Options{Transport: challenger.DialTo(f.Server), PlainHTTP: true}})
	if err := listTags(t, c, r); err != nil {
		t.Error(err)
	}
	f.Want(t, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")
}

// TestCredentialDoesNotLeaveTheMachineInPlainHTTP shows that no credential is sent over
// plain HTTP to a token server on another machine. A registry on loopback, which may use
// plain HTTP itself, names that token server.
func TestCredentialDoesNotLeaveTheMachineInPlainHTTP(t *testing.T) {
	f := challenger.New(t, false)
	f.Realm = "http://93.184.216.34/token"
	host := f.Listener.Addr().String()
	for name, entry := range map[string]string{"password": `"auth": "dTpw"`, "refresh token": `"identitytoken": "r"`} {
		t.Run(name, func(t *testing.T) {
			env := environment("linux", nil, map[string]string{"/home/u/.docker/config.json": fmt.Sprintf(`{"auths": {%q: {%s}}}`, host, entry)})
			c := New(Options{Login: login.Options{Environment: env}, Wire: wire.Options{Transport: challenger.DialTo(f.Server)}})
			r := f.Repository("a/x")
			err := c.Explain(listTags(t, c, r), r)
			if refused := (*wire.PlainHTTPError)(nil); !errors.As(err, &refused) || refused.Host != "93.184.216.34" || !strings.Contains(hint.Of(err), "--plain-http") {
				t.Errorf("%v, hint %q", err, hint.Of(err))
			}
			f.Want(t, "GET /v2/a/x/tags/list")
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
		Login: login.Options{
			Environment: environment("linux", nil, map[string]string{"/home/u/.docker/config.json": loginfiles.JSON(host + "=u:p")}),
		},
		Wire: wire.Options{
			RetryDelay: time.Millisecond,
		},
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
			var html *wire.ForeignError
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
				var foreign *wire.ForeignError
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
	for _, opts := range []Options{{}, {Wire: wire.Options{UserAgent: "ocibridge/1.2.3"}}} {
		if err := listTags(t, New(opts), r); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"ocibridge", "ocibridge/1.2.3"}; !slices.Equal(agents, want) {
		t.Errorf("agents %q", agents)
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
	c := New(Options{Wire: wire.Options{Transport: challenger.DialTo(srv)}})
	r := mustRepository(t, "10.0.0.5/a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(err.Error(), `"https://10.0.0.6/jwt/auth?client=x&scope=`) {
		t.Errorf("%v", err)
	}
}

// environment returns an environment with the given variables and files, all in memory. The
// home folder is /home/u.
func environment(goos string, vars, files map[string]string) login.Environment {
	return login.Environment{Getenv: func(name string) string { return vars[name] }, ReadFile: loginfiles.Read(files), Home: "/home/u", GOOS: goos, UID: "1000"}
}

// block returns a login for the prefix. credential is USER:PASSWORD, or a list such as
// "access:TOKEN refresh:TOKEN".
func block(prefix, credential string) login.Login {
	l := login.Login{Prefix: prefix}
	for part := range strings.FieldsSeq(credential) {
		kind, value, _ := strings.Cut(part, ":")
		switch kind {
		case "access":
			l.AccessToken = login.NewSecret(value)
		case "refresh":
			l.RefreshToken = login.NewSecret(value)
		default:
			l.Username, l.Password = login.NewSecret(kind), login.NewSecret(value)
		}
	}
	return l
}

func mustRepository(t testing.TB, s string) ociaddr.Repository {
	t.Helper()
	r, err := ociaddr.ParseRepository(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// source describes the login of a repository.
func source(t *testing.T, c *Client, r ociaddr.Repository) string {
	t.Helper()
	account, err := c.Logins.For(r)
	if err != nil {
		t.Fatal(err)
	}
	return account.Used()
}

// TestInvalidOptions shows that a client with invalid options opens no repository.
func TestInvalidOptions(t *testing.T) {
	for name, opts := range map[string]Options{
		"login":    {Login: login.Options{Explicit: []login.Login{block("ghcr.io", "")}}},
		"settings": {Wire: wire.Options{Registries: map[ociaddr.Registry]wire.Settings{"ghcr.io": {Timeout: -1}}}},
	} {
		err := opts.Validate()
		if _, cerr := New(opts).Repository(t.Context(), mustRepository(t, "elsewhere.test/a/b")); err == nil || cerr == nil || !strings.Contains(cerr.Error(), err.Error()) {
			t.Errorf("%s: %v; a client with it: %v", name, err, cerr)
		}
	}
}
