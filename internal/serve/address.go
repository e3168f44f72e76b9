package serve

import (
	"net"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/registry/embedded"
)

// Address is where clients find a gateway, and what they need there.
type Address struct {
	URL      *url.URL // ends in a slash
	Listens  string   // the address that the gateway listens on, if the URL does not say it
	CAFile   string   // of the local CA that signed the certificate; "" if the certificate has another issuer
	Embedded bool     // the gateway serves the embedded registry
	Tokens   bool     // the gateway asks for a token
	Pulls    bool     // the gateway fetches missing providers from their origins
}

// address returns the public URL, or else the URL for the address that the gateway listens
// on.
func (s *Settings) address(addr net.Addr) (Address, error) {
	g := s.gateway()
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

// Template returns the repository template of the embedded registry. It is "" if clients
// cannot read that registry, because it is not at the root of its host or not behind TLS.
func (a Address) Template() string {
	if !a.Embedded || a.URL.Path != "/" || a.URL.Scheme != "https" {
		return ""
	}
	return a.URL.Host + "/" + embedded.Template
}
