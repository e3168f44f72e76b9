package reconcile

import (
	"context"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ModuleSource is the origin of a module.
type ModuleSource interface {
	// Versions lists the versions of a module.
	Versions(context.Context, module.Address) (*origin.ModuleListing, error)
	// Check returns an error if the origin refuses a version, or has other content than the stored
	// version. stored is nil if the version is not stored. Check fetches files only if the commits do
	// not tell whether the content is the same. It writes nothing.
	Check(ctx context.Context, v ModuleVersion, stored *artifact.Version) error
	// Push fetches a version and stores it.
	Push(context.Context, ModuleVersion) (*pusher.Result, error)
}

// ModuleVersion is a version of a module at its origin, and where it is stored.
type ModuleVersion struct {
	Module      module.Address
	Version     provider.Version
	Spellings   []string // the forms in which the origin lists the version
	Pusher      *pusher.Pusher
	Destination repo.Destination
}

// modulePlanner plans what is particular to modules: a version has one zip, and its origin can change
// the version later.
type modulePlanner struct {
	*planner
	module  module.Address
	listing *origin.ModuleListing
}

// list implements [kindPlanner].
func (p *modulePlanner) list(ctx context.Context) (versions []provider.Version, warnings []string, err error) {
	if p.listing, err = p.want.Modules.Versions(ctx, p.module); err != nil {
		return nil, nil, err
	}
	return p.listing.Versions, p.listing.Warnings, nil
}

// step implements [kindPlanner]. A stored version stays if the origin no longer lists it.
func (p *modulePlanner) step(ctx context.Context, v provider.Version) (*Step, error) {
	var step *Step
	var found *artifact.Version
	if p.state.versions[v] != "" {
		var err error
		if found, err = p.read(ctx, v); err != nil {
			return nil, err
		}
		if step = p.stored(v, found); !slices.Contains(p.offered, v) {
			return step, nil
		}
	}
	at := p.at(v)
	if err := p.want.Modules.Check(ctx, at, found); err != nil || step != nil {
		return step, err
	}
	return &Step{
		Step: pusher.Step{Subject: p.module, Version: v, Action: pusher.ActionPush, Size: -1, FirstSync: p.want.Cooldown > 0 && p.state.firstSync},
		dest: p.state.dest,
		push: func(ctx context.Context) (*pusher.Result, error) { return p.want.Modules.Push(ctx, at) },
	}, nil
}

// at returns a version at its origin.
func (p *modulePlanner) at(v provider.Version) ModuleVersion {
	out := ModuleVersion{Module: p.module, Version: v, Pusher: p.pusher, Destination: p.state.dest}
	if p.listing != nil {
		out.Spellings = p.listing.Spellings[v]
	}
	return out
}

// noPlatform implements [kindPlanner]. Every version of a module counts.
func (p *modulePlanner) noPlatform(context.Context, provider.Version) error { return nil }
