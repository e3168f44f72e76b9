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

// minSummarized is the number of versions from which a summary saves requests.
const minSummarized = 2

// summaryTimeout is how long a listing waits for a summary before it reads the versions.
const summaryTimeout = 2 * time.Second

// Summary describes versions in a list without reading them. The descriptions come from the
// summary in the repository's state, and can be wrong. Therefore they may decide only how a
// version is listed.
//
// The result lacks all versions whose answers are in memory, because these answers are more
// reliable. It also lacks the versions that the summary lacks. In the view of the union, each
// description has the platforms of the registry and of the origin. The result then lacks
// versions that the origin may describe better. If there is no usable summary, the result is
// empty.
func (v View) Summary(ctx context.Context, list *Item) artifact.Summary {
	unread := v.unread(list)
	if len(unread) < minSummarized {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()
	item, err := v.get(within, v.summaryOf(list.Address))
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

// withOffer adds the origin's platforms to the description of a stored version. The result is
// false if the origin's platforms are unknown, or if its signature may replace the stored
// verdict.
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

// summaryOf returns the question for the summary of a provider's versions. The answer comes
// from the registry alone.
func (v View) summaryOf(a provider.Address) question {
	v.union = false
	return v.question(summary, a)
}

// fetchSummary reads the summary in a repository's state. The answer is [ErrAbsent] if there
// is no state, or if the registry refuses to show it. It is another error if the state or the
// summary is invalid.
func (c *Catalog) fetchSummary(ctx context.Context, up *upstream, item *Item) (*Item, error) {
	if before := up.before; before != nil && before.Err == nil {
		same, err := resolvesTo(ctx, up.store, ociaddr.StateTag, before.Value.state.Digest)
		switch {
		case err != nil:
			up.fail(err)
			return item, err
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

// refusesState reports whether err means that the registry has no state, or does not show it.
// For example, a policy of the registry hides artifacts that no scanner has examined. Such a
// refusal says nothing about the versions, so it must not count as a failure of the registry.
func refusesState(err error) bool {
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
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
