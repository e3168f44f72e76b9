package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
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

// crowd is a gateway whose many clients download one archive of 67 MB. The archive is not in the gateway's
// cache.
type crowd struct {
	*scene
	registry *recorder.Recorder
	gateway  *world.Gateway
	sum      [sha256.Size]byte
}

func newCrowd(t *testing.T) *crowd {
	s := newScene(t)
	rec, host := s.observed(registry.Options{})
	config := s.config(mirror(host) + fmt.Sprintf("gateway {\n  cache {\n    directory = %q\n  }\n}\n", filepath.Join(t.TempDir(), "cache")))
	big := filepath.Join(t.TempDir(), "big.zip")
	if _, err := release.WriteBigZip(big, "terraform-provider-big_v1.0.0", 64, 1); err != nil {
		t.Fatal(err)
	}
	s.Origin.Add(release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "big", Version: "1.0.0", Signer: s.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Zip: big}}}))
	s.ws.MustRun(t, s.bridge, "push", "--all", config, world.Host+"/acme/big@1.0.0")
	f, err := os.Open(big)
	clients.Must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	clients.Must(t, err)
	rec.Reset()
	return &crowd{s, rec, s.serve(config), [sha256.Size]byte(h.Sum(nil))}
}

// download makes n clients request the archive, each over its own connection. It calls asked when all clients
// have sent their requests. It calls halfway when all clients have read the first megabyte and wait. Then only
// every 16th client reads the whole archive, because n whole downloads would take too long.
func (c *crowd) download(n int, asked, halfway func()) {
	c.t.Helper()
	var asking, reading, done sync.WaitGroup
	asking.Add(n)
	reading.Add(n)
	on := make(chan struct{})
	for i := range n {
		done.Go(func() {
			hasAsked := sync.OnceFunc(asking.Done)
			body, err := c.open(httptrace.WithClientTrace(c.t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { hasAsked() }}))
			hasAsked() // even if it failed
			if err != nil {
				c.t.Error(err)
				reading.Done()
				return
			}
			defer body.Close()
			h := sha256.New()
			_, err = io.CopyN(h, body, 1<<20)
			reading.Done()
			for waits := true; waits && err == nil; {
				select {
				case <-on:
					waits = false
				case <-time.After(10 * time.Second): // the gateway drops clients that have read nothing for a minute
					_, err = io.CopyN(h, body, 1<<20)
				}
			}
			if i%16 == 0 && err == nil {
				_, err = io.Copy(h, body)
				if sum := [sha256.Size]byte(h.Sum(nil)); sum != c.sum {
					c.t.Errorf("%x instead of %x", sum, c.sum)
				}
			}
			if err != nil {
				c.t.Error(err)
			}
		})
	}
	asking.Wait()
	asked()
	reading.Wait()
	halfway()
	close(on)
	done.Wait()
}

func (c *crowd) open(ctx context.Context) (io.ReadCloser, error) {
	const path = "/acme/big/1.0.0/linux_amd64/terraform-provider-big_1.0.0_linux_amd64.zip"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.gateway.URL+world.Host+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.CA.HTTPClient().Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// TestManyClientsForOneArchive shows that, if 200 clients request an archive before the registry has responded,
// the registry gets only one request.
func TestManyClientsForOneArchive(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	hold := make(chan struct{})
	c.registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			<-hold
		}
		return false
	})
	c.download(200, func() { close(hold) }, func() {})
	if n := fetched(c.registry); n != 1 {
		t.Errorf("the registry got %d requests for blobs, want 1", n)
	}
}

// TestMemoryOfManyDownloads shows that 64 concurrent downloads need at most 64 MiB of memory in the gateway.
func TestMemoryOfManyDownloads(t *testing.T) {
	t.Parallel()
	const allowed = 64 << 20
	c := newCrowd(t)
	c.download(64, func() {}, func() {
		peak, err := highWater(c.gateway.PID())
		clients.Must(t, err)
		if t.Logf("peak resident memory: %d MiB", peak>>20); peak > allowed {
			t.Errorf("peak resident memory: %d MiB", peak>>20)
		}
	})
}
