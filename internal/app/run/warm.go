package run

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// Warmed is a locked package that [Warm] has processed.
type Warmed struct {
	Provider provider.Address
	Version  provider.Version
	Size     int64 // of the zip in bytes
	New      bool  // it was not in the cache
	Unpacked bool  // it is stored unpacked, and not only as a zip
	// Elsewhere means that no template selects the provider. Clients get it from its origin.
	Elsewhere bool
	Err       error // why it is not in the cache

	digest digest.Digest
	hashes []provider.Hash
}

// Warm brings the packages for this machine's platform into the cache that the lock files in folders name. It calls done for
// each of them, one at a time. Of o, it needs only the settings, the log and the version. The error is for all packages.
func Warm(ctx context.Context, o Options, folders []string, done func(Warmed)) error {
	var locked []lockfile.Provider
	for _, dir := range folders {
		file, err := lockfile.Read(filepath.Join(dir, lockfile.Name))
		if err != nil {
			return err
		}
		locked = append(locked, file.Providers...)
	}
	gateway, err := serve.StartLocal(ctx, serve.LocalOptions{
		Settings: o.Settings, Log: o.Log, Version: o.Version,
		Listed: func(provider.Address, []provider.Version, []provider.Version) {}, Lacks: func(provider.Address, provider.Version, provider.Platform) {},
		LacksModule: func(module.Address) {}, DeprecatedModule: func(module.Address, provider.Version, string) {}, Origin: func(svchost.Hostname) *url.URL { return nil },
		ModuleOrigin: func(svchost.Hostname) (*url.URL, error) { return nil, nil },
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := gateway.Close(ctx); err != nil {
			o.Log.Warn("the gateway did not stop as it should", "err", err)
		}
	}()
	if gateway.Packages() == nil {
		return hint.New("there is no cache to fill", "turn it on with enabled = true in the cache block of ocibridge.hcl, and name a directory that this user may write to")
	}
	l := &layer{Options: &o, gateway: gateway, packages: gateway.Packages(), platform: provider.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}}
	results := make(chan Warmed)
	var all panics.Group
	all.SetLimit(maxLooks)
	go func() {
		for i, p := range locked {
			if slices.ContainsFunc(locked[:i], func(q lockfile.Provider) bool { return q.Address == p.Address && q.Version == p.Version }) {
				continue
			}
			all.Go(func() error {
				w := Warmed{Provider: p.Address, Version: p.Version}
				w.Err = l.warm(ctx, p, &w)
				results <- w
				return nil
			})
		}
		_ = all.Wait() // its functions return nil
		close(results)
	}()
	var there []Warmed
	for w := range results {
		done(w)
		if w.Err == nil && !w.Elsewhere {
			there = append(there, w)
		}
	}
	gone := 0
	for _, w := range there {
		_, isUnpacked := l.packages.Unpacked(w.digest, w.hashes)
		if _, isZip := l.packages.SizeOf(w.digest); !isZip && !isUnpacked {
			gone++
		}
	}
	if gone > 0 && ctx.Err() == nil {
		return hint.New(fmt.Sprintf("%d of %d packages were evicted again, because the cache is too small for all of them", gone, len(there)), "raise max_size in the cache block")
	}
	return ctx.Err()
}

// warm brings a package into the cache.
func (l *layer) warm(ctx context.Context, p lockfile.Provider, w *Warmed) error {
	offer, err := l.gateway.Offer(ctx, p.Address, p.Version, l.platform)
	if errors.Is(err, templates.ErrNotSelected) {
		w.Elsewhere = true
		return nil
	} else if err != nil {
		return err
	}
	w.Size, w.digest = offer.Size, offer.Digest
	known := p.Known()
	w.hashes = append(slices.Clone(known), offer.H1)
	_, had := l.packages.SizeOf(offer.Digest)
	isZip := slices.Contains(known, offer.ZipHash())
	if !isZip && !slices.Contains(known, offer.H1) {
		return fmt.Errorf("the lock file has neither %s nor an h1: hash that the gateway knows for it", offer.ZipHash())
	}
	if _, stored := l.packages.Unpacked(offer.Digest, w.hashes); stored {
		w.Unpacked = true
		return nil
	}
	if isZip { // the lock file vouches for the zip, and so for its files
		known = nil
	}
	h, err := l.packages.Unpack(ctx, offer.Digest, offer.Size)
	if errors.Is(err, archives.ErrNotCached) {
		h, err = l.fetch(ctx, offer)
	}
	w.New = !had
	switch {
	case errors.Is(err, provider.ErrNotPlain) && isZip:
		return nil // the gateway serves the zip
	case err == nil && known != nil && !slices.Contains(known, h):
		return fmt.Errorf("the lock file does not have its hash %s", h)
	}
	w.hashes = append(w.hashes, h)
	w.Unpacked = err == nil
	return err
}
