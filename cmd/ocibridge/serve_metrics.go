package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// operations is what those see of a process who run it: there is one, however often
// what it serves is made anew of other settings. A nil one observes nothing.
type operations struct {
	metrics *telemetry.Metrics
	ready   *telemetry.Readiness
	tracer  telemetry.Tracer // nil: nobody wants traces
	close   func() error
	log     *slog.Logger
	address string // of the metrics' own, "" for none

	watched  atomic.Pointer[watchedSite]
	reloaded atomic.Pointer[error] // how the last reload ended; nil: there was none
}

// watchedSite is what is in force.
type watchedSite struct {
	back    *backend
	catalog *catalog.Catalog
}

// newOperations begins to observe, with traces where the environment wants them. The
// caller closes it.
func newOperations(ctx context.Context, address string, log *slog.Logger) (*operations, error) {
	o := &operations{metrics: telemetry.NewMetrics(version, gateway.RouteNames()...), log: log, address: address, close: func() error { return nil }}
	if telemetry.WantsTraces(os.Getenv) {
		t, err := telemetry.NewTracer(ctx, version, log)
		if err != nil {
			return nil, err
		}
		o.tracer, o.close = t, t.Shutdown
	}
	o.ready = telemetry.NewReadiness(o.metrics, log,
		telemetry.Check{Name: "configuration", Run: o.checkConfiguration}, telemetry.Check{Name: "registry", Run: o.checkRegistry})
	o.metrics.Reloaded(nil)
	return o, nil
}

// Close sends what is left of traces.
func (o *operations) Close() {
	if err := o.close(); err != nil {
		o.log.Warn("traces are lost", "err", err)
	}
}

// use says what is in force from now on.
func (o *operations) use(back *backend, metadata *catalog.Catalog, cache *archives.Cache) {
	if o == nil {
		return
	}
	o.watched.Store(&watchedSite{back, metadata})
	o.metrics.Watch(func() (s telemetry.Sizes) {
		c := metadata.Size()
		s.CatalogEntries, s.CatalogBytes = c.Entries, c.Bytes
		if cache != nil {
			a := cache.Size()
			s.CacheBytes, s.CacheLimit, s.CacheFetches = a.Bytes, a.Limit, a.Fetches
		}
		return s
	})
	for _, r := range back.registries() {
		o.metrics.AddRegistries(auth.HostOf(r))
	}
}

// Reloaded says how a reload of the configuration ended. One that failed leaves
// ready what is in force.
func (o *operations) Reloaded(err error) {
	if o == nil {
		return
	}
	o.reloaded.Store(&err)
	o.metrics.Reloaded(err)
}

// Drain has /readyz say that the process is about to end.
func (o *operations) Drain() {
	if o != nil {
		o.ready.Drain()
	}
}

// observe adds to the options of a gateway what tells of it. Where the metrics have
// an address of their own, the gateway does not answer them.
func (o *operations) observe(to *gateway.Options) {
	if o == nil {
		return
	}
	to.Hooks = gateway.Hooks{Began: o.metrics.RequestBegan, Ended: o.metrics.RequestEnded, Tracer: o.tracer}
	to.Archives, to.Ready = &o.metrics.Archives, o.ready
	if o.address == "" {
		to.Metrics = o.scraped()
	}
}

// scraped answers with the metrics. Whether the gateway is ready is looked at for
// that, too: nobody else may ask.
func (o *operations) scraped() http.Handler {
	metrics := o.metrics.Handler(o.log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.ready.Refresh(r.Context())
		metrics.ServeHTTP(w, r)
	})
}

// What the parts of a gateway count in.

func (o *operations) sent() func(telemetry.RegistryRequest) {
	if o == nil {
		return nil
	}
	return o.metrics.RegistryRequest
}

func (o *operations) catalogCounters() *telemetry.CatalogCounters {
	if o == nil {
		return nil
	}
	return &o.metrics.Catalog
}

func (o *operations) archiveCounters() *telemetry.ArchiveCounters {
	if o == nil {
		return nil
	}
	return &o.metrics.Archives
}

func (o *operations) verifyCounters() *telemetry.VerifyCounters {
	if o == nil {
		return nil
	}
	return &o.metrics.Verify
}

func (o *operations) accessCounters() *telemetry.AccessCounters {
	if o == nil {
		return nil
	}
	return &o.metrics.Access
}

// handler answers on the metrics' own address.
func (o *operations) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.scraped())
	mux.Handle("GET /readyz", o.ready)
	mux.HandleFunc("GET /healthz", gateway.Healthz)
	return mux
}

// listen answers on the address of the metrics' own, if there is one, until what it
// returns is called.
func (o *operations) listen() (stop func() error, err error) {
	if o.address == "" {
		return func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("listen on %s for metrics: %w", o.address, err), "is it an address of this machine, free, and open to you? --metrics-listen names another one, such as localhost:9090")
	}
	server := newServer(o.handler(), o.log)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.log.Error("metrics are not answered any more", "address", listener.Addr().String(), "err", err)
		}
	}()
	o.log.Info("metrics are answered", "address", listener.Addr().String())
	return server.Close, nil
}

// checkConfiguration finds that a configuration is in force: without one that is
// valid there is no gateway.
func (o *operations) checkConfiguration(context.Context) telemetry.Finding {
	if err := o.reloaded.Load(); err != nil && *err != nil {
		return telemetry.Finding{OK: true, Message: "what it is now cannot be used: what it was stays in force", Err: *err}
	}
	return telemetry.Finding{OK: o.watched.Load() != nil}
}

// checkRegistry finds whether any registry answers, or what it said before may stand
// in for that.
func (o *operations) checkRegistry(ctx context.Context) telemetry.Finding {
	site := o.watched.Load()
	if site == nil {
		return telemetry.Finding{Message: "nothing is served yet"}
	}
	reachable, asked, err := site.back.reachable(ctx)
	switch {
	case err == nil:
		return telemetry.Finding{OK: true}
	case reachable > 0:
		return telemetry.Finding{OK: true, Message: fmt.Sprintf("%d of %d registries cannot be reached", asked-reachable, asked), Err: err}
	case site.catalog.CanStandIn():
		return telemetry.Finding{OK: true, Message: "it cannot be reached: its last good answers stand in", Err: err}
	}
	return telemetry.Finding{Message: "it cannot be reached, and nothing can stand in for it", Err: err}
}

// registries returns those that templates name.
func (b *backend) registries() (out []ociaddr.Registry) {
	for _, t := range b.templates {
		if r, ok := t.Registry(); ok && r != embedded.Host && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// reachable asks all registries whether they answer. An error says why one does not.
// A template that does not say which registry it means is asked about nothing.
func (b *backend) reachable(ctx context.Context) (reachable, asked int, err error) {
	if b.embedded != nil {
		if _, err := b.embedded.Catalog(); err != nil {
			return 0, 1, err
		}
		return 1, 1, nil
	}
	registries := b.registries()
	troubles := make([]error, len(registries))
	var asking sync.WaitGroup
	for i, r := range registries {
		asking.Go(func() { troubles[i] = b.auth.Reachable(ctx, r) })
	}
	asking.Wait()
	for _, e := range troubles {
		if e == nil {
			reachable++
		}
	}
	return reachable, len(registries), errors.Join(troubles...)
}
