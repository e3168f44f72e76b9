package telemetry_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	proto "google.golang.org/protobuf/proto"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// receiver is a collector that receives traces by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*span
	about map[string]string // the attributes of the resource
}

type span struct {
	name, trace, id, parent, status string
	attrs                           map[string]string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{about: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL.Path, err)
		}
		r.take(&export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(export *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range export.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			r.about[a.Key] = a.Value.GetStringValue()
		}
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				out := &span{name: s.Name, trace: hex(s.TraceId), id: hex(s.SpanId), parent: hex(s.ParentSpanId), status: s.GetStatus().GetCode().String(), attrs: map[string]string{}}
				for _, a := range s.Attributes {
					out.attrs[a.Key] = strings.TrimSuffix(strings.TrimPrefix(a.Value.String(), `string_value:"`), `"`)
				}
				r.spans = append(r.spans, out)
			}
		}
	}
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, c := range b {
		out.WriteByte(digits[c>>4])
		out.WriteByte(digits[c&15])
	}
	return out.String()
}

func (r *receiver) find(t *testing.T, name string) *span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no span %q", name)
	return nil
}

func TestSpans(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	t.Setenv("OTEL_SERVICE_NAME", "mirror")
	tracer, err := telemetry.NewTracer(t.Context(), "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	ctx := telemetry.WithRequest(tracer.Join(t.Context(), h), "id-1", tracer)
	ctx, end := telemetry.Start(ctx, "request", slog.String("url.path", "/\xff"+strings.Repeat("x", 5000)), slog.Int("http.response.status_code", 200))
	aside := telemetry.Follow(context.Background(), ctx)
	inner, endInner := telemetry.Start(aside, "catalog fetch", slog.String("provider", "a/b/c"), slog.String("version", ""))
	var log strings.Builder
	slog.New(telemetry.Handler(slog.NewTextHandler(&log, nil))).InfoContext(inner, "fetched")
	if !strings.Contains(log.String(), "request_id=id-1") {
		t.Errorf("an operation that follows a request logs %s", log.String())
	}
	endInner(errors.New("the registry is down"))
	end(nil, slog.Int("http.response.status_code", 502))
	if err := tracer.Shutdown(); err != nil {
		t.Fatal(err)
	}
	request, fetch := r.find(t, "request"), r.find(t, "catalog fetch")
	if request.trace != "4bf92f3577b34da6a3ce929d0e0e4736" || request.parent != "00f067aa0ba902b7" || request.status != "STATUS_CODE_ERROR" {
		t.Errorf("request %+v", request)
	}
	if n := len(request.attrs["url.path"]); n < 900 || n > 1100 {
		t.Errorf("a path of %d bytes", n)
	}
	if fetch.trace != request.trace || fetch.parent != request.id || fetch.attrs["provider"] != "a/b/c" || fetch.status != "STATUS_CODE_ERROR" || len(fetch.attrs) != 1 {
		t.Errorf("fetch %+v of %+v", fetch, request)
	}
	if r.about["service.name"] != "mirror" || r.about["service.version"] != "1.2.3" {
		t.Errorf("resource %v", r.about)
	}
}

func TestWantsTraces(t *testing.T) {
	for env, want := range map[string]bool{
		"": false, "OTEL_TRACES_EXPORTER=none": false, "OTEL_TRACES_EXPORTER=otlp": true, "OTEL_TRACES_EXPORTER=console": true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318": true, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces": true,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_EXPORTER=none": false,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=true":    false,
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318":                   false,
	} {
		got := telemetry.WantsTraces(func(name string) string {
			for part := range strings.FieldsSeq(env) {
				if v, ok := strings.CutPrefix(part, name+"="); ok {
					return v
				}
			}
			return ""
		})
		if got != want {
			t.Errorf("WantsTraces with %q: %v", env, got)
		}
	}
}

// TestBadSettings shows that NewTracer refuses an unknown exporter and an unknown protocol.
func TestBadSettings(t *testing.T) {
	for name, value := range map[string]string{"OTEL_TRACES_EXPORTER": "jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := telemetry.NewTracer(t.Context(), "", slog.New(slog.DiscardHandler)); err == nil {
				t.Errorf("%s=%s was accepted", name, value)
			}
		})
	}
}
