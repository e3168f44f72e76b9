package pusher_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// bigSize is the size of a package in bytes. Connections and buffers together hold fewer bytes.
const bigSize = 24 << 20

// big replaces the bench's release with a release that has only a package for linux_amd64, and returns the package. The
// content of the package does not compress.
func (b *bench) big() *release.Package {
	b.T.Helper()
	content := make([]byte, bigSize)
	rand.Read(content)
	b.Release = release.For(b.T, release.Spec{Host: pushbench.Host, Namespace: "acme", Type: "widget", Version: "1.0.0", Signer: b.Signer,
		Contents: []release.Content{{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-widget_v1.0.0": content}}}})
	b.Origin.Add(b.Release)
	return b.Release.Package("linux", "amd64")
}

// isUpload reports whether a request uploads a package.
func isUpload(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/uploads/") && r.ContentLength > 1000
}

// uploads selects the requests that complete the upload of a package.
func (b *bench) uploads() recorder.Filter {
	return func(r recorder.Request) bool {
		return r.Method == http.MethodPut && slices.ContainsFunc(b.Release.Packages, func(p release.Package) bool { return strings.Contains(r.Query, p.SHA256) })
	}
}

// counted counts the bytes that are read from a request's body.
type counted struct {
	io.ReadCloser
	n     *atomic.Int64
	begun func()
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.n.Add(int64(n)); n > 0 {
		c.begun()
	}
	return n, err
}

// inHalves makes the origin send a package in two halves. The origin sends the second half once the registry has
// received a part of the first half. The result counts the bytes that the registry receives.
func (b *bench) inHalves(data []byte) *atomic.Int64 {
	begun, got := make(chan struct{}), &atomic.Int64{}
	begin := sync.OnceFunc(func() { close(begun) })
	b.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if isUpload(r) {
			r.Body = counted{r.Body, got, begin}
		}
		return false
	})
	b.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".zip") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:len(data)/2])
		http.NewResponseController(w).Flush()
		select {
		case <-begun:
			w.Write(data[len(data)/2:])
		case <-r.Context().Done():
		}
		return true
	})
	return got
}

func (b *bench) hasLayer(sum string) bool {
	b.T.Helper()
	layer := artifact.Package{Digest: digest.NewDigestFromEncoded(digest.SHA256, sum), Size: 1}.Layer()
	exists, err := b.Repo.Exists(b.T.Context(), layer)
	if err != nil {
		b.T.Fatal(err)
	}
	return exists
}

// TestPackageIsSentWhileItIsRead shows that a push uploads a package while it downloads the package. The origin sends
// the second half only after the registry has received a part of the first half.
func TestPackageIsSentWhileItIsRead(t *testing.T) {
	b := newBench(t)
	pkg := b.big()
	b.inHalves(pkg.Data)
	var mu sync.Mutex
	sums := map[pusher.Stage]int{}
	b.Options.OnEvent = func(e pusher.Event) {
		mu.Lock()
		defer mu.Unlock()
		sums[e.Stage] += e.Bytes
	}
	if r := b.MustPush(); r.Status != pusher.Pushed || !r.Packages[0].Sent || !b.hasLayer(pkg.SHA256) {
		t.Errorf("%+v", r)
	}
	if want := int(pkg.Size); sums[pusher.StageFetch] != want || sums[pusher.StageSend] != want {
		t.Errorf("events tell of %v bytes, want %d", sums, want)
	}
}

// TestMismatchInMidStream shows that, if the last byte of a package is wrong, the registry never receives the complete
// package. The registry keeps no part of the package.
func TestMismatchInMidStream(t *testing.T) {
	b := newBench(t)
	pkg := b.big()
	wrong := append([]byte{}, pkg.Data...)
	wrong[len(wrong)-1] ^= 1
	b.refusedInMidStream(pkg, wrong, trust.ErrChecksum)
	if b.hasLayer(release.Sum(wrong)) {
		t.Error("the wrong package was stored")
	}
}

// TestNotZipInMidStream shows that, if a validly signed package is not a zip, the registry never receives the complete
// package. Only the end of the package shows that it is not a zip.
func TestNotZipInMidStream(t *testing.T) {
	b := newBench(t)
	pkg := b.big()
	cut := pkg.Data[:len(pkg.Data)-1]
	if err := b.Release.Repack("linux", "amd64", cut, b.Signer); err != nil {
		t.Fatal(err)
	}
	b.refusedInMidStream(pkg, cut, provider.ErrNotZip)
}

// refusedInMidStream pushes a package that is wrong only at its end. It fails the test unless the registry receives a
// part of the package and does not keep that part.
func (b *bench) refusedInMidStream(pkg *release.Package, sent []byte, want error) {
	b.T.Helper()
	got := b.inHalves(sent)
	_, err := b.Push()
	if !errors.Is(err, want) {
		b.T.Errorf("error %v", err)
	}
	if n := got.Load(); n == 0 || n >= pkg.Size {
		b.T.Errorf("the registry got %d of %d bytes", n, pkg.Size)
	}
	if n := b.Registry.Count(recorder.Method(http.MethodDelete), recorder.PathContains("/blobs/uploads/")); n != 1 {
		b.T.Errorf("%d uploads were cancelled", n)
	}
	b.Registry.Intercept(nil)
	if b.Tagged() != nil || b.hasLayer(pkg.SHA256) {
		b.T.Error("something was stored")
	}
}

// TestUploadIsBegunAnewFromTheFile shows that, if an upload breaks off in the middle, the next upload reads the
// temporary file. The origin therefore sends the package only once.
func TestUploadIsBegunAnewFromTheFile(t *testing.T) {
	for name, breakOff := range map[string]func(http.ResponseWriter){
		"by a refusal":      func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"by too many":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		"by the connection": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pkg := b.big()
			failures := 2
			b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !isUpload(r) || failures == 0 {
					return false
				}
				failures--
				io.CopyN(io.Discard, r.Body, 1<<20)
				breakOff(w)
				return true
			})
			var sent atomic.Int64
			b.Options.OnEvent = func(e pusher.Event) {
				if e.Stage == pusher.StageSend {
					sent.Add(int64(e.Bytes))
				}
			}
			b.MustPush()
			if failures != 0 || !b.hasLayer(pkg.SHA256) || sent.Load() != pkg.Size {
				t.Errorf("%d failures left, events tell of %d bytes", failures, sent.Load())
			}
			if n := b.Origin.Count(recorder.PathSuffix(".zip")); n != 1 {
				t.Errorf("the origin received %d requests", n)
			}
		})
	}
}

// TestDownloadBreaksOffWhileItIsSent shows that one upload suffices even if the download from the origin breaks off
// three times.
func TestDownloadBreaksOffWhileItIsSent(t *testing.T) {
	b := newBench(t)
	pkg := b.big()
	breaks := 3
	b.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".zip") || breaks == 0 {
			return false
		}
		breaks--
		var from int64
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		w.Header().Set("Content-Length", fmt.Sprint(pkg.Size-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, pkg.Size-1, pkg.Size))
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write(pkg.Data[from : from+5<<20])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	b.MustPush()
	if !b.hasLayer(pkg.SHA256) || b.Registry.Count(b.uploads()) != 1 {
		t.Errorf("%d uploads", b.Registry.Count(b.uploads()))
	}
	offset := int64(-1)
	requests := b.Origin.Requests(recorder.PathSuffix(".zip"))
	for _, r := range requests {
		var from int64
		fmt.Sscanf(r.Range, "bytes=%d-", &from)
		if from <= offset {
			t.Errorf("resumed at %d, then at %d", offset, from)
		}
		offset = from
	}
	if len(requests) != 4 {
		t.Errorf("the origin received %d requests", len(requests))
	}
}

// elsewhere makes the origin offer the same packages for another provider. It returns the other provider's release, and
// a repository for the other provider in the same registry.
func (b *bench) elsewhere() (*realorigin.Release, *remote.Repository) {
	b.T.Helper()
	other := *b.Release
	other.Namespace = "other"
	b.Origin.Add(&other)
	address := provider.MustParseAddress(pushbench.Host + "/other/widget")
	listing, err := b.Client.Versions(b.T.Context(), address)
	if err != nil {
		b.T.Fatal(err)
	}
	r, err := b.Client.Release(b.T.Context(), address, listing, listing.Versions[0], nil)
	if err != nil {
		b.T.Fatal(err)
	}
	elsewhere, err := remote.NewRepository(b.Repo.Reference.Registry + "/other/widget")
	if err != nil {
		b.T.Fatal(err)
	}
	elsewhere.PlainHTTP, elsewhere.Client = true, b.Repo.Client
	destination := b.Options.Destination
	b.Options.Destination = func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		if a != address {
			return destination(ctx, a)
		}
		return repo.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "other/widget"}, Store: registry.Repository{Repository: elsewhere}}, nil
	}
	return r, elsewhere
}

// TestMount shows in which cases a push mounts packages from another repository of the registry instead of sending
// them.
func TestMount(t *testing.T) {
	for name, tc := range map[string]struct {
		first   bool   // the same Pusher has pushed to the other repository
		sibling string // Destination.Sibling
		refuse  bool
		mounted bool
	}{
		"sent in this run":                     {first: true, mounted: true},
		"known to the destination":             {sibling: "acme/widget", mounted: true},
		"not known":                            {},
		"known, but not there":                 {sibling: "acme/nothing"},
		"the registry refuses":                 {first: true, refuse: true},
		"sent, whatever the destination knows": {first: true, sibling: "acme/nothing", mounted: true},
		"the destination itself":               {sibling: "other/widget"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r, other := b.elsewhere()
			destination := b.Options.Destination
			b.Options.Destination = func(ctx context.Context, a subject.Address) (repo.Destination, error) {
				d, err := destination(ctx, a)
				d.Sibling = tc.sibling
				return d, err
			}
			p := pusher.New(b.Options)
			if tc.first {
				own, err := b.Get()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Push(t.Context(), own); err != nil {
					t.Fatal(err)
				}
			} else {
				b.MustPush()
			}
			b.Registry.Reset()
			if tc.refuse {
				b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Get("mount") == "" {
						return false
					}
					w.WriteHeader(http.StatusForbidden)
					return true
				})
			}
			result, err := p.Push(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			sent := sent(result)
			put := b.Registry.Count(b.uploads())
			if tc.mounted && (sent != 0 || put != 0) || !tc.mounted && (sent != 3 || put != 3) {
				t.Errorf("%d packages sent, %d uploads", sent, put)
			}
			v, err := artifact.Read(t.Context(), other, r.Provider(), r.Version())
			if err != nil || len(v.Packages) != 3 {
				t.Fatalf("%+v, %v", v, err)
			}
			for _, p := range v.Packages {
				if exists, err := other.Exists(t.Context(), p.Layer()); err != nil || !exists {
					t.Errorf("%s is there: %v, %v", p.Platform, exists, err)
				}
			}
		})
	}
}

// TestMountOfOneAbsentPackage shows that, if a repository lacks one package, a push still mounts other packages from
// that repository.
func TestMountOfOneAbsentPackage(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	r, _ := b.elsewhere()
	destination := b.Options.Destination
	b.Options.Jobs = 1
	b.Options.Destination = func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		d, err := destination(ctx, a)
		d.Sibling = "acme/widget"
		return d, err
	}
	mounts := 0
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("mount") == "" {
			return false
		}
		if mounts++; mounts > 1 {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	result, err := pusher.New(b.Options).Push(t.Context(), r)
	if err != nil || mounts != 3 || sent(result) != 1 {
		t.Errorf("%v, %d mounts, %d packages sent", err, mounts, sent(result))
	}
}

// TestTooLargeForOneRequest shows that a push sends a package in chunks if a proxy limits the size of requests.
func TestTooLargeForOneRequest(t *testing.T) {
	b := newBench(t)
	pkg := b.big()
	const limit = 17 << 20
	refused := 0
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.ContentLength <= limit {
			return false
		}
		refused++
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return true
	})
	b.MustPush()
	if n := b.Registry.Count(recorder.Method(http.MethodPatch)); n != 2 || refused != 1 || !b.hasLayer(pkg.SHA256) {
		t.Errorf("%d chunks, %d refused", n, refused)
	}
	if n := b.Origin.Count(recorder.PathSuffix(".zip")); n != 1 {
		t.Errorf("the origin received %d requests", n)
	}
}

// inProcess is a transport that calls a handler without a connection. Requests therefore use the virtual time of
// package synctest.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	if req.Body == nil {
		req = req.Clone(req.Context())
		req.Body = http.NoBody
	}
	h.ServeHTTP(rec, req)
	resp := rec.Result()
	resp.Request = req
	return resp, nil
}

// TestRetryAfterOfAnUpload shows that a push retries a failed upload only after the time in the registry's Retry-After.
// The push fails if that time is too long.
func TestRetryAfterOfAnUpload(t *testing.T) {
	for name, tc := range map[string]struct {
		after string
		waits time.Duration
		fails bool
	}{
		"for a while":   {"40", 40 * time.Second, false},
		"for too long":  {"3600", 0, true},
		"for no time":   {"0", 0, false},
		"for nonsense ": {"soon", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r, err := b.Get("linux_amd64")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				b.Repo.Client = &http.Client{Transport: inProcess{b.Registry}}
				data := b.Release.Package("linux", "amd64").Data
				r.Packages[0].Open = func(context.Context) (io.ReadCloser, int64, error) {
					return io.NopCloser(strings.NewReader(string(data))), int64(len(data)), nil
				}
				first := true
				b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if !first || r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/blobs/uploads/") {
						return false
					}
					first = false
					w.Header().Set("Retry-After", tc.after)
					w.WriteHeader(http.StatusTooManyRequests)
					return true
				})
				start := time.Now()
				_, err := pusher.New(b.Options).Push(t.Context(), r)
				if (err != nil) != tc.fails {
					t.Errorf("error %v", err)
				}
				if took := time.Since(start); took < tc.waits || took > tc.waits+time.Second {
					t.Errorf("it waited %s", took)
				}
			})
		})
	}
}

// TestOneBoundForAllPushes shows that Options.Jobs limits the number of packages that two concurrent pushes of one
// Pusher store at any time.
func TestOneBoundForAllPushes(t *testing.T) {
	b := newBench(t)
	b.Origin.Add(b.Build("2.0.0", "other content"))
	var mu sync.Mutex
	under, most := map[string]bool{}, 0
	b.Options.Jobs = 2
	b.Options.OnEvent = func(e pusher.Event) {
		mu.Lock()
		defer mu.Unlock()
		key := e.Version.String() + e.Platform.String()
		if e.Stage == pusher.StageDone {
			delete(under, key)
			return
		}
		under[key] = true
		most = max(most, len(under))
	}
	p := pusher.New(b.Options)
	listing, err := b.Client.Versions(t.Context(), pushbench.Widget)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, v := range listing.Versions {
		r, err := b.Client.Release(t.Context(), pushbench.Widget, listing, v, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := p.Push(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most > 2 {
		t.Errorf("%d packages were under way concurrently", most)
	}
}

// TestStagesSayWhatWasSent shows that the stages and results of packages agree with the uploads that the registry
// receives.
func TestStagesSayWhatWasSent(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	ended, sending := map[pusher.Stage]int{}, 0
	b.Options.OnEvent = func(e pusher.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Stage {
		case pusher.StageFetch:
		case pusher.StageSend:
			sending += e.Bytes
		default:
			ended[e.Stage]++
		}
	}
	// check compares the stages that were reported since the last check with want. r is nil if the push failed.
	check := func(what string, r *pusher.Result, want map[pusher.Stage]int) {
		t.Helper()
		if !maps.Equal(ended, want) {
			t.Errorf("%s: %v, want %v", what, ended, want)
		}
		if n := b.Registry.Count(b.uploads()); n != want[pusher.StageDone] || (sending > 0) != (n > 0) {
			t.Errorf("%s: %d uploads, %d bytes are said to be sent", what, n, sending)
		}
		if r != nil {
			if n := sent(r); n != want[pusher.StageDone] {
				t.Errorf("%s: the result says that %d packages were sent", what, n)
			}
		}
		ended, sending = map[pusher.Stage]int{}, 0
		b.Registry.Reset()
	}

	b.Immutable(http.StatusPreconditionFailed, pushbench.Refusals["harbor"].Answer)
	check("a new version", b.MustPush("linux_amd64"), map[pusher.Stage]int{pusher.StageDone: 1})
	if _, err := b.Push("linux_amd64", "darwin_arm64"); !errors.Is(err, repo.ErrImmutable) {
		t.Fatal(err)
	}
	check("refused at the tag", nil, map[pusher.Stage]int{pusher.StagePresent: 1, pusher.StageDone: 1})
	b.Registry.Intercept(nil)
	check("after the rule was lifted", b.MustPush(), map[pusher.Stage]int{pusher.StagePresent: 1, pusher.StageFound: 1, pusher.StageDone: 1})
	check("again", b.MustPush(), map[pusher.Stage]int{pusher.StagePresent: 3})
	b.Options.Force = true
	check("by force", b.MustPush(), map[pusher.Stage]int{pusher.StageFound: 3})

	b.Options.Force = false
	other, _ := b.elsewhere()
	destination := b.Options.Destination
	b.Options.Destination = func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		d, err := destination(ctx, a)
		d.Sibling = "acme/widget"
		return d, err
	}
	r, err := pusher.New(b.Options).Push(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	check("from another repository", r, map[pusher.Stage]int{pusher.StageMounted: 3})
}

// sent counts the packages that were sent, according to a result.
func sent(r *pusher.Result) int {
	n := 0
	for _, p := range r.Packages {
		if p.Sent {
			n++
		}
	}
	return n
}
