package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
)

// Public diagnoses the URL at which clients reach the user's gateway.
type Public struct {
	URL string // public_url
	// Discovery is the URL of a discovery document below URL, and Announced is the URL that the gateway with this
	// public_url announces in that document.
	Discovery, Announced string
	// Transport sends the requests. If it is nil, [outgoing.Transport] does.
	Transport http.RoundTripper
}

// Examine diagnoses the gateway's own URL: its name, its certificate, and whether this gateway answers there.
func (x Public) Examine(ctx context.Context) *Report {
	r := &Report{Subject: "gateway " + x.URL}
	u, err := url.Parse(x.Discovery)
	if err != nil {
		r.fail("URL", errors.New("it is none"), "correct public_url in the gateway block")
		return r
	}
	if !r.proxy(ctx, u) || !x.name(ctx, r, u) {
		return r
	}
	if x.Transport == nil {
		x.Transport = outgoing.Transport()
	}
	const name = "gateway"
	var doc struct {
		Announced string `json:"providers.v1"`
	}
	resp, err := Gateway{Transport: x.Transport}.document(ctx, u, &doc)
	r.server(resp)
	switch {
	case resp == nil:
		r.fail("connection", err, "start the gateway, or correct public_url in the gateway block")
	case err != nil:
		r.fail(name, fmt.Errorf("no ocibridge gateway answers at this URL: %w", err), "start the gateway; if a proxy is in front of it, have it forward this URL to the gateway; or correct public_url in the gateway block")
	case doc.Announced != x.Announced:
		r.fail(name, fmt.Errorf("another gateway answers: it announces %.200q, this one announces %q", doc.Announced, x.Announced),
			"restart the gateway if public_url has changed, have the proxy in front of it forward this URL, or correct public_url in the gateway block")
	default:
		r.ok(name, "a gateway with this public_url answers")
	}
	return r
}

// name looks up the host of the URL. If a proxy looks up the host, the check is skipped.
func (x Public) name(ctx context.Context, r *Report, u *url.URL) bool {
	_, notIP := netip.ParseAddr(u.Hostname())
	route, err := outgoing.RouteTo(u)
	if notIP == nil || err == nil && route.Proxy != "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err != nil {
		r.fail("name", err, "add the name to the DNS, or correct public_url in the gateway block")
		return false
	}
	r.ok("name", "%s is %s", u.Hostname(), list(found))
	return true
}
