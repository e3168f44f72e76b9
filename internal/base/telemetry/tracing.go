package telemetry

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

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// scope is the name of ocibridge's instrumentation scope.
const scope = "github.com/ocibridge/ocibridge"

// OpenTelemetry is a [Tracer] that exports traces. The OTEL_* variables configure it.
type OpenTelemetry struct {
	tracer   trace.Tracer
	join     propagation.TextMapPropagator
	provider *sdk.TracerProvider
}

var _ Tracer = (*OpenTelemetry)(nil)

// WantsTraces reports whether the environment enables traces. The name of an exporter or the address of a collector
// enables them. The exporter none, and OTEL_SDK_DISABLED=true, disable traces.
func WantsTraces(getenv func(string) string) bool {
	exporter := getenv("OTEL_TRACES_EXPORTER")
	to := cmp.Or(exporter, getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	return to != "" && exporter != "none" && getenv("OTEL_SDK_DISABLED") != "true"
}

// NewTracer returns a tracer that the OTEL_* variables configure. The caller must call [OpenTelemetry.Shutdown]. Errors
// of the exporter are logged.
func NewTracer(ctx context.Context, version string, log *slog.Logger) (*OpenTelemetry, error) {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("traces: %w", err), "correct OTEL_TRACES_EXPORTER (otlp, console or none) or OTEL_EXPORTER_OTLP_PROTOCOL (http/protobuf or grpc), or unset it")
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "ocibridge"), attribute.String("service.version", version)),
		resource.WithFromEnv(), // comes last, so that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are lost", "err", err) }))
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &OpenTelemetry{p.Tracer(scope), propagation.TraceContext{}, p}, nil
}

// shutdownTime is how long [OpenTelemetry.Shutdown] waits for the collector.
const shutdownTime = 5 * time.Second

// Shutdown exports the remaining spans.
func (t *OpenTelemetry) Shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Join implements [Tracer] with the headers of W3C Trace Context.
func (t *OpenTelemetry) Join(ctx context.Context, h http.Header) context.Context {
	return t.join.Extract(ctx, propagation.HeaderCarrier(h))
}

// Follow implements [Tracer].
func (t *OpenTelemetry) Follow(ctx, from context.Context) context.Context {
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(from))
}

// kinds maps the names of the spans that describe communication with another program to their kinds.
var kinds = map[string]trace.SpanKind{"request": trace.SpanKindServer, "registry request": trace.SpanKindClient}

// Start implements [Tracer].
func (t *OpenTelemetry) Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, End) {
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

// maxText is the maximum length in bytes of an attribute or an error of a span. Clients choose the lengths of paths, and
// registries choose the lengths of errors.
const maxText = 1000

// bounded returns the first maxText bytes of s as valid UTF-8. A collector refuses a message with any invalid UTF-8.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "\ufffd") }

func attributes(attrs []slog.Attr) []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, a := range attrs {
		if v := a.Value; v.Kind() == slog.KindInt64 {
			out = append(out, attribute.Int64(a.Key, v.Int64()))
		} else if text := v.String(); text != "" {
			out = append(out, attribute.String(a.Key, bounded(text)))
		}
	}
	return out
}
