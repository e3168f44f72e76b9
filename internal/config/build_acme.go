package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"strings"

	"golang.org/x/net/idna"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// maxDomains bounds the domains of an acme block.
const maxDomains = 100

// acme reads the acme block of a tls block.
func (d *decoder) acme(tls *tlsBlock, publicURL string) *ACME {
	b := tls.ACME
	if b == nil {
		return nil
	}
	a := &ACME{
		Domains:      parseEach(d, b.Body, "domains", b.Domains, parseDomain),
		Email:        parseOne(d, b.Body, "email", b.Email, parseEmail),
		DirectoryURL: parseOne(d, b.Body, "directory_url", orDefault[acmeBlock](b.DirectoryURL, "directory_url"), parseEndpoint),
		CAFile:       d.path(b.Body, "ca_file", b.CAFile),
		Directory:    d.path(b.Body, "directory", b.Directory),
	}
	if tls.CertFile != nil || yes(tls.SelfSigned) {
		d.conflict(b.Range, "cert_file, self_signed and acme exclude each other: leave all but one of them out.")
	}
	if b.AcceptTerms != nil && !*b.AcceptTerms {
		d.fail(at(b.Body, "accept_terms"), "Terms not agreed to", "An authority issues certificates to nobody who does not agree to its terms: write true once you have read them, or leave out the acme block.")
	}
	if b.Domains == nil && !d.incomplete {
		if u, err := url.Parse(publicURL); err == nil && publicURL != "" {
			a.Domains = []string{u.Hostname()}
			_, err = parseDomain(u.Hostname())
			if err != nil {
				d.errorf(b.Range, "acme", err)
			}
		}
	}
	switch {
	case b.Domains == nil && publicURL == "", b.Domains != nil && len(b.Domains) == 0:
		d.conflict(b.Range, "There is no name to have a certificate for: give domains, or public_url in the gateway block.")
	case len(a.Domains) > maxDomains:
		d.errorf(at(b.Body, "domains"), "domains", hint.New(fmt.Sprintf("there are more than %d", maxDomains), "name those alone by which clients reach the gateway"))
	}
	return a
}

// parseDomain reads a name that an authority can validate by connecting to it.
func parseDomain(s string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(s)
	switch {
	case strings.HasPrefix(s, "*."):
		return "", hint.New(fmt.Sprintf("%q stands for many names", s), "name each: for wildcards, authorities ask back in the DNS, which is not done here")
	case net.ParseIP(s) != nil:
		return "", hint.New(fmt.Sprintf("%q is an address", s), "write the name by which clients reach the gateway")
	case err != nil || !strings.Contains(ascii, ".") || strings.HasSuffix(ascii, "."):
		return "", hint.New(fmt.Sprintf("%q is no public name of a host", s), "write one such as providers.example.com")
	}
	return s, nil
}

func parseEmail(s string) (string, error) {
	a, err := mail.ParseAddress(s)
	if err != nil || a.Address != s {
		return "", hint.New(fmt.Sprintf("%q is no address", s), "write one such as ops@example.com")
	}
	return s, nil
}
