package reconcile

import (
	"context"

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// cleanUp removes leftover announcements from a repository. No push needs these announcements
// any more. If cleanUp cannot remove them, the sync succeeds nevertheless.
func (s *Syncer) cleanUp(ctx context.Context, state *repositoryState, out *Outcome) error {
	if len(repo.AnnouncedVersions(state.tags)) == 0 {
		return nil
	}
	unlock, err := state.dest.LockFor(ctx, "sync of %s", state.provider)
	if err != nil {
		return err
	}
	defer unlock()
	clock := outgoing.NewClock(s.o.Push.Now)
	ctx = outgoing.WithClock(repo.MayPush(ctx, state.dest.Repository), clock)
	c := &repo.Cleaner{Provider: state.provider, Store: state.dest.Store, Clock: clock, Now: s.o.Push.Now} // it lists the tags again after the pushes of the sync
	tags, err := c.Recent.List(ctx, c.Store, c.Now)
	for _, v := range repo.AnnouncedVersions(tags) {
		if _, err = c.Clean(ctx, v); err != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, repo.CannotDelete(err) && !s.o.Prune: // a sync without --prune needs no right to delete
		return nil
	}
	out.warn("%s: tags that begin with ocibridge-part are left: %v", state.dest.Repository, err)
	return nil
}
