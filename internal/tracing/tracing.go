// Package tracing records traces by OpenTelemetry, as the OTEL_* variables say. Others
// know it as an [observe.Tracer].
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/observe"
)

// scope names what makes the spans.
const scope = "github.com/ocibridge/ocibridge"

// Tracer records traces.
type Tracer struct {
	tracer   trace.Tracer
	join     propagation.TextMapPropagator
	provider *sdk.TracerProvider
}

var _ observe.Tracer = (*Tracer)(nil)

// Wanted reports whether the environment asks for traces: it names an exporter, or
// where to send them, and does not say none.
func Wanted(getenv func(string) string) bool {
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	exporter := getenv("OTEL_TRACES_EXPORTER")
	to := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	return exporter != "none" && (exporter != "" || to != "")
}

// New returns what records traces as the environment of the process says, in which
// they are [Wanted]. The caller shuts it down. What is wrong on the way to a collector
// is for the log.
func New(ctx context.Context, version string, log *slog.Logger) (*Tracer, error) {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("traces: %w", err), "correct OTEL_TRACES_EXPORTER (otlp, console or none) or OTEL_EXPORTER_OTLP_PROTOCOL (http/protobuf or grpc), or unset it")
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "ocibridge"), attribute.String("service.version", version)),
		resource.WithFromEnv(), // last: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are lost", "err", err) }))
	return newTracer(sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))), nil
}

func newTracer(p *sdk.TracerProvider) *Tracer {
	return &Tracer{p.Tracer(scope), propagation.TraceContext{}, p}
}

// shutdownTime bounds how long is waited for a collector in the end.
const shutdownTime = 5 * time.Second

// Shutdown sends what was recorded.
func (t *Tracer) Shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Join returns ctx for the trace that a request with such headers is part of, by W3C
// Trace Context.
func (t *Tracer) Join(ctx context.Context, h http.Header) context.Context {
	return t.join.Extract(ctx, propagation.HeaderCarrier(h))
}

// Follow implements [observe.Tracer].
func (t *Tracer) Follow(ctx, from context.Context) context.Context {
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(from))
}

// kinds are those of spans that others than ours are the other end of.
var kinds = map[string]trace.SpanKind{"request": trace.SpanKindServer, "registry request": trace.SpanKindClient}

// Start implements [observe.Tracer].
func (t *Tracer) Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, observe.End) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kinds[name]), trace.WithAttributes(attributes(attrs)...))
	return ctx, func(err error, attrs ...slog.Attr) {
		span.SetAttributes(attributes(attrs)...)
		if err != nil {
			span.SetStatus(codes.Error, bounded(err.Error()))
		}
		if i := slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == "http.response.status_code" }); i >= 0 {
			if status := attrs[i].Value.Int64(); kinds[name] == trace.SpanKindServer && (status >= 500 || status == 0) {
				span.SetStatus(codes.Error, "")
			}
		}
		span.End()
	}
}

// maxText bounds what a span says in one place. Paths and errors may be as long as
// others like.
const maxText = 1000

// bounded returns what of a text can be sent: a collector refuses all of a message
// with bytes in it that are no text.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "\ufffd") }

func attributes(attrs []slog.Attr) []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, a := range attrs {
		switch v := a.Value; v.Kind() {
		case slog.KindInt64:
			out = append(out, attribute.Int64(a.Key, v.Int64()))
		case slog.KindString:
			if v.String() != "" {
				out = append(out, attribute.String(a.Key, bounded(v.String())))
			}
		default:
			out = append(out, attribute.String(a.Key, bounded(v.String())))
		}
	}
	return out
}
