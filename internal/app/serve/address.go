package serve

import (
	"net"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/registries/embedded"
)

// Address is the address of a gateway, with everything that clients need to use it.
type Address struct {
	URL      *url.URL // ends in a slash
	Listens  string   // the address that the gateway listens on; "" if the URL contains it
	CAFile   string   // the file with the certificate of the local CA; "" if another CA signed the gateway's certificate
	Embedded bool     // whether the gateway serves the embedded registry
	Tokens   bool     // whether the gateway requires a token
	Pulls    bool     // whether the gateway fetches missing providers from their origins
	// AsClients means that fetched providers may be unsigned where OpenTofu installs them, because nothing is configured.
	AsClients bool
}

// address returns the address of a gateway that listens on addr. Its URL is the configured
// public_url. Without public_url, its URL consists of the gateway's host and the port of
// addr. A [Local] knows its URL.
func (s *Settings) address(addr net.Addr) (Address, error) {
	g := s.gateway()
	if s.local != nil {
		return Address{URL: s.local}, nil
	}
	if g.PublicURL != "" {
		u, err := url.Parse(g.PublicURL)
		return Address{URL: u, Listens: addr.String()}, err
	}
	_, port, err := net.SplitHostPort(addr.String())
	u := &url.URL{Scheme: "https", Host: net.JoinHostPort(s.publicHost(), port), Path: "/"}
	if g.HTTP {
		u.Scheme = "http"
	}
	return Address{URL: u}, err
}

// Template returns the repository template of the embedded registry. It returns "" if the
// gateway serves no embedded registry. It also returns "" if the gateway's URL has a path
// or no TLS, because clients cannot read the embedded registry then.
func (a Address) Template() string {
	if !a.Embedded || a.URL.Path != "/" || a.URL.Scheme != "https" {
		return ""
	}
	return a.URL.Host + "/" + embedded.Template
}
