package serve

import (
	"context"
	"errors"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/pull"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// pulled counts an event of pull-through.
func (o *operations) pulled(e pull.Event) {
	switch e.Kind {
	case pull.Verified:
		o.metrics.PullChecked(verifyOutcome(e.Err))
	case pull.Fetched:
		bytes := e.Bytes
		if e.From == pull.FromRegistry {
			bytes = 0
		}
		o.metrics.PullFetched(fetchOutcome(e), bytes, e.Took)
		if limit := limitOf(e.Err); limit != "" {
			o.metrics.PullLimited(limit)
		}
	case pull.Stored:
		o.metrics.PullStored(storeOutcome(e.Err))
	}
}

func verifyOutcome(err error) string {
	switch {
	case err == nil:
		return telemetry.PullVerified
	case trust.Refused(err):
		return telemetry.PullRefused
	}
	return telemetry.PullFailed
}

func fetchOutcome(e pull.Event) string {
	var size *pull.SizeError
	var busy *catalog.BusyError
	switch err := e.Err; {
	case err == nil && e.From == pull.FromRegistry:
		return telemetry.PullPresent
	case err == nil:
		return telemetry.PullFetched
	case errors.As(err, &busy):
		return telemetry.PullBusy
	case errors.As(err, &size), trust.Refused(err):
		return telemetry.PullRefused
	case errors.Is(err, context.Canceled):
		return telemetry.PullAbandoned
	case errors.Is(err, pull.ErrNotOffered), errors.Is(err, origin.ErrVersionNotFound), errors.Is(err, origin.ErrPlatformNotFound):
		return telemetry.PullAbsent
	}
	return telemetry.PullFailed
}

// limitOf returns the limit that an error is about; "" for none.
func limitOf(err error) string {
	var size *pull.SizeError
	var busy *catalog.BusyError
	switch {
	case errors.As(err, &busy):
		return busy.Limit
	case errors.As(err, &size):
		return "max_size"
	}
	return ""
}

func storeOutcome(err error) string {
	switch {
	case err == nil:
		return telemetry.StoreStored
	case errors.Is(err, pusher.ErrConflict), errors.Is(err, pusher.ErrOccupied), errors.Is(err, pusher.ErrImmutable):
		return telemetry.StoreConflict
	}
	return telemetry.StoreFailed
}
