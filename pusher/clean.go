package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// cleanUp removes the announcements in a repository that no push needs any more. What
// cannot be removed is no failure of the sync.
func (s *Syncer) cleanUp(ctx context.Context, state *repositoryState, out *Outcome) error {
	if !slices.ContainsFunc(state.tags, isAnnouncement) {
		return nil
	}
	clock := outgoing.NewClock(s.o.Now)
	ctx = outgoing.WithClock(mayPush(ctx, state.dest.Repository), clock)
	warn := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s: tags that begin with ocibridge-part are left: %v", state.dest.Repository, err))
		return nil
	}
	tags, err := listTags(ctx, state.store) // anew: the sync has pushed
	if err != nil {
		return warn(err)
	}
	announcing := map[provider.Version]bool{}
	for _, t := range tags {
		if v, ok := t.PartOf(); ok {
			announcing[v] = true
		}
	}
	for v := range announcing {
		if err := s.cleanVersion(ctx, state, clock, v, tags); err != nil {
			return warn(err)
		}
	}
	return nil
}

func isAnnouncement(t ociaddr.Tag) bool {
	_, ok := t.PartOf()
	return ok
}

// cleanVersion removes the announcements of a version that its index has, unless one is
// open. It also removes old ones that add nothing to it, as a push does.
func (s *Syncer) cleanVersion(ctx context.Context, state *repositoryState, clock *outgoing.Clock, v provider.Version, tags []ociaddr.Tag) error {
	readAt := s.o.Now()
	all, err := readAnnouncements(ctx, state.store, state.provider, v, tags)
	if err != nil || anyOpen(all, clock.Now()) {
		return err
	}
	index, err := artifact.Read(ctx, state.store, state.provider, v)
	if errors.Is(err, errdef.ErrNotFound) && !slices.ContainsFunc(tags, func(t ociaddr.Tag) bool { is, ok := t.Version(); return ok && is == v }) {
		index, err = &artifact.Version{}, nil // its push ended before it wrote one
	}
	if isUnusable(err) || errors.Is(err, artifact.ErrForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, a := range all {
		if s.o.Now().Sub(readAt) > staleAge {
			return nil
		}
		if a.in(index) || a.old(clock.Now()) && (len(index.Packages) == 0 || !a.adds(index)) {
			if err := removeAnnouncement(ctx, state.store, a); err != nil {
				return err
			}
		}
	}
	return nil
}
