package auth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
)

// TestBlobRedirect shows that BlobRedirect sends a credential to the registry, and
// returns the target of the redirect without following the redirect. It also shows that
// a target that contains a credential is an error.
func TestBlobRedirect(t *testing.T) {
	const password = "s3cret+pass/word"
	desc := ocispec.Descriptor{Digest: digest.FromString("the blob"), Size: 8}
	token := "repository:a/x:pull#0"
	for name, tc := range map[string]struct {
		location, want, err string
	}{
		"signed":                      {"https://storage.example/b?sig=abc&x=1", "https://storage.example/b?sig=abc&x=1", ""},
		"another port":                {"http://127.0.0.1:1/b", "http://127.0.0.1:1/b", ""},
		"the registry's own storage":  {"/storage/b?sig=abc", "SELF/storage/b?sig=abc", ""},
		"none":                        {"", "", ""},
		"the registry's API":          {"/v2/b/x/blobs/" + string(desc.Digest), "", ""},
		"plain HTTP":                  {"http://storage.example/b?sig=abc", "", "not https"},
		"another scheme":              {"ftp://storage.example/b?sig=abc", "", "not https"},
		"a login":                     {"https://u:p@storage.example/b?sig=abc", "", "with a login"},
		"the password":                {"https://storage.example/b?p=" + url.QueryEscape(password), "", "credential"},
		"the password in a path":      {"https://storage.example/" + url.PathEscape(password), "", "credential"},
		"the password, oddly escaped": {"https://storage.example/?p=%73" + url.QueryEscape(password[1:]), "", "credential"},
		"the token":                   {"https://storage.example/b?t=" + url.QueryEscape(token), "", "credential"},
		"no address":                  {"https://%zz/", "", "an invalid address"},
	} {
		t.Run(name, func(t *testing.T) {
			f := challenger.New(t, false)
			f.Redirect = tc.location
			host := f.Listener.Addr().String()
			c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{
				"/home/u/.docker/config.json": loginfiles.JSON(host + "=robot:" + password),
			})}})
			got, err := c.Connections.BlobRedirect(t.Context(), mustOpen(t, c, f.Repository("a/x")), desc.Digest)
			if want := strings.Replace(tc.want, "SELF", f.URL, 1); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if err != nil {
				for _, secret := range []string{"sig=", password, url.QueryEscape(password), token} {
					if text := err.Error() + hint.Of(err); strings.Contains(text, secret) {
						t.Errorf("%q shows %q", text, secret)
					}
				}
			}
			f.Want(t, "GET /v2/a/x/blobs/DIGEST", "GET token repository:a/x:pull robot"+password, "GET /v2/a/x/blobs/DIGEST")
		})
	}
}

// TestBlobRedirectRefused shows that BlobRedirect fails if the response is neither a
// redirect nor a blob, or if the digest is invalid.
func TestBlobRedirectRefused(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			http.Error(w, `{"errors":[{"code":"BLOB_UNKNOWN"}]}`, http.StatusNotFound)
		}
	}))
	defer srv.Close()
	c := New(Options{})
	repo := mustOpen(t, c, mustRepository(t, srv.Listener.Addr().String()+"/a/x"))
	if got, err := c.Connections.BlobRedirect(t.Context(), repo, digest.FromString("x")); err == nil {
		t.Errorf("%q", got)
	}
	if got, err := c.Connections.BlobRedirect(t.Context(), repo, "../../../secret"); err == nil {
		t.Errorf("%q", got)
	}
}

// TestOtherRedirectsAreFollowed shows that other requests for blobs still follow
// redirects.
func TestOtherRedirectsAreFollowed(t *testing.T) {
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the storage got a credential")
		}
		w.Write([]byte("the blob"))
	}))
	defer storage.Close()
	f := challenger.New(t, false)
	f.Redirect = storage.URL + "/b?sig=abc"
	repo := mustOpen(t, New(Options{}), f.Repository("a/x"))
	body, err := repo.Fetch(t.Context(), ocispec.Descriptor{Digest: digest.FromString("the blob"), Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
}
