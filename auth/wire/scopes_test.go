package wire

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
)

func TestNarrow(t *testing.T) {
	const catalog = " registry:catalog:*"
	for _, tt := range []struct{ asked, needed, reading, writing string }{
		{"repository:a:pull", "repository:a:pull", "repository:a:pull", "repository:a:pull"},
		{"repository:a:pull,push" + catalog, "repository:a:pull", "repository:a:pull", "repository:a:pull,push"},
		{"repository:a:*", "repository:a:delete", "repository:a:delete", "repository:a:*"},
		{"repository:a:pull,push repository:b:pull" + catalog, "repository:a:pull,push repository:b:pull", "repository:a:pull,push repository:b:pull", "repository:a:pull,push repository:b:pull"},
		{"repository:a:pull" + catalog, "registry:catalog:*", "registry:catalog:*", "registry:catalog:*"},
		// narrow returns the scopes of a challenge unchanged if they do not cover the
		// needed scopes.
		{"repository:library/a:pull", "repository:a:pull", "repository:library/a:pull", "repository:library/a:pull"},
		{"repository:a:push", "repository:a:pull", "repository:a:push", "repository:a:push"},
		{"repository:a:pull", "repository:a:pull repository:b:pull", "repository:a:pull", "repository:a:pull"},
		{"aws", "repository:a:pull", "aws", "aws"},
	} {
		for reads, want := range map[bool]string{true: tt.reading, false: tt.writing} {
			if got := strings.Join(narrow(strings.Fields(tt.asked), strings.Fields(tt.needed), reads), " "); got != want {
				t.Errorf("asked for %s, needed %s, reads %t: %s, want %s", tt.asked, tt.needed, reads, got, want)
			}
		}
	}
}

// TestWideChallenges shows that the client requests only the tokens that it needs,
// although the registry's challenges always ask for every scope.
func TestWideChallenges(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	var host string
	rec := recorder.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			mu.Lock()
			asked = append(asked, r.URL.Query().Get("scope"))
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"token": "t", "expires_in": 300}`)
		case r.Header.Get("Authorization") != "Bearer t":
			w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="s",scope="repository:a/x:pull,push registry:catalog:*"`, host))
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", "/v2/a/x/blobs/uploads/1")
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name": "a/x", "tags": ["1.0.0"]}`)
		}
	}))
	server := httptest.NewServer(rec)
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")

	repo := mustOpen(t, newClient(Options{}, account{}), mustRepository(t, host+"/a/x"))
	list := func() {
		t.Helper()
		if err := repo.Tags(t.Context(), "", func([]string) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	list()
	list()
	if want := []string{"repository:a/x:pull"}; !slices.Equal(asked, want) {
		t.Errorf("tokens for %q, want %q", asked, want)
	}
	// The first list takes two requests, without a token and with a token. The second
	// list takes one.
	if n := rec.Count(recorder.PathSuffix("/tags/list")); n != 3 {
		t.Errorf("%d requests for two lists", n)
	}
	blob := content.NewDescriptorFromBytes("application/octet-stream", []byte("x"))
	if err := repo.Blobs().Push(t.Context(), ocispec.Descriptor{MediaType: blob.MediaType, Digest: blob.Digest, Size: 1}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"repository:a/x:pull", "repository:a/x:pull,push"}; !slices.Equal(asked, want) {
		t.Errorf("tokens for %q, want %q", asked, want)
	}
}

// TestTokensAreForOneRepository shows that a read requests a token for one repository
// only. The context of the read also has the scope of another repository.
func TestTokensAreForOneRepository(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	var host string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			mu.Lock()
			asked = append(asked, strings.Join(r.URL.Query()["scope"], " "))
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"token": "t", "expires_in": 300}`)
		case r.Header.Get("Authorization") != "Bearer t":
			w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="s"`, host))
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name": "a/tags/x", "tags": ["1.0.0"]}`)
		}
	}))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	c := newClient(Options{}, account{})
	source, dest := mustOpen(t, c, mustRepository(t, host+"/a/tags/x")), mustOpen(t, c, mustRepository(t, host+"/b/x"))
	ctx := auth.AppendRepositoryScope(t.Context(), dest.Reference, auth.ActionPull, auth.ActionPush)
	for _, tt := range []struct {
		what string
		ask  func() error
		want string
	}{
		{"the source", func() error { return source.Tags(ctx, "", func([]string) error { return nil }) }, "repository:a/tags/x:pull"},
		{"the destination", func() error { return dest.Tags(ctx, "", func([]string) error { return nil }) }, "repository:b/x:pull,push"},
		{"a mount", func() error {
			return dest.Mount(ctx, content.NewDescriptorFromBytes("application/zip", []byte("x")), "a/tags/x", nil)
		}, "repository:a/tags/x:pull repository:b/x:pull,push"},
	} {
		if err := tt.ask(); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		if len(asked) != 1 || asked[0] != tt.want {
			t.Errorf("%s: asked for %q, want %q", tt.what, asked, tt.want)
		}
		asked = nil
	}
}

// TestUploadsKeepTheirScopes shows that a request of an upload keeps all scopes. The
// registry may have continued the upload under another repository name.
func TestUploadsKeepTheirScopes(t *testing.T) {
	const scope = "repository:a/x:pull,push"
	ctx := auth.AppendScopesForHost(t.Context(), "registry.test", scope)
	for path, want := range map[string]int{"/v2/a-local/x/blobs/uploads/1": 1, "/v2/a-local/x/blobs/sha256:0": 0} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://registry.test"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := auth.GetAllScopesForHost(ownScopes(req).Context(), "registry.test"); len(got) != want {
			t.Errorf("%s: scopes %q, want %d", path, got, want)
		}
	}
}
