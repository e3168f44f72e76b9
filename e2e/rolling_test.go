package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

// balancer is a reverse proxy before gateways, as nginx is one: where one of them
// gives no answer to what may be asked twice, it asks the next.
type balancer struct {
	mu       sync.Mutex
	gateways []string // host and port
	next     int
	clients  [2]*http.Client
}

func (b *balancer) set(gateways ...*world.Gateway) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gateways = nil
	for _, g := range gateways {
		b.gateways = append(b.gateways, g.Address)
	}
}

// RoundTrip implements [http.RoundTripper].
func (b *balancer) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	b.mu.Lock()
	b.next++
	first, gateways := b.next, b.gateways
	b.mu.Unlock()
	for i := range gateways {
		to := r.Clone(r.Context())
		to.URL.Host = gateways[(first+i)%len(gateways)]
		if resp, err = b.clients[first/2%2].Transport.RoundTrip(to); err == nil {
			return resp, nil
		}
	}
	return nil, err
}

// TestRollingReplacementLosesNothing replaces two gateways that share a key of
// links, one after the other, while clients install through a proxy.
func TestRollingReplacementLosesNothing(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	b := &balancer{clients: [2]*http.Client{c.client(true), c.client(false)}}
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
	l := c.start(mirror)
	var finish []func() error
	for _, g := range old {
		b.set(g)
		finish = append(finish, c.download(l, mirror))
	}
	b.set(old...)
	user := c.user(world.NetworkMirror(mirror)+fmt.Sprintf("credentials %q {\n  token = %q\n}\n", "localhost:"+port, acmeToken), nullVersion)
	installed := make(chan error, 1)
	go func() { _, err := user.Run(clients.Terraform(t), "init", "-no-color"); installed <- err }()

	current := append([]*world.Gateway{}, old...)
	for i := range old {
		next := c.gateway()
		b.set(append(current, next)...)
		if err := old[i].Interrupt(); err != nil {
			t.Fatal(err)
		}
		// The proxy learns of it by the connections that it no longer gets.
		waitFor(t, old[i], "shutting down: downloads under way may finish", 1)
		current[i] = next
	}
	b.set(current...)
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
			t.Error("no download was under way when it was stopped")
		}
	}
	l.end(t)
	for _, g := range append(old, current...) {
		wantNoSecrets(t, g)
	}
}
