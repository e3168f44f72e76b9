package pullthrough_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/pullthrough"
	"github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

// TestSamePackagesOfTwoProviders: one release is offered under two addresses, as
// Terraform's and OpenTofu's registries do with what is on GitHub. Each is served,
// and stored.
func TestSamePackagesOfTwoProviders(t *testing.T) {
	t.Parallel()
	twin := provider.MustParseAddress("registry.twin.example/acme/widget")
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.services.ForceHostServices(svchost.Hostname(twin.Hostname()), map[string]any{"providers.v1": b.originURL + origin.ServicePath})
			r := b.publish("1.0.0")
			linux := r.Package("linux", "amd64")
			// So that nothing is stored before both were asked for.
			may := make(chan struct{})
			b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost || r.Method == http.MethodPut {
					<-may
				}
				return false
			})
			s := b.serve(o)
			atTwin := func(path string) string { return strings.Replace(path, host, twin.Hostname(), 1) }
			for _, path := range []string{mirror + "1.0.0.json", atTwin(mirror + "1.0.0.json")} {
				if got := s.get(path); got.status != http.StatusOK {
					t.Fatalf("%s: %+v", path, got)
				}
			}
			for _, path := range []string{archivePath("1.0.0", "linux_amd64"), atTwin(archivePath("1.0.0", "linux_amd64"))} {
				if got := s.get(path); got.status != http.StatusOK || got.body != string(linux.Data) {
					t.Errorf("%s: %d, %d bytes: %v", path, got.status, len(got.body), got.err)
				}
			}
			close(may)
			if t.Failed() {
				return
			}
			s.await(pullthrough.Stored, 2)
			for _, a := range []provider.Address{widget, twin} {
				if got := platformsOf(b.taggedOf(a, "1.0.0")); got != strings.Join(platforms, " ") {
					t.Errorf("%s: %s", a, got)
				}
			}
			if n := b.origin.Count(recorder.PathSuffix(linux.Filename), recorder.Method(http.MethodGet)); n != 1 {
				t.Errorf("%d downloads of a package", n)
			}
		})
	}
}

// TestCachedAndNotStored: what the gateway has in its cache, and could not store, is
// stored once it is asked for again.
func TestCachedAndNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	o := siteOptions{cache: t.TempDir()}
	first := b.serve(o)
	ask := func(s *site) {
		t.Helper()
		if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(r.Package("linux", "amd64").Data) {
			t.Errorf("%+v", got)
		}
	}
	ask(first)
	if e := first.await(pullthrough.Stored, 1); e.Err == nil {
		t.Errorf("%+v", e)
	}
	first.close()
	b.registry.Intercept(nil)
	s := b.serve(o)
	for range 3 {
		ask(s)
		if e := s.await(pullthrough.Stored, 1); e.Err != nil {
			t.Fatalf("%+v", e)
		}
	}
	s.puller.Drain(t.Context())
	if got := platformsOf(b.tagged("1.0.0")); got != strings.Join(platforms, " ") {
		t.Errorf("stored are %s", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(s.events), func(e pullthrough.Event) bool { return e.Kind != pullthrough.Stored })); n != 1 {
		t.Errorf("it is stored %d times", n)
	}
}
