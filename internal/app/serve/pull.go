package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// openPuller starts pull-through, if the settings enable it.
func (s *site) openPuller() error {
	p, err := s.settings.pullRules(s.addr, s.repositories.Embedded != nil, s.control != nil)
	if err != nil || p == nil {
		return err
	}
	if p.Retention != nil && s.repositories.Embedded == nil {
		return UsageError{config.ErrRetentionElsewhere}
	}
	p.via = s.via
	// The gateway is itself the origin of the providers and modules with its host name, so it must not pull these through.
	for _, rest := range []string{"/*/*", "/*/*/*"} {
		if own, err := query.ParsePattern(s.address.URL.Hostname() + rest); err == nil {
			p.Selector.Exclude = append(slices.Clip(p.Selector.Exclude), own)
		}
	}
	if p.byDefault {
		s.policy, s.address.AsClients = asClients, true
	}
	if s.puller, err = s.newPuller(p); err != nil {
		return err
	}
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(s.over, drainTimeout)
		defer cancel()
		s.puller.Drain(ctx)
		return s.puller.Close()
	})
	s.pulls, s.fetches, s.address.Pulls = s.puller.Selects, p.fetches(s.log), true
	return nil
}

// asClients is the policy of a gateway without configuration.
func asClients(provider.Address) trust.Policy { return trust.Policy{UnsignedAsClients: true} }

// drainTimeout is the maximum time that a replaced site waits for its running pushes before it is closed.
const drainTimeout = 10 * time.Minute

// newPuller creates the puller, which fetches and stores missing versions. The caller must close the puller.
func (s *site) newPuller(p *pullRules) (*pull.Puller, error) {
	push := pusher.New(pusher.Options{
		Destination: s.pullDestination, Policy: s.policy, Jobs: s.settings.Config.Jobs, Approvals: s.settings.Config.Approvals.For, Sign: s.settings.Sign,
	})
	registry := s.settings.Origins.Pull(p.Selector.Include, p.via)
	o := pull.Options{
		Origin:         registry,
		Modules:        &pulledModules{site: s, registry: registry, pusher: push},
		Policy:         s.policy,
		UsualNames:     s.settings.gateway().VerifyRequired,
		Push:           s.push(push),
		CheckDowngrade: push.CheckDowngrade,
		Scope:          p.Scope,
		Names:          func(host svchost.Hostname) bool { return s.settings.Origins.Names(p.Selector.Include, host) },
		Limits:         p.Limits,
		Budget:         s.budget,
		StaleIfError:   s.settings.Config.Gateway.StaleIfError,
		Events:         s.ops.pulled,
		Log:            s.log,
	}
	if dir := s.pullFolder(); dir != "" {
		o.Directory, o.Spool = filepath.Join(dir, originsFolder), filepath.Join(dir, spoolFolder)
	}
	return pull.New(o)
}

// pulledModules is the origin of modules that are pulled through. It implements [pull.ModuleOrigin].
type pulledModules struct {
	site     *site
	registry *origin.Registry
	pusher   *pusher.Pusher
}

var _ pull.ModuleOrigin = (*pulledModules)(nil)

// Versions implements [pull.ModuleOrigin].
func (m *pulledModules) Versions(ctx context.Context, a module.Address) (*origin.ModuleListing, error) {
	return m.registry.ModuleVersions(ctx, a)
}

// Locate implements [pull.ModuleOrigin].
func (m *pulledModules) Locate(ctx context.Context, a module.Address, v provider.Version) (moduleorigin.Location, error) {
	return (&moduleorigin.Origin{Registry: m.registry}).Locate(ctx, a, v.String())
}

// Store implements [pull.ModuleOrigin].
func (m *pulledModules) Store(ctx context.Context, f pull.ModuleFetch) (*pusher.Result, error) {
	dest, err := m.site.pullDestination(ctx, f.Module)
	if err != nil {
		return nil, err
	}
	from := &moduleorigin.Origin{Registry: m.registry, Temp: f.Temp, Meter: f.Meter}
	result, err := transfer.PullModule(ctx, from, f.At, reconcile.ModuleVersion{
		Module: f.Module, Version: f.Version, Spellings: f.Spellings, Pusher: m.pusher, Destination: dest,
	})
	m.site.summarize(ctx, m.pusher, f.Module)
	return result, transfer.Explain(m.site.repositories, err)
}

// summarize updates the summaries of the repositories to which versions were pushed, and what else their states hold.
func (s *site) summarize(ctx context.Context, p *pusher.Pusher, of subject.Address) {
	if err := p.Summarize(ctx); err != nil {
		s.log.DebugContext(ctx, "the summary of versions is outdated: each version that it lacks is read", subject.Attr(of), "err", err)
	}
}

// pullDestination returns the repository of a provider or a module, in which pull-through marks the versions that it stores.
func (s *site) pullDestination(ctx context.Context, a subject.Address) (repo.Destination, error) {
	d, err := transfer.Destination(s.repositories)(ctx, a)
	if registry := s.repositories.Embedded; registry != nil {
		d.Mark = func(tag ociaddr.Tag, before, after digest.Digest) error {
			if err := registry.MarkPulled(d.Repository.Name, tag, before, after); err != nil {
				s.log.WarnContext(ctx, "a version that is pulled through cannot be marked: retention will not remove it", "repository", d.Repository.String()+":"+string(tag), "err", err)
			}
			return nil
		}
	}
	return d, err
}

// used returns the function that records which versions clients use, or nil if the registry is not embedded.
func (s *site) used() func(subject.Address, provider.Version) {
	registry := s.repositories.Embedded
	if registry == nil {
		return nil
	}
	type key struct {
		subject.Address
		provider.Version
	}
	return func(a subject.Address, v provider.Version) {
		registry.Used(key{a, v}, func() (string, ociaddr.Tag, error) { return s.markOf(a, v) })
	}
}

// markOf returns the repository and the tag of a version, for the embedded registry's records of uses.
func (s *site) markOf(a subject.Address, v provider.Version) (repository string, tag ociaddr.Tag, err error) {
	repo, err := s.repositories.Templates.Repository(a)
	if err != nil {
		return "", "", err
	}
	tag, err = ociaddr.VersionTag(v)
	return repo.Name, tag, err
}

// push returns a function that stores a release in the provider's repository.
func (s *site) push(p *pusher.Pusher) func(context.Context, *origin.Release) (*pusher.Result, error) {
	repositories := s.repositories
	return func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
		result, err := p.Push(ctx, r)
		s.summarize(ctx, p, r.Provider())
		return result, transfer.Explain(repositories, err)
	}
}

// pullFolder returns the folder for the cache and the spool of pull-through. This is the folder of the gateway's cache,
// or else the data folder if the registry is embedded, or else "".
func (s *site) pullFolder() string {
	if s.cacheFolder == "" && s.repositories.Embedded != nil {
		return s.settings.Repositories.DataFolder
	}
	return s.cacheFolder
}

// pulled counts an event of pull-through.
func (o *operations) pulled(e pull.Event) {
	outcome, limit := resultOf(e)
	o.metrics.Pulled(string(e.Kind), outcome)
	if e.Kind != pull.Fetched {
		return
	}
	if e.From != pull.FromRegistry {
		o.metrics.PullDownloaded(e.Bytes, e.Took, e.Err == nil)
	}
	if limit != "" {
		o.metrics.PullLimited(limit)
	}
}

// resultOf returns the outcome of an event for the metrics, and the limit that the event reached, or "". The outcome of an
// event without an error is "present" if the archive came from the registry, and otherwise the kind of the event.
func resultOf(e pull.Event) (outcome, limit string) {
	busy, isBusy := errors.AsType[*catalog.BusyError](e.Err)
	switch err := e.Err; {
	case err == nil && e.From == pull.FromRegistry:
		return "present", ""
	case err == nil:
		return string(e.Kind), ""
	case isBusy:
		return "busy", busy.Limit
	case errors.As(err, new(*pull.SizeError)):
		return "refused", "max_size"
	case trust.Refused(err), pull.IsModuleRefused(err):
		return "refused", ""
	case errors.Is(err, context.Canceled):
		return "abandoned", ""
	case errors.Is(err, pull.ErrNotOffered), errors.Is(err, origin.ErrVersionNotFound), errors.Is(err, origin.ErrPlatformNotFound):
		return "absent", ""
	case errors.Is(err, pusher.ErrConflict), errors.Is(err, pusher.ErrMoved), errors.Is(err, pusher.ErrApproved), errors.Is(err, repo.ErrOccupied), errors.Is(err, repo.ErrImmutable):
		return "conflict", ""
	}
	return "failed", ""
}

// pullRules select the providers to pull through, and the requests that can cause a fetch.
type pullRules struct {
	config.PullThrough
	// byDefault is true if pull-through is on although nothing is configured. Only requests that come directly from clients
	// on this machine then cause a fetch.
	byDefault bool
	via       string // the Via header of this process's requests to origins
}

// pullRules returns the rules of pull-through, or nil if it is off. addr is the address that the gateway listens on. embedded
// is true if the registry runs in this process. controlled is true if the gateway requires tokens.
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

// reachable reports whether other machines can connect to the gateway, which listens on addr.
func (s *Settings) reachable(addr net.Addr) bool {
	return s.local == nil && (!loopback(addr) || s.gateway().HTTP || s.gateway().PublicURL != "")
}

// fetches returns a function that reports whether a request may cause a fetch. Other requests are answered only from the
// registry. The function logs a warning for the first such request.
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

// forbids returns the name of the header that forbids a fetch for a request, or "" if the request may cause a fetch. A
// request must not cause a fetch if this gateway itself sent it to an origin, or if a browser sent it for a page of
// another site. If pull-through is on by default, a request that came through a proxy must not cause a fetch either,
// because the client that sent it can be on any machine.
func (p *pullRules) forbids(h http.Header) string {
	for _, via := range h.Values("Via") {
		if strings.Contains(via, p.via) {
			return "Via"
		}
	}
	if site := h.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" { // from a browser
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
