package pull_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
)

// BenchmarkFirstByte compares how long a client waits for the first byte of a new package through the gateway and
// directly from the origin. It alternates between the two within one run. Each client is new, like a process of tofu or
// terraform, uses TLS for both, and already knows the version. "of-direct" is the median of the gateway's time divided
// by the time of a bare download of the file. "of-client" is the same median divided by the time of a client that asks
// the origin for the URL of the file first.
func BenchmarkFirstByte(b *testing.B) {
	for name, cache := range map[string]string{"streamed": "", "cached": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			s := newBench(b)
			g := s.serve(siteOptions{cache: cache, tagTTL: time.Hour})
			direct, through := httptest.NewUnstartedServer(s.origin), httptest.NewUnstartedServer(g.server.Config.Handler)
			for _, server := range []*httptest.Server{direct, through} {
				server.StartTLS()
				defer server.Close()
			}
			var ofDirect, ofClient []float64
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				version := fmt.Sprintf("1.0.%d", n)
				r := s.build(version, 4<<20)
				s.origin.Add(r)
				g.catalog.Refresh(widget)
				if got := g.hashes(version); got != zh(r) {
					b.Fatal(got)
				}
				file := direct.URL + "/files/acme/widget/" + version + "/" + r.Package("linux", "amd64").Filename
				meta := direct.URL + origin.ServicePath + "acme/widget/" + version + "/download/linux/amd64"
				bare, client := firstByte(b, direct, file), firstByte(b, direct, meta, file)
				runtime.GC() // frees the garbage of the benchmark itself
				b.StartTimer()
				took := firstByte(b, through, through.URL+archivePath(version, "linux_amd64"))
				b.StopTimer()
				ofDirect = append(ofDirect, float64(took)/float64(bare))
				ofClient = append(ofClient, float64(took)/float64(client))
				g.await(pull.Stored, n+1)
				b.StartTimer()
			}
			for name, ratios := range map[string][]float64{"of-direct": ofDirect, "of-client": ofClient} {
				slices.SortFunc(ratios, cmp.Compare)
				b.ReportMetric(ratios[len(ratios)/2], name)
			}
		})
	}
}

// firstByte returns the time in which a new client requests the URLs one after another. The time ends with the first
// byte of the last response.
func firstByte(b *testing.B, server *httptest.Server, urls ...string) time.Duration {
	client := &http.Client{Transport: server.Client().Transport.(*http.Transport).Clone()}
	defer client.CloseIdleConnections()
	start := time.Now()
	var took time.Duration
	for _, url := range urls {
		resp, err := client.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(url, resp.Status, err)
		}
		took = time.Since(start)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return took
}
