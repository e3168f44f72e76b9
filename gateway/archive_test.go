package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
)

// protocols runs a test over HTTP/1.1 and over HTTP/2, because clients use both.
func protocols(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Helper()
	t.Run("HTTP/1.1", func(t *testing.T) { f(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { f(t, true) })
}

func (b *bench) serveOver(http2 bool) *client {
	b.t.Helper()
	return b.start(httptest.NewUnstartedServer(gateway.NewWithin(b.options, b.limits)), http2)
}

// download requests an archive. It returns the bytes that arrived, and the client's error if the response is
// incomplete.
func (c *client) download(path string) (status int, data []byte, err error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.s.URL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

func TestArchive(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		for _, size := range []int{release.ZipEndSize, 100, gateway.CopyBuffer - 1, gateway.CopyBuffer, gateway.CopyBuffer + 1, 2 * gateway.CopyBuffer, 1<<20 + 1} {
			b := newBench(t)
			want := random(size)
			b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: want})
			a := b.serveOver(http2).get(archivePath("1.0.0", linux))
			if a.status != http.StatusOK || a.body != string(want) {
				t.Errorf("%d bytes: %d with %d bytes", size, a.status, len(a.body))
			}
			for header, value := range map[string]string{
				"Content-Type": "application/zip", "Content-Length": strconv.Itoa(size), "ETag": `"` + digest.FromBytes(want).String() + `"`,
			} {
				if got := a.header.Get(header); got != value {
					t.Errorf("%d bytes: %s %q, want %q", size, header, got, value)
				}
			}
			if m, n := b.registry.Count(recorder.PathContains("/manifests/")), b.registry.Count(recorder.PathContains("/blobs/")); m != 1 || n != 1 {
				t.Errorf("%d bytes: requests %v", size, b.registry.Requests())
			}
		}
	})
}

// chunked returns a handler that sends data without a Content-Length.
func chunked(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush()
		w.Write(data)
	}
}

// TestBlobThatIsNotItsDigest shows that the client sees an incomplete response if a blob does not match its
// digest. Some of the blobs fit into the gateway's buffer, and others are larger.
func TestBlobThatIsNotItsDigest(t *testing.T) {
	flip := func(at func(data []byte) int) func([]byte) []byte {
		return func(data []byte) []byte {
			data = bytes.Clone(data)
			data[at(data)] ^= 1
			return data
		}
	}
	for name, change := range map[string]func([]byte) []byte{
		"first byte":           flip(func([]byte) int { return 0 }),
		"last byte":            flip(func(data []byte) int { return len(data) - 1 }),
		"one byte less":        func(data []byte) []byte { return data[:len(data)-1] },
		"one byte more":        func(data []byte) []byte { return append(bytes.Clone(data), 0) },
		"half of it":           func(data []byte) []byte { return data[:len(data)/2] },
		"nothing":              func([]byte) []byte { return nil },
		"twice":                func(data []byte) []byte { return append(bytes.Clone(data), data...) },
		"zeros":                func(data []byte) []byte { return make([]byte, len(data)) },
		"a page for people":    func([]byte) []byte { return []byte("<html>Welcome") },
		"a page in its length": func(data []byte) []byte { return append([]byte("<html>"), make([]byte, len(data)-6)...) },
	} {
		for _, size := range []int{1000, gateway.CopyBuffer, 3*gateway.CopyBuffer + 5} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				b := newBench(t)
				truth := random(size)
				b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: truth})
				b.lie("/blobs/", chunked(change(truth)))
				protocols(t, func(t *testing.T, http2 bool) {
					b.registry.Reset()
					status, data, err := b.serveOver(http2).download(archivePath("1.0.0", linux))
					if err == nil {
						t.Errorf("the client sees no error: %d with %d bytes", status, len(data))
					}
					if len(data) >= size {
						t.Errorf("the client got all %d bytes", len(data))
					}
					if n := b.registry.Count(recorder.PathContains("/blobs/")); n != 1 {
						t.Errorf("%d requests for the blob: wrong content must not be fetched again", n)
					}
					if !strings.Contains(b.log.String(), "other bytes than the digest says") {
						t.Errorf("log:\n%s", b.log)
					}
				})
			})
		}
	}
}

// TestBlobOfOtherLength shows that a request for a package gets 502 if the Content-Length of the package's blob
// differs from the size in the manifest.
func TestBlobOfOtherLength(t *testing.T) {
	for name, data := range map[string][]byte{"shorter": random(99), "longer": random(101), "empty": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(100)})
			b.lie("/blobs/", respond(200, "application/octet-stream", string(data)))
			b.checkTrouble(b.serve().get(archivePath("1.0.0", linux)), name, http.StatusBadGateway)
		})
	}
}

// TestBlobTrouble shows that a package is not reported as absent if its blob cannot be fetched. The reason is
// that the index lists the package.
func TestBlobTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    http.HandlerFunc
		status int
	}{
		"gone":    {respond(404, "application/json", `{"errors":[{"code":"BLOB_UNKNOWN"}]}`), 502},
		"500":     {respond(500, "text/plain", ""), 502},
		"503":     {respond(503, "text/plain", ""), 503},
		"429":     {respond(429, "text/plain", ""), 503},
		"401":     {respond(401, "text/plain", ""), 502},
		"403":     {respond(403, "text/plain", ""), 502},
		"cut":     {cut, 502},
		"stalled": {hang, 504},
		"redirect elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/x", http.StatusTemporaryRedirect)
		}, 502},
	} {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cache: %v", name, cached), func(t *testing.T) {
				b := newBench(t)
				b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(100)})
				if tc.status == http.StatusGatewayTimeout {
					b.limits.Start = 200 * time.Millisecond
				}
				if cached {
					b.cache()
				}
				b.lie("/blobs/", tc.lie)
				b.checkTrouble(b.serve().get(archivePath("1.0.0", linux)), name, tc.status)
			})
		}
	}
}

// TestLostLayer deletes a package's layer from a real registry, but not its manifest. It shows that the version
// stays listed, and that requests for the archive get 502.
func TestLostLayer(t *testing.T) {
	b := newBench(t)
	v := b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(100)})
	if err := b.repo.Delete(t.Context(), v.Packages[0].Layer()); err != nil {
		t.Fatal(err)
	}
	c := b.serve()
	b.checkTrouble(c.get(archivePath("1.0.0", linux)), "archive", http.StatusBadGateway)
	if a := c.do(http.MethodHead, archivePath("1.0.0", linux)); a.status != http.StatusBadGateway {
		t.Errorf("HEAD: %+v", a)
	}
	if a := c.get(prefix + "1.0.0.json"); !strings.Contains(a.body, v.Packages[0].Digest.Encoded()) {
		t.Errorf("version: %+v", a)
	}
}

// TestHEADOfProxyCaches shows that HEAD of an archive has the same status as GET even if the registry answers
// HEAD of the blob with 404. Registries that are proxy caches do this before the first GET.
func TestHEADOfProxyCaches(t *testing.T) {
	for name, tc := range map[string]struct {
		get    int // the registry's status for GET; 0 for its real response
		status int
	}{
		"not cached yet": {0, http.StatusOK},
		"gone":           {http.StatusNotFound, http.StatusBadGateway},
		"forbidden":      {http.StatusForbidden, http.StatusBadGateway},
		"trouble":        {http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
			b.options.Repository = func(_ context.Context, a subject.Address) (catalog.Store, error) {
				return registry.ReadOnly{Repository: b.repository(a)}, nil
			}
			b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				status := tc.get
				if r.Method == http.MethodHead {
					status = http.StatusNotFound
				}
				if status == 0 || !strings.Contains(r.URL.Path, "/blobs/") {
					return false
				}
				w.WriteHeader(status)
				return true
			})
			c := b.serve()
			for _, path := range []string{archivePath("1.0.0", linux), hostsPrefix + strings.TrimPrefix(archivePath("1.0.0", linux), prefix)} {
				b.registry.Reset()
				head := c.do(http.MethodHead, path)
				if n := b.registry.Count(recorder.PathContains("/blobs/")); n != 2 {
					t.Errorf("%s: %d requests for the blob, want HEAD and GET", path, n)
				}
				get := c.get(path)
				if head.status != tc.status || get.status != tc.status || head.status == http.StatusOK && head.header.Get("Content-Length") != fmt.Sprint(len(get.body)) {
					t.Errorf("%s: HEAD %d %v, GET %d, want %d", path, head.status, head.header, get.status, tc.status)
				}
			}
		})
	}
}

// breaker describes how a registry breaks off its responses with blobs.
type breaker struct {
	after   int                                               // the number of bytes that are sent before a response breaks
	breaks  int                                               // the number of responses that break
	how     http.HandlerFunc                                  // called to break a response, such as cut
	headers func(h http.Header)                               // changes the announced headers
	ranges  func(w http.ResponseWriter, r *http.Request) bool // called for range requests; reports whether it has answered
}

// breakOff makes the registry break off its first responses with blobs, as br describes. Later responses are
// correct.
func (b *bench) breakOff(br breaker) {
	var served atomic.Int32
	b.lie("/blobs/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" && br.ranges != nil && br.ranges(w, r) {
			return
		}
		truth := httptest.NewRecorder()
		b.registry.Truth.ServeHTTP(truth, r)
		for k, v := range truth.Header() {
			w.Header()[k] = v
		}
		if br.headers != nil {
			br.headers(w.Header())
		}
		w.WriteHeader(truth.Code)
		data := truth.Body.Bytes()
		if int(served.Add(1)) > br.breaks {
			w.Write(data)
			return
		}
		w.Write(data[:min(br.after, len(data))])
		http.NewResponseController(w).Flush()
		br.how(w, r)
	})
}

func noRanges(h http.Header) { h.Del("Accept-Ranges") }

// TestBrokenTransferIsResumed shows that the gateway resumes a broken transfer from the registry, and that the
// gateway's client does not notice.
func TestBrokenTransferIsResumed(t *testing.T) {
	const size = 1 << 20
	refuseRange := func(status int) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(status)
			return true
		}
	}
	ignoreRange := func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		return false
	}
	for name, tc := range map[string]struct {
		breaker breaker
		ranged  bool // whether the gateway fetches the rest with a Range header
	}{
		"cut in the middle":               {breaker{after: size / 2, breaks: 1, how: cut}, true},
		"cut after the headers":           {breaker{after: 0, breaks: 1, how: cut}, false},
		"cut before the last byte":        {breaker{after: size - 1, breaks: 1, how: cut}, true},
		"cut, of unannounced length":      {breaker{after: size / 2, breaks: 1, how: cut, headers: func(h http.Header) { h.Del("Content-Length") }}, true},
		"cut, and no ranges":              {breaker{after: size / 2, breaks: 1, how: cut, headers: noRanges}, false},
		"cut twice, and no ranges":        {breaker{after: size / 2, breaks: 2, how: cut, headers: noRanges}, false},
		"cut, ranges announced and none":  {breaker{after: size / 2, breaks: 1, how: cut, ranges: ignoreRange}, true},
		"cut, ranges announced, then 416": {breaker{after: size / 2, breaks: 1, how: cut, ranges: refuseRange(416)}, true},
		"stalled in the middle":           {breaker{after: size / 2, breaks: 1, how: hang}, true},
		"stalled, and no ranges":          {breaker{after: size / 2, breaks: 1, how: hang, headers: noRanges}, false},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, http2 bool) {
				b := newBench(t)
				want := random(size)
				b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: want})
				b.breakOff(tc.breaker)
				if strings.HasPrefix(name, "stalled") { // on a slow machine, more transfers may stall
					b.limits = gateway.Limits{RegistryStall: 100 * time.Millisecond, Resumes: 1000}
				}
				a := b.serveOver(http2).get(archivePath("1.0.0", linux))
				if a.status != http.StatusOK || a.body != string(want) {
					t.Errorf("%d with %d bytes, right: %v", a.status, len(a.body), a.body == string(want))
				}
				asked := slices.ContainsFunc(b.registry.Requests(recorder.PathContains("/blobs/")), func(r recorder.Request) bool {
					return strings.HasPrefix(r.Range, "bytes=") && r.Range != fmt.Sprintf("bytes=0-%d", size-1)
				})
				if asked != tc.ranged {
					t.Errorf("requests %v", b.registry.Requests(recorder.PathContains("/blobs/")))
				}
				if log := b.log.String(); strings.Contains(log, "level=ERROR") {
					t.Errorf("log:\n%s", log)
				}
			})
		})
	}
}

// TestTransferThatBreaksForEver shows that the gateway gives up if a transfer breaks again and again. The
// client then sees an error.
func TestTransferThatBreaksForEver(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		b := newBench(t)
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(1 << 20)})
		b.breakOff(breaker{after: 0, breaks: 1 << 30, how: cut})
		status, data, err := b.serveOver(http2).download(archivePath("1.0.0", linux))
		if err == nil || len(data) > 0 {
			t.Errorf("%d with %d bytes, %v", status, len(data), err)
		}
		if n := b.registry.Count(recorder.PathContains("/blobs/")); n != 1+gateway.DefaultResumes {
			t.Errorf("%d requests for the blob", n)
		}
	})
}

// TestResumedWithOtherBytes shows that the client sees an error if the registry answers a range request with
// the wrong range.
func TestResumedWithOtherBytes(t *testing.T) {
	b := newBench(t)
	const size = 1 << 20
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(size)})
	b.breakOff(breaker{after: size / 2, breaks: 1, how: cut, ranges: func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusPartialContent)
		w.Write(random(size)[:size/2])
		return true
	}})
	if status, data, err := b.serve().download(archivePath("1.0.0", linux)); err == nil || len(data) >= size {
		t.Errorf("%d with %d bytes, %v", status, len(data), err)
	}
}

// TestClientThatGoesAway shows that the transfer from the registry stops when the client disconnects. The
// disconnect is not logged as an error.
func TestClientThatGoesAway(t *testing.T) {
	protocols(t, func(t *testing.T, http2 bool) {
		b := newBench(t)
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(1 << 20)})
		stopped := make(chan struct{})
		b.breakOff(breaker{after: 1 << 19, breaks: 1, how: func(w http.ResponseWriter, r *http.Request) {
			hang(w, r)
			close(stopped)
		}})
		returned := make(chan struct{})
		handler := gateway.NewWithin(b.options, b.limits)
		c := b.start(httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(returned)
			handler.ServeHTTP(w, r)
		})), http2)
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.s.URL+archivePath("1.0.0", linux), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-stopped
		<-returned
		if n := b.registry.Count(recorder.PathContains("/blobs/")); n != 1 {
			t.Errorf("%d requests for the blob", n)
		}
		if log := b.log.String(); strings.Contains(log, "level=ERROR") {
			t.Errorf("a client's disconnect is logged as an error:\n%s", log)
		}
	})
}

// TestClientThatStops shows that the gateway closes the connection to the registry if a client keeps its own
// connection open but stops reading.
func TestClientThatStops(t *testing.T) {
	testkit.LeaveToMake(t)
	protocols(t, func(t *testing.T, http2 bool) {
		b := newBench(t)
		const size = 32 << 20 // more than a connection buffers
		b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(size)})
		stopped := make(chan struct{})
		b.lie("/blobs/", func(w http.ResponseWriter, r *http.Request) {
			b.registry.Truth.ServeHTTP(w, r)
			<-r.Context().Done()
			close(stopped)
		})
		b.limits.ClientStall = time.Second // long enough for the client to read the first piece
		c := b.serveOver(http2)
		resp, err := c.http.Get(c.s.URL + archivePath("1.0.0", linux))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		<-stopped
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n >= size {
			t.Errorf("the client got %d bytes, %v", n, err)
		}
	})
}

// deadlineWriter records whether a write deadline is set, and counts writes without a deadline. HTTP/2 enforces
// the deadline even while nothing is written.
type deadlineWriter struct {
	http.ResponseWriter
	armed, written, unguarded atomic.Int32
}

func (w *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	w.armed.Store(0)
	if !deadline.IsZero() {
		w.armed.Store(1)
	}
	return nil
}

func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.written.Add(1)
	if w.armed.Load() == 0 {
		w.unguarded.Add(1)
	}
	return w.ResponseWriter.Write(p)
}

// watchedStore calls read before each Read of a fetched blob.
type watchedStore struct {
	catalog.Store
	read func()
}

func (s watchedStore) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := s.Store.Fetch(ctx, d)
	return watchedBody{body, s.read}, err
}

type watchedBody struct {
	io.ReadCloser
	read func()
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.read()
	return b.ReadCloser.Read(p)
}

// TestNoClientDeadlineWhileTheRegistryIsRead shows that no write deadline for the client is set while the
// gateway waits for the registry.
func TestNoClientDeadlineWhileTheRegistryIsRead(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(10*gateway.CopyBuffer + 1)})
	w := &deadlineWriter{ResponseWriter: httptest.NewRecorder()}
	reads := 0
	b.options.Repository = func(_ context.Context, a subject.Address) (catalog.Store, error) {
		return watchedStore{b.repo, func() {
			if reads++; w.armed.Load() != 0 {
				t.Error("the client's deadline runs while the registry is read")
			}
		}}, nil
	}
	gateway.NewWithin(b.options, b.limits).ServeHTTP(w, httptest.NewRequest(http.MethodGet, archivePath("1.0.0", linux), nil))
	if reads == 0 || w.written.Load() < 10 || w.unguarded.Load() != 0 {
		t.Errorf("%d reads, %d writes, %d of them without a deadline", reads, w.written.Load(), w.unguarded.Load())
	}
}

// TestStreamingMemory shows that streaming a large package does not allocate much more memory than streaming a
// small package.
func TestStreamingMemory(t *testing.T) {
	const small, large = 1 << 20, 64 << 20
	b := newBench(t)
	chunk := random(64 << 10)
	sizes := map[string]int64{}
	for version, size := range map[string]int64{"1.0.0": small, "2.0.0": large} {
		d := digest.SHA256.Digester()
		for range size / int64(len(chunk)) {
			d.Hash().Write(chunk)
		}
		sizes[d.Digest().String()] = size
		b.tagSynthetic(version, d.Digest(), size)
	}
	b.lie("/blobs/", func(w http.ResponseWriter, r *http.Request) {
		size := sizes[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for range size / int64(len(chunk)) {
			w.Write(chunk)
		}
	})
	c := b.serve()
	allocated := func(version string, want int64) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp, err := c.http.Get(c.s.URL + archivePath(version, linux))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); n != want || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated("1.0.0", small) // opens the connections
	s, l := allocated("1.0.0", small), allocated("2.0.0", large)
	if grown := l - s; grown > large/16 {
		t.Errorf("%d bytes allocated for %d, %d for %d", s, small, l, large)
	}
}

// tagSynthetic tags a version whose index names a layer that the registry does not have.
func (b *bench) tagSynthetic(version string, d digest.Digest, size int64) {
	b.t.Helper()
	v := b.publish(widget, version, map[provider.Platform][]byte{linux: release.AsZip([]byte(version))})
	v.Packages[0].Digest, v.Packages[0].Size = d, size
	index, err := artifact.EncodeIndex(v)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tag(b.repo, index, version)
}

// TestAbortedAnswerIsLoggedAsSuch shows that the log distinguishes aborted responses from complete responses.
func TestAbortedAnswerIsLoggedAsSuch(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(100)})
	b.lie("/blobs/", chunked(random(99)))
	h := gateway.NewWithin(b.options, b.limits)
	func() {
		defer func() {
			if p := recover(); !errors.Is(asError(p), http.ErrAbortHandler) {
				t.Errorf("panic %v", p)
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, archivePath("1.0.0", linux), nil))
	}()
	if log := b.log.String(); !strings.Contains(log, "msg=request method=GET path="+archivePath("1.0.0", linux)+" status=0") {
		t.Errorf("log:\n%s", log)
	}
}

func asError(p any) error {
	err, _ := p.(error)
	return err
}
