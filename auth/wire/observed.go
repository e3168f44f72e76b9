package wire

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// observed is a transport that traces each request and passes a record of it to report.
type observed struct {
	next   http.RoundTripper
	report func(telemetry.RegistryRequest)
}

func (t observed) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	ctx, end := telemetry.Start(req.Context(), "registry request", slog.String("http.request.method", req.Method), slog.String("server.address", req.URL.Host), slog.String("url.path", tracedPath(req)))
	if ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	resp, err := t.next.RoundTrip(req)
	sent := telemetry.RegistryRequest{Host: req.URL.Host, Authorized: req.Header.Get("Authorization") != "", Err: err, Took: time.Since(start)}
	if resp != nil {
		sent.Status = resp.StatusCode
	}
	if t.report != nil {
		t.report(sent)
	}
	end(err, slog.Int("http.response.status_code", sent.Status))
	return resp, err
}
