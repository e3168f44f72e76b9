package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// repositoryState is what one listing of the tags says of a provider's repository, and
// what the plan has found out since.
type repositoryState struct {
	provider provider.Address
	dest     Destination
	versions map[provider.Version]bool
	tags     []ociaddr.Tag // all tags
	// oldAges are the tags in which earlier releases kept ages. [ociaddr.SeenAll] is last.
	oldAges []ociaddr.Tag

	keep      bool               // of [Want]
	cooldown  bool               // the provider has a cooldown
	ages      stateChange        // the ages that oldAges have and the state lacks
	unseen    []provider.Version // versions of the source that no sync has seen before
	firstSync bool               // no sync with a cooldown has run before

	cacheMissed atomic.Bool // the missed of [cachedStore]
}

func (s *Syncer) repositoryState(ctx context.Context, a provider.Address) (*repositoryState, error) {
	dest, err := s.o.Push.Destination(ctx, a)
	if err != nil {
		return nil, err
	}
	state := &repositoryState{provider: a, dest: dest, versions: map[provider.Version]bool{}}
	if state.tags, err = listTags(mayPush(ctx, dest.Repository), dest.Store); err != nil {
		return nil, &RegistryError{"list tags of", dest.Repository, err}
	}
	for _, t := range state.tags {
		if v, ok := t.Version(); ok {
			state.versions[v] = true
		}
		if _, ok := t.Seen(); ok {
			state.oldAges = append(state.oldAges, t)
		}
	}
	if slices.Contains(state.tags, ociaddr.SeenAll) {
		state.oldAges = append(state.oldAges, ociaddr.SeenAll)
	}
	return state, nil
}

// cached returns the repository's store with the cache of manifests. It always resolves a
// tag by HEAD.
func (s *Syncer) cached(state *repositoryState) cachedStore {
	return cachedStore{Store: state.dest.Store, cache: s.cache}
}

// read reads a stored version.
func (p *planner) read(ctx context.Context, v provider.Version) (*artifact.Version, error) {
	store := cachedStore{p.state.dest.Store, p.cache, &p.state.cacheMissed}
	found, err := artifact.Read(ctx, store, p.want.Provider, v)
	repo := p.state.dest.Repository
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, hint.Wrap(fmt.Errorf("%s:%s: %w: %w", repo, v, ErrOccupied, err), helpForeign)
	case isUnusable(err):
		return nil, hint.Wrap(fmt.Errorf("%s:%s: %w", repo, v, err), "ocibridge push --force replaces what the tag names")
	}
	return nil, &RegistryError{"read " + v.String() + " in", repo, err}
}

func (p *planner) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}
