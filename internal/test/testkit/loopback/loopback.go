// Package loopback provides an embedded registry on the loopback interface. The registry records its requests, and a test can
// replace its responses.
package loopback

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// Registry is a registry behind a recorder. It serves plain HTTP.
type Registry struct {
	*recorder.Recorder
	Truth  http.Handler // the registry itself, without the recorder
	Server *httptest.Server

	tb testkit.TB
}

// For starts an empty registry.
func For(tb testkit.TB) *Registry {
	tb.Helper()
	e, err := embedded.Open(testkit.MemoryDir(tb), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatalf("open the registry: %v", err)
	}
	tb.Cleanup(func() { e.Close() })
	r := &Registry{Recorder: recorder.New(e.Handler()), Truth: e.Handler(), tb: tb}
	r.Server = httptest.NewServer(r.Recorder)
	tb.Cleanup(r.Server.Close)
	return r
}

// Repository returns a client of a repository. Unlike oras-go's default client, it neither waits nor retries.
func (r *Registry) Repository(name string) *remote.Repository {
	repo, err := remote.NewRepository(strings.TrimPrefix(r.Server.URL, "http://") + "/" + name)
	if err != nil {
		r.tb.Fatalf("open the repository %s: %v", name, err)
	}
	repo.PlainHTTP, repo.Client = true, r.Server.Client()
	return repo
}

// Destination returns the repository of a provider, as [pusher.Options] require it. The repository's name is the provider's path.
func (r *Registry) Destination(_ context.Context, a subject.Address) (repo.Destination, error) {
	at := ociaddr.Repository{Registry: "registry.test", Name: a.Path()}
	return repo.Destination{Repository: at, Store: registry.Repository{Repository: r.Repository(at.Name)}}, nil
}

// Push pushes a release.
func (r *Registry) Push(rel *origin.Release, policy trust.Policy) {
	r.tb.Helper()
	p := pusher.New(pusher.Options{Policy: func(provider.Address) trust.Policy { return policy }, Destination: r.Destination})
	if _, err := p.Push(context.Background(), rel); err != nil {
		r.tb.Fatalf("push: %v", err)
	}
}
