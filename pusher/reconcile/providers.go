package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// providerPlanner plans what is particular to providers: platforms and evidence.
type providerPlanner struct {
	*planner
	provider provider.Address
	listing  *origin.Listing
}

// list implements [kindPlanner].
func (p *providerPlanner) list(ctx context.Context) (versions []provider.Version, warnings []string, err error) {
	if p.listing, err = p.want.Source.Versions(ctx, p.provider); err != nil {
		return nil, nil, err
	}
	return p.listing.Versions, p.listing.Warnings, nil
}

// step implements [kindPlanner].
func (p *providerPlanner) step(ctx context.Context, v provider.Version) (*Step, error) {
	step := &Step{Step: pusher.Step{Subject: p.provider, Version: v, Action: pusher.ActionPush, Size: -1}, dest: p.state.dest}
	var now servedVersion
	if p.state.versions[v] != "" {
		var err error
		if now, err = p.servedVersion(ctx, v); err != nil {
			return nil, err
		}
		step = p.stored(v, now.served)
		step.index = now.found.Index
		if !slices.Contains(p.offered, v) {
			return step, now.refused
		}
		if len(p.want.Platforms) > 0 && len(without(p.want.Platforms, step.Platforms)) == 0 {
			return step, nil
		}
	}
	platforms, err := p.platforms(ctx, v)
	if err != nil {
		return nil, err
	}
	missing := without(platforms, step.Platforms)
	switch {
	case step.Action == pusher.ActionKeep && len(missing) == 0:
		return step, now.refused
	case step.Action == pusher.ActionKeep && now.hasAny(missing):
		if step.Action = pusher.ActionRepair; !p.repairable(v, now) {
			return nil, now.refused
		}
	case step.Action == pusher.ActionKeep:
		step.Action = pusher.ActionAdd
	case len(platforms) == 0:
		return nil, nil
	default:
		step.FirstSync = p.want.Cooldown > 0 && p.state.firstSync
	}
	step.Platforms = missing
	release, err := p.want.Source.Release(ctx, p.provider, p.listing, v, platforms)
	if err != nil {
		return nil, err
	}
	step.Size = releaseSize(ctx, release, missing)
	push := p.pusher.Push
	if step.Action == pusher.ActionRepair {
		push = p.pusher.Repair
	}
	step.push = func(ctx context.Context) (*pusher.Result, error) { return push(ctx, release) }
	return step, nil
}

// platforms returns the wanted platforms that the source offers for a version. If the source
// does not say which platforms it offers, platforms returns all wanted platforms.
func (p *providerPlanner) platforms(ctx context.Context, v provider.Version) ([]provider.Platform, error) {
	offered, err := p.want.Source.Platforms(ctx, p.provider, p.listing, v)
	out := slices.Clone(offered)
	if len(p.want.Platforms) > 0 {
		out = slices.Clone(p.want.Platforms)
		if offered != nil {
			out = slices.DeleteFunc(out, func(q provider.Platform) bool { return !slices.Contains(offered, q) })
		}
	}
	provider.SortPlatforms(out)
	return slices.Compact(out), err
}

// without returns the platforms in list that are not in other.
func without(list, other []provider.Platform) []provider.Platform {
	return slices.DeleteFunc(slices.Clone(list), func(p provider.Platform) bool { return slices.Contains(other, p) })
}

// releaseSize returns the total size in bytes of a release's packages for some platforms, or
// -1 if the source does not know the size of a package.
func releaseSize(ctx context.Context, r *origin.Release, platforms []provider.Platform) int64 {
	var total int64
	for _, pkg := range r.Packages {
		if !slices.Contains(platforms, pkg.Platform) {
			continue
		}
		n := pkg.Size(ctx)
		if n < 0 {
			return -1
		}
		total += n
	}
	return total
}

// ErrNotServed means that a gateway refuses to serve a stored version.
var ErrNotServed = errors.New(`the gateway does not serve it, by verify = "required"`)

// servedVersion is a stored version (found), and the part of the version that a gateway
// serves (served).
type servedVersion struct {
	found, served *artifact.Version
	// refused is the reason why a gateway serves no part of the version, or nil if it serves
	// some part.
	refused error
}

// servedVersion reads a version, and finds out which part of the version a gateway serves.
func (p *providerPlanner) servedVersion(ctx context.Context, v provider.Version) (servedVersion, error) {
	found, err := p.read(ctx, v)
	if err != nil {
		return servedVersion{}, err
	}
	now, err := p.servedOf(ctx, p.state.dest, p.provider, v, found)
	if err == nil && now.refused == nil {
		p.session.NoteStored(p.provider, p.state.dest, v, found)
	}
	return now, err
}

// servedOf finds out which part of a version a gateway serves. It reads the evidence without
// the manifest cache, because a gateway that has just started has no cache either.
func (s *Syncer) servedOf(ctx context.Context, dest repo.Destination, a provider.Address, v provider.Version, found *artifact.Version) (servedVersion, error) {
	if s.o.Served == nil {
		return servedVersion{found: found, served: found}, nil
	}
	served, err := s.o.Served(ctx, dest.Store, a, v, found)
	switch {
	case err == nil:
		return servedVersion{found: found, served: served}, nil
	case errors.Is(err, ErrNotServed):
	case repo.IsUnusable(err):
		err = fmt.Errorf("%w: %w", ErrNotServed, err)
	default:
		return servedVersion{}, &repo.RegistryError{Op: "read evidence in", Repository: dest.Repository, Err: err}
	}
	refused := fmt.Errorf("%s:%s: %w", dest.Repository, repo.TagOf(v), err)
	if hint.Of(err) == "" {
		refused = hint.Wrap(refused, "ocibridge verify %s@%s says more", a, v)
	}
	return servedVersion{found, &artifact.Version{}, refused}, nil
}

// hasAny reports whether the stored version has a package for any of the platforms, even if
// the gateway does not serve that package.
func (s servedVersion) hasAny(platforms []provider.Platform) bool {
	return s.found != nil && slices.ContainsFunc(platforms, func(p provider.Platform) bool { return repo.Find(s.found.Packages, p) != nil })
}

// repairable reports whether a push can make a gateway serve a version. A push cannot do
// that if the policy pins no key, or if the publisher signed the version under another name.
func (p *providerPlanner) repairable(v provider.Version, now servedVersion) bool {
	return now.refused == nil || p.o.Push.Policy(p.provider).Pins() &&
		now.found.RecordedStanding(trust.Signed, p.provider, v) == trust.Signed
}

// checkServed returns an error if a gateway does not serve the packages that a step has
// pushed. A gateway serves every version of a module.
func (s *Syncer) checkServed(ctx context.Context, step Step) error {
	a, ok := step.Subject.(provider.Address)
	if s.o.Served == nil || !ok {
		return nil
	}
	found, err := repo.ReadVersion(ctx, step.dest.Store, step.dest.Repository, a, step.Version, repo.TagOf(step.Version))
	if err != nil {
		return err
	}
	now, err := s.servedOf(ctx, step.dest, a, step.Version, found)
	if err != nil || now.refused != nil {
		return errors.Join(err, now.refused)
	}
	for _, p := range step.Platforms {
		if repo.Find(now.served.Packages, p) == nil {
			return hint.Wrap(fmt.Errorf("%s:%s for %s: %w", step.dest.Repository, repo.TagOf(step.Version), p, ErrNotServed), "ocibridge verify %s@%s says more", step.Subject, step.Version)
		}
	}
	return nil
}

// noPlatform implements [kindPlanner].
func (p *providerPlanner) noPlatform(ctx context.Context, newest provider.Version) error {
	has, err := p.want.Source.Platforms(ctx, p.provider, p.listing, newest)
	if err != nil {
		return err
	}
	out := fmt.Errorf("%s: %w: no selected version has a package for a platform of its provider block", p.provider, origin.ErrPlatformNotFound)
	has = slices.Clone(has)
	provider.SortPlatforms(has)
	if len(has) == 0 {
		return hint.Wrap(out, "its source lists no platform of %s", newest)
	}
	return hint.Wrap(out, "the newest selected version, %s, is offered for %s", newest, repo.JoinNames(has))
}
