package pull_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opentofu/svchost/disco"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

const (
	host   = "registry.acme.example"
	mirror = "/providers/" + host + "/acme/widget/"
	hosts  = "/hosts/" + host + "/v1/providers/acme/widget/"
)

var (
	widget    = provider.MustParseAddress(host + "/acme/widget")
	platforms = []string{"darwin_arm64", "linux_amd64", "windows_amd64"}
)

// bench is an origin for signed releases, and a real registry that is empty at first. The origin
// and the registry record the requests that they receive.
type bench struct {
	tb       testing.TB
	signer   *pgp.Signer
	origin   *origin.Origin
	services *disco.Disco
	registry *loopback.Registry

	originURL string
}

func newBench(tb testing.TB) *bench {
	b := &bench{tb: tb, signer: pgp.For(tb, "Acme"), origin: origin.New(origin.Options{}), registry: loopback.For(tb)}
	server := httptest.NewServer(b.origin)
	tb.Cleanup(server.Close)
	b.originURL, b.services = server.URL, origin.Services(host, server.URL)
	return b
}

// build makes a release with a package of about size bytes for each platform.
func (b *bench) build(version string, size int) *release.Release {
	b.tb.Helper()
	spec := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: version, Signer: b.signer}
	for _, p := range platforms {
		os, arch, _ := strings.Cut(p, "_")
		content := make([]byte, size)
		rand.Read(content)
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: content}})
	}
	return release.For(b.tb, spec)
}

// publish makes a release with small packages, and adds it to the origin.
func (b *bench) publish(version string) *release.Release {
	b.tb.Helper()
	r := b.build(version, 100)
	b.origin.Add(r)
	return r
}

func (b *bench) repository() *remote.Repository { return b.repositoryOf(widget) }

func (b *bench) repositoryOf(a subject.Address) *remote.Repository {
	return b.registry.Repository(a.Path())
}

// tagged reads a version from the registry. It returns nil if the version is not tagged.
func (b *bench) tagged(version string) *artifact.Version { return b.taggedOf(widget, version) }

func (b *bench) taggedOf(a provider.Address, version string) *artifact.Version {
	b.tb.Helper()
	v, err := artifact.Read(b.tb.Context(), b.repositoryOf(a), a, provider.MustParseVersion(version))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	return v
}

func platformsOf(v *artifact.Version) string {
	if v == nil {
		return "no version"
	}
	var out []string
	for _, p := range v.Packages {
		out = append(out, p.Platform.String())
	}
	return strings.Join(out, " ")
}

// zips selects the requests that download packages from the origin.
func zips() recorder.Filter { return recorder.PathSuffix(".zip") }

// siteOptions configures a gateway that pulls through.
type siteOptions struct {
	pull     pull.Options
	policy   trust.Policy
	cache    string // the folder of the cache; "" means no cache
	required bool
	tagTTL   time.Duration // 0 means that the registry is asked each time
	tracer   telemetry.Tracer
}

// site is a gateway that pulls through.
type site struct {
	*bench
	puller  *pull.Puller
	catalog *catalog.Catalog
	server  *httptest.Server
	log     *collected.Text
	close   func()

	mu      sync.Mutex
	events  []pull.Event
	changed chan struct{}
}

func (b *bench) serve(o siteOptions) *site {
	b.tb.Helper()
	s := &site{bench: b, log: &collected.Text{}, changed: make(chan struct{})}
	log := slog.New(telemetry.Handler(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	policy := func(provider.Address) trust.Policy { return o.policy }
	push := pusher.New(pusher.Options{
		RetryPause: time.Millisecond, Policy: policy,
		Destination: b.registry.Destination,
	})
	o.pull.Origin = realorigin.NewRegistry(realorigin.RegistryOptions{Services: b.services})
	o.pull.Policy, o.pull.Log, o.pull.Events = policy, log, s.event
	o.pull.Push = func(ctx context.Context, r *realorigin.Release) (*pusher.Result, error) { return push.Push(ctx, r) }
	o.pull.CheckDowngrade, o.pull.UsualNames = push.CheckDowngrade, o.required
	if o.pull.Spool == "" {
		o.pull.Spool = b.tb.TempDir()
	}
	var err error
	if s.puller, err = pull.New(o.pull); err != nil {
		b.tb.Fatal(err)
	}
	ttl := o.tagTTL
	if ttl == 0 {
		ttl = -1
	}
	options := catalog.Options{
		TagTTL: ttl, Log: log,
		Repository: func(_ context.Context, a subject.Address) (catalog.Store, error) {
			return b.repositoryOf(a), nil
		},
		Origin: s.puller,
	}
	if o.required {
		checker := verify.New(verify.Options{Policy: policy, Log: log})
		options.Check = func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
			return checker.Check(ctx, store, a, v, found)
		}
	}
	metadata, err := catalog.New(options)
	if err != nil {
		b.tb.Fatal(err)
	}
	s.catalog = metadata
	g := gateway.Options{Catalog: metadata, Log: log, Hooks: gateway.Hooks{Tracer: o.tracer}}
	if o.cache != "" {
		if g.Cache, err = archives.OpenCache(o.cache, 1<<30, archives.CacheOptions{Log: log, H1: true}); err != nil {
			b.tb.Fatal(err)
		}
		g.H1 = g.Cache.H1
	}
	s.server = httptest.NewServer(gateway.New(g))
	s.close = sync.OnceFunc(func() {
		s.server.CloseClientConnections()
		s.server.Close()
		if g.Cache != nil {
			g.Cache.Close()
		}
		metadata.Close()
		s.puller.Close()
	})
	b.tb.Cleanup(func() {
		s.close()
		if b.tb.Failed() {
			b.tb.Logf("log:\n%s", s.log)
		}
	})
	return s
}

func (s *site) event(e pull.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until there are n events of the given kind, and returns the nth event.
func (s *site) await(kind pull.Kind, n int) pull.Event {
	s.tb.Helper()
	for {
		s.mu.Lock()
		found := slices.DeleteFunc(slices.Clone(s.events), func(e pull.Event) bool { return e.Kind != kind })
		changed := s.changed
		s.mu.Unlock()
		if len(found) >= n {
			return found[n-1]
		}
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			s.tb.Fatalf("%d events of kind %s after 30 s, want %d", len(found), kind, n)
		}
	}
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error // from the request, or from reading the body
}

func (s *site) get(path string) reply {
	s.tb.Helper()
	resp, err := s.server.Client().Get(s.server.URL + path)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}
}

func archivePath(version, platform string) string {
	return mirror + version + "/" + platform + "/terraform-provider-widget_" + version + "_" + platform + ".zip"
}

// versions returns the versions in index.json, oldest first. If the status is not 200, it returns
// the status.
func (s *site) versions() string {
	s.tb.Helper()
	r := s.get(mirror + "index.json")
	if r.status != http.StatusOK {
		return fmt.Sprint(r.status)
	}
	var doc struct{ Versions map[string]struct{} }
	if err := json.Unmarshal([]byte(r.body), &doc); err != nil {
		s.tb.Fatal(err)
	}
	var out []provider.Version
	for v := range doc.Versions {
		out = append(out, provider.MustParseVersion(v))
	}
	provider.SortVersions(out)
	return strings.Trim(fmt.Sprint(out), "[]")
}

// hashes returns the hashes in VERSION.json, with one line for each platform. If the status is not
// 200, it returns the status.
func (s *site) hashes(version string) string {
	s.tb.Helper()
	r := s.get(mirror + version + ".json")
	if r.status != http.StatusOK {
		return fmt.Sprint(r.status)
	}
	var doc struct {
		Archives map[string]struct{ Hashes []string }
	}
	if err := json.Unmarshal([]byte(r.body), &doc); err != nil {
		s.tb.Fatal(err)
	}
	var out []string
	for p, a := range doc.Archives {
		out = append(out, p+" "+strings.Join(a.Hashes, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// zh returns the text that the method hashes returns for a release whose h1 hashes are unknown.
func zh(r *release.Release) string {
	var out []string
	for _, p := range r.Packages {
		out = append(out, p.OS+"_"+p.Arch+" zh:"+p.SHA256)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func pgpFor(b *bench, name string) *pgp.Signer { return pgp.For(b.tb, name) }
