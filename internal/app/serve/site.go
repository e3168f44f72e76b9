package serve

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/approve"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// site consists of all parts of a gateway that depend on the settings. A site never changes. New settings take effect in a
// new site. open creates the parts in order, and registers the functions that close them.
type site struct {
	*process
	uses     int // the number of running requests, plus 1 while the site is the current site
	settings Settings

	address      Address
	repositories *registry.Repositories
	cache        *archives.Cache              // nil without a cache on disk
	cacheFolder  string                       // "" without a cache on disk
	control      *access.Control              // nil if everybody is allowed to read everything
	keys         *files.Watched[*access.Keys] // nil without a key file
	catalog      *catalog.Catalog             // answers clients
	policy       func(provider.Address) trust.Policy
	pulling
	certificates *certificates // nil for plain HTTP
	handler      http.Handler

	closers []func() error // called in reverse order
}

// pulling is the pull-through of a site; zero without pull-through.
type pulling struct {
	pulls   func(subject.Address) bool // reports whether to pull a provider or a module through
	fetches func(*http.Request) bool   // reports whether a request may cause a fetch
	puller  *pull.Puller
}

// newSite creates a site. before is the site that the new site will replace, or nil. The caller must close the new
// site.
func (p *process) newSite(s Settings, before *site) (*site, error) {
	site := &site{process: p, settings: s, policy: s.Config.Trust.For}
	if err := site.open(before); err != nil {
		return nil, errors.Join(err, site.Close())
	}
	return site, nil
}

// open creates the parts of the site.
func (s *site) open(before *site) error {
	var known *access.Control
	if before != nil {
		known = before.control
	}
	for _, step := range []func() error{
		s.openRepositories,
		s.checkDirect,
		s.openCache,
		func() (err error) { s.address, err = s.settings.address(s.addr); return err },
		func() error { return s.controlAccess(known) },
		func() error { return s.settings.checkFallThrough(s.addr, s.control != nil) },
		s.openPuller,
		s.openCatalog,
		s.speakTLS,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if s.control == nil && !loopback(s.addr) {
		s.log.Warn("there is no access control: everyone who can connect may read everything that this gateway serves", "address", s.addr)
	}
	s.address.Embedded, s.address.Tokens = s.repositories.Embedded != nil, s.control != nil
	s.handler = gateway.New(s.gatewayOptions())
	return nil
}

// onClose registers a function that Close calls.
func (s *site) onClose(f func() error) { s.closers = append(s.closers, f) }

// Close closes all parts. The caller must make sure that no request uses the site.
func (s *site) Close() error {
	var err error
	for _, f := range slices.Backward(s.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// begin starts the work that has to wait until this site is the current site. It requests certificates by ACME, for which
// the issuer connects to the running gateway. It also applies the site's limits of pull-through.
func (s *site) begin() {
	if s.certificates != nil && s.certificates.acme != nil {
		s.certificates.acme.begin()
	}
	if s.puller != nil {
		s.puller.Begin()
	}
}

// retire tells pull-through that another site has replaced this site, see [pull.Puller.Retire].
func (s *site) retire() {
	if s.puller != nil {
		s.puller.Retire()
	}
}

// sampled returns the values of the sampled metrics by name.
func (s *site) sampled() map[string]float64 {
	c, u := s.catalog.Size(), s.budget.Usage()
	out := map[string]float64{
		"catalog_entries": float64(c.Entries), "catalog_memory_bytes": float64(c.Bytes),
		"pull_in_flight": float64(u.Fetching), "pull_in_flight_limit": float64(u.Limits.MaxConcurrent),
		"pull_today_bytes": float64(u.Today), "pull_today_limit_bytes": float64(u.Limits.MaxPerDay),
		"pull_spool_bytes": float64(u.Spool), "pull_spool_limit_bytes": float64(u.Limits.MaxSpool),
	}
	if s.cache != nil {
		a := s.cache.Size()
		out["archive_cache_bytes"], out["archive_cache_limit_bytes"], out["archive_cache_fetches_in_flight"] = float64(a.Bytes), float64(a.Limit), float64(a.Fetches)
	}
	if s.certificates != nil {
		if expires := s.certificates.expires(); !expires.IsZero() {
			out["certificate_expiration_timestamp_seconds"] = float64(expires.Unix())
		}
	}
	return out
}

// look checks the watched files. Otherwise, a changed file would take effect, or be logged as unusable, only when the next
// request arrives.
func (s *site) look() {
	if s.certificates != nil {
		s.certificates.current.Get()
	}
	if s.keys != nil {
		s.keys.Get()
	}
}

func (s *site) openRepositories() error {
	o := s.settings.Repositories
	o.Log, o.OpenEmbedded, o.Auth.Wire.Sent = s.log, s.openEmbedded, s.ops.metrics.RegistryRequest
	var err error
	if s.repositories, err = registry.Open(o); err == nil {
		s.onClose(s.repositories.Close)
	}
	return err
}

// requireEvidence makes the catalog verify the evidence of versions.
func (s *site) requireEvidence(o *catalog.Options) {
	n := &s.ops.metrics.Verify
	o.Check = verify.New(verify.Options{Policy: s.policy, Counters: n, Log: s.log}).Check
	s.onClose(func() error {
		s.log.Info("evidence was required: versions since the start", "verified", n.Verified.Load(), "refused", n.Refused.Load(), "packages_withheld", n.Withheld.Load())
		return nil
	})
}

// requireApprovals makes the catalog check the approvals of versions, if a require block demands any.
func (s *site) requireApprovals(o *catalog.Options) {
	rules := s.settings.Config.Approvals
	if len(rules) == 0 {
		return
	}
	options := approve.Options{Rules: rules, Store: s.signedStore, Counters: &s.ops.metrics.Approve, Log: s.log}
	if key := s.settings.Sign; key != nil {
		options.Signer = key.Public()
	}
	o.Approvals = approve.New(options)
}

// signedStore returns the repository of a provider or a module for reading signatures, and its registry.
func (s *site) signedStore(ctx context.Context, a subject.Address) (ociaddr.Registry, artifact.ReferrerStore, error) {
	addr, repo, err := s.repositories.Repository(ctx, a)
	return addr.Registry, repo, err
}

func (s *site) gatewayOptions() gateway.Options {
	o := gateway.Options{Catalog: s.catalog, Fetches: s.fetches, Explain: s.repositories.ExplainFor, ModuleOrigin: s.moduleOrigin(), ModuleRepository: s.moduleRepository, Access: s.control, Address: s.address.URL, Cache: s.cache, Log: s.log}
	g := s.settings.gateway()
	o.Login = (*gateway.Login)(g.Login)
	if g.PublicURL != "" || s.settings.local != nil {
		o.PublicURL = s.address.URL
	}
	o.Used = s.used()
	o.Keyless = !g.VerifyRequired
	if g.VerifyRequired && s.cache != nil {
		o.H1 = s.cache.H1
	}
	if s.repositories.Embedded != nil {
		o.Registry, o.Changed = s.repositories.Embedded.ReadOnly(), s.changed
	}
	if g.Redirect {
		redirects := func(r wire.Settings) bool { return r.RedirectsBlobs }
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.settings.Config.RegistrySettings())), redirects) {
			s.log.Warn("redirect = true has no effect: no registry block has mirrors_blobs_by_redirect")
		}
	}
	if s.settings.local == nil {
		o.Manuals = manuals.New(manuals.Options{Cache: s.cache, Log: s.log})
		s.onClose(o.Manuals.Close)
		o.LastUses = s.lastUses
		o.Page = s.page(o)
	}
	s.ops.observe(&o)
	return o
}
