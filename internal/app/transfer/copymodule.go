package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ErrModuleNotFound means that the source has no version of a module.
var ErrModuleNotFound = errors.New("module not found")

// selectedModule is a stored module, and its versions that will be copied.
type selectedModule struct {
	pusher.StoredModule
	versions []provider.Version
}

// addresses returns the selected providers.
func (s selection) addresses() (out []provider.Address) {
	for _, p := range s.providers {
		out = append(out, p.Provider)
	}
	return out
}

// moduleAddresses returns the selected modules.
func (s selection) moduleAddresses() (out []module.Address) {
	for _, m := range s.modules {
		out = append(out, m.Module)
	}
	return out
}

// selectModules is like selectVersions, for modules.
func (c Copy) selectModules(ctx context.Context, src *source) ([]selectedModule, error) {
	queries := c.Modules
	if c.everything() {
		found, err := src.modules(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			queries = append(queries, query.Query[module.Address]{Address: a})
		}
	}
	var out []selectedModule
	for _, q := range queries {
		stored, err := src.module(ctx, q.Address)
		if err != nil {
			return nil, err
		}
		versions, err := pick(ctx, c, stored.Repository, q, stored.Versions, ErrModuleNotFound)
		if err != nil {
			return nil, Explain(src.registry, err)
		}
		if len(versions) > 0 {
			out = append(out, selectedModule{stored, versions})
		}
	}
	return out, nil
}

// copyModules is like copyAll, for modules.
func (c Copy) copyModules(ctx context.Context, src *source, dst *target, all []selectedModule, failed *failures) ([]*pusher.ModuleResult, error) {
	b := newBatch(c.Push.Jobs, c.Progress.DoneModule)
	for _, m := range all {
		for _, v := range m.versions {
			_ = b.add(func() (*pusher.ModuleResult, error) { // wait returns the first failure that is not kept
				result, err := dst.putModule(ctx, m.StoredModule, v)
				return result, failed.keep(reconcile.Failure{Subject: m.Module, Version: v, Err: explainCopy(src, dst, m.Repository, err)})
			})
		}
	}
	return b.wait(nil)
}

// moduleTarget returns the function that copies a version of a module to the destination that
// open returns.
func (c Copy) moduleTarget(p *pusher.Pusher, open func(context.Context, pusher.StoredModule) (repo.Destination, error)) func(context.Context, pusher.StoredModule, provider.Version) (*pusher.ModuleResult, error) {
	put := p.CopyModule
	if c.DryRun {
		put = p.PlanCopyModule
	}
	return func(ctx context.Context, from pusher.StoredModule, v provider.Version) (*pusher.ModuleResult, error) {
		dest, err := open(ctx, from)
		if err != nil {
			return nil, err
		}
		return put(ctx, from, dest, v)
	}
}

// checkRepositories checks that the target has a repository for everything that is selected, and
// that it is not the source's.
func (c Copy) checkRepositories(r *registry.Repositories, all *selection) error {
	if len(r.ModuleTemplates) == 0 && c.To.Kind == Template {
		if err := c.leaveModules(all, hint.New("--to "+c.To.Name+" is a template for providers, and has no place for modules", "copy the modules to a template with ${name} and ${system}")); err != nil {
			return err
		}
	}
	if len(r.Templates) == 0 && c.To.Kind == Template {
		if err := c.leaveProviders(all, hint.New("--to "+c.To.Name+" is a template for modules, and has no place for providers", "copy the providers to a template with ${type}")); err != nil {
			return err
		}
	}
	for _, p := range all.providers {
		to, err := r.Templates.Repository(p.Provider)
		if err := differs(p.Provider, p.Repository, to, err); err != nil {
			return err
		}
	}
	for _, m := range all.modules {
		to, err := r.ModuleTemplates.Repository(m.Module)
		if err := differs(m.Module, m.Repository, to, err); err != nil {
			return err
		}
	}
	return nil
}

// differs returns an error if the repositories of a copy are the same. It returns err if err is
// not nil.
func differs(what fmt.Stringer, from, to ociaddr.Repository, err error) error {
	if err == nil && to == from {
		err = hint.Wrap(fmt.Errorf("%s is stored in %s, and %w", what, to, ErrSameRepository), "let --from and --to name different places")
	}
	return err
}

// ErrNoPlace means that the target of a copy holds providers only, or modules only.
var ErrNoPlace = errors.New("no place")

// leaveModules removes the modules from the selection. That is only a warning if the copy includes
// everything and providers remain. Otherwise leaveModules returns reason.
func (c Copy) leaveModules(all *selection, reason error) error {
	if len(all.modules) == 0 {
		return nil
	}
	if !c.everything() || len(all.providers) == 0 {
		return noPlace{reason}
	}
	c.Progress.Warn(fmt.Sprintf("not copied: %s, because %v", hint.Count(len(all.modules), "module"), reason))
	all.modules = nil
	return nil
}

// leaveProviders is like leaveModules, for providers.
func (c Copy) leaveProviders(all *selection, reason error) error {
	if len(all.providers) == 0 {
		return nil
	}
	if !c.everything() || len(all.modules) == 0 {
		return noPlace{reason}
	}
	c.Progress.Warn(fmt.Sprintf("not copied: %s, because %v", hint.Count(len(all.providers), "provider"), reason))
	all.providers = nil
	return nil
}

// noPlace is a reason that is also ErrNoPlace.
type noPlace struct{ error }

func (e noPlace) Unwrap() error        { return e.error }
func (e noPlace) Is(target error) bool { return target == ErrNoPlace }
