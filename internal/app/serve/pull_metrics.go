package serve

import (
	"context"
	"errors"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// pulled counts an event of pull-through.
func (o *operations) pulled(e pull.Event) {
	outcome, limit := resultOf(e)
	o.metrics.Pulled(string(e.Kind), outcome)
	if e.Kind != pull.Fetched {
		return
	}
	if e.From != pull.FromRegistry {
		o.metrics.PullDownloaded(e.Bytes, e.Took, e.Err == nil)
	}
	if limit != "" {
		o.metrics.PullLimited(limit)
	}
}

// resultOf returns the outcome of an event for the metrics, and the limit that the event
// reached. limit is "" if the event reached no limit. The outcome of an event without an
// error is "present" if the archive came from the registry, and otherwise the kind of the
// event.
func resultOf(e pull.Event) (outcome, limit string) {
	var size *pull.SizeError
	var busy *catalog.BusyError
	switch err := e.Err; {
	case err == nil && e.From == pull.FromRegistry:
		return "present", ""
	case err == nil:
		return string(e.Kind), ""
	case errors.As(err, &busy):
		return "busy", busy.Limit
	case errors.As(err, &size):
		return "refused", "max_size"
	case trust.Refused(err):
		return "refused", ""
	case errors.Is(err, context.Canceled):
		return "abandoned", ""
	case errors.Is(err, pull.ErrNotOffered), errors.Is(err, origin.ErrVersionNotFound), errors.Is(err, origin.ErrPlatformNotFound):
		return "absent", ""
	case errors.Is(err, pusher.ErrConflict), errors.Is(err, repo.ErrOccupied), errors.Is(err, repo.ErrImmutable):
		return "conflict", ""
	}
	return "failed", ""
}
