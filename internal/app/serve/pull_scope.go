package serve

import (
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// pullRules select the providers to pull through, and the requests that can cause a fetch.
type pullRules struct {
	config.PullThrough
	// byDefault is true if pull-through is on although nothing is configured. Only requests
	// that come directly from clients on this machine then cause a fetch.
	byDefault bool
	via       string // the Via header of this process's requests to origins
}

// pullRules returns the rules of pull-through, or nil if pull-through is off. addr is the
// address that the gateway listens on. embedded is true if the registry runs in this
// process. controlled is true if the gateway requires tokens.
func (s *Settings) pullRules(addr net.Addr, embedded, controlled bool) (*pullRules, error) {
	p := &pullRules{}
	reachable := s.reachable(addr)
	switch configured := s.Config.PullThrough; {
	case configured != nil && !configured.Enabled:
		return nil, nil
	case configured != nil:
		p.PullThrough = *configured
	case s.Config.File != "" || !embedded || reachable:
		return nil, nil
	default:
		own, err := provider.NewPlatform(runtime.GOOS, runtime.GOARCH)
		if err != nil {
			return nil, err
		}
		p.byDefault, p.Platforms = true, []provider.Platform{own}
	}
	if reachable && !controlled && !p.NamesHosts() {
		return nil, UsageError{hint.New("with pull_through, everyone who can connect could make the gateway fetch from any host: other machines can connect, there is no access control, and include names no hosts",
			`name in include of the pull_through block what may be fetched, such as ["registry.opentofu.org/hashicorp/*"], or add token or oidc blocks, or start with --no-pull-through`)}
	}
	return p, nil
}

// reachable reports whether other machines can connect to the gateway. addr is the address that
// the gateway listens on.
func (s *Settings) reachable(addr net.Addr) bool {
	return s.local == nil && (!loopback(addr) || s.gateway().HTTP || s.gateway().PublicURL != "")
}

// fetches returns a function that reports whether a request is allowed to cause a fetch. A
// request that must not cause a fetch is answered only from the registry. The function logs
// a warning for the first such request.
func (p *pullRules) fetches(log *slog.Logger) func(*http.Request) bool {
	var once sync.Once
	return func(r *http.Request) bool {
		name := p.forbids(r.Header)
		if name != "" {
			once.Do(func() {
				log.Warn("requests through a proxy or from another site are answered from the registry alone: they cause no fetch from an origin", "header", name,
					"hint", "if that is intended, write a pull_through block")
			})
		}
		return name == ""
	}
}

// forbids returns the name of a header because of which a request must not cause a fetch.
// It returns "" if the headers contain no such header. A request must not cause a fetch if
// this gateway itself sent it to an origin, or if a browser sent it for a page of another
// site. If pull-through is on by default, a request that came through a proxy must not
// cause a fetch either, because its client can be on any machine.
func (p *pullRules) forbids(h http.Header) string {
	for _, via := range h.Values("Via") {
		if strings.Contains(via, p.via) {
			return "Via"
		}
	}
	// Only browsers send this header.
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
