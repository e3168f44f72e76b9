package pusher

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// waits returns which of the versions asked for are too young, and until when.
// What the repository has waits no longer, and what the source had at the
// provider's first sync never does. Versions that were not seen before are noted,
// for [Syncer.Apply] to keep.
func (p *planner) waits(ctx context.Context, asked []provider.Version) (map[provider.Version]time.Time, error) {
	if p.want.Cooldown == 0 {
		return nil, nil
	}
	if err := p.checkFirstSync(ctx); err != nil {
		return nil, err
	}
	for _, v := range p.listing.Versions {
		if !p.state.seen[v] {
			p.state.unseen = append(p.state.unseen, v)
		}
	}
	now := p.o.Now()
	out := map[provider.Version]time.Time{}
	for _, v := range asked {
		if p.state.versions[v] || p.state.firstSync {
			continue
		}
		since := artifact.Seen{At: now}
		if p.state.seen[v] {
			var err error
			if since, err = p.readSeen(ctx, v); err != nil {
				return nil, err
			}
		}
		if until := since.At.Add(p.want.Cooldown); !since.At.IsZero() && until.After(now) {
			out[v] = until
		}
	}
	return out, nil
}

// checkFirstSync finds out whether no sync has kept ages before. A list of tags
// alone does not say so: with one that is wrong for a moment, nothing would wait.
func (p *planner) checkFirstSync(ctx context.Context) error {
	if slices.Contains(p.state.tags, ociaddr.SeenAll) {
		return nil
	}
	repo := p.state.dest.Repository
	_, err := artifact.Resolve(mayPush(ctx, repo), p.state.store, string(ociaddr.SeenAll))
	switch {
	case err == nil:
		return hint.New(fmt.Sprintf("list tags of %s: the list lacks the tag %s, which is there", repo, ociaddr.SeenAll),
			"run sync again; if it stays so, the registry does not list all of its tags")
	case !isNotFound(err):
		return &RegistryError{"read " + string(ociaddr.SeenAll) + " in", repo, err}
	}
	p.state.firstSync = true
	return nil
}

func (p *planner) readSeen(ctx context.Context, v provider.Version) (artifact.Seen, error) {
	tag, err := ociaddr.SeenTag(v)
	if err != nil {
		return artifact.Seen{}, err
	}
	seen, err := artifact.ReadSeen(ctx, p.state.dest.Store, string(tag))
	if isUnusable(err) {
		return seen, hint.Wrap(fmt.Errorf("%s:%s: %w", p.state.dest.Repository, tag, err),
			"delete that tag: the version's age counts from the next sync then")
	}
	if err != nil {
		return seen, &RegistryError{"read " + string(tag) + " in", p.state.dest.Repository, err}
	}
	return seen, nil
}

// recordSeen keeps since when versions are known that no sync saw before.
func (s *Syncer) recordSeen(ctx context.Context, state *repositoryState) error {
	if len(state.unseen) == 0 && !state.firstSync {
		return nil
	}
	ctx = mayPush(ctx, state.dest.Repository)
	w := &push{Pusher: s.pusher, dest: state.dest, tag: ociaddr.SeenAll}
	if err := w.checkOwner(ctx, state.provider, state.tags); err != nil {
		return err
	}
	var seen artifact.Seen
	if !state.firstSync {
		seen.At = s.o.Now()
	}
	manifest, err := artifact.EncodeSeen(seen)
	if err != nil {
		return err
	}
	if err := w.sendBlob(ctx, "push config to", artifact.Config()); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.o.Push.Jobs)
	for _, v := range state.unseen {
		tag, err := ociaddr.SeenTag(v)
		if err != nil {
			return err
		}
		g.Go(func() error { return s.tagSeen(gctx, state, manifest, tag) })
	}
	if err := g.Wait(); err != nil || !state.firstSync {
		return err
	}
	// Last: a first sync that ended before it is begun anew, lest the rest of its
	// versions wait.
	return s.tagSeen(ctx, state, manifest, ociaddr.SeenAll)
}

// tagSeen sets a tag that keeps an age. One that is there, by another sync, says
// since when the version is known: it stays.
func (s *Syncer) tagSeen(ctx context.Context, state *repositoryState, manifest artifact.Blob, tag ociaddr.Tag) error {
	there := func() bool {
		_, err := artifact.Resolve(ctx, state.store, string(tag))
		return err == nil
	}
	if there() {
		return nil
	}
	err := state.store.PushReference(ctx, manifest.Descriptor, bytes.NewReader(manifest.Data), string(tag))
	if err == nil || mayBeRule(err) && there() {
		return nil
	}
	return hint.Wrap(&RegistryError{"tag " + string(tag) + " in", state.dest.Repository, err},
		"cooldown keeps since when a version is known in a tag beside it; where the registry takes none, leave cooldown out")
}
