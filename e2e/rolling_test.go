package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// balancer is a reverse proxy in front of gateways, like a Kubernetes Service. It sends requests only to
// gateways that are ready according to /readyz. It never retries a request.
type balancer struct {
	clients [2]*http.Client

	mu       sync.Mutex
	gateways []string        // host and port
	ready    map[string]bool // the result of the last check of each gateway, including removed gateways
	next     int
}

func (b *balancer) set(gateways ...*world.Gateway) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gateways = nil
	for _, g := range gateways {
		b.gateways = append(b.gateways, g.Address)
		if _, known := b.ready[g.Address]; !known {
			b.ready[g.Address] = false
		}
	}
}

// watch polls /readyz until ctx is cancelled.
func (b *balancer) watch(ctx context.Context) {
	for {
		b.mu.Lock()
		gateways := slices.Collect(maps.Keys(b.ready))
		b.mu.Unlock()
		for _, g := range gateways {
			resp, err := b.clients[1].Get("https://" + g + "/readyz")
			if err == nil {
				resp.Body.Close()
			}
			b.mu.Lock()
			b.ready[g] = err == nil && resp.StatusCode == http.StatusOK
			b.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// waitFor waits until exactly the given gateways are in the rotation.
func (b *balancer) waitFor(t *testing.T, gateways ...*world.Gateway) {
	t.Helper()
	var want []string
	for _, g := range gateways {
		want = append(want, g.Address)
	}
	slices.Sort(want)
	deadline := time.Now().Add(waitForLog)
	for !slices.Equal(slices.Sorted(slices.Values(b.rotation())), want) {
		if time.Now().After(deadline) {
			t.Fatalf("ready are %v, want %v", b.rotation(), want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *balancer) rotation() (ready []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.gateways {
		if b.ready[g] {
			ready = append(ready, g)
		}
	}
	return ready
}

// RoundTrip implements [http.RoundTripper].
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	ready := b.rotation()
	if len(ready) == 0 {
		return nil, errors.New("no gateway is ready")
	}
	b.mu.Lock()
	b.next++
	next := b.next
	b.mu.Unlock()
	to := r.Clone(r.Context())
	to.URL.Host = ready[next%len(ready)]
	return b.clients[next/2%2].Transport.RoundTrip(to)
}

// TestRollingReplacementLosesNothing replaces two gateways one after the other. The gateways have a common
// capability key. The test shows that clients that install through a proxy lose no request.
func TestRollingReplacementLosesNothing(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	c.delay = "5s" // long enough for the proxy to notice, even on a busy machine
	b := &balancer{ready: map[string]bool{}, clients: [2]*http.Client{c.client(true), c.client(false)}}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { b.watch(ctx) })
	defer watching.Wait()
	defer cancel()
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: "gateways"})
			r.SetXForwarded()
		},
		Transport: b,
	})
	var err error
	if front.TLS, err = c.CA.ServerConfig("localhost"); err != nil {
		t.Fatal(err)
	}
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	_, port, _ := strings.Cut(front.Listener.Addr().String(), ":")
	public := "https://localhost:" + port + "/"
	c.settings(fmt.Sprintf("  public_url = %q\n", public))
	mirror := public + "providers/"

	old := []*world.Gateway{c.gateway(), c.gateway()}
	b.set(old...)
	b.waitFor(t, old...)
	l := c.start(mirror)
	var finish []func() error
	for _, g := range old {
		b.set(g)
		b.waitFor(t, g)
		finish = append(finish, c.download(l, mirror))
	}
	b.set(old...)
	user := c.user(world.NetworkMirror(mirror)+fmt.Sprintf("credentials %q {\n  token = %q\n}\n", "localhost:"+port, acmeToken), nullVersion)
	installed := make(chan error, 1)
	go func() { _, err := user.Run(clients.Terraform(t), "init", "-no-color"); installed <- err }()

	current := slices.Clone(old)
	for i := range old {
		next := c.gateway()
		all := append(slices.Clone(current), next)
		b.set(all...)
		b.waitFor(t, all...)
		if err := old[i].Interrupt(); err != nil {
			t.Fatal(err)
		}
		// The old gateway continues to answer requests until /readyz has told the proxy that the gateway is not
		// ready.
		current[i] = next
		b.waitFor(t, current...)
		waitFor(t, old[i], "shutting down: downloads under way may finish", 1)
	}
	if err := <-installed; err != nil {
		t.Errorf("terraform: %v", err)
	}
	for _, f := range finish {
		if err := f(); err != nil {
			t.Errorf("a download from a gateway that is being replaced: %v", err)
		}
	}
	for _, g := range old {
		if err := g.Wait(); err != nil {
			t.Errorf("it ended with %v:\n%s", err, g.Log())
		}
		if !strings.Contains(g.Log(), "large_1.0.0_linux_amd64.zip status=200") {
			t.Error("no download was running when the gateway was stopped")
		}
	}
	l.end(t)
	for _, g := range append(old, current...) {
		wantNoSecrets(t, g)
	}
}
