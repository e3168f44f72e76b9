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

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Registry holds the settings of one registry, from a registry block. Its zero value
// changes nothing.
//
// PlainHTTP, InsecureSkipVerify, ClientCert, Timeout and the limits apply to the
// registry's own host and port. CAs also apply to the hosts that the registry refers to,
// such as token servers and storage. They do not apply to a host that has settings of its
// own.
type Registry struct {
	// PlainHTTP makes the client send requests and credentials over plain HTTP.
	PlainHTTP bool
	// InsecureSkipVerify makes the client accept any certificate of the registry and log a
	// warning.
	InsecureSkipVerify bool
	// CAs is a PEM bundle of certificate authorities to trust in addition to the system's.
	CAs []byte
	// ClientCert is presented if the registry requests a client certificate.
	ClientCert *tls.Certificate

	// RequestsPerSecond limits the rate of requests, including retries. A burst may
	// contain the requests of one second. 0 means no limit.
	RequestsPerSecond float64
	// MaxConcurrent limits the number of concurrent requests. A request counts until the
	// body of its response is closed. 0 means no limit.
	MaxConcurrent int
	// Timeout limits the time for connecting, and the time until a response begins. 0
	// means 10 s for connecting, and [DefaultTimeout] until a response begins.
	Timeout time.Duration

	// DeniedMeansAbsent says that the registry also responds "denied" for a repository
	// that does not exist. Callers that treat absent repositories specially get this
	// setting from [Client.Settings]. This package does not use it.
	DeniedMeansAbsent bool
	// RedirectsBlobs says that callers may pass the registry's redirects for blobs on to
	// clients. See [Client.BlobRedirect]. This package does not use the setting.
	RedirectsBlobs bool

	Origin string // "FILE:LINE", for messages
}

// DefaultTimeout is the default limit of the time until a response begins.
const DefaultTimeout = 60 * time.Second

// Validate returns an error if the name of the registry or one of its settings is invalid.
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

// changesTransport reports whether the settings require a separate transport.
func (s Registry) changesTransport() bool {
	return s.InsecureSkipVerify || s.CAs != nil || s.ClientCert != nil || s.Timeout > 0
}

// connections holds the transports for all hosts. Each registry with settings has a
// transport of its own. All other hosts share one transport.
type connections struct {
	opts   Options
	byHost map[string]configured
	base   http.RoundTripper // the transport of shared, which does not report requests
	shared http.RoundTripper
}

// configured is the settings of one registry and the transports that apply them. A
// transport is created when it is first needed.
type configured struct {
	Registry
	own      func() http.RoundTripper
	referred func() http.RoundTripper // for hosts that the registry refers to; applies only the CAs
}

func newConnections(opts Options) *connections {
	c := &connections{opts: opts, byHost: map[string]configured{}, base: opts.Transport}
	if c.base == nil {
		c.base = defaultTransport()
	}
	if opts.CAs != nil {
		c.base = c.derive(Registry{CAs: opts.CAs})
	}
	c.shared = c.seen(c.base)
	for r, s := range opts.Registries {
		host := settingsHost(string(r))
		c.byHost[host] = configured{
			Registry: s,
			own:      sync.OnceValue(func() http.RoundTripper { return c.ownTransport(host, s) }),
			referred: sync.OnceValue(func() http.RoundTripper { return c.seen(c.derive(Registry{CAs: s.CAs})) }),
		}
	}
	return c
}

// validate returns an error if the settings of a registry are invalid, or if two blocks
// are for the same registry.
func (c *connections) validate() error {
	if _, ok := c.base.(*http.Transport); !ok && c.opts.CAs != nil {
		return fmt.Errorf("Options.CAs needs an *http.Transport, and Options.Transport is a %T", c.base)
	}
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

// settingsHost returns the key of a host in the map of settings.
func settingsHost(host string) string { return strings.TrimSuffix(canonicalHost(host), ":443") }

// settings returns the settings of a HOST or HOST:PORT, and whether there are any.
func (c *connections) settings(host string) (Registry, bool) {
	s, ok := c.byHost[settingsHost(host)]
	return s.Registry, ok
}

// plainHTTP reports whether the user allows requests over plain HTTP to the host.
func (c *connections) plainHTTP(host string) bool {
	s, _ := c.settings(host)
	return c.opts.PlainHTTP || s.PlainHTTP
}

// transport returns the transport for a request to host. behalf is the registry for which
// the request is sent: the host itself, or a registry that refers its clients to the host.
func (c *connections) transport(host, behalf string) http.RoundTripper {
	if s, ok := c.byHost[settingsHost(host)]; ok {
		return s.own()
	}
	if s, ok := c.byHost[settingsHost(behalf)]; ok && s.CAs != nil {
		return s.referred()
	}
	return c.shared
}

// ownTransport returns a new transport for a host with settings.
func (c *connections) ownTransport(host string, s Registry) http.RoundTripper {
	if s.InsecureSkipVerify {
		c.opts.Log.Warn("the certificate of the registry is not verified: whoever is in between can read and change everything",
			slog.String("registry", host), slog.String("insecure_skip_verify", s.Origin))
	}
	return newGate(c.seen(c.derive(s)), host, s)
}

// seen returns a transport that traces and reports the requests that it sends through t.
func (c *connections) seen(t http.RoundTripper) http.RoundTripper { return observed{t, c.opts.Sent} }

// derive returns a copy of the base transport that applies the settings. The copy uses the
// same proxies. derive returns the base transport itself if the settings need no change.
func (c *connections) derive(s Registry) http.RoundTripper {
	base, ok := c.base.(*http.Transport)
	if !ok || !s.changesTransport() {
		return c.base
	}
	t := base.Clone()
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{}
	}
	outgoing.Trust(t, s.CAs)
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

// router is a transport that sends each request through the transport for the request's
// host.
type router struct {
	conns  *connections
	behalf string // the registry for which the requests are sent
}

// RoundTrip implements [http.RoundTripper].
func (r router) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.conns.transport(req.URL.Host, r.behalf).RoundTrip(req)
}

// Settings returns the settings of the registry, or the zero value if it has none.
func (c *Client) Settings(r ociaddr.Registry) Registry {
	s, _ := c.conns.settings(string(r))
	return s
}
