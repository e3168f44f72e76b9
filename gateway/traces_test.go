package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/observe"
	"github.com/ocibridge/ocibridge/provider"
)

// traces keeps the spans that it is told of, each with those that it is within.
type traces struct {
	mu    sync.Mutex
	spans []string // path of names
	text  strings.Builder
}

type spanKey struct{}

func (r *traces) Start(ctx context.Context, name string, attrs ...slog.Attr) (context.Context, observe.End) {
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

func (r *traces) Follow(ctx, from context.Context) context.Context {
	return context.WithValue(ctx, spanKey{}, from.Value(spanKey{}))
}

func (r *traces) Join(ctx context.Context, h http.Header) context.Context {
	if from := h.Get("Traceparent"); from != "" {
		return context.WithValue(ctx, spanKey{}, from)
	}
	return ctx
}

func (r *traces) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *traces) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.spans, name)
}

// TestTraces has everything that a request causes in its trace, and no secret.
func TestTraces(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.controlled()
	cache, err := archives.OpenCache(t.TempDir(), 1<<20, archives.CacheOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	seen := &traces{}
	b.options.Hooks.Tracer, b.options.Cache = seen, cache
	c := b.serve()
	acme := *c.as("acme-token").http
	acme.Transport = withHeader{"Traceparent", "caller", acme.Transport}
	url := (&client{t, c.s, &acme}).archiveURL("1.0.0", linux)
	if a := c.get(url); a.status != http.StatusOK || !strings.Contains(url, "/cap1.") {
		t.Fatalf("%s: %+v", url, a)
	}
	if a := c.get(url + "x"); a.status != http.StatusForbidden {
		t.Errorf("another name: %d", a.status)
	}
	c.s.Close()
	cache.Close() // waits for what fetches
	for _, want := range []string{"caller > request", "caller > request > catalog fetch", "request > archive", "request > archive > archive fetch"} {
		if !seen.has(want) {
			t.Errorf("no span %q in\n%s", want, seen)
		}
	}
	for _, want := range []string{"http.route=version http.response.status_code=200", "http.route=archive http.response.status_code=200", "provider=" + widget.String()} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("%s is not in\n%s", want, seen)
		}
	}
	_, capability, _ := strings.Cut(url, "/cap1.")
	for _, secret := range []string{capability[:40], "acme-token", "Bearer"} {
		if strings.Contains(seen.String(), secret) {
			t.Errorf("%q is in the traces:\n%s", secret, seen)
		}
	}
}
