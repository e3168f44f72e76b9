package auth

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// roundTripper is a transport that returns the result of the function. It uses no
// network.
type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := f(req)
	resp.Request = req
	return resp, nil
}

func answer(status int, header http.Header, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// protected returns a transport that behaves like a registry and its token server. The
// registry requires a token, and its challenge ends with the given text. tokenAnswer
// returns the response of the token server.
func protected(challenge string, tokenAnswer func() *http.Response) roundTripper {
	return func(req *http.Request) *http.Response {
		switch {
		case req.URL.Path == "/token":
			return tokenAnswer()
		case req.Header.Get("Authorization") == "":
			return answer(401, http.Header{"Www-Authenticate": {`Bearer realm="https://registry.test/token"` + challenge}}, "")
		}
		return answer(200, http.Header{"Content-Type": {"application/json"}}, `{"name":"a/x","tags":[]}`)
	}
}

func tokenOf(n int) func() *http.Response {
	return func() *http.Response {
		return answer(200, http.Header{"Content-Type": {"application/json"}}, `{"token":"`+strings.Repeat("t", n)+`"}`)
	}
}

// padded returns a challenge of n bytes. It replaces the %s in format with the padding.
func padded(n int, format string) string {
	return fmt.Sprintf(format, strings.Repeat("x", n-len(format)+len("%s")))
}

// TestChallengesAreBounded shows that a challenge longer than maxChallenge is an error.
// The original length counts: narrower scopes would make some of these challenges short.
func TestChallengesAreBounded(t *testing.T) {
	const scope = "repository:a/x:pull"
	for name, format := range map[string]string{
		"service": `Bearer realm="https://registry.test/token",service="%s"`,
		"realm":   `Bearer realm="https://10.0.0.6/%s",service="s"`,
		"scope":   `Bearer realm="https://registry.test/token",scope="` + scope + ` repository:%s:pull"`,
		"basic":   `Basic realm="%s"`,
	} {
		for n, ok := range map[int]bool{maxChallenge: true, maxChallenge + 1: false, 9 << 20: false} {
			challenge := padded(n, format)
			conns := newConnections(Options{Log: slog.New(slog.DiscardHandler), Transport: roundTripper(func(*http.Request) *http.Response {
				return answer(401, http.Header{"Www-Authenticate": {challenge}}, "")
			})})
			transport := newTransport(router{conns, ""}, newSentSecrets(), addressesOf("10.0.0.5"))
			ctx := auth.WithScopesForHost(t.Context(), "registry.test", scope)
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry.test/v2/a/x/tags/list", nil)
			resp, err := transport.RoundTrip(req)
			switch {
			case ok && (err != nil || resp.StatusCode != http.StatusUnauthorized):
				t.Errorf("%s, %d bytes: %v", name, n, err)
			case !ok && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("registry.test answers with a challenge of %d bytes", n)) || len(err.Error()) > 200 || hint.Of(err) == ""):
				t.Errorf("%s, %d bytes: %.300v (hint %q)", name, n, err, hint.Of(err))
			}
		}
	}
}

// TestTokensAreBounded shows that a token longer than maxToken is refused if it comes
// from a token server, and accepted if the user configured it.
func TestTokensAreBounded(t *testing.T) {
	r := mustRepository(t, "registry.test/a/x")
	for n, ok := range map[int]bool{1 << 10: true, 8 << 10: true, maxToken: true, maxToken + 1: false, 100 << 10: false} {
		c := New(Options{Transport: protected("", tokenOf(n))})
		err := c.Explain(listTags(t, c, r), r)
		if (err == nil) != ok || err != nil && (!strings.Contains(err.Error(), fmt.Sprintf("token has %d bytes", n)) || len(err.Error()) > 400 || hint.Of(err) == "") {
			t.Errorf("token of %d bytes: %.500v (hint %q)", n, err, hint.Of(err))
		}
	}
	own := block("registry.test", "access:"+strings.Repeat("t", maxToken+1))
	c := New(Options{Explicit: []Login{own}, Transport: protected("", nil)})
	if err := listTags(t, c, r); err != nil {
		t.Errorf("the user's own token: %.500v", err)
	}
}

// tokensOf returns the token cache of a repository.
func tokensOf(t *testing.T, c *Client, r ociaddr.Repository) *tokenCache {
	t.Helper()
	b, err := c.bind(r)
	if err != nil {
		t.Fatal(err)
	}
	return b.sender.tokens
}

// TestTokenCacheBoundsBytes adds more tokens of the maximum length to the token cache
// than fit in it. It shows that the cache stays within its budget, and keeps the last
// token.
func TestTokenCacheBoundsBytes(t *testing.T) {
	const budget = 16 << 20
	c := newTokenCache(time.Now)
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
	c := New(Options{RetryDelay: time.Millisecond, Transport: protected("", func() *http.Response {
		if deny {
			return answer(403, http.Header{"Content-Type": {"application/json"}}, refusal)
		}
		return tokenOf(10)()
	})})
	for i := range 20 {
		if err := listTags(t, c, mustRepository(t, fmt.Sprintf("registry.test/a/x%d", i))); err == nil || !strings.Contains(err.Error(), "denied") {
			t.Fatalf("%.300v", err)
		}
	}
	r := mustRepository(t, "registry.test/a/x0")
	tokens := tokensOf(t, c, r)
	if n := tokens.tokens.Len(); n != 0 {
		t.Errorf("%d failures are kept", n)
	}
	deny = false
	if err := listTags(t, c, r); err != nil || tokens.tokens.Len() != 1 {
		t.Errorf("after the failure: %v, %d tokens", err, tokens.tokens.Len())
	}
}

// TestSecretsOfManyCredentials records many passwords, as from a helper that returns a
// different password each time. It shows that the number of recorded secrets is limited,
// and that the latest secrets are still removed from texts.
func TestSecretsOfManyCredentials(t *testing.T) {
	sent := newSentSecrets()
	sent.add(auth.Credential{AccessToken: "always-used"})
	for i := range 10 * maxSecretTexts {
		sent.add(auth.Credential{Username: "u", Password: fmt.Sprintf("secret/%d", i)})
		sent.add(auth.Credential{AccessToken: "always-used"})
	}
	if sent.texts.Len() != maxSecretTexts {
		t.Errorf("%d texts are kept", sent.texts.Len())
	}
	last := fmt.Sprintf("secret/%d", 10*maxSecretTexts-1)
	if got := string(sent.scrub([]byte(last+" always-used"), "")); got != redacted+" "+redacted {
		t.Errorf("the last secrets are shown: %s", got)
	}
	// A secret is removed as a whole, even if a later secret is equal to its beginning.
	sent.add(auth.Credential{AccessToken: last + "-and-more"})
	sent.add(auth.Credential{AccessToken: last})
	if got := string(sent.scrub([]byte(last+"-and-more"), "")); got != redacted {
		t.Errorf("the rest of a secret is shown: %s", got)
	}
}

// TestRetriesAreLoggedWithoutTheTarget shows that the log of a retry omits the path of a
// redirected request. The path may have any length, and may contain a signature with
// which anyone can read a blob.
func TestRetriesAreLoggedWithoutTheTarget(t *testing.T) {
	var log bytes.Buffer
	transport := newRetrier(roundTripper(func(*http.Request) *http.Response { return answer(503, nil, "") }), time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://storage.test/s1gn4ture/blob", nil)
	req.Response = &http.Response{Request: req}
	_, _ = transport.RoundTrip(req)
	if s := log.String(); !strings.Contains(s, "repeated") || strings.Contains(s, "s1gn4ture") {
		t.Errorf("log: %s", s)
	}
}

// TestReachableQuotesNoStatusLine shows that the error of Reachable does not quote the
// text after the status code in the server's status line.
func TestReachableQuotesNoStatusLine(t *testing.T) {
	c := New(Options{Transport: roundTripper(func(*http.Request) *http.Response {
		resp := answer(502, nil, "")
		resp.Status = "502 " + strings.Repeat("x", 1<<20)
		return resp
	})})
	if err := c.Reachable(t.Context(), ociaddr.Registry("registry.test")); err == nil || err.Error() != "ask registry.test: it answers 502 Bad Gateway" {
		t.Errorf("%.300v", err)
	}
}
