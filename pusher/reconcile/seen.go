package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ErrNoAges means that a repository has versions, but no record of when a sync first saw
// them.
var ErrNoAges = errors.New("the ages of its versions are not known")

// waits returns those of the given versions whose cooldown has not ended, each with the time at
// which the cooldown ends. The cooldown does not apply to stored versions, or to versions that
// the source had at the provider's first sync with a cooldown. waits also collects the versions
// that no sync has seen before, so that [Syncer.Apply] can note them.
func (p *planner) waits(ctx context.Context, pool []provider.Version) (map[provider.Version]time.Time, error) {
	if p.want.Cooldown == 0 {
		return nil, nil
	}
	seen, err := p.readAges(ctx)
	if err != nil {
		return nil, err
	}
	now := p.o.Push.Now()
	for _, v := range p.offered {
		if at, ok := seen[v]; !ok || at.After(now) { // the clock of an earlier sync was ahead
			p.state.unseen = append(p.state.unseen, v)
		}
	}
	out := map[provider.Version]time.Time{}
	for _, v := range pool {
		if p.state.versions[v] != "" || p.state.firstSync {
			continue
		}
		since, ok := seen[v]
		if !ok {
			since = now
		}
		if until := since.Add(p.want.Cooldown); !since.IsZero() && until.After(now) {
			out[v] = until
		}
	}
	return out, nil
}

// readAges returns the time at which a sync first saw each version, from the repository's state.
func (p *planner) readAges(ctx context.Context) (map[provider.Version]time.Time, error) {
	repository := p.state.dest.Repository
	ctx = repo.MayPush(ctx, repository)
	p.state.cooldown = true
	known, desc, err := repo.ReadState(ctx, p.cached(p.state), repository, p.want.Subject)
	if err != nil {
		return nil, err
	}
	switch listed := slices.Contains(p.state.tags, ociaddr.StateTag); {
	case desc != nil && !listed:
		return nil, hint.New(fmt.Sprintf("list tags of %s: the list lacks the tag %s, which is there", repository, ociaddr.StateTag),
			"run sync again; if it stays so, the registry does not list all of its tags")
	case desc == nil && listed: // without an error, no version would wait
		return nil, hint.New(fmt.Sprintf("%s: the tag %s is listed, and the registry does not find it", repository, ociaddr.StateTag), "run sync again")
	case known.Cooldown:
		return known.Seen, nil
	}
	return known.Seen, p.checkFirstSync(ctx)
}

// checkFirstSync decides whether a repository without ages may have its first sync with a
// cooldown now.
func (p *planner) checkFirstSync(ctx context.Context) error {
	if len(p.state.versions) == 0 || p.o.First {
		p.state.firstSync = true
		return nil
	}
	if err := p.session.Writer(p.state.dest).CheckOwner(ctx, ociaddr.StateTag, p.want.Subject, p.state.tags, p.warn); err != nil {
		return err
	}
	return hint.Wrap(fmt.Errorf("%s in %s: %w: it has versions, and no sync with a cooldown has noted any", p.want.Subject, p.state.dest.Repository, ErrNoAges),
		"if no sync with a cooldown has filled this repository, run ocibridge sync --first once: no version that its source has now waits. "+
			"If a clean-up rule has removed the tag %s, restore the tag, and exempt tags that begin with ocibridge- from the rule; "+
			"where that is not possible, keep young versions out by versions for the run with --first", ociaddr.StateTag)
}

// record adds to the repository's state the versions that no sync has seen before, and the
// indexes that the sync will replace. It writes all additions in one document. An interrupted
// first sync has therefore noted either all versions or none. If the state cannot be written,
// record fails only for a provider with a cooldown, and otherwise warns.
func (s *Syncer) record(ctx context.Context, state *repositoryState, replaced []artifact.Replaced, out *Outcome) error {
	change := repo.StateChange{Seen: map[provider.Version]time.Time{}, Cooldown: state.firstSync, Replaced: replaced}
	var now time.Time // zero in a first sync, because the cooldown does not apply to its versions
	if !state.firstSync {
		now = s.o.Push.Now()
	}
	for _, v := range state.unseen {
		change.Seen[v] = now
	}
	if len(change.Seen) == 0 && !change.Cooldown && len(replaced) == 0 {
		return nil
	}
	unlock, err := state.dest.LockFor(ctx, "sync of %s", state.subject)
	if err != nil {
		return err
	}
	defer unlock()
	err = s.session.Writer(state.dest).UpdateState(ctx, state.subject, change, out.warn)
	switch {
	case err == nil:
	case state.cooldown:
		return hint.Wrap(err, "a cooldown needs the tag %s, which keeps when a sync first saw each version; where the registry takes no such tag, leave cooldown out", ociaddr.StateTag)
	case ctx.Err() == nil && len(replaced) > 0:
		out.warn("%s: no prune will find the %d indexes that are replaced: %v", state.dest.Repository, len(replaced), err)
	}
	return nil
}
