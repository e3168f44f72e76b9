package transfer

import (
	"context"
	"fmt"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// Wants contains the versions that a configuration requests, and their open sources.
type Wants struct {
	Wants   []reconcile.Want
	folders map[string]*origin.MirrorDir
}

// Selected returns the provider blocks that the queries select, in the order of the file. Without
// queries, it returns all blocks. A query that selects no block is an error.
func Selected(blocks []config.Provider, queries []query.Query[provider.Address]) ([]config.Provider, error) {
	if len(queries) == 0 {
		return blocks, nil
	}
	chosen := make([]bool, len(blocks))
	for _, q := range queries {
		found := false
		for i, p := range blocks {
			if q.Pattern != nil && q.Pattern.Covers(p.Address) || q.Pattern == nil && q.Address == p.Address {
				chosen[i], found = true, true
			}
		}
		if !found && q.Pattern != nil {
			return nil, hint.New(fmt.Sprintf("no provider block matches %s", q.Pattern), "ocibridge config show prints the provider blocks in force")
		}
		if !found {
			return nil, hint.New(fmt.Sprintf("no provider block is for %s", q.Address),
				"write one into ocibridge.hcl (ocibridge help syncing shows how), or store single versions with: ocibridge push %s@VERSION", q.Address)
		}
	}
	var out []config.Provider
	for i, p := range blocks {
		if chosen[i] {
			out = append(out, p)
		}
	}
	return out, nil
}

// OpenWants opens the sources of the given provider blocks. The caller must close the result. An unusable source does
// not affect other providers: only listing the versions of its own provider returns the error.
func OpenWants(c *config.Config, blocks []config.Provider, registry *origin.Registry) *Wants {
	w := &Wants{folders: map[string]*origin.MirrorDir{}}
	pulls := func(a provider.Address) bool {
		return c.PullThrough != nil && c.PullThrough.Enabled && c.PullThrough.Selector.Selects(a)
	}
	for _, p := range blocks {
		source, err := w.open(p.From, registry)
		if err != nil {
			source = unusable{err: fmt.Errorf("provider block at %s: %w", p.Source, err)}
		}
		w.Wants = append(w.Wants, reconcile.Want{
			Provider: p.Address, Versions: p.Versions, Prereleases: p.Prereleases, Latest: p.Latest,
			Platforms: p.Platforms, Cooldown: p.Cooldown, Keep: pulls(p.Address), Source: source,
		})
	}
	return w
}

// open opens the source of a provider block. Blocks with the same folder share one source.
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
