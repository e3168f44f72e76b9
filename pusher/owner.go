package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// ownerProbes is the number of versions whose indexes checkOwner reads. If a policy of the
// registry forbids reading some of them, it tries more, up to maxOwnerProbes.
const ownerProbes, maxOwnerProbes = 3, 20

// checkOwner refuses a repository whose newest versions name another provider. Such a
// repository exists because a template like ${namespace}-${type} gives a-b/c and a/b-c the
// same name. checkOwner warns if it finds no owner because a policy forbids reading these
// versions.
func (w *push) checkOwner(ctx context.Context, a provider.Address, tags []ociaddr.Tag) error {
	versions := versionsOf(tags)
	slices.Reverse(versions)
	var forbidden error
	probes := 0
	for _, v := range versions[:min(len(versions), maxOwnerProbes)] {
		if probes == ownerProbes {
			return nil
		}
		found, err := artifact.Read(ctx, w.dest.Store, a, v)
		if errors.Is(err, artifact.ErrForeign) {
			return w.occupied(fmt.Errorf("its tag %s: %w", v, err), helpForeign)
		}
		switch {
		case err == nil && !found.Provider.IsZero():
			return nil
		case refusals.Policy(err):
			forbidden = err
			continue
		case err != nil && !isUnusable(err):
			return w.registryError("read "+v.String()+" in", err)
		}
		probes++
	}
	if forbidden != nil && probes == 0 {
		w.warn("%s: ocibridge could not check which provider this repository belongs to: %v", w.dest.Repository, forbidden)
	}
	return nil
}

func (w *push) occupied(err error, help string) error {
	return hint.Wrap(fmt.Errorf("%s:%s: %w: %w", w.dest.Repository, w.tag, ErrOccupied, err), "%s", help)
}

// tags lists the repository's tags. It returns none if there is no repository.
func (w *push) tags(ctx context.Context) ([]ociaddr.Tag, error) {
	tags, err := listTags(ctx, w.dest.Store)
	if err != nil {
		return nil, w.registryError("list tags of", err)
	}
	return tags, nil
}

// listTags lists tags. It returns none if there is no repository.
func listTags(ctx context.Context, store artifact.TagLister) ([]ociaddr.Tag, error) {
	tags, err := artifact.ListTags(ctx, store)
	if isNotFound(err) && !errors.Is(err, artifact.ErrTagsBrokeOff) {
		return nil, nil
	}
	return tags, err
}

// versionsOf returns the versions among tags, oldest first.
func versionsOf(tags []ociaddr.Tag) []provider.Version {
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	return out
}
