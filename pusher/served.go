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

// servedVersion is a stored version, and what a gateway serves of it.
type servedVersion struct {
	found  *artifact.Version
	served []artifact.Package
	// refused is the reason why a gateway serves nothing of it; nil if it serves any part.
	refused error
}

// servedVersion reads a version, and finds out what a gateway serves of it.
func (p *planner) servedVersion(ctx context.Context, v provider.Version) (servedVersion, error) {
	found, err := p.read(ctx, v)
	if err != nil {
		return servedVersion{}, err
	}
	return p.servedOf(ctx, p.state.dest, p.want.Provider, v, found)
}

// servedOf finds out what a gateway serves of a version. It reads the evidence without the
// cache, because a gateway that starts has no cache.
func (s *Syncer) servedOf(ctx context.Context, dest Destination, a provider.Address, v provider.Version, found *artifact.Version) (servedVersion, error) {
	if s.o.Served == nil {
		return servedVersion{found: found, served: found.Packages}, nil
	}
	served, err := s.o.Served(ctx, dest.Store, a, v, found)
	switch {
	case err == nil:
		return servedVersion{found: found, served: served.Packages}, nil
	case errors.Is(err, ErrNotServed):
	case isUnusable(err):
		err = fmt.Errorf("%w: %w", ErrNotServed, err)
	default:
		return servedVersion{}, &RegistryError{"read evidence in", dest.Repository, err}
	}
	refused := fmt.Errorf("%s:%s: %w", dest.Repository, v, err)
	if hint.Of(err) == "" {
		refused = hint.Wrap(refused, "ocibridge verify %s@%s says more", a, v)
	}
	return servedVersion{found: found, refused: refused}, nil
}

func (s servedVersion) platforms() (out []provider.Platform) {
	for _, p := range s.served {
		out = append(out, p.Platform)
	}
	return out
}

func (s servedVersion) size() (out int64) {
	for _, p := range s.served {
		out += p.Size
	}
	return out
}

// hasAny reports whether the stored version has a package for any of the platforms, served
// or not.
func (s servedVersion) hasAny(platforms []provider.Platform) bool {
	return s.found != nil && slices.ContainsFunc(platforms, func(p provider.Platform) bool { return find(s.found.Packages, p) != nil })
}

// repairable reports whether a push can make a gateway serve a version. It cannot if the
// policy pins no key, or if the publisher signed the version under another name.
func (p *planner) repairable(v provider.Version, now servedVersion) bool {
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
	now, err := s.servedOf(ctx, step.dest, step.Provider, step.Version, found)
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
