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
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/health"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/metrics"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/internal/tracing"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// operations is what those see of a process who run it: there is one, however often
// what it serves is made anew of other settings. A nil one observes nothing.
type operations struct {
	metrics *metrics.Metrics
	health  *health.Health
	tracer  gateway.Tracer // nil: nobody wants traces
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
	o := &operations{metrics: metrics.New(version), log: log, address: address, close: func() error { return nil }}
	if tracing.Wanted(os.Getenv) {
		t, err := tracing.New(ctx, version, log)
		if err != nil {
			return nil, err
		}
		o.tracer, o.close = t, t.Shutdown
	}
	o.health = health.New(health.Options{Checks: o.checks, Changed: o.metrics.Ready, Log: log})
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
	o.metrics.Watch(metadata, cache)
	for _, r := range back.registries() {
		o.metrics.Registries(auth.HostOf(r))
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
		o.health.Drain()
	}
}

// observe adds to the options of a gateway what tells of it. Where the metrics have
// an address of their own, the gateway does not answer them.
func (o *operations) observe(to *gateway.Options) {
	if o == nil {
		return
	}
	to.Hooks, to.Archives, to.Ready = o.metrics.Hooks(), o.metrics.Archives, o.health
	to.Hooks.Tracer = o.tracer
	if o.address == "" {
		to.Metrics = o.scraped()
	}
}

// scraped answers with the metrics. Whether the gateway is ready is looked at for
// that, too: nobody else may ask.
func (o *operations) scraped() http.Handler {
	metrics := o.metrics.Handler(o.log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.health.Look(r.Context())
		metrics.ServeHTTP(w, r)
	})
}

// What the parts of a gateway count in.

func (o *operations) sent() func(auth.Sent) {
	if o == nil {
		return nil
	}
	return o.metrics.Sent
}

func (o *operations) catalogCounters() *catalog.Counters {
	if o == nil {
		return nil
	}
	return o.metrics.Catalog
}

func (o *operations) archiveCounters() *archives.Counters {
	if o == nil {
		return nil
	}
	return o.metrics.Archives
}

func (o *operations) verifyCounters() *verify.Counters {
	if o == nil {
		return nil
	}
	return o.metrics.Verify
}

func (o *operations) accessCounters() *access.Counters {
	if o == nil {
		return nil
	}
	return o.metrics.Access
}

// handler answers on the metrics' own address.
func (o *operations) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.scraped())
	mux.Handle("GET /readyz", o.health)
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

// checks are what must hold for the gateway to be ready.
func (o *operations) checks() []health.Check {
	return []health.Check{{Name: "configuration", Look: o.checkConfiguration}, {Name: "registry", Look: o.checkRegistry}}
}

// checkConfiguration finds that a configuration is in force: without one that is
// valid there is no gateway.
func (o *operations) checkConfiguration(context.Context) health.Finding {
	if err := o.reloaded.Load(); err != nil && *err != nil {
		return health.Finding{OK: true, Says: "what it is now cannot be used: what it was stays in force", Err: *err}
	}
	return health.Finding{OK: o.watched.Load() != nil}
}

// checkRegistry finds whether any registry answers, or what it said before may stand
// in for that.
func (o *operations) checkRegistry(ctx context.Context) health.Finding {
	site := o.watched.Load()
	if site == nil {
		return health.Finding{Says: "nothing is served yet"}
	}
	reachable, asked, err := site.back.reachable(ctx)
	switch {
	case err == nil:
		return health.Finding{OK: true}
	case reachable > 0:
		return health.Finding{OK: true, Says: fmt.Sprintf("%d of %d registries cannot be reached", asked-reachable, asked), Err: err}
	case site.catalog.CanStandIn():
		return health.Finding{OK: true, Says: "it cannot be reached: its last good answers stand in", Err: err}
	}
	return health.Finding{Says: "it cannot be reached, and nothing can stand in for it", Err: err}
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
