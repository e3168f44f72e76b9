package transfer

import (
	"context"
	"fmt"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// Wants contains the versions that a configuration requests, and their open sources.
type Wants struct {
	Wants   []pusher.Want
	folders map[string]*origin.MirrorDir
}

// OpenWants opens the sources of the provider blocks. An unusable source must not affect
// other providers, so OpenWants returns no error. Instead, listing the versions of that
// source's provider returns the error. The caller must close the wants.
func OpenWants(c *config.Config, registry *origin.Registry) *Wants {
	w := &Wants{folders: map[string]*origin.MirrorDir{}}
	pulls := func(a provider.Address) bool {
		return c.PullThrough != nil && c.PullThrough.Enabled && c.PullThrough.Selector.Selects(a)
	}
	for _, p := range c.Providers {
		source, err := w.open(p.From, registry)
		if err != nil {
			source = unusable{err: fmt.Errorf("provider block at %s: %w", p.Source, err)}
		}
		w.Wants = append(w.Wants, pusher.Want{
			Provider: p.Address, Versions: p.Versions, Prereleases: p.Prereleases, Latest: p.Latest,
			Platforms: p.Platforms, Cooldown: p.Cooldown, Keep: pulls(p.Address), Source: source,
		})
	}
	return w
}

// open opens the source of a provider block. Blocks that name the same folder share one
// source.
func (w *Wants) open(from config.Source, registry *origin.Registry) (origin.Source, error) {
	switch {
	case from.MirrorURL != "":
		base, err := url.Parse(from.MirrorURL)
		if err != nil {
			return nil, err
		}
		return registry.NetworkMirror(base), nil
	case from.Folder == "":
		return registry, nil
	case w.folders[from.Folder] == nil:
		dir, err := origin.OpenMirrorDir(from.Folder)
		if err != nil {
			return nil, err
		}
		w.folders[from.Folder] = dir
	}
	return w.folders[from.Folder], nil
}

// Close closes the mirror folders among the sources.
func (w *Wants) Close() {
	for _, dir := range w.folders {
		dir.Close()
	}
}

// unusable is a source that could not be opened.
type unusable struct {
	origin.Source
	err error
}

// Versions implements [origin.Source].
func (u unusable) Versions(context.Context, provider.Address) (*origin.Listing, error) {
	return nil, u.err
}
