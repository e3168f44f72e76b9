package archives_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
)

var limits = archives.Limits{Start: 30 * time.Second, RegistryStall: 60 * time.Second, ClientStall: 60 * time.Second, Resumes: 2}

// random returns size incompressible bytes. It returns the same bytes for the same size and seed.
func random(size int, seed byte) []byte {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{seed, byte(size), byte(size >> 8)}).Read(data)
	return data
}

// registry is a fake registry that can be made to send wrong bytes or to fail.
type registry struct {
	data    map[digest.Digest][]byte // the bytes that the registry sends
	fetches atomic.Int32
	before  func(fetch, offset int) error // if not nil, called before the registry sends each piece
	gone    bool
}

// blob is a package in a registry. Its method Open ignores the offset, and always starts at the first byte.
type blob struct {
	*registry
	digest digest.Digest
}

func (b blob) Redirect(context.Context) (string, error) { return "", nil }

func (r blob) Open(ctx context.Context, _, _ int64) (io.ReadCloser, int64, error) {
	fetch := int(r.fetches.Add(1))
	if r.gone {
		return nil, 0, errors.New("the registry is not there")
	}
	data, offset := r.data[r.digest], 0
	return io.NopCloser(readerFunc(func(p []byte) (int, error) {
		if r.before != nil {
			if err := r.before(fetch, offset); err != nil {
				return 0, err
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := copy(p[:min(len(p), 10_000)], data[offset:])
		if offset += n; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	})), 0, nil
}

// Exists reports whether the registry has the package.
func (r blob) Exists(context.Context) (bool, error) {
	if r.gone {
		return false, errors.New("the registry is not there")
	}
	_, found := r.data[r.digest]
	return found, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// scene is a handler with a cache in front of a registry.
type scene struct {
	t        testing.TB
	dir      string
	max      int64
	options  archives.CacheOptions
	registry *registry
	log      *collected.Text
	cache    *archives.Cache
	handler  *archives.Handler
	server   *httptest.Server
	packages map[string]artifact.Package // by path
	http2    bool
}

func newScene(t testing.TB) *scene {
	s := &scene{t: t, dir: t.TempDir(), max: 1 << 30, registry: &registry{data: map[digest.Digest][]byte{}}, log: &collected.Text{}, packages: map[string]artifact.Package{}}
	s.restart()
	return s
}

// restart closes the cache, and opens its folder again, as a new process would.
func (s *scene) restart() {
	s.t.Helper()
	if s.cache != nil {
		s.cache.Close()
	}
	s.cache = s.open()
	s.start(s.cache)
}

func (s *scene) open() *archives.Cache {
	s.t.Helper()
	o := s.options
	o.Log = slog.New(slog.NewTextHandler(s.log, nil))
	c, err := archives.OpenCache(s.dir, s.max, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// start starts a server with the given cache. If c is nil, the server has no cache.
func (s *scene) start(c *archives.Cache) {
	s.handler = archives.New(archives.Options{Cache: c, Limits: limits, Counters: s.options.Counters, Log: slog.New(slog.NewTextHandler(s.log, nil))})
	s.server = httptest.NewUnstartedServer(s)
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.server.EnableHTTP2 = s.http2
	s.server.StartTLS()
	s.t.Cleanup(s.server.Close)
}

func (s *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.handler.Serve(w, r, archives.Archive{Package: s.packages[r.URL.Path], Blob: blob{s.registry, s.packages[r.URL.Path].Digest}}); err != nil {
		fmt.Fprintln(s.log, err)
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// add puts an archive into the registry.
func (s *scene) add(path string, data []byte) digest.Digest {
	d := digest.FromBytes(data)
	s.registry.data[d] = data
	s.packages[path] = artifact.Package{Filename: path[1:], Digest: d, Size: int64(len(data))}
	return d
}

type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // the error of reading the body
}

func (s *scene) do(method, path string, headers ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.server.Client().Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body, err}
}

func (s *scene) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, headers...)
}

// want downloads an archive. It checks that the archive is complete, and that the download caused the given number of
// fetches.
func (s *scene) want(path string, fetches int32) {
	s.t.Helper()
	before := s.registry.fetches.Load()
	a := s.get(path)
	if p := s.packages[path]; a.status != http.StatusOK || a.err != nil || digest.FromBytes(a.body) != p.Digest {
		s.t.Errorf("%s: %d with %d bytes, %v", path, a.status, len(a.body), a.err)
	}
	if n := s.registry.fetches.Load() - before; n != fetches {
		s.t.Errorf("%s: %d fetches, want %d", path, n, fetches)
	}
}

// file returns the path of an archive in the cache.
func (s *scene) file(path string) string {
	hex := s.packages[path].Digest.Encoded()
	return filepath.Join(s.dir, "archives", "sha256", hex[:2], hex)
}

// age sets a file's mtime to a minute from now. Otherwise a write might not change the file's mtime within a test,
// because the clocks of file systems can be too coarse.
func (s *scene) age(path string) {
	s.t.Helper()
	at := time.Now().Add(time.Minute)
	if err := os.Chtimes(s.file(path), at, at); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) kept(path string) bool {
	_, err := os.Stat(s.file(path))
	return err == nil
}

// until waits until another goroutine makes a condition true. It fails the test if that takes too long.
func (s *scene) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("after a minute, still waiting until %s", what)
		}
	}
}

// idle waits until no archive is in use.
func (s *scene) idle() {
	s.until("nothing is in use", func() bool { return s.cache.Users() == 0 })
}

// files returns the number of files below a folder of the cache.
func (s *scene) files(in string) int {
	n := 0
	filepath.WalkDir(filepath.Join(s.dir, "archives", in), func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			n++
		}
		return nil
	})
	return n
}

func TestCachedArchive(t *testing.T) {
	for _, size := range []int{1, 100, archives.CopyBuffer - 1, archives.CopyBuffer, archives.CopyBuffer + 1, 1<<20 + 1} {
		s := newScene(t)
		s.add("/a", random(size, 1))
		s.want("/a", 1)
		s.want("/a", 0)
		s.restart()
		s.want("/a", 0)
		s.registry.gone = true
		s.want("/a", 0)
		a := s.get("/a")
		for name, want := range map[string]string{
			"Content-Type": "application/zip", "Content-Length": fmt.Sprint(size), "Accept-Ranges": "bytes",
			"Etag": fmt.Sprintf(`"%s"`, s.packages["/a"].Digest), "Content-Encoding": "",
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if info, err := os.Stat(filepath.Join(s.dir, "archives")); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder is %v, %v", info.Mode(), err)
		}
	}
}

// TestConditions checks the responses to requests with conditions and ranges. It requests an archive that is being
// fetched, and a cached archive.
func TestConditions(t *testing.T) {
	const size = 300_000
	data := random(size, 1)
	etag := fmt.Sprintf(`"%s"`, digest.FromBytes(data))
	for name, tc := range map[string]struct {
		method  string
		headers []string
		status  int
		body    []byte
	}{
		"start":               {"GET", []string{"Range", "bytes=0-9"}, 206, data[:10]},
		"middle":              {"GET", []string{"Range", "bytes=100000-199999"}, 206, data[100_000:200_000]},
		"from":                {"GET", []string{"Range", "bytes=200000-"}, 206, data[200_000:]},
		"end":                 {"GET", []string{"Range", "bytes=-10"}, 206, data[size-10:]},
		"all":                 {"GET", []string{"Range", "bytes=0-"}, 206, data},
		"beyond":              {"GET", []string{"Range", "bytes=300000-"}, 416, nil},
		"several":             {"GET", []string{"Range", "bytes=0-1,5-6"}, 200, data},
		"if range":            {"GET", []string{"Range", "bytes=5-9", "If-Range", etag}, 206, data[5:10]},
		"if another range":    {"GET", []string{"Range", "bytes=5-9", "If-Range", `"x"`}, 200, data},
		"if weak range":       {"GET", []string{"Range", "bytes=5-9", "If-Range", "W/" + etag}, 200, data},
		"known":               {"GET", []string{"If-None-Match", etag}, 304, nil},
		"known, weakly":       {"GET", []string{"If-None-Match", `"x", W/` + etag}, 304, nil},
		"any known":           {"GET", []string{"If-None-Match", "*"}, 304, nil},
		"another known":       {"GET", []string{"If-None-Match", `"x"`}, 200, data},
		"wanted":              {"GET", []string{"If-Match", etag}, 200, data},
		"another wanted":      {"GET", []string{"If-Match", `"x"`}, 412, nil},
		"encoding":            {"GET", []string{"Accept-Encoding", "gzip, br, zstd"}, 200, data},
		"head":                {"HEAD", nil, 200, nil},
		"head of a range":     {"HEAD", []string{"Range", "bytes=0-9"}, 200, nil},
		"head of known":       {"HEAD", []string{"If-None-Match", etag}, 304, nil},
		"range that is wrong": {"GET", []string{"Range", "lines=1"}, 416, nil},
	} {
		check := func(t *testing.T, what string, a answer) {
			if a.status != tc.status || a.err != nil || tc.body != nil && !bytes.Equal(a.body, tc.body) || tc.method == "HEAD" && len(a.body) > 0 {
				t.Errorf("%s: %d with %d bytes, %v", what, a.status, len(a.body), a.err)
			}
			if tc.status < 300 && a.header.Get("Etag") != etag || a.header.Get("Content-Encoding") != "" {
				t.Errorf("%s: %v", what, a.header)
			}
			length := map[bool]int{true: len(tc.body), false: size}[tc.method == "GET"]
			if tc.status < 300 && a.header.Get("Content-Length") != fmt.Sprint(length) {
				t.Errorf("%s: Content-Length %s", what, a.header.Get("Content-Length"))
			}
		}
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.add("/a", data)
			check(t, "fetched", s.do(tc.method, "/a", tc.headers...))
			if n := s.registry.fetches.Load(); (tc.status >= 300 || tc.method == "HEAD") && n != 0 {
				t.Errorf("%d fetches", n)
			}
			s.want("/a", 1-s.registry.fetches.Load())
			check(t, "kept", s.do(tc.method, "/a", tc.headers...))
		})
	}
}

// TestWithoutCache shows that a request for a range gets the whole archive if there is no cache. Without a cache, the
// handler cannot verify a range.
func TestWithoutCache(t *testing.T) {
	s := newScene(t)
	s.start(nil)
	data := random(200_000, 1)
	s.add("/a", data)
	a := s.get("/a", "Range", "bytes=0-9")
	if a.status != http.StatusOK || !bytes.Equal(a.body, data) || a.header.Get("Accept-Ranges") != "none" {
		t.Errorf("%d with %d bytes, %v", a.status, len(a.body), a.header)
	}
	if a := s.get("/a", "If-None-Match", a.header.Get("Etag")); a.status != http.StatusNotModified {
		t.Errorf("%+v", a)
	}
	s.want("/a", 1)
	s.want("/a", 1)
}

func protocols(t *testing.T, f func(t *testing.T, s *scene)) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.server.Close()
			s.http2 = http2
			s.restart()
			f(t, s)
		})
	}
}

// gate pauses a registry at an offset until a test opens the gate.
type gate struct{ reached, open chan struct{} }

func (s *scene) holdAt(at int) gate {
	g := gate{make(chan struct{}), make(chan struct{})}
	var once sync.Once
	s.registry.before = func(_, offset int) error {
		if offset >= at {
			once.Do(func() { close(g.reached) })
			<-g.open
		}
		return nil
	}
	return g
}

// TestClientsShareAFetch shows that all clients of an archive share the fetch that the first client starts.
func TestClientsShareAFetch(t *testing.T) {
	protocols(t, func(t *testing.T, s *scene) {
		const size, half, clients = 1_000_000, 500_000, 50
		data := random(size, 1)
		s.add("/a", data)
		g := s.holdAt(half)
		var all, reading sync.WaitGroup
		for range clients {
			all.Add(1)
			reading.Add(1)
			go func() {
				defer all.Done()
				resp, err := s.server.Client().Get(s.server.URL + "/a")
				if err != nil {
					t.Error(err)
					reading.Done()
					return
				}
				defer resp.Body.Close()
				// The response withholds less than the size of its buffer, and the server withholds less than the size
				// of its own buffer.
				first := make([]byte, half-2*archives.CopyBuffer)
				_, err = io.ReadFull(resp.Body, first)
				reading.Done()
				rest, err2 := io.ReadAll(resp.Body)
				if err != nil || err2 != nil || !bytes.Equal(append(first, rest...), data) {
					t.Errorf("%v, %v, %d bytes", err, err2, len(first)+len(rest))
				}
			}()
		}
		reading.Wait() // until each client has half of the archive, while the registry is paused
		close(g.open)
		all.Wait()
		if n := s.registry.fetches.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestArchiveThatIsNotItsDigest shows what happens if an archive does not match its digest. Every response is broken
// off, even a response with a range, and the cache keeps no file of the archive.
func TestArchiveThatIsNotItsDigest(t *testing.T) {
	for name, change := range map[string]func(data []byte) []byte{
		"first byte":    func(d []byte) []byte { d[0] ^= 1; return d },
		"last byte":     func(d []byte) []byte { d[len(d)-1] ^= 1; return d },
		"one byte less": func(d []byte) []byte { return d[:len(d)-1] },
		"one byte more": func(d []byte) []byte { return append(d, 0) },
		"nothing":       func([]byte) []byte { return nil },
	} {
		for _, size := range []int{1000, 3*archives.CopyBuffer + 5} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				protocols(t, func(t *testing.T, s *scene) {
					truth := random(size, 1)
					d := s.add("/a", truth)
					s.registry.data[d] = change(bytes.Clone(truth))
					g := s.holdAt(0)
					var all sync.WaitGroup
					for _, headers := range [][]string{nil, nil, {"Range", "bytes=0-99"}, {"Range", "bytes=-100"}} {
						all.Go(func() {
							want := size
							if headers != nil {
								want = 100
							}
							// A late client may get an error status instead of a broken response.
							if a := s.get("/a", headers...); a.status != http.StatusBadGateway && (a.err == nil || len(a.body) >= want) {
								t.Errorf("%v: %d with %d bytes, and no error", headers, a.status, len(a.body))
							}
						})
					}
					s.until("five are waiting", func() bool { return s.cache.Users() >= 5 })
					close(g.open)
					all.Wait()
					s.idle()
					if n := s.registry.fetches.Load(); n != 1 || s.files("") != 0 {
						t.Errorf("%d fetches, %d files", n, s.files(""))
					}
					if !strings.Contains(s.log.String(), "other bytes than the digest says") {
						t.Errorf("log:\n%s", s.log)
					}
					s.registry.data[d] = truth
					s.want("/a", 1)
				})
			})
		}
	}
}

// TestFetchOutlivesItsClient shows that a fetch continues after its client has left. If the client comes back, it
// reads from the same fetch.
func TestFetchOutlivesItsClient(t *testing.T) {
	protocols(t, func(t *testing.T, s *scene) {
		s.add("/a", random(1_000_000, 1))
		g := s.holdAt(500_000)
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/a", nil)
		resp, err := s.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		<-g.reached
		leave()
		resp.Body.Close()
		s.until("the client has left", func() bool { return s.cache.Users() <= 1 })
		close(g.open)
		s.want("/a", 0)
		if log := s.log.String(); strings.Contains(log, "level=ERROR") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestFailedFetchIsNotRemembered shows that the cache does not remember a failed fetch. After the registry has
// recovered, the next client starts a new fetch.
func TestFailedFetchIsNotRemembered(t *testing.T) {
	s := newScene(t)
	s.add("/a", random(1000, 1))
	s.registry.gone = true
	if a := s.get("/a"); a.status != http.StatusBadGateway {
		t.Errorf("%+v", a)
	}
	s.registry.gone = false
	s.want("/a", 1)
}

// TestBrokenFetchIsResumed shows that a fetch resumes when its connection breaks, and that clients do not notice.
func TestBrokenFetchIsResumed(t *testing.T) {
	s := newScene(t)
	s.add("/a", random(1_000_000, 1))
	s.registry.before = func(fetch, offset int) error {
		if fetch == 1 && offset > 500_000 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	s.want("/a", 2)
	s.want("/a", 0)
}

// fetcher is a blob with a URL. Its method Open sends a GET request.
type fetcher string

func (f fetcher) Exists(context.Context) (bool, error) { return true, nil }

func (f fetcher) Redirect(context.Context) (string, error) { return "", nil }

func (f fetcher) Open(ctx context.Context, _, _ int64) (io.ReadCloser, int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(f), nil)
	if err != nil {
		return nil, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, 0, nil
}
