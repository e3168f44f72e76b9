package auth

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
)

func TestTokenThatCannotBeRenewed(t *testing.T) {
	f := challenger.New(t, false)
	f.Life = map[string]any{"issued_at": "2000-01-01T00:00:00Z"} // each token has expired when it is used again
	c := New(Options{Login: login.Options{Environment: environment("linux", nil, map[string]string{
		"/home/u/.docker/config.json": loginfiles.JSON(f.Listener.Addr().String() + "=u:p"),
	})}})
	r := f.Repository("a/x")
	if err := listTags(t, c, r); err != nil {
		t.Fatal(err)
	}
	f.Requests()
	f.RefuseTokens.Store(true)
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(err.Error(), "/token") || !strings.Contains(hint.Of(err), "used the login for") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
	f.RefuseTokens.Store(false)
	if err := listTags(t, c, r); err != nil {
		t.Errorf("after the trouble: %v", err)
	}
}

func TestTokenThatLacksTheRight(t *testing.T) {
	const (
		post  = "POST /v2/a/x/blobs/uploads/"
		put   = "PUT /v2/a/x/blobs/uploads/1?digest=sha256%3A2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
		token = "GET token repository:a/x:pull,push up"
	)
	f := challenger.New(t, false)
	c := New(Options{Login: login.Options{Explicit: []login.Login{block(f.Listener.Addr().String(), "u:p")}}})
	f.Never, f.Insist = http.MethodPut, true
	r := f.Repository("a/x")
	err := mustOpen(t, c, r).Blobs().Push(t.Context(), ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5}, strings.NewReader("hello"))
	err = c.Explain(err, r)
	if err == nil || !strings.Contains(hint.Of(err), "it lacks the right to do this in a/x") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
	f.Want(t, post, token, post, put)
}

func TestRefreshTokenTakesThePlaceOfARefusedAccessToken(t *testing.T) {
	f := challenger.New(t, false)
	c := New(Options{Login: login.Options{Explicit: []login.Login{block(f.Listener.Addr().String(), "access:ended refresh:r")}}})
	r := f.Repository("a/x")
	for range 2 {
		if err := listTags(t, c, r); err != nil {
			t.Fatal(err)
		}
	}
	f.Want(t, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list", // first without the access token, then with it
		"POST token repository:a/x:pull  r", "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")

	c = New(Options{Login: login.Options{Explicit: []login.Login{block(f.Listener.Addr().String(), "access:ended")}}})
	err := c.Explain(listTags(t, c, r), r)
	if want := ": not accepted; it may have expired; put a new one there"; err == nil || !strings.Contains(hint.Of(err), want) {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

func TestTokenInsteadOfPassword(t *testing.T) {
	f := challenger.New(t, false)
	f.Basic = map[string]string{"a": "u:p"}
	c := New(Options{Login: login.Options{Explicit: []login.Login{block(f.Listener.Addr().String(), "access:x")}}})
	r := f.Repository("a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(hint.Of(err), "it has no user name and password, and "+string(r.Registry)+" takes no tokens") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

// TestSecretsInRefusals shows that errors contain no secret, even if a server repeats the
// client's secret in the body of its refusal.
func TestSecretsInRefusals(t *testing.T) {
	const password, bearer = `s3cr3t"pw`, "b34r3r"
	f := challenger.New(t, false)
	for what, tt := range map[string]struct {
		login login.Login
		say   string
	}{
		"password":          {block(f.Listener.Addr().String(), "u:"+password), `no user u with password s3cr3t\"pw`},
		"user and password": {block(f.Listener.Addr().String(), "u:"+password), "bad header Basic dTpzM2NyM3QicHc="},
		"in a URL":          {block(f.Listener.Addr().String(), "u:"+password), "/login?password=s3cr3t%22pw"},
		"access token":      {block(f.Listener.Addr().String(), "access:"+bearer), "no such token: b34r3r"},
		"refresh token":     {block(f.Listener.Addr().String(), "access:x refresh:"+bearer), "no such token: b34r3r"},
	} {
		for _, at := range []string{"registry", "token server"} {
			t.Run(what+" at the "+at, func(t *testing.T) {
				f.Refusal = `{"errors": [{"code": "UNAUTHORIZED", "message": "` + tt.say + `", "detail": "` + tt.say + `"}]}`
				f.RefuseTokens.Store(at == "token server")
				c := New(Options{Login: login.Options{Explicit: []login.Login{tt.login}}})
				r := f.Repository("a/x")
				f.Never = http.MethodGet
				err := c.Explain(listTags(t, c, r), r)
				if err == nil || !strings.Contains(err.Error(), "[redacted]") {
					t.Errorf("%v", err)
				}
				for _, secret := range []string{"s3cr3t", bearer, "dTpzM2NyM3"} {
					if strings.Contains(fmt.Sprintf("%v %+v %q", err, err, hint.Of(err)), secret) {
						t.Errorf("%q shows: %v", secret, err)
					}
				}
			})
		}
	}
}
