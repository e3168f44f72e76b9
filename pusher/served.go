package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// ErrNotServed: a gateway refuses a stored version.
var ErrNotServed = errors.New(`the gateway does not serve it, by verify = "required"`)

// storedVersion is a version in the registry, as a gateway serves it.
type storedVersion struct {
	found  *artifact.Version
	served []artifact.Package
	// refused says why a gateway serves nothing of it; nil if it serves any of it.
	refused error
}

// storedVersion reads a version and asks what a gateway serves of it.
func (p *planner) storedVersion(ctx context.Context, v provider.Version) (storedVersion, error) {
	found, err := p.read(ctx, v)
	if err != nil {
		return storedVersion{}, err
	}
	return p.judge(ctx, p.state.dest, p.want.Provider, v, found)
}

// judge asks what a gateway serves of a version that was read. The registry itself is
// asked for the evidence, and no cache: a gateway has none when it starts.
func (s *Syncer) judge(ctx context.Context, dest Destination, a provider.Address, v provider.Version, found *artifact.Version) (storedVersion, error) {
	if s.o.Served == nil {
		return storedVersion{found: found, served: found.Packages}, nil
	}
	served, err := s.o.Served(ctx, dest.Store, a, v, found)
	switch {
	case err == nil:
		return storedVersion{found: found, served: served.Packages}, nil
	case errors.Is(err, ErrNotServed):
	case isUnusable(err):
		err = fmt.Errorf("%w: %w", ErrNotServed, err)
	default:
		return storedVersion{}, &RegistryError{"read evidence in", dest.Repository, err}
	}
	refused := fmt.Errorf("%s:%s: %w", dest.Repository, v, err)
	if hint.Of(err) == "" {
		refused = hint.Wrap(refused, "ocibridge verify %s@%s says more", a, v)
	}
	return storedVersion{found: found, refused: refused}, nil
}

func (s storedVersion) platforms() (out []provider.Platform) {
	for _, p := range s.served {
		out = append(out, p.Platform)
	}
	return out
}

func (s storedVersion) size() (out int64) {
	for _, p := range s.served {
		out += p.Size
	}
	return out
}

// holdsAny reports whether packages for some of the platforms are stored.
func (s storedVersion) holdsAny(platforms []provider.Platform) bool {
	return s.found != nil && slices.ContainsFunc(platforms, func(p provider.Platform) bool { return find(s.found.Packages, p) != nil })
}

// repairable reports whether a push may make a gateway serve a version: not if no key
// is pinned for its provider, or if its publisher signed it under another name.
func (p *planner) repairable(v provider.Version, now storedVersion) bool {
	return now.refused == nil || p.o.Push.Policy(p.want.Provider).Pins() &&
		now.found.RecordedStanding(trust.Signed, p.want.Provider, v) == trust.Signed
}

// checkServed fails if a gateway does not serve what a step has pushed.
func (s *Syncer) checkServed(ctx context.Context, step Step) error {
	if s.o.Served == nil {
		return nil
	}
	found, err := artifact.Read(ctx, step.dest.Store, step.Provider, step.Version)
	if err != nil {
		return &RegistryError{"read " + step.Version.String() + " in", step.dest.Repository, err}
	}
	now, err := s.judge(ctx, step.dest, step.Provider, step.Version, found)
	if err != nil || now.refused != nil {
		return errors.Join(err, now.refused)
	}
	for _, p := range step.Platforms {
		if find(now.served, p) == nil {
			return hint.Wrap(fmt.Errorf("%s:%s for %s: %w", step.dest.Repository, step.Version, p, ErrNotServed), "ocibridge verify %s@%s says more", step.Provider, step.Version)
		}
	}
	return nil
}
