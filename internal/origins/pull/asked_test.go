package pull_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
)

// TestSamePackagesOfTwoProviders shows that, if two providers have the same release, it is downloaded from each
// provider's origin and stored for each provider. For example, the registries of Terraform and OpenTofu offer the same
// GitHub releases.
func TestSamePackagesOfTwoProviders(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.publish("1.0.0")
			linux := r.Package("linux", "amd64")
			b.twin(r)
			// The registry blocks writes, so that the gateway stores nothing before both packages have been requested.
			may := make(chan struct{})
			b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost || r.Method == http.MethodPut {
					<-may
				}
				return false
			})
			s := b.serve(o)
			for _, path := range []string{mirror + "1.0.0.json", atTwin(mirror + "1.0.0.json")} {
				if got := s.get(path); got.status != http.StatusOK {
					t.Errorf("%s: %+v", path, got)
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
			s.await(pull.Stored, 2)
			for _, a := range []provider.Address{widget, twin} {
				if got := platformsOf(b.taggedOf(a, "1.0.0")); got != strings.Join(platforms, " ") {
					t.Errorf("%s: %s", a, got)
				}
			}
			if n := b.origin.Count(recorder.PathSuffix(linux.Filename), recorder.Method(http.MethodGet)); n != 1 {
				t.Errorf("the package was downloaded %d times from one origin", n)
			}
		})
	}
}

// TestTroubleOfAnotherOrigin shows that, while one origin hangs on a request for a package, clients get the same
// package of another provider from that provider's origin.
func TestTroubleOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]siteOptions{"streamed": {}, "cached": {cache: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			troubleOfAnotherOrigin(t, o)
		})
	}
}

func troubleOfAnotherOrigin(t *testing.T, o siteOptions) {
	b := newBench(t)
	r := b.publish("1.0.0")
	begun := make(chan struct{})
	size := len(r.Package("linux", "amd64").Data)
	begins := sync.OnceFunc(func() { close(begun) })
	b.twin(r).Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".zip") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		http.NewResponseController(w).Flush()
		begins()
		<-r.Context().Done() // the origin never sends anything
		return true
	})
	s := b.serve(o)
	waits := make(chan reply)
	go func() { waits <- s.get(atTwin(archivePath("1.0.0", "linux_amd64"))) }()
	<-begun
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(r.Package("linux", "amd64").Data) {
		t.Errorf("%d, %d bytes: %v", got.status, len(got.body), got.err)
	}
	s.close()
	if got := <-waits; got.err == nil && got.status == http.StatusOK {
		t.Errorf("from the origin that hangs: %+v", got)
	}
}

// twin is the address of the widget provider at another host.
var twin = provider.MustParseAddress("registry.twin.example/acme/widget")

func atTwin(path string) string { return strings.Replace(path, host, twin.Hostname(), 1) }

// twin starts an origin that offers a release for the twin provider.
func (b *bench) twin(r *release.Release) *origin.Origin {
	o := origin.New(origin.Options{}, r)
	server := httptest.NewServer(o)
	b.tb.Cleanup(server.Close)
	b.services.ForceHostServices(svchost.Hostname(twin.Hostname()), map[string]any{"providers.v1": server.URL + origin.ServicePath})
	return o
}

// TestCachedAndNotStored shows that, if a package could not be stored in the registry, it is stored after the next
// request. This holds even if the gateway serves that request from its cache.
func TestCachedAndNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	b.registry.Intercept(refuseWrites)
	o := siteOptions{cache: t.TempDir()}
	first := b.serve(o)
	ask := func(s *site) {
		t.Helper()
		if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(r.Package("linux", "amd64").Data) {
			t.Errorf("%+v", got)
		}
	}
	ask(first)
	if e := first.await(pull.Stored, 1); e.Err == nil {
		t.Errorf("%+v", e)
	}
	first.close()
	b.registry.Intercept(nil)
	s := b.serve(o)
	for range 3 {
		ask(s)
		if e := s.await(pull.Stored, 1); e.Err != nil {
			t.Fatalf("%+v", e)
		}
	}
	s.puller.Drain(t.Context())
	if got := platformsOf(b.tagged("1.0.0")); got != strings.Join(platforms, " ") {
		t.Errorf("stored are %s", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(s.events), func(e pull.Event) bool { return e.Kind != pull.Stored })); n != 1 {
		t.Errorf("the package was stored %d times", n)
	}
}
