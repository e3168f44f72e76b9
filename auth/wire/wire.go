// Package wire sends requests to OCI registries. It has the settings of each registry, one chain of
// transports for all requests, and the cache of tokens. It gets credentials only from an [Account].
//
// Only ocibridge itself imports this package: it can change at any time.
//
// Invariants:
//
//   - A credential is sent only to the registry of its [Sender], or to the token server that
//     this registry names. It is sent only over TLS. Plain HTTP is allowed only for loopback
//     registries, or with [Options.PlainHTTP] or [Settings.PlainHTTP].
//   - A token is requested and cached for one repository and action, for the two
//     repositories of a mount, or for the catalog. If a challenge names more scopes, the
//     client ignores the additional scopes. It requests no other resource, and no write
//     access for a read. The client renews an expired token before using it. It probes
//     neither /v2/ nor the referrers API.
//   - If a server repeats a secret in a refusal, the client removes the secret from the
//     refusal. Errors also omit the query of a redirect's target, because object storage puts
//     signatures there.
//   - A request is sent again only if its body can be read again from the start.
//
// net/http reads the proxy variables of the environment.
package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Options configures [Connections]. With the zero value, requests go over TLS to every
// registry that is not on loopback, and requests that fail for a transient reason are
// retried.
type Options struct {
	// Registries holds the settings of individual registries.
	Registries map[ociaddr.Registry]Settings

	// PlainHTTP sends requests and credentials over plain HTTP to every registry that is not on
	// loopback.
	PlainHTTP bool

	// CAs is a PEM bundle of certificate authorities to trust in addition to the system's, for
	// every registry and every host that a registry refers to. nil means none.
	CAs []byte

	// Transport sends the requests; nil means a transport with this package's
	// timeouts and the proxies of the environment. CAs, and registry settings that
	// concern TLS or timeouts, need an [*http.Transport].
	Transport http.RoundTripper

	UserAgent  string                          // the User-Agent header; "" means "ocibridge"
	RetryDelay time.Duration                   // the maximum wait before the first retry, doubled for each further retry; 0 means 500 ms
	Sent       func(telemetry.RegistryRequest) // called after each attempt of a request, perhaps concurrently; may be nil
	Log        *slog.Logger                    // receives retries; nil means no log
}

// Validate checks the settings. It makes no request.
func (o Options) Validate() error {
	c := New(o)
	if _, ok := c.base.(*http.Transport); !ok && o.CAs != nil {
		return fmt.Errorf("Options.CAs needs an *http.Transport, and Options.Transport is a %T", c.base)
	}
	seen := map[string]ociaddr.Registry{}
	for _, r := range slices.Sorted(maps.Keys(o.Registries)) {
		s := o.Registries[r]
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

// Connections holds the transports for all hosts, and what is known about registries. Each
// registry with settings has a transport of its own, and all other hosts share one. It is safe
// for concurrent use.
type Connections struct {
	opts   Options
	byHost map[string]configured
	base   http.RoundTripper // the transport shared sends through base, and also reports the requests
	shared http.RoundTripper

	sent    *sentSecrets
	dialTLS func(ctx context.Context, network, addr string) (net.Conn, error) // connects to loopback registries
	plain   sync.Map                                                          // whether a loopback registry speaks plain HTTP, by its ociaddr.Registry
	now     func() time.Time                                                  // the clock that decides whether a token has expired
	lookup  lookupFunc
}

// configured holds the settings of one registry, and the transports that apply them. Each transport
// is created when it is first needed.
type configured struct {
	Settings
	own      func() http.RoundTripper
	referred func() http.RoundTripper // for hosts that the registry refers to; applies only the CAs
}

// New returns connections with the options, which must be valid. It makes no requests yet.
func New(opts Options) *Connections {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.UserAgent = cmp.Or(opts.UserAgent, "ocibridge")
	opts.RetryDelay = cmp.Or(opts.RetryDelay, 500*time.Millisecond)
	c := &Connections{
		opts: opts, byHost: map[string]configured{}, base: opts.Transport,
		sent: newSentSecrets(), now: time.Now, lookup: net.DefaultResolver.LookupNetIP,
		dialTLS: (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext,
	}
	if c.base == nil {
		c.base = defaultTransport()
	}
	if opts.CAs != nil {
		c.base = c.derive(Settings{CAs: opts.CAs})
	}
	c.shared = c.seen(c.base)
	for r, s := range opts.Registries {
		host := settingsHost(string(r))
		c.byHost[host] = configured{
			Settings: s,
			own:      sync.OnceValue(func() http.RoundTripper { return c.ownTransport(host, s) }),
			referred: sync.OnceValue(func() http.RoundTripper { return c.seen(c.derive(Settings{CAs: s.CAs})) }),
		}
	}
	return c
}

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// defaultTransport returns [outgoing.Transport] with timeouts for connecting and for the start of a
// response. Reading the whole body has no timeout, because its size is unknown.
func defaultTransport() http.RoundTripper {
	t := outgoing.Transport()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ResponseHeaderTimeout = DefaultTimeout
	t.MaxIdleConnsPerHost = 16
	return t
}

// settingsHost returns the key of a host in the map of settings.
func settingsHost(host string) string {
	return strings.TrimSuffix(string(ociaddr.Registry(host).Canonical()), ":443")
}

// Settings returns the settings of the registry, or the zero value if it has none.
func (c *Connections) Settings(r ociaddr.Registry) Settings {
	return c.byHost[settingsHost(string(r))].Settings
}

// AllowsPlainHTTP reports whether the user allows requests over plain HTTP to the host.
func (c *Connections) AllowsPlainHTTP(host ociaddr.Registry) bool {
	return c.opts.PlainHTTP || c.Settings(host).PlainHTTP
}

// PlainHTTP reports whether requests to a registry go over plain HTTP.
// [Settings.PlainHTTP] decides first. Without it, a loopback registry is probed once, and
// [Options.PlainHTTP] decides for every other registry. OpenTofu and Terraform never use
// plain HTTP.
func (c *Connections) PlainHTTP(ctx context.Context, r ociaddr.Registry) (bool, error) {
	if c.Settings(r).PlainHTTP || !r.IsLoopback() {
		return c.AllowsPlainHTTP(r), nil
	}
	return c.speaksPlainHTTP(ctx, r)
}

// Reachable sends a request without a credential to the root of the registry's API. It
// returns an error if no response arrives, or if the status is 500 or higher. A response
// that asks for a credential is not an error.
func (c *Connections) Reachable(ctx context.Context, r ociaddr.Registry) error {
	plain, err := c.PlainHTTP(ctx, r)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, apiURL(HostOf(r), plain), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	resp, err := c.transport(req.URL.Host, string(r)).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", r, err)
	}
	drain(resp)
	if resp.StatusCode >= 500 {
		return fmt.Errorf("ask %s: it answers %d %s", r, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// transport returns the transport for a request to host. behalf is the registry for which
// the request is sent: the host itself, or a registry that refers its clients to the host.
func (c *Connections) transport(host, behalf string) http.RoundTripper {
	if s, ok := c.byHost[settingsHost(host)]; ok {
		return s.own()
	}
	if s, ok := c.byHost[settingsHost(behalf)]; ok && s.CAs != nil {
		return s.referred()
	}
	return c.shared
}

// ownTransport returns a new transport for a host with settings.
func (c *Connections) ownTransport(host string, s Settings) http.RoundTripper {
	if s.InsecureSkipVerify {
		c.opts.Log.Warn("the certificate of the registry is not verified: whoever is in between can read and change everything",
			"registry", host, "insecure_skip_verify", s.Origin)
	}
	return newGate(c.seen(c.derive(s)), host, s)
}

// seen returns a transport that traces and reports the requests that it sends through t.
func (c *Connections) seen(t http.RoundTripper) http.RoundTripper { return observed{t, c.opts.Sent} }

// derive returns a copy of the base transport that applies the settings. The copy uses the
// same proxies. derive returns the base transport itself if the settings need no change.
func (c *Connections) derive(s Settings) http.RoundTripper {
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

// router is a transport that sends each request through the transport for its host.
type router struct {
	conns  *Connections
	behalf string // the registry for which the requests are sent
}

func (r router) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.conns.transport(req.URL.Host, r.behalf).RoundTrip(req)
}

const probeTimeout = 5 * time.Second

// speaksPlainHTTP reports whether a loopback registry speaks plain HTTP. It starts a TLS handshake,
// and does not verify the certificate, because it sends no data over the connection. If the
// handshake is inconclusive, for example because no server listens yet, it returns false and caches
// nothing. The caller's next request then fails with a useful error.
func (c *Connections) speaksPlainHTTP(ctx context.Context, r ociaddr.Registry) (bool, error) {
	if plain, ok := c.plain.Load(r); ok {
		return plain.(bool), nil
	}
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	address := string(r)
	if _, _, err := net.SplitHostPort(address); err != nil { // there is no port
		address = net.JoinHostPort(strings.Trim(address, "[]"), "443")
	}
	conn, err := c.dialTLS(bounded, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	plain := errors.As(err, new(tls.RecordHeaderError))
	switch {
	case plain || err == nil:
		c.plain.Store(r, plain)
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	return plain, nil
}
