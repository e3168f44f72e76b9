package transfer

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// Wants contains the versions that a configuration requests, and their open sources.
type Wants struct {
	Wants []reconcile.Want
	// Closure finds the modules that modules call, and KeepModules is set if there are closures that it does not know; see
	// [reconcile.Options].
	Closure     *BlockClosure
	KeepModules bool

	folders map[string]*origin.MirrorDir
}

// Blocks are the blocks that say what sync keeps in the registry.
type Blocks struct {
	Providers []config.Provider
	Modules   []config.Module
}

// AllBlocks returns the provider and module blocks of a configuration.
func AllBlocks(c *config.Config) Blocks { return Blocks{c.Providers, c.Modules} }

// Addresses returns the addresses of the blocks: the providers, and then the modules.
func (b Blocks) Addresses() (out []subject.Address) {
	for _, p := range b.Providers {
		out = append(out, p.Address)
	}
	for _, m := range b.Modules {
		out = append(out, m.Address)
	}
	return out
}

// Selected returns the blocks that the queries select. Without queries, it returns all blocks. A query that selects no
// block is an error.
func (b Blocks) Selected(queries []query.Query[subject.Address]) (out Blocks, err error) {
	if len(queries) == 0 {
		return b, nil
	}
	chosen := map[subject.Address]bool{}
	for _, q := range queries {
		found := false
		for _, a := range b.Addresses() {
			if q.Pattern != nil && q.Pattern.Covers(a) || q.Pattern == nil && q.Address == a {
				chosen[a], found = true, true
			}
		}
		if !found && q.Pattern != nil {
			return out, hint.New(fmt.Sprintf("no %s block matches %s", q.Pattern.Kind(), q.Pattern), "ocibridge config show prints the %s blocks in force", q.Pattern.Kind())
		}
		if !found {
			return out, hint.New(fmt.Sprintf("no %s block is for %s", q.Address.Kind(), q.Address),
				"write one into ocibridge.hcl (ocibridge help syncing shows how), or store single versions with: "+subject.TraitsOf(q.Address).Fetch, q.Address)
		}
	}
	for _, p := range b.Providers {
		if chosen[p.Address] {
			out.Providers = append(out.Providers, p)
		}
	}
	for _, m := range b.Modules {
		if chosen[m.Address] {
			out.Modules = append(out.Modules, m)
		}
	}
	return out, nil
}

// OpenWants opens the sources of the given blocks. The wants are in the order of [Blocks.Addresses]. The caller must close
// the result. An unusable source does not affect other providers: only listing the versions of its own provider returns the
// error. etags is the folder that keeps the ETags of modules' archives from one sync to the next; "": all are fetched each time.
func OpenWants(c *config.Config, blocks Blocks, registry *origin.Registry, etags string) *Wants {
	kept := moduleorigin.OpenETags(etags)
	w := &Wants{folders: map[string]*origin.MirrorDir{}, Closure: newBlockClosure(registry, c.Jobs, kept)}
	pulls := func(a subject.Address) bool {
		return c.PullThrough != nil && c.PullThrough.Enabled && c.PullThrough.Selects(a)
	}
	for _, p := range blocks.Providers {
		source, err := w.open(p.From, registry)
		if err != nil {
			source = unusable{err: fmt.Errorf("provider block at %s: %w", p.Source, err)}
		}
		w.Wants = append(w.Wants, reconcile.Want{
			Subject: p.Address, Versions: p.Versions, Prereleases: p.Prereleases, Latest: p.Latest,
			Platforms: p.Platforms, Cooldown: p.Cooldown, Keep: pulls(p.Address), Source: source,
		})
	}
	for _, m := range blocks.Modules {
		source := newModuleSource(registry, m.AllowLFSPointers, w.Closure.fetched, kept)
		if m.Closure && m.AllowLFSPointers {
			w.Closure.allowLFSPointers()
		}
		w.Wants = append(w.Wants, reconcile.Want{
			Subject: m.Address, Versions: m.Versions, Prereleases: m.Prereleases, Latest: m.Latest, Cooldown: m.Cooldown, Keep: pulls(m.Address),
			Closure: m.Closure, Modules: source,
		})
		w.Closure.sources[m.Address] = source
	}
	for _, m := range c.Modules {
		w.KeepModules = w.KeepModules || m.Closure && !slices.ContainsFunc(blocks.Modules, func(b config.Module) bool { return b.Address == m.Address })
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

// Close closes the mirror folders among the sources, and removes the fetched files of modules.
func (w *Wants) Close() {
	w.Closure.fetched.close()
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
