package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// metric returns the value of a metric of a gateway without access control.
func (p *pulled) metric(g *world.Gateway, name string) float64 {
	p.t.Helper()
	resp, err := p.CA.HTTPClient().Get(strings.TrimSuffix(g.URL, "providers/") + "metrics")
	clients.Must(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	clients.Must(p.t, err)
	v, there := value(p.t, string(body), name)
	if !there {
		p.t.Fatalf("there is no %s in\n%s", name, body)
	}
	return v
}

// wantMetrics waits until metrics have the given values. It must wait, because the gateway counts a package
// shortly after the package's origin or client has seen it.
func (p *pulled) wantMetrics(when string, g *world.Gateway, want map[string]float64) {
	p.t.Helper()
	deadline := time.Now().Add(clients.DefaultTimeout)
	for name, v := range want {
		for got := p.metric(g, name); got != v; got = p.metric(g, name) {
			if time.Now().After(deadline) {
				p.t.Fatalf("%s: %s is %v, want %v", when, name, got, v)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// wantCounted waits until a counter is above zero.
func (p *pulled) wantCounted(when string, g *world.Gateway, name string) {
	p.t.Helper()
	for deadline := time.Now().Add(clients.DefaultTimeout); p.metric(g, name) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %s is 0", when, name)
		}
	}
}

// held is the origin's response to a request for a package. It sends half of the package, and then closes the
// channel half. It sends the rest when the channel on is closed.
func held(w http.ResponseWriter, r *http.Request, pkg *release.Package, half chan<- struct{}, on <-chan struct{}) {
	w.Header().Set("Content-Length", fmt.Sprint(pkg.Size))
	w.Write(pkg.Data[:pkg.Size/2])
	http.NewResponseController(w).Flush()
	close(half)
	select {
	case <-on:
		w.Write(pkg.Data[pkg.Size/2:])
	case <-r.Context().Done():
	}
}

// TestPullThroughReloaded shows that a reload does not interrupt downloads. A client and the registry still get
// the packages whose downloads began before the reload. The bytes that the gateway downloaded on this day still
// count after the reload.
func TestPullThroughReloaded(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	pkg := hostPackage(t, p.null)
	other := p.null.Packages[slices.IndexFunc(p.null.Packages, func(o release.Package) bool { return o.Filename != pkg.Filename })]
	half, on := make(chan struct{}), make(chan struct{})
	otherHalf, otherOn := make(chan struct{}), make(chan struct{})
	p.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, pkg.Filename):
			held(w, r, pkg, half, on)
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, other.Filename):
			held(w, r, &other, otherHalf, otherOn)
		default:
			return false
		}
		return true
	})
	file := filepath.Join(t.TempDir(), "ocibridge.hcl")
	settings := func(perDay int64) {
		clients.Must(t, os.WriteFile(file, fmt.Appendf(nil, "%s\npull_through {\n  include = [\"%s/acme/*\"]\n  platforms = [%q, %q]\n  max_per_day = \"%dB\"\n}\n",
			mirror(p.registry.Host), world.Host, hostPlatform, other.OS+"_"+other.Arch, perDay), 0o600))
	}
	settings(1 << 30)
	g := p.scene.serve("--data", t.TempDir(), "--config", file)
	got := make(chan error, 1)
	go func() {
		resp, err := p.CA.HTTPClient().Get(g.URL + world.Null + "/" + archive(p.null, pkg.OS, pkg.Arch))
		if err == nil {
			defer resp.Body.Close()
			var body []byte
			if body, err = io.ReadAll(resp.Body); err == nil && release.Sum(body) != pkg.SHA256 {
				err = fmt.Errorf("other bytes: %d of %d", len(body), pkg.Size)
			}
		}
		got <- err
	}()
	<-half
	p.wantMetrics("under way", g, map[string]float64{"ocibridge_pull_in_flight": 1, "ocibridge_pull_today_bytes": float64(pkg.Size)})
	settings(pkg.Size + other.Size)
	clients.Must(t, g.Hangup())
	waitFor(t, g, "settings have been read again and are in force", 1)
	close(on)
	if err := <-got; err != nil {
		t.Fatalf("the client: %v", err)
	}
	select {
	case <-otherHalf: // the push continues on its own
	case <-time.After(clients.DefaultTimeout):
		t.Fatal("the push that had begun was given up")
	}
	for range 20 {
		if status, body := p.get(g, "index.json"); status != http.StatusOK {
			t.Fatalf("meanwhile: %d %s", status, body)
		}
	}
	p.wantMetrics("with other settings", g, map[string]float64{
		"ocibridge_pull_today_limit_bytes": float64(pkg.Size + other.Size), "ocibridge_pull_today_bytes": float64(pkg.Size + other.Size), "ocibridge_pull_in_flight": 1,
	})
	close(otherOn)
	p.stored(nullVersion, 2)
	p.wantCounted("stored", g, `ocibridge_pull_pushes_total{outcome="stored"}`)
	p.wantDownloads("in all", 2)
	third := p.null.Packages[slices.IndexFunc(p.null.Packages, func(o release.Package) bool { return o.Filename != pkg.Filename && o.Filename != other.Filename })]
	if status, _ := p.get(g, archive(p.null, third.OS, third.Arch)); status != http.StatusServiceUnavailable {
		t.Errorf("over what a day may have, of which most was fetched by earlier settings: %d", status)
	}
	for _, name := range []string{`ocibridge_pull_fetches_total{outcome="busy"}`, `ocibridge_pull_limits_reached_total{limit="max_per_day"}`} {
		p.wantCounted("when a limit is reached", g, name)
	}
	p.wantMetrics("at the end", g, map[string]float64{
		`ocibridge_pull_fetches_total{outcome="fetched"}`:   2,
		`ocibridge_pull_versions_total{outcome="verified"}`: 2, `ocibridge_pull_bytes_total`: float64(pkg.Size + other.Size), `ocibridge_pull_duration_seconds_count`: 2,
	})
}
