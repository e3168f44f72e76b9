package archives_test

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// BenchmarkCachedArchive compares the handler, which serves a cached archive, with http.ServeContent, which serves the
// same file. One run alternates between the two, over TLS connections that are kept alive. "of-ServeContent" is the
// median ratio of the handler's throughput to the throughput of ServeContent.
func BenchmarkCachedArchive(b *testing.B) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		b.Run(name, func(b *testing.B) {
			const size = 150_000_000
			s := newScene(b)
			s.server.Close()
			s.http2 = http2
			s.add("/a", random(size, 1))
			s.restart()
			fetch := timer(b, s.server)
			fetch("/a")
			s.idle()
			bare := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				f, err := os.Open(s.file("/a"))
				if err != nil {
					b.Error(err)
					return
				}
				defer f.Close()
				w.Header().Set("Content-Type", "application/zip")
				http.ServeContent(w, r, "", time.Time{}, f)
			}))
			bare.EnableHTTP2 = http2
			bare.StartTLS()
			defer bare.Close()
			fetchBare := timer(b, bare)
			fetchBare("/a")
			b.SetBytes(size)
			var ratios []float64
			for b.Loop() {
				took := fetch("/a")
				b.StopTimer()
				ratios = append(ratios, float64(fetchBare("/a"))/float64(took))
				b.StartTimer()
			}
			slices.SortFunc(ratios, cmp.Compare)
			b.ReportMetric(ratios[len(ratios)/2], "of-ServeContent")
		})
	}
}

// timer returns a function that downloads a path, and returns the duration of the download.
func timer(b *testing.B, s *httptest.Server) func(path string) time.Duration {
	client := s.Client()
	buf := make([]byte, 1<<20)
	return func(path string) time.Duration {
		start := time.Now()
		resp, err := client.Get(s.URL + path)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf); err != nil || n != resp.ContentLength {
			b.Fatalf("%d bytes, %v", n, err)
		}
		return time.Since(start)
	}
}

// discard is an [http.ResponseWriter] that counts the bytes of the body and discards them.
type discard struct {
	header http.Header
	n      *atomic.Int64
}

func (d discard) Header() http.Header { return d.header }
func (d discard) WriteHeader(int)     {}
func (d discard) Write(p []byte) (int, error) {
	d.n.Add(int64(len(p)))
	return len(p), nil
}

// TestMemory shows that the use of memory does not grow with the size of archives. 64 concurrent downloads of 8 MiB
// allocate less than 24 MiB. Half of these downloads take place during a fetch.
func TestMemory(t *testing.T) {
	const size, downloads, allowed = 8 << 20, 64, 24 << 20
	s := newScene(t)
	s.registry.data = map[digest.Digest][]byte{}
	data := random(size, 1)
	s.add("/kept", data)
	s.want("/kept", 1)
	fresh := bytes.Clone(data)
	fresh[0] ^= 1
	s.add("/fresh", fresh)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var sent atomic.Int64
	var all sync.WaitGroup
	for i := range downloads {
		all.Go(func() {
			path := []string{"/kept", "/fresh"}[i%2]
			r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(t.Context())
			s.ServeHTTP(discard{http.Header{}, &sent}, r)
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	if sent.Load() != downloads*size {
		t.Errorf("%d bytes were sent", sent.Load())
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > allowed {
		t.Errorf("%d bytes allocated for %d", got, sent.Load())
	}
}
