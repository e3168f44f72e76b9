package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ErrNoAges means that a repository has versions, but no record of when a sync first saw
// them.
var ErrNoAges = errors.New("the ages of its versions are not known")

// waits returns the requested versions that are too young, each with the time at which its
// wait ends. Stored versions do not wait. Versions that the source had at the provider's
// first sync with a cooldown do not wait either. waits also collects the versions that no
// sync has seen before, so that [Syncer.Apply] can note them.
func (p *planner) waits(ctx context.Context, asked []provider.Version) (map[provider.Version]time.Time, error) {
	if p.want.Cooldown == 0 {
		return nil, nil
	}
	seen, err := p.readAges(ctx)
	if err != nil {
		return nil, err
	}
	now := p.o.Push.Now()
	for _, v := range p.listing.Versions {
		if at, ok := seen[v]; !ok || at.After(now) { // the clock of an earlier sync was ahead
			p.state.unseen = append(p.state.unseen, v)
		}
	}
	out := map[provider.Version]time.Time{}
	for _, v := range asked {
		if p.state.versions[v] || p.state.firstSync {
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

// readAges returns the time at which a sync first saw each version. It reads the times from
// the repository's state, and from the tags that earlier releases of ocibridge wrote.
func (p *planner) readAges(ctx context.Context) (map[provider.Version]time.Time, error) {
	repository := p.state.dest.Repository
	ctx = repo.MayPush(ctx, repository)
	p.state.cooldown = true
	known, desc, err := repo.ReadState(ctx, p.cached(p.state), repository, p.want.Provider)
	if err != nil {
		return nil, err
	}
	switch listed := slices.Contains(p.state.tags, ociaddr.StateTag); {
	case desc != nil && !listed:
		return nil, p.incompleteList(ociaddr.StateTag)
	case desc == nil && listed: // without an error, no version would wait
		return nil, hint.New(fmt.Sprintf("%s: the tag %s is listed, and the registry does not find it", repository, ociaddr.StateTag), "run sync again")
	}
	if p.state.ages, err = p.readOldAges(ctx, p.state, known, p.warn); err != nil {
		return nil, err
	}
	if !known.Cooldown && !p.state.ages.Cooldown {
		if err := p.checkFirstSync(ctx); err != nil {
			return nil, err
		}
	}
	return p.state.ages.Applied(known, nil).Seen, nil
}

// checkFirstSync decides whether a repository without ages may have its first sync with a
// cooldown now. It does not rely on the list of tags alone. If that list were incomplete even
// once, no version would wait.
func (p *planner) checkFirstSync(ctx context.Context) error {
	repository := p.state.dest.Repository
	_, err := artifact.Resolve(ctx, p.state.dest.Store, string(ociaddr.SeenAll))
	switch {
	case err == nil:
		return p.incompleteList(ociaddr.SeenAll)
	case !repo.IsNotFound(err):
		return &repo.RegistryError{Op: "read " + string(ociaddr.SeenAll) + " in", Repository: repository, Err: err}
	}
	if len(p.state.versions) == 0 || p.o.First {
		p.state.firstSync = true
		return nil
	}
	if err := p.session.Writer(p.state.dest).CheckOwner(ctx, ociaddr.StateTag, p.want.Provider, p.state.tags, p.warn); err != nil {
		return err
	}
	return hint.Wrap(fmt.Errorf("%s in %s: %w: it has versions, and no sync with a cooldown has noted any", p.want.Provider, repository, ErrNoAges),
		"if no sync with a cooldown has filled this repository, run ocibridge sync --first once: no version that its source has now waits. "+
			"If a clean-up rule has removed the tag %s, restore the tag, and exempt tags that begin with ocibridge- from the rule; "+
			"where that is not possible, keep young versions out by versions for the run with --first", ociaddr.StateTag)
}

// incompleteList returns the error for a list of tags that lacks an existing tag.
func (p *planner) incompleteList(tag ociaddr.Tag) error {
	return hint.New(fmt.Sprintf("list tags of %s: the list lacks the tag %s, which is there", p.state.dest.Repository, tag),
		"run sync again; if it stays so, the registry does not list all of its tags")
}

// record adds to the repository's state the versions that no sync has seen before, the ages
// from the tags of earlier releases, and the indexes that the sync will replace. It writes
// all additions in one document. An interrupted first sync has therefore noted either all
// versions or none. Then record removes the tags of earlier releases. If the state cannot be
// written, record fails only for a provider with a cooldown, and otherwise warns.
func (s *Syncer) record(ctx context.Context, state *repositoryState, replaced []artifact.Replaced, out *Outcome) error {
	unlock, err := state.dest.LockFor(ctx, "sync of %s", state.provider)
	if err != nil {
		return err
	}
	defer unlock()
	err = s.writeState(ctx, state, replaced, out)
	switch {
	case err == nil:
		return s.removeOldAges(ctx, state, out)
	case state.cooldown:
		return hint.Wrap(err, "a cooldown needs the tag %s, which keeps when a sync first saw each version; where the registry takes no such tag, leave cooldown out", ociaddr.StateTag)
	case ctx.Err() != nil:
		return nil
	}
	if len(replaced) > 0 {
		out.warn("%s: no prune will find the %d indexes that are replaced: %v", state.dest.Repository, len(replaced), err)
	}
	if len(state.oldAges) > 0 {
		out.warn("%s: tags that begin with %s are left: %v", state.dest.Repository, ociaddr.SeenAll, err)
	}
	return nil
}

// writeState adds the ages and the replaced indexes that a sync knows to the state of a
// repository. If the provider has no cooldown, it first reads the ages in the tags of earlier
// releases.
func (s *Syncer) writeState(ctx context.Context, state *repositoryState, replaced []artifact.Replaced, out *Outcome) error {
	if !state.cooldown && len(state.oldAges) > 0 {
		known, _, err := repo.ReadState(repo.MayPush(ctx, state.dest.Repository), state.dest.Store, state.dest.Repository, state.provider)
		if err == nil {
			state.ages, err = s.readOldAges(ctx, state, known, out.warn)
		}
		if err != nil {
			return err
		}
		state.tags = append(state.tags, ociaddr.StateTag) // so that a prune reads the state
	}
	change := repo.StateChange{Seen: map[provider.Version]time.Time{}, Cooldown: state.ages.Cooldown || state.firstSync, Replaced: replaced}
	maps.Copy(change.Seen, state.ages.Seen)
	var now time.Time // zero in a first sync, because its versions do not wait
	if !state.firstSync {
		now = s.o.Push.Now()
	}
	for _, v := range state.unseen {
		change.Seen[v] = now
	}
	if len(change.Seen) == 0 && !change.Cooldown && len(replaced) == 0 {
		return nil
	}
	return s.session.Writer(state.dest).UpdateState(ctx, state.provider, change, out.warn)
}

// readOldAges returns the ages that are recorded in tags of earlier releases but not in the
// state. If the content of a tag is invalid, readOldAges warns, and the version's age counts
// from now.
func (s *Syncer) readOldAges(ctx context.Context, state *repositoryState, known *artifact.State, warn func(format string, args ...any)) (repo.StateChange, error) {
	out := repo.StateChange{Seen: map[provider.Version]time.Time{}}
	for _, tag := range state.oldAges {
		v, ok := tag.Seen()
		if !ok {
			out.Cooldown = !known.Cooldown // the tag is ociaddr.SeenAll
			continue
		}
		if _, merged := known.Seen[v]; merged {
			continue
		}
		at, _, err := artifact.ReadSeen(ctx, state.dest.Store, string(tag))
		switch {
		case err == nil:
			out.Seen[v] = at
		case repo.IsNotFound(err): // another sync has moved the age into the state
		case repo.IsUnusable(err):
			warn("%s:%s: %v: the age of version %s counts from now", state.dest.Repository, tag, err, v)
		default:
			return out, &repo.RegistryError{Op: "read " + string(tag) + " in", Repository: state.dest.Repository, Err: err}
		}
	}
	return out, nil
}

// removeOldAges removes the tags of earlier releases. The state already has their ages, so a
// tag that cannot be removed only causes a warning.
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
		case err == nil, repo.IsNotFound(err):
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		cause, left = err, left+1
		if !repo.IsUnusable(err) { // the registry will refuse the others, too
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
// that name it. It deletes nothing if the tag does not name an age.
func removeOldAge(ctx context.Context, store repo.Store, tag ociaddr.Tag) error {
	_, desc, err := artifact.ReadSeen(ctx, store, string(tag))
	if err != nil {
		return err
	}
	return store.Delete(ctx, desc)
}
