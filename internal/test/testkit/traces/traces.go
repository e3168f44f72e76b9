// Package traces records the spans of a gateway under test.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// Recorder records spans. It is safe for concurrent use. The zero value is an empty recorder.
type Recorder struct {
	mu    sync.Mutex
	spans []string
	text  strings.Builder
}

type spanKey struct{}

// Start implements [telemetry.Tracer].
func (r *Recorder) Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, telemetry.End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if within, ok := ctx.Value(spanKey{}).(string); ok {
		name = within + " > " + name
	}
	r.spans = append(r.spans, name)
	fmt.Fprintln(&r.text, name, attrs)
	return context.WithValue(ctx, spanKey{}, name), func(err error, attrs ...slog.Attr) {
		r.mu.Lock()
		defer r.mu.Unlock()
		fmt.Fprintln(&r.text, "end of", name, attrs, err)
	}
}

// Follow implements [telemetry.Tracer].
func (r *Recorder) Follow(ctx, from context.Context) context.Context {
	return context.WithValue(ctx, spanKey{}, from.Value(spanKey{}))
}

// Join implements [telemetry.Tracer]. The name of the request's parent span is the value of the Traceparent
// header.
func (r *Recorder) Join(ctx context.Context, h http.Header) context.Context {
	if from := h.Get("Traceparent"); from != "" {
		return context.WithValue(ctx, spanKey{}, from)
	}
	return ctx
}

// String returns all recorded spans as text, including their attributes and errors.
func (r *Recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// Spans returns the names of all spans. Each name begins with the names of the parent spans, as in "request >
// archive fetch".
func (r *Recorder) Spans() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}
