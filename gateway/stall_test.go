package gateway_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/provider"
)

// The tests in this file use virtual time, so that they need not wait until the limits expire. Network
// connections do not work with virtual time, so the registry is in memory. Tests can slow the registry down.

// memory is a repository with one version of widget.
type memory struct {
	catalog.Store
	index, blob []byte
	fetches     int                                                // the number of fetches of the blob
	unclosed    int                                                // the number of fetched blobs that are not closed
	tags, open  func(ctx context.Context) error                    // tags is called before tags or the index are returned, and open before the blob is returned
	read        func(ctx context.Context, fetch, number int) error // called before each read of the blob
}

func (*memory) Exists(context.Context, ocispec.Descriptor) (bool, error) { return true, nil }

func (*memory) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errdef.ErrUnsupported
}

func newMemory(t *testing.T, size int) *memory {
	t.Helper()
	blob := random(size)
	pkg, _ := accepted.Package(t, widget, provider.MustParseVersion("1.0.0"), linux, blob)
	p, _, err := artifact.EncodePackage(pkg)
	if err != nil {
		t.Fatal(err)
	}
	index, err := artifact.EncodeIndex(artifact.Version{Owner: widget, Packages: []artifact.Package{p}})
	if err != nil {
		t.Fatal(err)
	}
	ready := func(context.Context) error { return nil }
	return &memory{index: index.Data, blob: blob, tags: ready, open: ready,
		read: func(context.Context, int, int) error { return nil }}
}

func (m *memory) Tags(ctx context.Context, _ string, fn func([]string) error) error {
	if err := m.tags(ctx); err != nil {
		return err
	}
	return fn([]string{"1.0.0"})
}

func (m *memory) FetchReference(ctx context.Context, _ string) (ocispec.Descriptor, io.ReadCloser, error) {
	err := m.tags(ctx)
	return blobOf(ocispec.MediaTypeImageIndex, m.index).Descriptor, io.NopCloser(bytes.NewReader(m.index)), err
}

// Fetch returns the blob. The returned body does not support ranges.
func (m *memory) Fetch(ctx context.Context, _ ocispec.Descriptor) (io.ReadCloser, error) {
	m.fetches++
	if err := m.open(ctx); err != nil {
		return nil, err
	}
	m.unclosed++
	reads, fetch, r := 0, m.fetches, bytes.NewReader(m.blob)
	return memoryBody{m, readerFunc(func(p []byte) (int, error) {
		reads++
		err := m.read(ctx, fetch, reads)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		return r.Read(p)
	})}, nil
}

type memoryBody struct {
	m *memory
	io.Reader
}

func (b memoryBody) Close() error {
	b.m.unclosed--
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// waits blocks until the context ends.
func waits(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// get sends a request to a gateway with default limits. It returns the duration of the request.
func (m *memory) get(t *testing.T, path string, w http.ResponseWriter) time.Duration {
	t.Helper()
	start := time.Now()
	h := gateway.NewBacked(gateway.Backed{Repository: func(context.Context, subject.Address) (catalog.Store, error) { return m, nil }})
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(t.Context()))
	if m.unclosed != 0 {
		t.Errorf("%d answers of the registry are not closed", m.unclosed)
	}
	return time.Since(start)
}

// TestWaitingForTheRegistry shows that a request gets 504 after its time limit if the registry does not
// answer.
func TestWaitingForTheRegistry(t *testing.T) {
	for name, tc := range map[string]struct {
		path  string
		stall func(*memory)
		want  time.Duration
	}{
		"versions":     {prefix + "index.json", func(m *memory) { m.tags = waits }, 8 * time.Second},
		"version":      {prefix + "1.0.0.json", func(m *memory) { m.tags = waits }, 8 * time.Second},
		"archive":      {archivePath("1.0.0", linux), func(m *memory) { m.tags = waits }, 8 * time.Second}, // the limit for metadata
		"archive blob": {archivePath("1.0.0", linux), func(m *memory) { m.open = waits }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t, 100)
				tc.stall(m)
				w := httptest.NewRecorder()
				if took := m.get(t, tc.path, w); took != tc.want || w.Code != http.StatusGatewayTimeout {
					t.Errorf("%d after %s, want %s", w.Code, took, tc.want)
				}
			})
		})
	}
}

// TestStallIsResumed shows that the gateway resumes the transfer of a blob if the registry sends nothing for a
// minute.
func TestStallIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 1<<20)
		m.read = func(ctx context.Context, fetch, number int) error {
			if fetch == 1 && number == 5 {
				return waits(ctx)
			}
			return nil
		}
		w := httptest.NewRecorder()
		took := m.get(t, archivePath("1.0.0", linux), w)
		if !bytes.Equal(w.Body.Bytes(), m.blob) || m.fetches != 2 || took != time.Minute {
			t.Errorf("%d bytes by %d fetches in %s", w.Body.Len(), m.fetches, took)
		}
	})
}

// TestSlowRegistryIsNotStalled shows that a registry does not count as stalled if it sends some bytes every 50
// seconds. This is also true while the gateway skips bytes after a lost connection.
func TestSlowRegistryIsNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 1<<20)
		m.read = func(_ context.Context, fetch, number int) error {
			time.Sleep(50 * time.Second)
			if fetch == 1 && number == 15 {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		w := httptest.NewRecorder()
		m.get(t, archivePath("1.0.0", linux), w)
		if !bytes.Equal(w.Body.Bytes(), m.blob) || m.fetches != 2 {
			t.Errorf("%d bytes by %d fetches", w.Body.Len(), m.fetches)
		}
	})
}

// slowWriter is an [http.ResponseWriter] whose writes each take an hour.
type slowWriter struct{ *httptest.ResponseRecorder }

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Hour)
	return w.ResponseRecorder.Write(p)
}

// TestSlowClientIsNotTheRegistrysFault shows that the registry's connection stays open while the gateway waits
// for a slow client. No write deadline ends the wait in this test, because only a real server enforces write
// deadlines.
func TestSlowClientIsNotTheRegistrysFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 1<<20)
		w := slowWriter{httptest.NewRecorder()}
		m.get(t, archivePath("1.0.0", linux), w)
		if !bytes.Equal(w.Body.Bytes(), m.blob) || m.fetches != 1 {
			t.Errorf("%d bytes by %d fetches", w.Body.Len(), m.fetches)
		}
	})
}

// TestTransferEndsWithItsClient shows that the gateway does not resume a transfer for a client that has left.
func TestTransferEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 1<<20)
		ctx, gone := context.WithCancel(t.Context())
		m.read = func(_ context.Context, _, number int) error {
			if number == 5 {
				gone()
			}
			return nil
		}
		h := gateway.NewBacked(gateway.Backed{Repository: func(context.Context, subject.Address) (catalog.Store, error) { return m, nil }})
		w := httptest.NewRecorder()
		defer func() {
			if recover() != http.ErrAbortHandler || m.fetches != 1 || m.unclosed != 0 {
				t.Errorf("%d fetches, %d of them not closed", m.fetches, m.unclosed)
			}
		}()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, archivePath("1.0.0", linux), nil).WithContext(ctx))
	})
}
