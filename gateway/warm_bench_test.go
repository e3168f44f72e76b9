package gateway_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/provider"
)

// BenchmarkWarm compares a gateway with a bare server that writes the same bytes. The gateway serves
// documents from memory, and logs to a file. One run alternates between the two, over TLS connections
// that are kept alive. "of-bare" is the median ratio of the gateway's throughput to the bare server's
// throughput.
func BenchmarkWarm(b *testing.B) {
	w := newBench(b)
	packages := map[provider.Platform][]byte{}
	for _, p := range []string{"darwin_amd64", "darwin_arm64", "freebsd_386", "freebsd_amd64", "linux_386", "linux_amd64", "linux_arm", "linux_arm64", "windows_386", "windows_amd64"} {
		packages[provider.MustParsePlatform(p)] = zip(b, provider.MustParsePlatform(p))
	}
	for i := range 50 {
		w.publish(widget, "1."+strconv.Itoa(i)+".0", packages)
	}
	log, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	w.options.Log = slog.New(slog.NewTextHandler(log, nil))
	for _, name := range []string{"index.json", "1.7.0.json"} {
		b.Run(name, func(b *testing.B) {
			g := startTLS(b, gateway.NewBacked(w.options))
			path := prefix + name
			body := []byte(g.get(path).body)
			bare := startTLS(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				w.Write(body)
			}))
			bare.many(path) // opens the connections
			g.many(path)
			var ratios []float64
			for i := 0; b.Loop(); i++ {
				times := map[*client]time.Duration{}
				for _, c := range []*client{[]*client{bare, g}[i%2], []*client{g, bare}[i%2]} {
					times[c] = c.many(path)
				}
				ratios = append(ratios, float64(times[bare])/float64(times[g]))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-bare")
		})
	}
}

func startTLS(b *testing.B, h http.Handler) *client {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.StartTLS()
	b.Cleanup(s.Close)
	c := &client{b, s, s.Client()}
	c.http.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	return c
}

// many sends requests from several concurrent clients. It returns the duration of all requests
// together.
func (c *client) many(path string) time.Duration {
	const clients, requests = 8, 250
	var wg sync.WaitGroup
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for range requests {
				resp, err := c.http.Get(c.s.URL + path)
				if err != nil {
					c.t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					c.t.Errorf("%s, %v", resp.Status, err)
				}
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
