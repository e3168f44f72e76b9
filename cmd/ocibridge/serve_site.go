package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/config"
)

// process is what there is once, however often settings change: what one site
// after the other uses.
type process struct {
	log  *slog.Logger
	addr net.Addr // that it listens on
}

// site is all that serve makes of settings: another one may be made beside it, of
// other settings, and take its place. Whoever adds to it adds to newSite what makes
// that, and has what ends it in closers.
type site struct {
	*process
	settings settings

	at      whereabouts
	back    *backend
	cache   *archives.Cache // nil: there is none
	control *access.Control // nil: everybody may read everything
	catalog *catalog.Catalog
	tls     *tls.Config // nil: plain HTTP is spoken
	handler http.Handler

	closers []func() error // the last one first
}

// newSite makes a site. The caller closes it.
func (f *serveFlags) newSite(p *process, s settings) (made *site, err error) {
	site := &site{process: p, settings: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, site.Close())
		}
	}()
	g, log := s.file.Gateway, p.log
	if site.back, err = f.open(s, nil, log); err != nil {
		return nil, err
	}
	site.closing(site.back.Close)
	if site.cache, err = openCache(g, log); err != nil {
		return nil, err
	}
	if site.cache != nil {
		site.closing(site.cache.Close)
	}
	if site.at, err = f.whereabouts(p.addr, g.PublicURL); err != nil {
		return nil, err
	}
	if site.control, err = s.accessControl(log); err != nil {
		return nil, err
	}
	check, tell := s.check(log)
	if site.catalog, err = newCatalog(site.back, g, check, log); err != nil {
		return nil, err
	}
	site.closing(site.catalog.Close)
	site.closing(func() error { tell(); return nil })
	if !f.http {
		site.tls, site.at.caFile, err = f.tlsConfig(g.TLS.ClientCAFile, f.hosts(site.at.host()), log)
		if err != nil {
			return nil, err
		}
	}
	if site.control == nil && !loopback(p.addr) {
		log.Warn("there is no access control: whoever reaches this gateway may read everything that it serves", "address", p.addr)
	}
	site.at.embedded, site.at.tokens = site.back.embedded != nil, site.control != nil
	site.handler = gateway.New(site.gatewayOptions())
	return site, nil
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

// gatewayOptions wires the gateway to the rest of the site.
func (s *site) gatewayOptions() gateway.Options {
	o := gateway.Options{Catalog: s.catalog, Access: s.control, PublicURL: s.at.url, Cache: s.cache, Log: s.log}
	g := s.settings.file.Gateway
	if g.VerifyRequired && s.cache != nil {
		o.H1 = s.cache.H1
	}
	if s.back.embedded != nil {
		o.Registry = s.back.embedded.ReadOnly()
	}
	if g.Redirect {
		o.Redirect = s.back.blobRedirect
		if !slices.ContainsFunc(s.settings.file.Registries, func(r config.Registry) bool { return r.MirrorsBlobsByRedirect }) {
			s.log.Warn("redirect = true sends nobody anywhere: no registry block has mirrors_blobs_by_redirect")
		}
	}
	return o
}

// openCache opens the cache that the configuration says; nil for none. The h1 of
// what is in it is needed where the one in the registry is not believed.
func openCache(g config.Gateway, log *slog.Logger) (*archives.Cache, error) {
	if g.Cache == nil {
		return nil, nil
	}
	return archives.OpenCache(g.Cache.Directory, g.Cache.MaxSize, archives.CacheOptions{Log: log, H1: g.VerifyRequired})
}
