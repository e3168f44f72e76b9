package catalog

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	minSummarized  = 2               // for fewer versions, a summary saves no requests
	summaryTimeout = 2 * time.Second // how long a listing waits for a summary before it reads the versions
)

// Summary describes versions in a list without reading them. The descriptions come from the
// summary in the repository's state, and can be wrong. Therefore they may decide only how a
// version is listed.
//
// The result lacks versions whose answers are in memory, because those answers are more reliable.
// It also lacks versions that are not in the summary. In the view of the union, each description
// has the platforms of the registry and of the origin, and versions that the origin may describe
// better are left out. Without a usable summary, the result is empty.
func (v View) Summary(ctx context.Context, list *Item) artifact.Summary {
	unread := v.unread(list)
	if len(unread) < minSummarized {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()
	item, err := v.get(within, v.c.Registry().question(summary, list.Address))
	if err != nil {
		v.c.opts.Log.DebugContext(ctx, "versions are listed without a summary", "provider", list.Address.String(), "err", hint.Brief(err))
		return nil
	}
	out := artifact.Summary{}
	for _, version := range unread {
		described, ok := item.summary[version]
		if i, offered := list.offerOf(version); ok && offered {
			described, ok = withOffer(described, list.offers[i])
		}
		if ok {
			out[version] = described
		}
	}
	return out
}

// unread returns the tagged versions in a list whose answers are not in memory.
func (v View) unread(list *Item) []provider.Version {
	var out []provider.Version
	for _, version := range list.Versions {
		q := v.versionOf(list.Address, version)
		_, tagged := slices.BinarySearchFunc(list.tags.versions, version, provider.Version.Compare)
		if tagged && v.c.cache.Last(q) == nil && v.c.cache.Last(v.c.ofRegistry(q)) == nil {
			out = append(out, version)
		}
	}
	return out
}

// withOffer adds the origin's platforms to the description of a stored version. It returns false if
// they are unknown, or if the origin's signature may replace the stored verdict.
func withOffer(stored artifact.VersionSummary, offer Offer) (artifact.VersionSummary, bool) {
	if offer.Platforms == nil || !stored.Signed() {
		return stored, false
	}
	stored.Platforms = slices.Concat(stored.Platforms, offer.Platforms)
	provider.SortPlatforms(stored.Platforms)
	stored.Platforms = slices.Compact(stored.Platforms)
	if stored.Protocols == nil {
		stored.Protocols = offer.Protocols
	}
	return stored, true
}

// fetchSummary reads the summary in a repository's state. The error of the answer is [ErrAbsent] if
// there is no state, or if the registry refuses to show the state. The answer has another error if
// the summary is invalid.
func (c *Catalog) fetchSummary(ctx context.Context, up *upstream, item *Item) (*Item, error) {
	if before := up.before; before != nil && before.Err == nil {
		same, err := resolvesTo(ctx, up.store, ociaddr.StateTag, before.Value.state.Digest)
		switch {
		case err != nil:
			return item, up.fail(err)
		case same:
			return before.Value, nil
		}
	}
	var err error
	item.summary, item.state, err = artifact.ReadSummary(ctx, up, up.provider())
	switch {
	case refusesState(err):
		up.failure = nil
		return item, ErrAbsent
	case err != nil && up.failure == nil:
		c.logUnusable(ctx, up, err)
	}
	item.parts = up.parts
	return item, err
}

// refusesState reports whether err means that the registry has no state, or does not show it, for
// example because of a policy about artifacts that no scanner has examined. Such a refusal says
// nothing about the versions, so it must not count as a failure of the registry.
func refusesState(err error) bool {
	if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests
	}
	return errors.Is(err, errdef.ErrNotFound)
}

// logUnusable logs that a summary is invalid. It logs a warning only once.
func (c *Catalog) logUnusable(ctx context.Context, up *upstream, err error) {
	level := slog.LevelWarn
	if up.last != nil && up.last.Err != nil {
		level = slog.LevelDebug
	}
	c.opts.Log.LogAttrs(ctx, level, "the summary of versions is unusable: each version is read",
		slog.String("provider", up.provider().String()), slog.Any("err", hint.Brief(err)))
}
