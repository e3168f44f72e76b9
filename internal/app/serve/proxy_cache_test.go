package serve

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// TestGatewayReadsProxyCaches shows that the gateway finds a blob in a proxy cache that answers HEAD with 404 and GET
// with the blob. A push does not find this blob, because a push sends only HEAD.
func TestGatewayReadsProxyCaches(t *testing.T) {
	quirky := quirks.For(t, quirks.Settings{})
	requests := recorder.New(quirky)
	srv := httptest.NewServer(requests)
	defer srv.Close()
	at := strings.TrimPrefix(srv.URL, "http://")
	repositories := repositoriesOf(t, at+"/proxied/${namespace}/${type}", ociaddr.Registry(at))
	a := provider.MustParseAddress("registry.acme.example/acme/widget")
	blob := artifact.Config()
	_, repo, err := repositories.Repository(t.Context(), a)
	if err == nil {
		err = repo.Push(t.Context(), blob.Descriptor, bytes.NewReader(blob.Data))
	}
	if err != nil {
		t.Fatal(err)
	}
	quirky.Set(func(s *quirks.Settings) { s.Proxies = []string{"proxied"} })

	puller, err := pull.New(pull.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	destination := registry.Repository{Repository: repo}
	if found, err := destination.Exists(t.Context(), blob.Descriptor); found || err != nil {
		t.Errorf("a push finds the blob: %v, %v", found, err)
	}
	s := &site{repositories: repositories}
	metadata, err := catalog.New(catalog.Options{Repository: func(ctx context.Context, a subject.Address) (catalog.Store, error) { return s.store(ctx, a) }, Origin: puller})
	if err != nil {
		t.Fatal(err)
	}
	defer metadata.Close()
	for name, view := range map[string]catalog.View{"with pull-through": metadata.Union(), "the registry alone": metadata.Registry()} {
		if found, err := view.Package(t.Context(), a, provider.MustParseVersion("1.0.0"), artifact.Package{Digest: blob.Descriptor.Digest, Size: blob.Descriptor.Size}).Exists(t.Context()); !found || err != nil {
			t.Errorf("%s: the gateway finds the blob: %t, %v", name, found, err)
		}
	}
	// The proxy fetches the blob for the first GET, and HEAD finds the blob from then on.
	if n := requests.Count(recorder.Method(http.MethodGet), recorder.PathContains("/blobs/")); n != 1 {
		t.Errorf("%d GET requests for the blob, want 1", n)
	}
}
