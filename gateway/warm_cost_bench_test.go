package gateway_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// BenchmarkWarmCost measures how long the handler takes to serve a document from memory, without
// net/http's server. Metrics are on, and the log is formatted and discarded.
func BenchmarkWarmCost(b *testing.B) {
	p := newPublisher(newBench(b))
	p.push(widget, "1.0.0")
	a := p.requireApprovals(widget.Pattern(), nil)
	a.approve(widget, "1.0.0")
	p.options.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	m := telemetry.NewMetrics("")
	p.options.Hooks = gateway.Hooks{Began: m.RequestBegan, Ended: m.RequestEnded}
	for _, c := range []struct {
		name, document string
		approvals      catalog.Approvals
	}{{"list", "index.json", nil}, {"version", "1.0.0.json", nil}, {"approved version", "1.0.0.json", a.checker}} {
		b.Run(c.name, func(b *testing.B) {
			p.catalog(catalog.Options{Repository: p.options.Repository, Approvals: c.approvals})
			g := gateway.NewBacked(p.options)
			r := httptest.NewRequest(http.MethodGet, prefix+c.document, nil)
			first := httptest.NewRecorder()
			if g.ServeHTTP(first, r); first.Code != http.StatusOK {
				b.Fatal(first.Code, first.Body)
			}
			to := &nowhere{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(to.header)
				g.ServeHTTP(to, r)
			}
		})
	}
}

// nowhere is an [http.ResponseWriter] that discards the response.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
