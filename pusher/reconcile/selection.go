package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// selected returns the versions in vs that the want selects, newest first. If there are none, it returns an error,
// unless the constraint excludes all versions on purpose. A mistake in a constraint would otherwise go unnoticed, and a
// prune would remove the versions that the user wanted.
func (w *Want) selected(vs []provider.Version) ([]provider.Version, error) {
	var out []provider.Version
	for _, v := range vs {
		if w.selects(v) {
			out = append(out, v)
		}
	}
	if len(out) == 0 && !w.Versions.IsNone() {
		return nil, w.noVersion(vs)
	}
	provider.SortVersions(out)
	slices.Reverse(out)
	return out, nil
}

// selects reports whether a version meets the constraint.
func (w *Want) selects(v provider.Version) bool {
	if w.Versions.IsZero() {
		return w.Prereleases || !v.IsPrerelease()
	}
	return w.Versions.Has(v) || w.Prereleases && w.Versions.HasPrerelease(v)
}

// noVersion returns the error for a want that selects none of the offered and stored versions.
func (w *Want) noVersion(vs []provider.Version) error {
	vs = slices.Clone(vs)
	provider.SortVersions(vs)
	switch {
	case len(vs) == 0:
		return hint.Wrap(fmt.Errorf("%s: %w: its source offers none", w.Provider, origin.ErrVersionNotFound), "check the address, and from, of its provider block")
	case w.Versions.IsZero():
		return hint.Wrap(fmt.Errorf("%s: %w: there are only prereleases", w.Provider, origin.ErrVersionNotFound), "prereleases = true in its provider block selects them; the newest is %s", vs[len(vs)-1])
	}
	prereleases := "; a prerelease must be named exactly, unless prereleases = true is set"
	if w.Prereleases {
		prereleases = ""
	}
	return hint.Wrap(fmt.Errorf("%s: %w: nothing matches versions = %q of its provider block", w.Provider, origin.ErrVersionNotFound, w.Versions),
		`the newest version is %s%s. To want no version at all, write versions = "< 0.0.0"`, vs[len(vs)-1], prereleases)
}

// hasAny reports whether any of the platforms is wanted.
func (w *Want) hasAny(ps []provider.Platform) bool {
	return len(w.Platforms) == 0 || slices.ContainsFunc(ps, func(p provider.Platform) bool { return slices.Contains(w.Platforms, p) })
}

// counts reports whether a version counts towards [Want.Latest]. A version without a package for the wanted platforms does
// not count. A version whose plan failed counts.
func (w *Want) counts(o plannedVersion) bool {
	return o.err != nil || o.step != nil && w.hasAny(o.step.Platforms)
}

// noPlatform returns the error for a want if none of its versions has a package for the wanted platforms.
func (p *planner) noPlatform(ctx context.Context, newest provider.Version) error {
	has, err := p.want.Source.Platforms(ctx, p.want.Provider, p.listing, newest)
	if err != nil {
		return err
	}
	out := fmt.Errorf("%s: %w: no selected version has a package for a platform of its provider block", p.want.Provider, origin.ErrPlatformNotFound)
	has = slices.Clone(has)
	provider.SortPlatforms(has)
	if len(has) == 0 {
		return hint.Wrap(out, "its source lists no platform of %s", newest)
	}
	return hint.Wrap(out, "the newest selected version, %s, is offered for %s", newest, repo.JoinNames(has))
}
