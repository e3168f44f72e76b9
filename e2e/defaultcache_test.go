package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// installsBy checks that both clients install a version through a gateway, concurrently.
func (s *scene) installsBy(gateway *world.Gateway, version, when string) {
	s.t.Helper()
	var all sync.WaitGroup
	for _, client := range installs(s.t) {
		for i := range 2 {
			ws := s.user(world.NetworkMirror(gateway.URL), version)
			all.Go(func() {
				if out, err := ws.Run(client, "init", "-no-color"); err != nil {
					s.t.Errorf("%s: %s %d: %v\n%s", when, client.Name, i, err, out)
				}
			})
		}
	}
	all.Wait()
}

// TestRegistryStoppedWithoutSettings shows what a gateway serves with nothing configured but a
// template. A version that clients have installed once stays installable while the registry is
// stopped: through the same gateway, through another one that starts meanwhile, and after a
// restart.
func TestRegistryStoppedWithoutSettings(t *testing.T) {
	forEachProgram(t, func(t *testing.T, program registry.Program) {
		s := newScene(t)
		r := s.tlsRegistryOf(program)
		s.pushTo(r, world.Null+"@"+nullVersion)
		first := s.serve("--template", template(r))
		s.installsBy(first, nullVersion, "the registry runs")
		r.Stop()
		s.installsBy(first, nullVersion, "the registry is stopped")
		second := s.serve("--template", template(r))
		s.installsBy(second, nullVersion, "another gateway has started")
		clients.Must(t, first.Stop())
		clients.Must(t, second.Stop())
		s.installsBy(s.serve("--template", template(r)), nullVersion, "the gateway is restarted")

		// Without the cache, a restarted gateway knows nothing.
		resp, err := s.CA.HTTPClient().Get(s.serve("--template", template(r), "--no-cache").URL + world.Null + "/index.json")
		clients.Must(t, err)
		clients.Must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusBadGateway {
			t.Errorf("without a cache: status %d", resp.StatusCode)
		}
	})
}

// TestGatewaysShareAFolder shows that two gateways share the default folder of the cache: clients
// of both install at once, and a package that one of them has fetched is served by the other.
func TestGatewaysShareAFolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rec, host := s.observed(registry.Options{})
	config := s.config(mirror(host))
	s.ws.MustRun(t, s.bridge, "push", config, world.Null+"@"+nullVersion)
	gateways := []*world.Gateway{s.serve(config), s.serve(config)}
	rec.Reset()
	var all sync.WaitGroup
	for _, g := range gateways {
		all.Go(func() { s.installsBy(g, nullVersion, "at once") })
	}
	all.Wait()
	if n := fetched(rec); n < 1 || n > len(gateways) {
		t.Errorf("%d fetches", n)
	}
	rec.Reset()
	third := s.serve(config)
	s.installsBy(third, nullVersion, "later")
	if n := fetched(rec); n != 0 {
		t.Errorf("%d fetches by the third gateway", n)
	}
	for _, g := range append(gateways, third) {
		if log := g.Log(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
			t.Errorf("log:\n%s", log)
		}
	}
}

// TestDefaultCacheThatCannotBeWritten shows that a gateway whose default folder cannot be used
// serves nevertheless, and warns.
func TestDefaultCacheThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	file := filepath.Join(t.TempDir(), "file")
	clients.Must(t, os.WriteFile(file, nil, 0o600))
	s.ws.Env["CACHE_DIRECTORY"] = filepath.Join(file, "cache")
	gateway := s.serve("--template", template(r))
	s.installsBy(gateway, nullVersion, "without a cache")
	if log := gateway.Log(); strings.Count(log, "there is no cache on disk") != 1 || !strings.Contains(log, "--no-cache") {
		t.Errorf("log:\n%s", log)
	}
}
