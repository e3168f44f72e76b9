package gateway_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// BenchmarkWarmCost measures how long the handler takes to serve a document from memory, without
// net/http's server. Metrics are on, and the log is formatted and discarded.
func BenchmarkWarmCost(b *testing.B) {
	w := newBench(b)
	w.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(b, linux)})
	w.options.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	m := telemetry.NewMetrics("")
	w.options.Hooks = gateway.Hooks{Began: m.RequestBegan, Ended: m.RequestEnded}
	g := gateway.NewBacked(w.options)
	r := httptest.NewRequest(http.MethodGet, prefix+"index.json", nil)
	g.ServeHTTP(httptest.NewRecorder(), r)
	to := &nowhere{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(to.header)
		g.ServeHTTP(to, r)
	}
}

// nowhere is an [http.ResponseWriter] that discards the response.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
