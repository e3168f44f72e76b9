package auth

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Registry is how one registry is spoken to: a registry block. Its zero value
// changes nothing.
//
// PlainHTTP, InsecureSkipVerify, ClientCert, Timeout and the bounds concern the
// registry's own host and port. CAs count as well for the token servers and the
// storage that it sends its clients to, unless these have settings of their own.
type Registry struct {
	// PlainHTTP speaks plain HTTP, credentials included.
	PlainHTTP bool
	// InsecureSkipVerify accepts any certificate, with a warning.
	InsecureSkipVerify bool
	// CAs are certificate authorities, PEM, that are trusted beside the system's.
	CAs []byte
	// ClientCert is shown to a registry that asks for a certificate.
	ClientCert *tls.Certificate

	// RequestsPerSecond bounds how often the registry is asked, attempts counted
	// singly; up to one second's worth may come at once. 0 is no bound.
	RequestsPerSecond float64
	// MaxConcurrent bounds how many requests are under way, each until its
	// answer is read. 0 is no bound.
	MaxConcurrent int
	// Timeout bounds the wait until an answer begins, and connecting; 0 means
	// 60 s, and 10 s for connecting.
	Timeout time.Duration

	// DeniedMeansAbsent is kept for others: see [Client.DeniedMeansAbsent].
	DeniedMeansAbsent bool
	// RedirectsBlobs is kept for others: see [Client.RedirectsBlobs].
	RedirectsBlobs bool

	Origin string // "FILE:LINE", for messages
}

// Validate checks settings for the registry r.
func (s Registry) Validate(r ociaddr.Registry) error {
	block := fmt.Sprintf("the registry block %q%s", r, at(s.Origin))
	switch _, err := ociaddr.ParseRegistry(string(r)); {
	case err != nil:
		return hint.Wrap(fmt.Errorf("%s: %w", block, err), "label it with the registry's host, such as harbor.example.com:8443")
	case s.CAs != nil && !x509.NewCertPool().AppendCertsFromPEM(s.CAs):
		return hint.New(block+": ca_file holds no certificate", "it is a PEM file with BEGIN CERTIFICATE lines")
	case s.ClientCert != nil && len(s.ClientCert.Certificate) == 0:
		return hint.New(block+": client_cert_file holds no certificate", "it is a PEM file with BEGIN CERTIFICATE lines")
	case !(s.RequestsPerSecond >= 0) || math.IsInf(s.RequestsPerSecond, 0) || s.MaxConcurrent < 0 || s.Timeout < 0:
		return hint.New(block+": requests_per_second, max_concurrent or timeout is negative or no number", "leave it out for no bound of your own")
	}
	return nil
}

// changesTransport reports whether the settings need a transport of their own.
func (s Registry) changesTransport() bool {
	return s.InsecureSkipVerify || s.CAs != nil || s.ClientCert != nil || s.Timeout > 0
}

// connections are the transports to all hosts: one for each registry with
// settings, one that all others share.
type connections struct {
	opts   Options
	byHost map[string]Registry // the settings
	base   http.RoundTripper   // shared, once it is observed
	shared http.RoundTripper

	mu   sync.Mutex
	own  map[string]http.RoundTripper // by host with settings
	with map[string]http.RoundTripper // by host of the registry on whose behalf: its CAs and no more
}

func newConnections(opts Options) *connections {
	c := &connections{
		opts: opts, byHost: map[string]Registry{}, base: opts.Transport,
		own: map[string]http.RoundTripper{}, with: map[string]http.RoundTripper{},
	}
	if c.base == nil {
		c.base = defaultTransport()
	}
	c.shared = c.seen(c.base)
	for r, s := range opts.Registries {
		c.byHost[settingsHost(string(r))] = s
	}
	return c
}

// validate checks the settings of all registries.
func (c *connections) validate() error {
	seen := map[string]ociaddr.Registry{}
	for _, r := range slices.Sorted(maps.Keys(c.opts.Registries)) {
		s := c.opts.Registries[r]
		if err := s.Validate(r); err != nil {
			return err
		}
		if other, ok := seen[settingsHost(string(r))]; ok {
			return hint.New(fmt.Sprintf("there are registry blocks for %s and %s, which are one registry", other, r), "remove one of them")
		}
		seen[settingsHost(string(r))] = r
		if _, ok := c.base.(*http.Transport); !ok && s.changesTransport() {
			return fmt.Errorf("the settings of registry %s need an *http.Transport, and Options.Transport is a %T", r, c.base)
		}
	}
	return nil
}

// settingsHost is the name under which settings are looked up.
func settingsHost(host string) string { return strings.TrimSuffix(canonicalHost(host), ":443") }

// settings returns the settings for a host, with or without a port.
func (c *connections) settings(host string) (Registry, bool) {
	s, ok := c.byHost[settingsHost(host)]
	return s, ok
}

// plainHTTP reports whether plain HTTP to the host is allowed by the user.
func (c *connections) plainHTTP(host string) bool {
	s, _ := c.settings(host)
	return c.opts.PlainHTTP || s.PlainHTTP
}

// transport returns what a request to host goes through when the registry
// behalf sends its client there, itself or elsewhere.
func (c *connections) transport(host, behalf string) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.settings(host); ok {
		host = settingsHost(host)
		t, ok := c.own[host]
		if !ok {
			if s.InsecureSkipVerify {
				c.opts.Log.Warn("the certificate of the registry is not verified: whoever is in between can read and change everything",
					slog.String("registry", host), slog.String("insecure_skip_verify", s.Origin))
			}
			t = newGate(c.seen(c.derive(s)), host, s)
			c.own[host] = t
		}
		return t
	}
	if s, ok := c.settings(behalf); ok && s.CAs != nil {
		behalf = settingsHost(behalf)
		if _, ok := c.with[behalf]; !ok {
			c.with[behalf] = c.seen(c.derive(Registry{CAs: s.CAs}))
		}
		return c.with[behalf]
	}
	return c.shared
}

// seen puts a transport under observation.
func (c *connections) seen(t http.RoundTripper) http.RoundTripper { return observed{t, c.opts.Sent} }

// derive returns the shared transport changed as the settings say. Proxies stay
// those of the shared one.
func (c *connections) derive(s Registry) http.RoundTripper {
	base, ok := c.base.(*http.Transport)
	if !ok || !s.changesTransport() {
		return c.base
	}
	t := base.Clone()
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{}
	}
	if s.CAs != nil {
		t.TLSClientConfig.RootCAs = withCAs(t.TLSClientConfig.RootCAs, s.CAs)
	}
	if s.ClientCert != nil {
		t.TLSClientConfig.Certificates = []tls.Certificate{*s.ClientCert}
	}
	t.TLSClientConfig.InsecureSkipVerify = t.TLSClientConfig.InsecureSkipVerify || s.InsecureSkipVerify
	if s.Timeout > 0 {
		t.ResponseHeaderTimeout = s.Timeout
		t.TLSHandshakeTimeout = min(s.Timeout, cmp.Or(t.TLSHandshakeTimeout, s.Timeout))
		if c.opts.Transport == nil {
			t.DialContext = (&net.Dialer{Timeout: min(s.Timeout, dialTimeout), KeepAlive: keepAlive}).DialContext
		}
	}
	return t
}

// withCAs returns pool, or the system's if it is nil, with more authorities.
func withCAs(pool *x509.CertPool, pem []byte) *x509.CertPool {
	if pool != nil {
		pool = pool.Clone()
	} else if system, err := x509.SystemCertPool(); err == nil {
		pool = system
	} else {
		pool = x509.NewCertPool() // a system without a trust store
	}
	pool.AppendCertsFromPEM(pem)
	return pool
}

// router sends each request over the transport for its host.
type router struct {
	conns  *connections
	behalf string // the registry that all requests come of; "" where that makes no difference
}

// RoundTrip implements [http.RoundTripper].
func (r router) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.conns.transport(req.URL.Host, r.behalf).RoundTrip(req)
}

// DeniedMeansAbsent reports whether the repository's registry is known to answer
// "denied" where a repository is absent. It is for whoever must tell the two
// apart; nothing of this package depends on it.
func (c *Client) DeniedMeansAbsent(r ociaddr.Repository) bool {
	s, _ := c.conns.settings(string(r.Registry))
	return s.DeniedMeansAbsent
}

// RedirectsBlobs reports whether the repository's registry is known to answer
// blobs with a redirect that clients may have: see [Client.BlobRedirect].
func (c *Client) RedirectsBlobs(r ociaddr.Repository) bool {
	s, _ := c.conns.settings(string(r.Registry))
	return s.RedirectsBlobs
}
