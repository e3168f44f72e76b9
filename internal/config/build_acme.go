package config

import (
	"fmt"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// maxDomains bounds the domains of an acme block.
const maxDomains = 100

// acme checks the acme block of the tls block. Without domains, it takes the host of
// public_url.
func (d *decoder) acme(g *Gateway) {
	a := g.TLS.ACME
	if a == nil {
		return
	}
	b := d.of(a)
	if d.of(&g.TLS).has("cert_file") || g.TLS.SelfSigned {
		d.conflict(b.header, "cert_file, self_signed and acme exclude each other: leave all but one of them out.")
	}
	if b.has("accept_terms") && !a.AcceptTerms {
		d.fail(b.at("accept_terms"), "Terms not agreed to", "An authority issues certificates only to users who agree to its terms: write true once you have read them, or leave out the acme block.")
	}
	if !b.has("domains") && !d.incomplete && g.PublicURL != "" {
		if u, err := url.Parse(g.PublicURL); err == nil {
			a.Domains = []string{u.Hostname()}
			if _, err = parseDomain(u.Hostname()); err != nil {
				d.errorf(b.header, "acme", err)
			}
		}
	}
	switch {
	case !b.has("domains") && g.PublicURL == "", b.isEmpty("domains"):
		d.conflict(b.header, "There is no name to have a certificate for: give domains, or public_url in the gateway block.")
	case len(a.Domains) > maxDomains:
		d.errorf(b.at("domains"), "domains", hint.New(fmt.Sprintf("there are more than %d", maxDomains), "name only those that clients reach the gateway by"))
	}
}
