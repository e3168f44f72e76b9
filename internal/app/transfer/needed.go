package transfer

import (
	"context"
	"errors"

	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/neterr"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// Needed is what the configuration in a folder needs. Its modules are fetched, and not stored yet.
type Needed struct {
	Requests []Request // for its providers
	Missing  []closure.Missing
	Warnings []string // about the lock file

	jobs    int
	modules *moduleClosure
}

// NeededBy reads the configuration in dir, and fetches the modules that it calls. to is where [Needed.PushModules] stores
// them, or plans to store them if dryRun is set. If strict is set, it is an error if anything cannot be brought. The caller must
// close the result.
func NeededBy(ctx context.Context, dir string, from *moduleorigin.Origin, to *registry.Repositories, o pusher.Options, dryRun, strict bool, progress ModuleProgress) (*Needed, error) {
	o.OnEvent = progress.Event
	n := &Needed{jobs: o.Jobs, modules: newModuleClosure(to, moduleFetch{origin: from, pusher: pusher.New(o), force: o.Force, dryRun: dryRun})}
	if err := n.read(ctx, dir, from.Registry); err != nil {
		n.Close()
		return nil, Explain(to, err)
	}
	for _, m := range n.Missing {
		progress.Missing(m)
	}
	if err := (&closure.Result{Missing: n.Missing}).Check(); strict && err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Needed) read(ctx context.Context, dir string, from *origin.Registry) error {
	needs, err := closure.Configuration(ctx, dir, n.modules, n.jobs)
	if err != nil {
		return err
	}
	n.Missing, n.modules.releases = needs.Missing, needs.Modules
	if needs.Lock != "" {
		if n.Requests, n.Warnings, err = Locked([]string{needs.Lock}); err != nil {
			return err
		}
	}
	for _, p := range needs.Providers {
		var newest provider.Version
		listing, err := from.Versions(ctx, p.Address)
		if err == nil {
			v, none, ok := p.Newest(listing.Versions)
			if newest = v; !ok {
				err = listing.NoMatch(p.Address, none)
			}
		}
		switch {
		case errors.Is(err, origin.ErrProviderNotFound), errors.Is(err, origin.ErrVersionNotFound), isNoRegistry(err):
			n.Missing = append(n.Missing, closure.Missing{At: p.By, Source: p.Address.String(), Reason: hint.OneLine(err.Error())})
		case err != nil:
			return err
		default:
			n.Requests = append(n.Requests, Request{Query: query.Query[provider.Address]{Address: p.Address, Version: newest}})
		}
	}
	return nil
}

// isNoRegistry reports whether an error means that a host does not exist, has no server, or has no provider registry.
func isNoRegistry(err error) bool {
	return neterr.NoSuchHost(err) || neterr.Refused(err) || errors.As(err, new(*disco.ErrServiceNotProvided))
}

// PushModules stores the modules.
func (n *Needed) PushModules(ctx context.Context, progress ModuleProgress) ([]*PushedModule, error) {
	return n.modules.push(ctx, n.jobs, progress)
}

// Close removes the fetched files.
func (n *Needed) Close() { n.modules.close() }
