package main

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// pulling is what is pulled through, and for whom.
type pulling struct {
	config.PullThrough
	// byDefault is set where nothing is configured: then only those who speak to the
	// gateway themselves, on this machine, have anything fetched.
	byDefault bool
	via       string // of the process
}

// pulling decides what is pulled through; nil is nothing. addr is where the gateway
// listens, embedded says that the registry is in this process, and controlled that
// clients are asked for tokens.
func (f *serveFlags) pulling(s settings, addr net.Addr, embedded, controlled bool) (*pulling, error) {
	p := &pulling{}
	beyond := !loopback(addr) || f.http || s.file.Gateway.PublicURL != ""
	switch {
	case f.noPull:
		return nil, nil
	case s.file.PullThrough != nil:
		p.PullThrough = *s.file.PullThrough
	case s.file.File != "" || !embedded || beyond:
		return nil, nil
	default:
		own, err := ownPlatform()
		if err != nil {
			return nil, err
		}
		p.byDefault, p.Platforms = true, []provider.Platform{own}
	}
	if beyond && !controlled && !p.NamesHosts() {
		return nil, usage(hint.New("with pull_through, whoever reaches this gateway could have it fetch from anywhere: it is not on this machine alone, there is no access control, and include names no hosts",
			`let include in the pull_through block name what may be fetched, such as ["registry.opentofu.org/hashicorp/*"], or add token or oidc blocks, or start with --no-pull-through`))
	}
	return p, nil
}

// ownPlatform is that of this machine, as providers have it.
func ownPlatform() (provider.Platform, error) {
	return provider.NewPlatform(runtime.GOOS, runtime.GOARCH)
}

// namedHosts returns a function that reports whether the user has named a host and
// port, which may then be at any address. An include pattern names its host with its
// port, or else with port 443. A host block of the CLI configuration names the host
// and port of its providers.v1 URL.
func namedHosts(include []provider.Pattern, services map[svchost.Hostname]map[string]any) func(host, port string) bool {
	named := map[string]bool{}
	for _, p := range include {
		if host, ok := p.ServiceHost(); ok {
			u := url.URL{Host: string(host)}
			named[net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))] = true
		}
	}
	for _, s := range services {
		text, _ := s["providers.v1"].(string)
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			port := u.Port()
			if port == "" {
				port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
			}
			named[net.JoinHostPort(strings.ToLower(u.Hostname()), port)] = true
		}
	}
	return func(host, port string) bool {
		host = strings.TrimSuffix(strings.ToLower(host), ".")
		return named[net.JoinHostPort(host, port)]
	}
}

// answering returns what answers requests: with pull-through, but by the registry
// alone where the request comes from this gateway itself, by way of an origin that
// it stands in for, or from a web page that wants a browser to reach what it cannot;
// and where it is on by default and a proxy has passed the request on, so that it
// may come from anywhere.
func (p *pulling) answering(pulled, alone http.Handler, log *slog.Logger) http.Handler {
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := p.passedOn(r.Header)
		if name == "" {
			pulled.ServeHTTP(w, r)
			return
		}
		once.Do(func() {
			log.Warn("requests that come by way of others are answered from the registry alone: nothing is fetched from origins for them", "header", name,
				"hint", "a pull_through block says what may be fetched for whom")
		})
		alone.ServeHTTP(w, r)
	})
}

// passedOn returns the header by which a request shows that it is not for pulling
// through; "" for none.
func (p *pulling) passedOn(h http.Header) string {
	for _, via := range h.Values("Via") {
		if strings.Contains(via, p.via) {
			return "Via"
		}
	}
	// Browsers say so of what another site's page asks for; clients know no such header.
	if site := h.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return "Sec-Fetch-Site"
	}
	if !p.byDefault {
		return ""
	}
	for name := range h {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return name
		}
	}
	return ""
}
