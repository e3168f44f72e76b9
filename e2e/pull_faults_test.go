package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestPullThroughLimits shows that the gateway refuses packages over a limit with Retry-After, and serves other
// packages.
func TestPullThroughLimits(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	hostPkg := hostPackage(t, p.null)
	for name, tc := range map[string]struct {
		limit   string
		status  int
		log     string
		outcome string
		counted string // the limit that the metrics count; "" if no limit is reached
	}{
		"bytes a day":        {fmt.Sprintf("max_per_day = \"%dB\"", hostPkg.Size-1), http.StatusServiceUnavailable, "max_per_day is reached", "busy", "max_per_day"},
		"packages under way": {fmt.Sprintf("max_spool = \"%dB\"", hostPkg.Size-1), http.StatusServiceUnavailable, "max_spool is reached", "busy", "max_spool"},
		"size":               {fmt.Sprintf("max_size = \"%dB\"", hostPkg.Size-1), http.StatusBadGateway, "max_size allows", "refused", "max_size"},
		"none":               {fmt.Sprintf("max_size = \"%[1]dB\"\n  max_per_day = \"%[1]dB\"", hostPkg.Size), http.StatusOK, "", "fetched", ""},
	} {
		gateway := p.scene.serve("--data", t.TempDir(), p.config(fmt.Sprintf("pull_through {\n  include = [\"%s/acme/*\"]\n  platforms = [%q]\n  %s\n}\n", world.Host, hostPlatform, tc.limit)))
		resp, err := p.CA.HTTPClient().Get(gateway.URL + world.Null + "/" + archive(p.null, hostPkg.OS, hostPkg.Arch))
		clients.Must(t, err)
		resp.Body.Close()
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != tc.status || (after != "") != (tc.status != http.StatusOK) {
			t.Errorf("%s: %s, Retry-After %q", name, resp.Status, after)
		}
		if status, body := p.get(gateway, nullVersion+".json"); status != http.StatusOK || !strings.Contains(body, hostPkg.SHA256) {
			t.Errorf("%s: its document: %d %s", name, status, body)
		}
		p.wantCounted(name, gateway, fmt.Sprintf("ocibridge_pull_fetches_total{outcome=%q}", tc.outcome))
		for _, limit := range []string{"max_per_day", "max_spool", "max_size", "max_concurrent", "disk"} {
			reached := fmt.Sprintf("ocibridge_pull_limits_reached_total{limit=%q}", limit)
			if limit == tc.counted {
				p.wantCounted(name, gateway, reached)
			} else if got := p.metric(gateway, reached); got != 0 {
				t.Errorf("%s: %s is counted %v times", name, limit, got)
			}
		}
		clients.Must(t, gateway.Stop())
		if !strings.Contains(gateway.Log(), tc.log) {
			t.Errorf("%s: the log does not say why:\n%s", name, gateway.Log())
		}
	}
}

// TestPullThroughKilled kills a gateway during a download. It shows that no other gateway and no client
// mistakes the remaining files for a complete package.
func TestPullThroughKilled(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	pkg := hostPackage(t, p.null)
	half, on := make(chan struct{}), make(chan struct{})
	p.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, pkg.Filename) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(pkg.Size))
		w.Write(pkg.Data[:pkg.Size/2])
		http.NewResponseController(w).Flush()
		close(half)
		<-on
		panic(http.ErrAbortHandler)
	})
	gateway := p.serve()
	got := make(chan error, 1)
	go func() {
		resp, err := p.CA.HTTPClient().Get(gateway.URL + world.Null + "/" + archive(p.null, pkg.OS, pkg.Arch))
		if err == nil {
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
		}
		got <- err
	}()
	<-half
	process, err := os.FindProcess(gateway.PID())
	clients.Must(t, err)
	clients.Must(t, process.Kill())
	if err := <-got; err == nil {
		t.Error("the client mistakes the partial package for complete")
	}
	close(on)
	p.Origin.Intercept(nil)
	if tags := tagsOnDisk(t, p.registry); len(tags) > 0 {
		t.Errorf("tags: %v", tags)
	}
	gateway.Stop() // it was killed
	gateway = p.serve()
	if left := filesUnder(t, filepath.Join(p.cache, "pull"), ".zip"); len(left) > 0 {
		t.Errorf("left is %v", left)
	}
	p.installs(gateway, clients.Tofu(t))
	p.stored(nullVersion, 1)
}
