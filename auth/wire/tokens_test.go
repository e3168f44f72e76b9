package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
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
func aClient() (*client, func(time.Duration)) {
	c := newClient(Options{}, account{Username: "u", Password: "p"})
	start := time.Now() // the clock stands still between calls of the function
	var moved atomic.Int64
	c.now = func() time.Time { return start.Add(time.Duration(moved.Load())) }
	return c, func(d time.Duration) { moved.Add(int64(d)) }
}

// pushBlob pushes a blob. If once is true, the body of the upload can be read only once.
func pushBlob(t *testing.T, c *client, f *challenger.Registry, once bool) error {
	t.Helper()
	var content io.Reader = strings.NewReader("hello")
	if once {
		content = onceReader{content}
	}
	return mustOpen(t, c, f.Repository("a/x")).Blobs().Push(t.Context(), ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5}, content)
}

func TestTokenIsRenewedBeforeItIsUsed(t *testing.T) {
	f := challenger.New(t, false)
	f.Life = map[string]any{"expires_in": 300}
	c, move := aClient()
	r := f.Repository("a/x")
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
		f.Want(t, step.want...)
	}
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
		f := challenger.New(t, false)
		c, _ := aClient()
		f.ExpireBefore = http.MethodPut
		if err := pushBlob(t, c, f, false); err != nil {
			t.Fatal(err)
		}
		f.Want(t, post, token, post, put, token, put)
		if agents := f.Agents(); len(agents) != 1 {
			t.Errorf("user agents %q", agents)
		}
	})
	t.Run("refused for ever", func(t *testing.T) {
		f := challenger.New(t, false)
		c, _ := aClient()
		f.Never = http.MethodPut
		if err := pushBlob(t, c, f, false); err == nil {
			t.Error("no error")
		}
		if n := strings.Count(strings.Join(f.Requests(), "\n"), "PUT"); n > 3 {
			t.Errorf("sent %d times", n)
		}
	})
	t.Run("a body that passes once", func(t *testing.T) {
		f := challenger.New(t, false)
		c, _ := aClient()
		f.ExpireBefore = http.MethodPut
		if err := pushBlob(t, c, f, true); err == nil {
			t.Error("no error")
		}
		f.Want(t, post, token, post, put)
	})
	t.Run("ended before it is sent", func(t *testing.T) {
		f := challenger.New(t, false)
		c, move := aClient()
		f.Before = func(r *http.Request) {
			if r.Method == http.MethodPost && r.Header.Get("Authorization") != "" {
				move(time.Minute)
			}
		}
		if err := pushBlob(t, c, f, true); err != nil {
			t.Fatal(err)
		}
		f.Want(t, post, token, post, token, put)
	})
}

func TestMountAsksForBothRepositories(t *testing.T) {
	f := challenger.New(t, false)
	c, _ := aClient()
	desc := ocispec.Descriptor{Digest: digest.FromString("hello"), Size: 5}
	if err := mustOpen(t, c, f.Repository("a/x")).Mount(t.Context(), desc, "b/x", nil); err != nil {
		t.Fatal(err)
	}
	const post = "POST /v2/a/x/blobs/uploads/?mount=DIGEST"
	f.Want(t, post, "GET token repository:a/x:pull,push repository:b/x:pull up", post)
}

func TestTokenCacheFetchesOnceForAll(t *testing.T) {
	for _, failure := range []error{nil, errors.New("sealed")} {
		synctest.Test(t, func(t *testing.T) {
			c := newTokenCache(time.Now, nil)
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
		c := newTokenCache(time.Now, nil)
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
	c := newTokenCache(time.Now, nil)
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
		c, start := newTokenCache(time.Now, nil), time.Now()
		_, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != tokenTimeout {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// slow is an account whose helper gets no answer. It takes the longest time that package
// login gives all runs of a helper.
type slow struct{ account }

func (slow) Credential(context.Context) (auth.Credential, error) {
	time.Sleep(2 * time.Minute)
	return auth.EmptyCredential, hint.Wrap(context.DeadlineExceeded, "run it by hand")
}

// TestTokenFetchOutlastsHelpers shows that the caller gets the error of a slow helper, and
// not the error of tokenTimeout.
func TestTokenFetchOutlastsHelpers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(Options{Transport: roundTripper(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: r,
				Header: http.Header{"Www-Authenticate": {`Bearer realm="https://registry.test/token",service="s"`}}}
		})}, slow{})
		if err := listTags(t, c, mustRepository(t, "registry.test/a/x")); hint.Of(err) != "run it by hand" {
			t.Errorf("%v (hint %q)", err, hint.Of(err))
		}
	})
}

// TestFreshTokens shows that each request with [WithFreshToken] fetches a new token, even
// if the cached token has not expired.
func TestFreshTokens(t *testing.T) {
	f := challenger.New(t, false)
	f.Life = map[string]any{"expires_in": 300}
	c, _ := aClient()
	r := f.Repository("a/x")
	if err := listTags(t, c, r); err != nil {
		t.Fatal(err)
	}
	f.Requests()
	anew := func() error {
		return mustOpen(t, c, r).Tags(WithFreshToken(t.Context()), "", func([]string) error { return nil })
	}
	if err := anew(); err != nil {
		t.Fatal(err)
	}
	f.Want(t, "GET token repository:a/x:pull up", "GET /v2/a/x/tags/list")
	f.RefuseTokens.Store(true)
	if err := anew(); err == nil {
		t.Error("no error, although the token server issues no tokens")
	}
}

// TestTokensAreBounded shows that a token longer than maxToken is refused if it comes
// from a token server, and accepted if the user configured it.
func TestTokensAreBounded(t *testing.T) {
	r := mustRepository(t, "registry.test/a/x")
	for n, ok := range map[int]bool{1 << 10: true, 8 << 10: true, maxToken: true, maxToken + 1: false, 100 << 10: false} {
		c := newClient(Options{Transport: protected("", tokenOf(n))}, account{})
		err := listTags(t, c, r)
		if (err == nil) != ok || err != nil && (!strings.Contains(err.Error(), fmt.Sprintf("token has %d bytes", n)) || len(err.Error()) > 400 || hint.Of(err) == "") {
			t.Errorf("token of %d bytes: %.500v (hint %q)", n, err, hint.Of(err))
		}
	}
	own := account{AccessToken: strings.Repeat("t", maxToken+1)}
	c := newClient(Options{Transport: protected("", nil)}, own)
	if err := listTags(t, c, r); err != nil {
		t.Errorf("the user's own token: %.500v", err)
	}
}

// TestTokenCacheBoundsBytes adds more tokens of the maximum length to the token cache
// than fit in it. It shows that the cache stays within its budget, and keeps the last
// token.
func TestTokenCacheBoundsBytes(t *testing.T) {
	const budget = 16 << 20
	c := newTokenCache(time.Now, nil)
	for range 2 {
		for i := range 2000 {
			scopes := fmt.Sprint(i)
			give := func(context.Context) (string, error) { return strings.Repeat("t", maxToken), nil }
			if _, err := c.Set(t.Context(), "h", auth.SchemeBearer, scopes, give); err != nil {
				t.Fatal(err)
			}
			if got, err := c.GetToken(t.Context(), "h", auth.SchemeBearer, scopes); err != nil || len(got) != maxToken {
				t.Fatalf("the last token is not cached: %d bytes, %v", len(got), err)
			}
		}
		sum := 0
		for _, token := range c.tokens.Values() {
			sum += len(token.value)
		}
		if sum != budget {
			t.Errorf("%d tokens have %d bytes", c.tokens.Len(), sum)
		}
	}
}

// TestFailuresOfTokenServersAreNotKept shows that the refusals of a token server are not
// cached. Refusals would need much memory, because 8 KiB of JSON take several hundred KiB
// when decoded.
func TestFailuresOfTokenServersAreNotKept(t *testing.T) {
	refusal := `{"errors":[{"code":"DENIED","message":"no","detail":[` + strings.Repeat("{},", 2000) + `{}]}]}`
	deny := true
	c := newClient(Options{RetryDelay: time.Millisecond, Transport: protected("", func() *http.Response {
		if deny {
			return answer(403, http.Header{"Content-Type": {"application/json"}}, refusal)
		}
		return tokenOf(10)()
	})}, account{})
	for i := range 20 {
		if err := listTags(t, c, mustRepository(t, fmt.Sprintf("registry.test/a/x%d", i))); err == nil || !strings.Contains(err.Error(), "denied") {
			t.Fatalf("%.300v", err)
		}
	}
	r := mustRepository(t, "registry.test/a/x0")
	tokens := c.sender(r.Registry).tokens
	if n := tokens.tokens.Len(); n != 0 {
		t.Errorf("%d failures are kept", n)
	}
	deny = false
	if err := listTags(t, c, r); err != nil || tokens.tokens.Len() != 1 {
		t.Errorf("after the failure: %v, %d tokens", err, tokens.tokens.Len())
	}
}

// TestTokenFetchPanics shows that a token fetch that panics fails, and does not end the process.
func TestTokenFetchPanics(t *testing.T) {
	var log bytes.Buffer
	c := newTokenCache(time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	_, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s", func(context.Context) (string, error) { panic("a bug") })
	if !errors.As(err, new(*panics.Error)) || strings.Count(log.String(), "msg=panic") != 1 {
		t.Errorf("%v\n%s", err, &log)
	}
	if value, err := c.Set(t.Context(), "h", auth.SchemeBearer, "s", func(context.Context) (string, error) { return "t", nil }); value != "t" || err != nil {
		t.Errorf("then %q, %v", value, err)
	}
}
