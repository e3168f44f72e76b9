package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/respond"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
)

// operations are the metrics, the readiness and the traces of a process. All sites of the process share them.
type operations struct {
	metrics *telemetry.Metrics
	ready   *telemetry.Readiness
	tracer  telemetry.Tracer // nil without traces
	close   func() error
	log     *slog.Logger
	address string // the address of the separate listener for metrics; "" without such a listener

	site     atomic.Pointer[site]  // the current site
	reloaded atomic.Pointer[error] // points to the error of the last reload, or to nil after a success; nil before the first reload
}

// newOperations creates the operations of a process, with traces if the environment enables them. address is the address
// of the separate listener for metrics, or "". The caller must close the result.
func newOperations(ctx context.Context, o Options, address string) (*operations, error) {
	ops := &operations{metrics: telemetry.NewMetrics(o.Version, gateway.RouteNames()...), address: address, close: func() error { return nil }}
	ops.log = ops.metrics.CountPanics(o.Log)
	if telemetry.WantsTraces(o.Getenv) {
		t, err := telemetry.NewTracer(ctx, o.Version, ops.log)
		if err != nil {
			return nil, err
		}
		ops.tracer, ops.close = t, t.Shutdown
	}
	ops.ready = telemetry.NewReadiness(ops.metrics, ops.log,
		telemetry.Check{Name: "configuration", Run: ops.checkConfiguration}, telemetry.Check{Name: "registry", Run: ops.checkRegistry})
	ops.metrics.Reloaded(nil)
	return ops, nil
}

// Close exports the remaining traces.
func (o *operations) Close() {
	if err := o.close(); err != nil {
		o.log.Warn("traces are lost", "err", err)
	}
}

// use makes s the site whose state the metrics and the readiness report.
func (o *operations) use(s *site) {
	o.site.Store(s)
	o.metrics.Sample(s.sampled)
	for _, r := range s.repositories.Registries() {
		o.metrics.AddRegistries(wire.HostOf(r))
	}
}

// reload records the outcome of a reload. The gateway stays ready after a failure.
func (o *operations) reload(err error) {
	o.reloaded.Store(&err)
	o.metrics.Reloaded(err)
}

// observe adds metrics, readiness and traces to the options of a gateway. It adds no /metrics if there is a separate
// listener for metrics.
func (o *operations) observe(to *gateway.Options) {
	to.Hooks = gateway.Hooks{Began: o.metrics.RequestBegan, Ended: o.metrics.RequestEnded, Tracer: o.tracer}
	to.Archives, to.Ready = &o.metrics.Archives, o.ready
	if o.address == "" {
		to.Metrics = o.metricsHandler()
	}
}

// metricsHandler returns a handler that serves the metrics. It refreshes the readiness first: without requests for /readyz,
// the metric "ready" would be out of date.
func (o *operations) metricsHandler() http.Handler {
	metrics := o.metrics.Handler(o.log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.ready.Refresh(r.Context())
		metrics.ServeHTTP(w, r)
	})
}

// handler returns the handler of the separate listener for metrics.
func (o *operations) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.metricsHandler())
	mux.Handle("GET /readyz", o.ready)
	mux.HandleFunc("GET /healthz", gateway.Healthz)
	return mux
}

// listen starts the separate listener for metrics, if there is one, and serves its requests until stop is called.
func (o *operations) listen() (stop func() error, err error) {
	if o.address == "" {
		return func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("listen on %s for metrics: %w", o.address, err), "is it an address of this machine, free, and open to you? --metrics-listen names another one, such as localhost:9090")
	}
	server := newServer(new(respond.Documents).Handler(o.handler()), o.log)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.log.Error("metrics are not answered any more", "address", listener.Addr().String(), "err", err)
		}
	}()
	o.log.Info("metrics are answered", "address", listener.Addr().String())
	return server.Close, nil
}

// checkConfiguration checks that the gateway has a site. After a failed reload, the finding is OK, but has a message.
func (o *operations) checkConfiguration(context.Context) telemetry.Finding {
	if err := o.reloaded.Load(); err != nil && *err != nil {
		return telemetry.Finding{OK: true, Message: "the new configuration cannot be used: the earlier one stays in force", Err: *err}
	}
	return telemetry.Finding{OK: o.site.Load() != nil}
}

// checkRegistry checks that at least one registry answers, or that the catalog can serve stale answers.
func (o *operations) checkRegistry(ctx context.Context) telemetry.Finding {
	site := o.site.Load()
	if site == nil {
		return telemetry.Finding{Message: "the gateway serves nothing yet"}
	}
	reachable, asked, err := site.repositories.Reachable(ctx)
	switch {
	case err == nil:
		return telemetry.Finding{OK: true}
	case reachable > 0:
		return telemetry.Finding{OK: true, Message: fmt.Sprintf("%d of %d registries cannot be reached", asked-reachable, asked), Err: err}
	case site.catalog.CanServeStale():
		return telemetry.Finding{OK: true, Message: "it cannot be reached: stale answers are served", Err: err}
	}
	return telemetry.Finding{Message: "it cannot be reached, and there are no stale answers", Err: err}
}
