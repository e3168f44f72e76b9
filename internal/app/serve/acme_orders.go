package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// maxACMEDocument is the maximum size in bytes of an issuer's response. The longest
// responses are certificate chains.
const maxACMEDocument = 1 << 20

// orders sends requests to an ACME issuer until a context ends. If a response about a known
// order lacks the Location header, orders adds the header. RFC 8555, section 7.4, does not
// require this header in the response to a finalize request, but package acme does.
type orders struct {
	http.RoundTripper
	ended context.Context
	known *lru.Cache[string, string] // the URLs of orders, by their finalize URLs
}

// maxOrders is the maximum number of orders that are remembered. Each domain has one order.
const maxOrders = 1000

func newOrders(ended context.Context, transport http.RoundTripper) *orders {
	known, _ := lru.New[string, string](maxOrders) // returns an error only for sizes below 1
	return &orders{transport, ended, known}
}

// RoundTrip implements [http.RoundTripper].
func (o *orders) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := o.ended.Err(); err != nil {
		return nil, err
	}
	resp, err := o.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := document.ReadAll(resp.Body, maxACMEDocument)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL.Redacted(), err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var order struct {
		Finalize string `json:"finalize"`
	}
	if json.Unmarshal(body, &order) != nil || order.Finalize == "" {
		return resp, nil
	}
	if at := resp.Header.Get("Location"); at != "" {
		o.known.Add(order.Finalize, at)
	} else if at, ok := o.known.Get(order.Finalize); ok {
		resp.Header.Set("Location", at)
	}
	return resp, nil
}
