package reconcile

import (
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
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
		return hint.Wrap(fmt.Errorf("%s: %w: its source offers none", w.Subject, origin.ErrVersionNotFound), "%s", checkSource(w.Subject))
	case w.Versions.IsZero():
		return hint.Wrap(fmt.Errorf("%s: %w: there are only prereleases", w.Subject, origin.ErrVersionNotFound), "prereleases = true in its %s block selects them; the newest is %s", w.Subject.Kind(), vs[len(vs)-1])
	}
	prereleases := "; a prerelease must be named exactly, unless prereleases = true is set"
	if w.Prereleases {
		prereleases = ""
	}
	return hint.Wrap(fmt.Errorf("%s: %w: nothing matches versions = %q of its %s block", w.Subject, origin.ErrVersionNotFound, w.Versions, w.Subject.Kind()),
		`the newest version is %s%s. To want no version at all, write versions = "< 0.0.0"`, vs[len(vs)-1], prereleases)
}

// checkSource returns the hint for a provider or a module without versions.
func checkSource(a subject.Address) string {
	if subject.TraitsOf(a).Packages {
		return "check the address, and from, of its provider block"
	}
	return fmt.Sprintf("check the address of its %s block", a.Kind())
}

// hasAny reports whether any of the platforms is wanted.
func (w *Want) hasAny(ps []provider.Platform) bool {
	return len(w.Platforms) == 0 || slices.ContainsFunc(ps, func(p provider.Platform) bool { return slices.Contains(w.Platforms, p) })
}

// counts reports whether a version counts towards [Want.Latest]. A version without a package for the wanted platforms does
// not count. A version whose plan failed counts, and so does every version of a module.
func (w *Want) counts(o plannedVersion) bool {
	return o.err != nil || o.step != nil && w.hasAny(o.step.Platforms)
}
