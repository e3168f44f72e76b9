package serve

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOrdersHaveALocation shows that later responses about an order have a Location header,
// even if the issuer sends this header only in the response that creates the order.
func TestOrdersHaveALocation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	answer, location := "", ""
	o := newOrders(ctx, roundTrip(func(*http.Request) (*http.Response, error) {
		resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer))}
		if location != "" {
			resp.Header.Set("Location", location)
		}
		return resp, nil
	}))
	send := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://acme.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		return o.RoundTrip(r)
	}
	for _, tc := range []struct{ answer, location, want string }{
		{`{"finalize":"https://acme.example/1/finalize"}`, "", ""},
		{`{"finalize":"https://acme.example/1/finalize"}`, "https://acme.example/1", "https://acme.example/1"},
		{`{"finalize":"https://acme.example/2/finalize"}`, "", ""},
		{`{"finalize":"https://acme.example/1/finalize"}`, "", "https://acme.example/1"},
		{`{"status":"valid"}`, "", ""},
		{`no JSON`, "", ""},
	} {
		answer, location = tc.answer, tc.location
		resp, err := send()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if got := resp.Header.Get("Location"); got != tc.want || string(body) != tc.answer || err != nil {
			t.Errorf("%s at %q: %q at %q, %v, want %q", tc.answer, tc.location, body, got, err, tc.want)
		}
	}
	answer = strings.Repeat("a", maxACMEDocument+1)
	if _, err := send(); err == nil {
		t.Error("a response that is too large is truncated")
	}
	cancel()
	if _, err := send(); err == nil {
		t.Error("a request is sent after the end")
	}
}
