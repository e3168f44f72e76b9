package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestTokenLife(t *testing.T) {
	asked := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	// The clock of the token server is one day slow.
	const date = "Tue, 01 Jan 2030 03:04:05 GMT"
	tests := []struct {
		name, answer, date string
		want               time.Duration // the time from asked until the token must be renewed
	}{
		{"neither", `{"token": "x"}`, date, 50 * time.Second},
		{"expires_in", `{"token": "x", "expires_in": 300}`, date, 290 * time.Second},
		{"expires_in as text", `{"token": "x", "expires_in": "300"}`, date, 290 * time.Second},
		{"expires_in as a fraction", `{"token": "x", "expires_in": 300.0}`, date, 290 * time.Second},
		{"expires_in of nothing", `{"token": "x", "expires_in": 0}`, date, 50 * time.Second},
		{"expires_in below nothing", `{"token": "x", "expires_in": -5}`, date, 50 * time.Second},
		{"expires_in that is none", `{"token": "x", "expires_in": "soon"}`, date, 50 * time.Second},
		{"short life", `{"token": "x", "expires_in": 8}`, date, 6 * time.Second},
		{"endless life", `{"token": "x", "expires_in": 1e300}`, date, 24*time.Hour - 10*time.Second},
		{"issued just now", `{"token": "x", "expires_in": 300, "issued_at": "2030-01-01T03:04:05Z"}`, date, 290 * time.Second},
		{"issued a while ago", `{"token": "x", "expires_in": 300, "issued_at": "2030-01-01T04:02:05.5+01:00"}`, date, 170*time.Second + 500*time.Millisecond},
		{"issued a while ago, without expires_in", `{"token": "x", "issued_at": "2030-01-01T03:03:45Z"}`, date, 30 * time.Second},
		{"issued in the future", `{"token": "x", "expires_in": 300, "issued_at": "2030-01-01T05:00:00Z"}`, date, 290 * time.Second},
		{"issued too long ago", `{"token": "x", "expires_in": 300, "issued_at": "2029-01-01T00:00:00Z"}`, date, -10 * time.Second},
		{"issued at no time", `{"token": "x", "expires_in": 300, "issued_at": "yesterday"}`, date, 290 * time.Second},
		{"issued_at without a clock to compare with", `{"token": "x", "expires_in": 300, "issued_at": "2029-01-01T00:00:00Z"}`, "", 290 * time.Second},
		{"issued_at of another type", `{"token": "x", "expires_in": 300, "issued_at": 5}`, date, 290 * time.Second},
		{"null", `{"token": "x", "expires_in": null, "issued_at": null}`, date, 50 * time.Second},
		{"no JSON", `<html>`, date, 50 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.date != "" {
				h.Set("Date", tt.date)
			}
			l := tokenLife{asked: asked}
			l.read(h, []byte(tt.answer))
			if got := l.until.Sub(asked); got.Round(time.Millisecond) != tt.want {
				t.Errorf("usable for %s, want %s", got, tt.want)
			}
		})
	}
}

// aClient returns a client with a login for the registry. The returned function advances
// the clock that decides when the client's tokens expire.
func aClient(f *fakeRegistry) (*Client, func(time.Duration)) {
	c := New(Options{Environment: environment("linux", nil, map[string]string{
		dockerConfig: loginJSON(f.Listener.Addr().String() + "=u:p"),
	})})
	start := time.Now() // the clock stands still between calls of the function
	var moved atomic.Int64
	c.now = func() time.Time { return start.Add(time.Duration(moved.Load())) }
	return c, func(d time.Duration) { moved.Add(int64(d)) }
}

func TestTokenIsRenewedBeforeItIsUsed(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.life = map[string]any{"expires_in": 300}
	c, move := aClient(f)
	r := f.repository(t, "a/x")
	steps := []struct {
		move time.Duration
		want []string
	}{
		{0, []string{"GET /v2/a/x/tags/list", "GET token repository:a/x:pull up", "GET /v2/a/x/tags/list"}},
		{285 * time.Second, []string{"GET /v2/a/x/tags/list"}},
		{6 * time.Second, []string{"GET token repository:a/x:pull up", "GET /v2/a/x/tags/list"}},
		{0, []string{"GET /v2/a/x/tags/list"}},
	}
	for _, step := range steps {
		move(step.move)
		if err := listTags(t, c, r); err != nil {
			t.Fatal(err)
		}
		wantRequests(t, f, step.want...)
	}
}

func TestTokenThatCannotBeRenewed(t *testing.T) {
	f := newFakeRegistry(t, false)
	c, move := aClient(f)
	r := f.repository(t, "a/x")
	if err := listTags(t, c, r); err != nil {
		t.Fatal(err)
	}
	f.requests()
	f.refuseTokens.Store(true)
	move(time.Minute)
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(err.Error(), "/token") || !strings.Contains(hint.Of(err), "used the login for") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
	f.refuseTokens.Store(false)
	if err := listTags(t, c, r); err != nil {
		t.Errorf("after the trouble: %v", err)
	}
}

// pushBlob pushes a blob. If once is true, the body of the upload can be read only once.
func pushBlob(t *testing.T, c *Client, f *fakeRegistry, once bool) error {
	t.Helper()
	var content io.Reader = strings.NewReader("hello")
	if once {
		content = onceReader{content}
	}
	return mustOpen(t, c, f.repository(t, "a/x")).Blobs().Push(t.Context(), ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5}, content)
}

// TestAnonymousTokens shows that isAnonymous returns true only for a JSON Web Token without
// a subject.
func TestAnonymousTokens(t *testing.T) {
	jwt := func(claims string) string {
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"typ":"JWT"}`)) + "." + encode([]byte(claims)) + ".c2lnbmF0dXJl"
	}
	for token, want := range map[string]bool{
		jwt(`{"iss":"harbor-token-issuer","access":[]}`): true,
		jwt(`{"sub":""}`):                   true,
		jwt(`{"sub":"robot$providers+ci"}`): false,
		jwt(`{"sub":1}`):                    false,
		jwt(`[]`):                           false,
		"opaque":                            false,
		"a.b":                               false,
		"v1.!.c":                            false,
		"":                                  false,
		jwt(`{}`) + ".d":                    false,
		jwt(`{}`) + strings.Repeat("x", maxToken): false,
	} {
		if got := isAnonymous(token); got != want {
			t.Errorf("%.60s: %t", token, got)
		}
	}
}

func TestRefusalInTheMiddleOfAnUpload(t *testing.T) {
	const (
		post  = "POST /v2/a/x/blobs/uploads/"
		put   = "PUT /v2/a/x/blobs/uploads/1?digest=sha256%3A2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
		token = "GET token repository:a/x:pull,push up"
	)
	t.Run("a body that can be had again", func(t *testing.T) {
		f := newFakeRegistry(t, false)
		c, _ := aClient(f)
		f.expireBefore = http.MethodPut
		if err := pushBlob(t, c, f, false); err != nil {
			t.Fatal(err)
		}
		wantRequests(t, f, post, token, post, put, token, put)
		if agents := f.agents(); len(agents) != 1 {
			t.Errorf("user agents %q", agents)
		}
	})
	t.Run("refused for ever", func(t *testing.T) {
		f := newFakeRegistry(t, false)
		c, _ := aClient(f)
		f.never = http.MethodPut
		if err := pushBlob(t, c, f, false); err == nil {
			t.Error("no error")
		}
		if n := strings.Count(strings.Join(f.requests(), "\n"), "PUT"); n > 3 {
			t.Errorf("sent %d times", n)
		}
	})
	t.Run("a body that passes once", func(t *testing.T) {
		f := newFakeRegistry(t, false)
		c, _ := aClient(f)
		f.expireBefore = http.MethodPut
		if err := pushBlob(t, c, f, true); err == nil {
			t.Error("no error")
		}
		wantRequests(t, f, post, token, post, put)
	})
	t.Run("not the token's fault", func(t *testing.T) {
		f := newFakeRegistry(t, false)
		c, _ := aClient(f)
		f.never, f.insist = http.MethodPut, true
		r := f.repository(t, "a/x")
		err := c.Explain(pushBlob(t, c, f, false), r)
		if err == nil || !strings.Contains(hint.Of(err), "it lacks the right to do this in a/x") {
			t.Errorf("%v (hint %q)", err, hint.Of(err))
		}
		wantRequests(t, f, post, token, post, put)
	})
	t.Run("ended before it is sent", func(t *testing.T) {
		f := newFakeRegistry(t, false)
		c, move := aClient(f)
		f.before = func(r *http.Request) {
			if r.Method == http.MethodPost && r.Header.Get("Authorization") != "" {
				move(time.Minute)
			}
		}
		if err := pushBlob(t, c, f, true); err != nil {
			t.Fatal(err)
		}
		wantRequests(t, f, post, token, post, token, put)
	})
}

func TestMountAsksForBothRepositories(t *testing.T) {
	f := newFakeRegistry(t, false)
	c, _ := aClient(f)
	desc := ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5}
	if err := mustOpen(t, c, f.repository(t, "a/x")).Mount(t.Context(), desc, "b/x", nil); err != nil {
		t.Fatal(err)
	}
	const post = "POST /v2/a/x/blobs/uploads/?mount=DIGEST"
	wantRequests(t, f, post, "GET token repository:a/x:pull,push repository:b/x:pull up", post)
}

func TestRefreshTokenTakesThePlaceOfARefusedAccessToken(t *testing.T) {
	f := newFakeRegistry(t, false)
	c := New(Options{Explicit: []Login{block(f.Listener.Addr().String(), "access:ended refresh:r")}})
	r := f.repository(t, "a/x")
	for range 2 {
		if err := listTags(t, c, r); err != nil {
			t.Fatal(err)
		}
	}
	wantRequests(t, f, "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list", // first without the access token, then with it
		"POST token repository:a/x:pull  r", "GET /v2/a/x/tags/list", "GET /v2/a/x/tags/list")

	c = New(Options{Explicit: []Login{block(f.Listener.Addr().String(), "access:ended")}})
	err := c.Explain(listTags(t, c, r), r)
	if want := ": not accepted; it may have expired; put a new one there"; err == nil || !strings.Contains(hint.Of(err), want) {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

func TestTokenInsteadOfPassword(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.basic = map[string]string{"a": "u:p"}
	c := New(Options{Explicit: []Login{block(f.Listener.Addr().String(), "access:x")}})
	r := f.repository(t, "a/x")
	err := c.Explain(listTags(t, c, r), r)
	if err == nil || !strings.Contains(hint.Of(err), "it has no user name and password, and "+string(r.Registry)+" takes no tokens") {
		t.Errorf("%v (hint %q)", err, hint.Of(err))
	}
}

func TestTokenCacheFetchesOnceForAll(t *testing.T) {
	for _, failure := range []error{nil, errors.New("sealed")} {
		synctest.Test(t, func(t *testing.T) {
			c := newTokenCache(time.Now)
			fetches := 0
			fetch := func(context.Context) (string, error) {
				fetches++
				time.Sleep(time.Second)
				return "t", failure
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					value, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s", fetch)
					if (value == "t") != (failure == nil) || !errors.Is(err, failure) {
						t.Errorf("%q, %v", value, err)
					}
				})
			}
			wg.Wait()
			if fetches != 1 {
				t.Errorf("fetched %d times", fetches)
			}
			// A failure is not cached. After a failure, GetToken finds no token.
			if _, err := c.GetToken(t.Context(), "h", auth.SchemeBearer, "s"); (err == nil) != (failure == nil) {
				t.Errorf("after %v: %v", failure, err)
			}
		})
	}
}

// TestTokenCacheWaitEndsWithItsContext shows that a token fetch continues for the other
// callers when the context of one caller ends.
func TestTokenCacheWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTokenCache(time.Now)
		fetch := func(ctx context.Context) (string, error) {
			select {
			case <-time.After(2 * time.Second):
				return "t", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Set(ctx, "h", auth.SchemeBearer, "s", fetch); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first caller: %v", err)
			}
		})
		synctest.Wait()
		if value, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s", fetch); value != "t" || err != nil {
			t.Errorf("the second caller: %q, %v", value, err)
		}
		wg.Wait()
	})
}

// TestHeaderWithoutAToken shows that find returns no cached token for an Authorization
// header without a bearer token.
func TestHeaderWithoutAToken(t *testing.T) {
	c := newTokenCache(time.Now)
	for _, value := range []string{"", "t"} {
		if _, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s"+value, func(context.Context) (string, error) { return value, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for header, want := range map[string]int{"Bearer t": 1, "Bearer ": 0, "Basic t": 0, "t": 0, "": 0} {
		if found := c.find(header); len(found) != want {
			t.Errorf("%q names %d tokens, want %d", header, len(found), want)
		}
	}
}

// TestTokenFetchIsBounded shows that a token fetch fails after tokenTimeout if the token
// server does not respond.
func TestTokenFetchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := newTokenCache(time.Now), time.Now()
		_, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != tokenTimeout {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestTokenFetchOutlastsHelpers shows that the caller gets the error of a slow helper, and
// not the error of tokenTimeout. The helper fails for the first name of the registry, and
// exceeds its limit for the second.
func TestTokenFetchOutlastsHelpers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Explicit: []Login{block("registry.test", "helper:hangs")}, Transport: roundTripper(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: r,
				Header: http.Header{"Www-Authenticate": {`Bearer realm="https://registry.test/token",service="s"`}}}
		})})
		limit := c.helpers.limit
		c.helpers.answers = newHelperAnswers(limit, func(_ context.Context, _, server string) (credential, error) {
			if strings.HasPrefix(server, "https:") {
				time.Sleep(time.Second)
				return credential{}, errors.New("no such server")
			}
			time.Sleep(limit)
			return credential{}, hint.Wrap(context.DeadlineExceeded, "run it by hand")
		})
		r := mustRepository(t, "registry.test/a/x")
		if err := c.Explain(listTags(t, c, r), r); hint.Of(err) != "run it by hand" {
			t.Errorf("%v (hint %q)", err, hint.Of(err))
		}
	})
}

func TestSpellingsOfSecrets(t *testing.T) {
	const password = `a"b/c<d e&f`
	sent := newSentSecrets()
	sent.add(auth.Credential{Username: "u", Password: password})
	for _, text := range []string{
		password, `a\"b/c<d e&f`, `a\"b/c\u003cd e\u0026f`, `a\"b\/c<d e&f`, "a%22b%2Fc%3Cd+e%26f", "a%22b%2Fc%3Cd%20e&f",
		base64.StdEncoding.EncodeToString([]byte("u:" + password)),
	} {
		if got := string(sent.scrub([]byte("<"+text+">"), "bearer")); got != "<"+redacted+">" {
			t.Errorf("%s became %s", text, got)
		}
	}
	if got := string(sent.scrub([]byte("no bearer here, nor ab"), "bearer")); got != "no "+redacted+" here, nor ab" {
		t.Errorf("%s", got)
	}
	short := newSentSecrets()
	short.add(auth.Credential{Username: "u", Password: "a"})
	if got := string(short.scrub([]byte("banana"), "")); got != "banana" {
		t.Errorf("%s", got)
	}
}

// TestSecretsInRefusals shows that errors contain no secret, even if a server repeats the
// client's secret in the body of its refusal.
func TestSecretsInRefusals(t *testing.T) {
	const password, bearer = `s3cr3t"pw`, "b34r3r"
	f := newFakeRegistry(t, false)
	for what, tt := range map[string]struct {
		login Login
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
				f.refusal = `{"errors": [{"code": "UNAUTHORIZED", "message": "` + tt.say + `", "detail": "` + tt.say + `"}]}`
				f.refuseTokens.Store(at == "token server")
				c := New(Options{Explicit: []Login{tt.login}})
				r := f.repository(t, "a/x")
				f.never = http.MethodGet
				err := c.Explain(listTags(t, c, r), r)
				if err == nil || !strings.Contains(err.Error(), redacted) {
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

// TestFreshTokens shows that each request with [WithFreshToken] fetches a new token, even
// if the cached token has not expired.
func TestFreshTokens(t *testing.T) {
	f := newFakeRegistry(t, false)
	f.life = map[string]any{"expires_in": 300}
	c, _ := aClient(f)
	r := f.repository(t, "a/x")
	if err := listTags(t, c, r); err != nil {
		t.Fatal(err)
	}
	f.requests()
	anew := func() error {
		return mustOpen(t, c, r).Tags(WithFreshToken(t.Context()), "", func([]string) error { return nil })
	}
	if err := anew(); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, f, "GET token repository:a/x:pull up", "GET /v2/a/x/tags/list")
	f.refuseTokens.Store(true)
	if err := anew(); err == nil {
		t.Error("no error, although the token server issues no tokens")
	}
}
