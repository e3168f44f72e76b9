// Package telemetry shows operators what a gateway does. It provides metrics for Prometheus, traces for OpenTelemetry,
// the ids of requests in the log, and readiness. No other package imports Prometheus' client or OpenTelemetry.
// docs/reference/operations.md describes every metric, and a test compares that page with the metrics.
//
// Contexts carry the id and the trace of a request. Other packages start spans with [Start], and use the counters of this
// package, such as [CatalogCounters].
//
// No label of a metric contains the name of a provider, because the number of providers is not bounded. The number of
// registries in labels is bounded.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Tracer records traces. [OpenTelemetry] implements it.
type Tracer interface {
	// Start begins a span within the span that ctx carries. The caller must end the new span.
	Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, End)
	// Follow returns a copy of ctx that carries the span of another context.
	Follow(ctx, from context.Context) context.Context
	// Join returns a copy of ctx that carries the span that the headers of a request name.
	Join(ctx context.Context, h http.Header) context.Context
}

// End ends a span and adds attributes without secrets to it. err is the error of the operation, or nil.
type End func(err error, attrs ...slog.Attr)

type requestKey struct{}

// request is the value that a context carries.
type request struct {
	id     string
	tracer Tracer // nil without tracing
}

func requestFrom(ctx context.Context) request {
	r, _ := ctx.Value(requestKey{}).(request)
	return r
}

// WithRequest returns a copy of ctx that carries the id and the tracer of a request. t is nil for a request without
// spans.
func WithRequest(ctx context.Context, id string, t Tracer) context.Context {
	return context.WithValue(ctx, requestKey{}, request{id, t})
}

// Follow returns a copy of ctx that carries the id and the trace of another context's request. It is for an operation
// that several requests wait for. The operation's own context, ctx, can outlive each of these requests.
func Follow(ctx, from context.Context) context.Context {
	r := requestFrom(from)
	if r == (request{}) {
		return ctx
	}
	ctx = context.WithValue(ctx, requestKey{}, r)
	if r.tracer != nil {
		ctx = r.tracer.Follow(ctx, from)
	}
	return ctx
}

// Start begins a span in the trace of the request that ctx carries. The caller must end the span. Without tracing,
// Start does nothing.
func Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, End) {
	if t := requestFrom(ctx).tracer; t != nil {
		return t.Start(ctx, name, attrs...)
	}
	return ctx, func(error, ...slog.Attr) {}
}

// LogKey is the key of a request's id in the log.
const LogKey = "request_id"

// Handler returns a log handler that passes records to h, each with the id of the request that its context carries.
func Handler(h slog.Handler) slog.Handler { return tagging{h} }

type tagging struct{ slog.Handler }

func (t tagging) Handle(ctx context.Context, r slog.Record) error {
	if id := requestFrom(ctx).id; id != "" {
		r = r.Clone()
		r.AddAttrs(slog.String(LogKey, id))
	}
	return t.Handler.Handle(ctx, r)
}

func (t tagging) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tagging{t.Handler.WithAttrs(attrs)}
}

func (t tagging) WithGroup(name string) slog.Handler { return tagging{t.Handler.WithGroup(name)} }

// WarningPause is the minimum time between two warnings that a [Throttle] allows.
const WarningPause = time.Minute

// Throttle limits a warning that clients can cause to one per [WarningPause]. The zero value is ready for use.
type Throttle struct {
	mu     sync.Mutex
	warned time.Time
	others int // events since the last warning
}

// Allow reports whether to log an event as a warning. others is the number of events since the last warning that were not
// logged as warnings.
func (t *Throttle) Allow() (warn bool, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.warned.IsZero() || now.Sub(t.warned) >= WarningPause {
		others, t.others, t.warned = t.others, 0, now
		return true, others
	}
	t.others++
	return false, 0
}
