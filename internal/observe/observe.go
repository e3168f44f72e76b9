// Package observe carries through contexts what tells the work for one request from
// that for others: the request's id, which the log has in every line, and its trace.
// It knows neither what traces are recorded by nor what the log is written by, so
// that every package may use it.
package observe

import (
	"context"
	"log/slog"
)

// Tracer records traces. See package internal/tracing for the one that does.
type Tracer interface {
	// Start begins a span within the one that ctx has. What it returns ends it.
	Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, End)
	// Follow returns ctx with the span that another context has.
	Follow(ctx, from context.Context) context.Context
}

// End ends a span, with the error that what it is about ended with, if any, and what
// was not known before. No attribute may hold a secret.
type End func(err error, attrs ...slog.Attr)

type key struct{}

// request is what a context has.
type request struct {
	id     string
	tracer Tracer // nil: nobody wants traces
}

func of(ctx context.Context) request {
	r, _ := ctx.Value(key{}).(request)
	return r
}

// With returns ctx for the work for a request. A nil tracer records nothing.
func With(ctx context.Context, id string, t Tracer) context.Context {
	return context.WithValue(ctx, key{}, request{id, t})
}

// ID returns the id of the request that ctx is for, "" if it is for none.
func ID(ctx context.Context) string { return of(ctx).id }

// Follow returns ctx for the request that another context is for: what outlives a
// request, because others wait for it too, has a context of its own.
func Follow(ctx, from context.Context) context.Context {
	r := of(from)
	if r == (request{}) {
		return ctx
	}
	ctx = context.WithValue(ctx, key{}, r)
	if r.tracer != nil {
		ctx = r.tracer.Follow(ctx, from)
	}
	return ctx
}

// Traced reports whether ctx is for a request whose trace somebody wants, for those
// to whom naming a span's attributes is work.
func Traced(ctx context.Context) bool { return of(ctx).tracer != nil }

// Start begins a span in the trace of the request that ctx is for, if anybody wants
// traces. The caller ends it.
func Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, End) {
	if t := of(ctx).tracer; t != nil {
		return t.Start(ctx, name, attrs...)
	}
	return ctx, noEnd
}

func noEnd(error, ...slog.Attr) {}

// LogKey is the name of the id in the log.
const LogKey = "request_id"

// Tag adds the id of the request that ctx is for to a line of the log.
func Tag(ctx context.Context, r *slog.Record) {
	if id := ID(ctx); id != "" {
		r.AddAttrs(slog.String(LogKey, id))
	}
}

// Handler returns a handler of log records that tags them.
func Handler(h slog.Handler) slog.Handler { return tagging{h} }

type tagging struct{ slog.Handler }

// Handle implements [slog.Handler].
func (t tagging) Handle(ctx context.Context, r slog.Record) error {
	if ID(ctx) != "" {
		r = r.Clone()
		Tag(ctx, &r)
	}
	return t.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (t tagging) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tagging{t.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (t tagging) WithGroup(name string) slog.Handler { return tagging{t.Handler.WithGroup(name)} }
