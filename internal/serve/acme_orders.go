package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// maxACMEDocument bounds an issuer's answer. The longest answers are certificate chains.
const maxACMEDocument = 1 << 20

// orders sends requests to an ACME issuer until a context ends. It adds the Location header
// to answers about an order that is being finalized. RFC 8555, section 7.4, leaves the
// header to the issuer there, and package acme requires it.
type orders struct {
	http.RoundTripper
	ended context.Context

	mu    sync.Mutex
	known map[string]string // URL of an order by its finalize URL; not nil
}

// maxOrders bounds the orders that are remembered. There is one for each domain.
const maxOrders = 1000

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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxACMEDocument))
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var order struct {
		Finalize string `json:"finalize"`
	}
	if json.Unmarshal(body, &order) == nil && order.Finalize != "" {
		o.locate(order.Finalize, resp.Header)
	}
	return resp, nil
}

// locate remembers the URL of an order, or adds it to the headers of an answer.
func (o *orders) locate(finalize string, h http.Header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := h.Get("Location")
	switch {
	case at == "" && o.known[finalize] != "":
		h.Set("Location", o.known[finalize])
	case at != "" && len(o.known) < maxOrders:
		o.known[finalize] = at
	case at != "":
		o.known = map[string]string{finalize: at}
	}
}
