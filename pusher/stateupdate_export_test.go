package pusher

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// StateChange is stateChange with exported fields, for tests in package pusher_test.
type StateChange struct {
	Seen     map[provider.Version]time.Time
	Cooldown bool
	Replaced []artifact.Replaced
	Deleted  map[digest.Digest]bool
	Summary  artifact.Summary
}

// UpdateState calls updateState, for tests in package pusher_test.
func (p *Pusher) UpdateState(ctx context.Context, a provider.Address, dest Destination, c StateChange) error {
	return p.updateState(ctx, a, dest, stateChange{seen: c.Seen, cooldown: c.Cooldown, replaced: c.Replaced, deleted: c.Deleted, summary: c.Summary}, func(string, ...any) {})
}
