package main

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/pullthrough"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// pullThrough has the site answer with what can be pulled through as well, for those
// whose requests may have something fetched.
func (s *site) pullThrough(f *serveFlags, check checkVersion) error {
	p, err := f.pulling(s.settings, s.addr, s.back.embedded != nil, s.control != nil)
	if err != nil || p == nil || !p.Enabled && !p.byDefault {
		return err
	}
	p.via = s.via
	// What the gateway is itself the origin of, it has.
	if own, err := provider.ParsePattern(s.at.host() + "/*/*"); err == nil {
		p.Selector.Exclude = append(slices.Clip(p.Selector.Exclude), own)
	}
	dir, err := f.pullFolder(s.back, s.settings.file.Gateway)
	if err != nil {
		return err
	}
	puller, err := s.newPuller(p, dir)
	if err != nil {
		return err
	}
	s.begins, s.retires = append(s.begins, puller.Begin), append(s.retires, puller.Retire)
	s.closing(func() error {
		ctx, cancel := context.WithTimeout(s.ending, drainTimeout)
		defer cancel()
		puller.Drain(ctx)
		return puller.Close()
	})
	g := s.settings.file.Gateway
	metadata, err := newCatalog(s.back, s.back.pulled(puller), p.Selector.Selects, g, check, s.ops.catalogCounters(), s.log)
	if err != nil {
		return err
	}
	s.closing(metadata.Close)
	s.pulled = p.Selector.Selects
	s.handler, s.at.pulls = p.answering(gateway.New(s.gatewayOptions(metadata)), s.handler, s.log), true
	s.catalog = metadata // for those who watch
	return nil
}

// drainTimeout is how long versions may take to be stored that were begun by earlier
// settings. They are stored by those.
const drainTimeout = 10 * time.Minute

// newPuller makes what pulls providers through into the backend, with a folder for
// what it keeps ("": it keeps nothing). The caller closes it.
func (s *site) newPuller(p *pulling, dir string) (*pullthrough.Puller, error) {
	back, settings := s.back, s.settings
	policy := settings.trustRules().For
	push := pusher.New(pusher.Options{
		Destination: func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
			addr, repo, err := back.repository(ctx, a)
			return pusher.Destination{Repository: addr, Store: registry.Repository{Repository: repo}}, err
		},
		Policy: policy,
		Jobs:   settings.file.Jobs,
	})
	o := pullthrough.Options{
		Origin: newPullOrigin(settings.cli, p),
		Policy: policy,
		Push: func(ctx context.Context, r *origin.Release) (*pusher.Result, error) {
			return back.pushOne(ctx, push, r)
		},
		Scope:        pullthrough.Scope{Selector: p.Selector, Versions: p.Versions, Platforms: p.Platforms, Cooldown: p.Cooldown},
		Limits:       pullthrough.Limits{MaxConcurrent: p.MaxConcurrent, MaxPerDay: p.MaxPerDay, MaxSize: p.MaxSize, MaxSpool: p.MaxSpool},
		Budget:       s.pulls,
		StaleIfError: orNone(settings.file.Gateway.StaleIfError),
		Events:       s.ops.pulled,
		Log:          s.log,
	}
	if dir != "" {
		o.Directory, o.Spool = filepath.Join(dir, "origins"), filepath.Join(dir, "pull")
	}
	return pullthrough.New(o)
}

// pullFolder is where a pull-through keeps what it knows of origins, and packages
// under way: beside the cache, or the embedded registry. "" is for neither.
func (f *serveFlags) pullFolder(back *backend, g config.Gateway) (string, error) {
	switch {
	case g.Cache != nil:
		return g.Cache.Directory, nil
	case back.embedded != nil:
		return f.dataDir()
	}
	return "", nil
}

// pulled returns the repository of a provider with what its origin offers beside it.
func (b *backend) pulled(p *pullthrough.Puller) func(context.Context, provider.Address) (catalog.Store, error) {
	return func(ctx context.Context, a provider.Address) (catalog.Store, error) {
		store, err := b.store(ctx, a)
		if err != nil {
			return nil, err
		}
		return p.Store(a, store), nil
	}
}
