package gateway_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/provider"
)

// The benchmarks compare the gateway with the registry itself. One run alternates between requests to the
// gateway and requests for the same bytes to the registry. "x-registry" is the ratio of the gateway's time to
// the registry's time. Unlike nanoseconds, the ratio can be compared between machines.

func BenchmarkIndex(b *testing.B) {
	benchmark(b, prefix+"index.json", "/v2/"+widget.Path()+"/tags/list", 1<<10)
}

func BenchmarkVersion(b *testing.B) {
	benchmark(b, prefix+"1.0.0.json", "/v2/"+widget.Path()+"/manifests/1.0.0", 1<<10)
}

func BenchmarkArchive(b *testing.B) {
	const size = 16 << 20
	benchmark(b, archivePath("1.0.0", linux), "", size)
}

// benchmark compares requests for path at the gateway with requests for registryPath at the registry. If
// registryPath is "", benchmark requests the package's blob from the registry.
func benchmark(b *testing.B, path, registryPath string, size int) {
	w := newBench(b)
	v := w.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(size), darwin: random(size)})
	if registryPath == "" {
		for _, p := range v.Packages {
			if p.Platform == linux {
				registryPath = "/v2/" + widget.Path() + "/blobs/" + p.Digest.String()
			}
		}
		b.SetBytes(int64(size))
	}
	w.options.Log = nil
	c := w.serve()
	straight := w.registry.Server.URL + registryPath
	timed := func(url string) time.Duration {
		start := time.Now()
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Accept", "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json")
		resp, err := c.http.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
		}
		return time.Since(start)
	}
	var through, registry time.Duration
	for b.Loop() {
		through += timed(c.s.URL + path)
		b.StopTimer()
		registry += timed(straight)
		b.StartTimer()
	}
	b.ReportMetric(float64(through)/float64(registry), "x-registry")
}
