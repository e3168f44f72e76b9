package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestPullThroughForManyAtOnce shows that, if 50 clients of two gateways request a package of 100 MB
// concurrently, each gateway downloads the package once. The registry then contains one correct version.
func TestPullThroughForManyAtOnce(t *testing.T) {
	t.Parallel()
	const (
		clientsOfEach = 25
		allowed       = 128 << 20
		address       = world.Host + "/acme/big"
	)
	s := newScene(t)
	big := filepath.Join(t.TempDir(), "big.zip")
	if _, err := release.WriteBigZip(big, "terraform-provider-big_v1.0.0", 96, 1); err != nil { // 100.7 MB
		t.Fatal(err)
	}
	r := release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "big", Version: "1.0.0", Signer: s.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: big}}})
	s.Origin.Add(r)
	// The origin sends nothing until all clients have sent their requests.
	hold := make(chan struct{})
	s.Origin.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ".zip") && r.Method == http.MethodGet {
			<-hold
		}
		return false
	})
	to := registry.For(t, registry.Options{})
	var gateways []*world.Gateway
	for range 2 {
		gateways = append(gateways, world.ServeFor(t, s.ws, "--http", s.config(mirror(to.Host)+fmt.Sprintf(`
pull_through {
  include = [%q]
}
gateway {
  cache {
    directory = %q
  }
}
`, address, filepath.Join(t.TempDir(), "cache")))))
	}
	var asked, done sync.WaitGroup
	for _, g := range gateways {
		for range clientsOfEach {
			asked.Add(1)
			done.Go(func() {
				hasAsked := sync.OnceFunc(asked.Done)
				defer hasAsked() // even if it failed
				sum, err := sumOf(g.URL+address+"/1.0.0/linux_amd64/"+r.Packages[0].Filename, hasAsked)
				if err != nil || sum != r.Packages[0].SHA256 {
					t.Errorf("%s, %v", sum, err)
				}
			})
		}
	}
	asked.Wait()
	close(hold)
	done.Wait()
	for i, g := range gateways {
		peak, err := highWater(g.PID())
		clients.Must(t, err)
		if t.Logf("gateway %d: peak resident memory: %d MiB", i+1, peak>>20); peak > allowed {
			t.Errorf("gateway %d: peak resident memory: %d MiB", i+1, peak>>20)
		}
	}
	if n := s.Origin.Count(recorder.Method(http.MethodGet), recorder.PathSuffix(".zip")); n > len(gateways) {
		t.Errorf("the origin sent the package %d times", n)
	}
	deadline := time.Now().Add(clients.DefaultTimeout)
	for len(tagsOnDisk(t, to)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the version is not stored")
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, g := range gateways { // Stop waits for pushes that have begun
		clients.Must(t, g.Stop())
	}
	if v := s.verify(0, "--packages", "--template", template(to), address+"@1.0.0").Versions; len(v) != 1 || len(v[0].Platforms) != 1 {
		t.Errorf("stored is %+v", v)
	}
}

// sumOf downloads a URL over its own connection, and returns the checksum. It calls asked when the request is
// sent.
func sumOf(url string, asked func()) (string, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { asked() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s", resp.Status)
	}
	h := sha256.New()
	_, err = io.Copy(h, resp.Body)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}
