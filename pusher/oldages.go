package pusher

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// moveOldAges moves the ages that earlier releases kept in tags into the state of a
// repository, and then removes the tags. The repository's provider has no cooldown now.
func (s *Syncer) moveOldAges(ctx context.Context, state *repositoryState, out *Outcome) error {
	if len(state.oldAges) == 0 {
		return nil
	}
	ctx = mayPush(ctx, state.dest.Repository)
	known, _, err := readState(ctx, state.dest.Store, state.dest.Repository, state.provider)
	if err != nil {
		return err
	}
	ages, err := s.readOldAges(ctx, state, known, out.warn)
	if err != nil {
		return err
	}
	if err := s.pusher.updateState(ctx, state.provider, state.dest, ages); err != nil {
		return err
	}
	state.tags = append(state.tags, ociaddr.StateTag)
	return s.removeOldAges(ctx, state, out)
}

// readOldAges returns the ages that the tags of earlier releases have and the state lacks.
// If a tag cannot be read, the version's age counts from now.
func (s *Syncer) readOldAges(ctx context.Context, state *repositoryState, known *artifact.State, warn func(format string, args ...any)) (stateChange, error) {
	out := stateChange{seen: map[provider.Version]time.Time{}}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(planRequests)
	for _, tag := range state.oldAges {
		v, ok := tag.Seen()
		if !ok {
			out.cooldown = !known.Cooldown // the tag is ociaddr.SeenAll
			continue
		}
		if _, merged := known.Seen[v]; merged {
			continue
		}
		g.Go(func() error {
			at, _, err := artifact.ReadSeen(gctx, state.dest.Store, string(tag))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out.seen[v] = at
			case isNotFound(err): // another sync has moved it
			case isUnusable(err):
				warn("%s:%s: %v: the age of version %s counts from now", state.dest.Repository, tag, err, v)
			default:
				return &RegistryError{"read " + string(tag) + " in", state.dest.Repository, err}
			}
			return nil
		})
	}
	return out, g.Wait()
}

// removeOldAges removes the tags of earlier releases. The state already has their ages, so
// that a tag that cannot be removed is only a warning.
func (s *Syncer) removeOldAges(ctx context.Context, state *repositoryState, out *Outcome) error {
	tags := state.oldAges
	state.oldAges = nil
	byDigest, left := false, 0
	var cause error
	for i, tag := range tags {
		err := error(nil)
		if !byDigest {
			err = state.dest.Store.Untag(ctx, string(tag))
			byDigest = errors.Is(err, errdef.ErrUnsupported)
		}
		if byDigest {
			err = removeOldAge(ctx, state.dest.Store, tag)
		}
		switch {
		case err == nil, isNotFound(err):
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		cause, left = err, left+1
		if !isUnusable(err) { // the registry will refuse the others, too
			left += len(tags) - i - 1
			break
		}
	}
	if left > 0 {
		out.warn("%s: tags that begin with %s are left (%d); they are not needed any more: %v", state.dest.Repository, ociaddr.SeenAll, left, cause)
	}
	return nil
}

// removeOldAge deletes the manifest that a tag of an earlier release names, and all tags
// that name it. It deletes only manifests of ages.
func removeOldAge(ctx context.Context, store Store, tag ociaddr.Tag) error {
	_, desc, err := artifact.ReadSeen(ctx, store, string(tag))
	if err != nil {
		return err
	}
	return store.Delete(ctx, desc)
}
