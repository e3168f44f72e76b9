package origin

import (
	"context"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
)

// Services returns a discovery in which the server at a URL, without a trailing slash, is the origin of a host's providers.
func Services(host, url string) *disco.Disco {
	services := disco.New()
	services.ForceHostServices(svchost.Hostname(host), map[string]any{"providers.v1": url + ServicePath})
	return services
}

// Client returns a client for which the server at a URL, without a trailing slash, is the origin of a host's providers.
func Client(host, url string) *origin.Registry {
	return origin.NewRegistry(origin.RegistryOptions{Services: Services(host, url)})
}

// Fetch returns a version of a provider, with all its platforms.
func Fetch(tb testkit.TB, from *origin.Registry, a provider.Address, version string) *origin.Release {
	tb.Helper()
	ctx := context.Background()
	listing, err := from.Versions(ctx, a)
	if err != nil {
		tb.Fatalf("list the versions of %s: %v", a, err)
	}
	r, err := from.Release(ctx, a, listing, provider.MustParseVersion(version), nil)
	if err != nil {
		tb.Fatalf("fetch %s %s: %v", a, version, err)
	}
	return r
}
