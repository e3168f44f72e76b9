package wire

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

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

// account is an account with one credential.
type account auth.Credential

func (a account) Credential(context.Context) (auth.Credential, error) { return auth.Credential(a), nil }

func (account) RefuseAccessToken(string) bool { return false }

// client is connections, and one sender for each registry. All senders have the same account.
type client struct {
	*Connections
	account Account
	senders map[ociaddr.Registry]*Sender
}

func newClient(opts Options, a Account) *client {
	return &client{New(opts), a, map[ociaddr.Registry]*Sender{}}
}

func (c *client) sender(r ociaddr.Registry) *Sender {
	if c.senders[r] == nil {
		c.senders[r] = c.Sender(r, c.account)
	}
	return c.senders[r]
}

func mustOpen(t *testing.T, c *client, r ociaddr.Repository) *remote.Repository {
	t.Helper()
	repo, err := remote.NewRepository(r.String())
	if err != nil {
		t.Fatal(err)
	}
	if repo.PlainHTTP, err = c.PlainHTTP(t.Context(), r.Registry); err != nil {
		t.Fatal(err)
	}
	repo.Client = c.sender(r.Registry)
	return repo
}

func listTags(t *testing.T, c *client, r ociaddr.Repository) error {
	t.Helper()
	return mustOpen(t, c, r).Tags(t.Context(), "", func([]string) error { return nil })
}

func mustRepository(t testing.TB, s string) ociaddr.Repository {
	t.Helper()
	r, err := ociaddr.ParseRepository(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
