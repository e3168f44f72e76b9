package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/localca"
	"github.com/ocibridge/ocibridge/internal/pullthrough"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/provider"
)

// process is what there is once, however often settings change: what one site
// after the other uses.
type process struct {
	log  *slog.Logger
	addr net.Addr // that it listens on
	// ownKeys sign links where no key file is configured: links from before a
	// reload are good after it.
	ownKeys func() *access.Keys
	shared  pool
	// draining says that the process is about to end, and wants no more requests.
	draining atomic.Bool
	// ending ends when the process does: nothing is waited for any more.
	ending context.Context
	end    context.CancelFunc
	// pulls is what is taken of the limits of what is fetched from origins.
	pulls *pullthrough.Budget
	// via is how requests to origins say who asks, so that one that comes back here is
	// known.
	via    string
	ops    *operations                 // nil: nobody watches
	notify func(assignments ...string) // the service manager
}

func newProcess(log *slog.Logger, addr net.Addr) *process {
	ending, end := context.WithCancel(context.Background())
	return &process{
		log: log, addr: addr, ownKeys: sync.OnceValue(access.RandomKeys), ending: ending, end: end,
		pulls: pullthrough.NewBudget(pullthrough.Limits{}), via: "1.1 ocibridge-" + rand.Text(),
		notify: func(assignments ...string) {
			if err := notifyManager(assignments...); err != nil {
				log.Warn("the service manager cannot be told", "what", assignments, "err", err)
			}
		},
	}
}

// openEmbedded opens the embedded registry once for all sites: it does not free all
// that it has taken.
func (p *process) openEmbedded(dir string) (*embedded.Registry, func() error, error) {
	type key struct{ dir string }
	return share(&p.shared, key{dir}, func() (*embedded.Registry, error) { return embedded.Open(dir, p.log) })
}

// site is all that serve makes of settings: another one may be made beside it, of
// other settings, and take its place. Whoever adds to it adds to newSite what makes
// that, and has what ends it in closers.
type site struct {
	*process
	settings settings

	at      whereabouts
	back    *backend
	cache   *archives.Cache             // nil: there is none
	control *access.Control             // nil: everybody may read everything
	catalog *catalog.Catalog            // that answers clients
	pulled  func(provider.Address) bool // what is fetched from its origin; nil for nothing
	tls     *tls.Config                 // nil: plain HTTP is spoken
	handler http.Handler

	closers []func() error // the last one first
	begins  []func()       // what can begin only when it is in force
	retires []func()       // what ends once another one is
	looks   []func()       // at files, now and then
	users   atomic.Int64   // while it is in force, and requests after that
}

// newSite makes a site, before being the one that it takes the place of, nil for
// none. The caller closes it.
func (f *serveFlags) newSite(p *process, s settings, before *site) (made *site, err error) {
	s.ops = p.ops
	site := &site{process: p, settings: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, site.Close())
		}
	}()
	g, log := s.file.Gateway, p.log
	f.listens = f.listen
	if site.back, err = f.openWith(s, nil, log, p.openEmbedded); err != nil {
		return nil, err
	}
	site.closing(site.back.Close)
	if err = site.openCache(f); err != nil {
		return nil, err
	}
	if site.at, err = f.whereabouts(p.addr, g.PublicURL); err != nil {
		return nil, err
	}
	var known *access.Control
	if before != nil {
		known = before.control
	}
	if site.control, err = site.accessControl(known); err != nil {
		return nil, err
	}
	check, tell := s.check(log)
	if site.catalog, err = newCatalog(site.back, site.back.store, nil, g, check, p.ops.catalogCounters(), log); err != nil {
		return nil, err
	}
	site.closing(site.catalog.Close)
	site.closing(func() error { tell(); return nil })
	if !f.http {
		if err = site.speakTLS(f); err != nil {
			return nil, err
		}
	}
	if site.control == nil && !loopback(p.addr) {
		log.Warn("there is no access control: whoever reaches this gateway may read everything that it serves", "address", p.addr)
	}
	if f.http && g.PublicURL == "" && before == nil {
		site.begins = append(site.begins, func() {
			log.Warn("without public_url the gateway answers with relative URLs in the provider registry protocol, which Renovate refuses: set public_url in the gateway block")
		})
	}
	site.at.embedded, site.at.tokens = site.back.embedded != nil, site.control != nil
	site.handler = gateway.New(site.gatewayOptions(site.catalog))
	return site, site.pullThrough(f, check)
}

// closing has Close call f.
func (s *site) closing(f func() error) { s.closers = append(s.closers, f) }

// Close ends all that the site consists of. No request may be under way.
func (s *site) Close() error {
	var err error
	for _, f := range slices.Backward(s.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// look makes use of files that have changed.
func (s *site) look() {
	for _, f := range s.looks {
		f()
	}
}

// gatewayOptions wires the gateway to a catalog and the rest of the site.
func (s *site) gatewayOptions(metadata *catalog.Catalog) gateway.Options {
	o := gateway.Options{Catalog: metadata, Explain: s.back.explainFor, Access: s.control, Address: s.at.url, Cache: s.cache, Log: s.log}
	g := s.settings.file.Gateway
	if g.PublicURL != "" {
		o.PublicURL = s.at.url
	}
	if g.VerifyRequired && s.cache != nil {
		o.H1 = s.cache.H1
	}
	if g.Login != nil {
		login := gateway.Login(*g.Login)
		o.Login = &login
	}
	if s.back.embedded != nil {
		o.Registry = s.back.embedded.ReadOnly()
	}
	if g.Redirect {
		o.Redirect = s.back.blobRedirect
		if metadata == s.catalog && !slices.ContainsFunc(s.settings.file.Registries, func(r config.Registry) bool { return r.MirrorsBlobsByRedirect }) {
			s.log.Warn("redirect = true sends nobody anywhere: no registry block has mirrors_blobs_by_redirect")
		}
	}
	o.Page = s.page(o)
	s.ops.observe(&o)
	return o
}

// speakTLS finds out by which certificates TLS is spoken.
func (s *site) speakTLS(f *serveFlags) error {
	var by *issued
	t := s.settings.file.Gateway.TLS
	if t.ACME != nil && f.cert == "" && !f.selfSigned {
		dir, err := f.acmeFolder(t.ACME, s.log)
		if err != nil {
			return err
		}
		var ca []byte
		if t.ACME.CAFile != "" {
			if ca, err = s.settings.files.readFile(t.ACME.CAFile); err != nil {
				return hint.Wrap(fmt.Errorf("ca_file of the acme block: %w", err), acmeCAHint)
			}
		}
		type key struct{ acme string }
		var done func() error
		by, done, err = share(&s.shared, key{fmt.Sprintf("%q %+v %s", dir, *t.ACME, ca)}, func() (*issued, error) { return issueCertificates(*t.ACME, ca, dir, s.log) })
		if err != nil {
			return err
		}
		s.closing(done)
		s.begins = append(s.begins, by.begin)
	}
	var own *localca.Leaf
	var err error
	if by == nil && f.cert == "" {
		if own, err = f.localCertificate(f.hosts(s.at.host()), s.log); err != nil {
			return err
		}
		s.at.caFile = own.CA().File()
	}
	s.tls, err = f.tlsConfig(by, own, t.ClientCAFile, s.log, &s.looks)
	return err
}

// openCache opens the cache that the configuration says, if any. The h1 of what is
// in it is needed where the one in the registry is not believed.
func (s *site) openCache(f *serveFlags) error {
	g := s.settings.file.Gateway
	if g.Cache == nil {
		return nil
	}
	if err := f.keepPrivate(g.Cache.Directory, s.log); err != nil {
		return hint.Wrap(fmt.Errorf("cache: %w", err), "name a folder that the user who runs this may write to, as directory in the cache block")
	}
	type key struct {
		config.Cache
		h1 bool
	}
	cache, done, err := share(&s.shared, key{*g.Cache, g.VerifyRequired}, func() (*archives.Cache, error) {
		return archives.OpenCache(g.Cache.Directory, g.Cache.MaxSize, archives.CacheOptions{Log: s.log, H1: g.VerifyRequired, Counters: s.ops.archiveCounters()})
	})
	if err != nil {
		return err
	}
	s.cache = cache
	s.closing(done)
	return nil
}
