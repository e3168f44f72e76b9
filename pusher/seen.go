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
	p.state.firstSync = !slices.Contains(p.state.tags, ociaddr.SeenAll)
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
	var seen artifact.Seen
	if !state.firstSync {
		seen.At = s.o.Now()
	}
	manifest, err := artifact.EncodeSeen(seen)
	if err != nil {
		return err
	}
	w := &push{Pusher: s.pusher, dest: state.dest}
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

func (s *Syncer) tagSeen(ctx context.Context, state *repositoryState, manifest artifact.Blob, tag ociaddr.Tag) error {
	err := state.dest.Store.PushReference(ctx, manifest.Descriptor, bytes.NewReader(manifest.Data), string(tag))
	if err != nil {
		return hint.Wrap(&RegistryError{"tag " + string(tag) + " in", state.dest.Repository, err},
			"cooldown keeps since when a version is known in a tag beside it; where the registry takes none, leave cooldown out")
	}
	return nil
}
