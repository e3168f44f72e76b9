package manuals_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/gateway/manuals"
	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
)

// stored is a zip in a registry. It counts how often it is opened.
type stored struct {
	data  []byte
	fails error
	waits chan struct{} // if not nil, the zip arrives when it is closed
	opens atomic.Int32
}

func (s *stored) Open(ctx context.Context, _, offset int64) (io.ReadCloser, int64, error) {
	s.opens.Add(1)
	if s.waits != nil {
		select {
		case <-s.waits:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	if s.fails != nil {
		return nil, 0, s.fails
	}
	return io.NopCloser(bytes.NewReader(s.data[offset:])), offset, nil
}

func (s *stored) Exists(context.Context) (bool, error) { return true, nil }

func (s *stored) Redirect(context.Context) (string, error) { return "", nil }

// version returns the version of a module whose zip has the given bytes.
func version(data []byte) *artifact.Version {
	pkg := artifact.Package{Digest: digest.FromBytes(data), Size: int64(len(data)), Filename: "vpc-1.0.0.zip"}
	return &artifact.Version{Owner: module.MustParseAddress("registry.acme.example/acme/vpc/aws"), Packages: []artifact.Package{pkg}}
}

func open(t *testing.T) *manuals.Reader {
	t.Helper()
	r := manuals.New(manuals.Options{})
	t.Cleanup(func() { r.Close() })
	return r
}

func vpc(t *testing.T) []byte {
	t.Helper()
	data, err := release.Zip(map[string][]byte{"main.tf": []byte("variable \"size\" {}\n"), "README.md": []byte("# VPC\n\n[a](modules/a) <script>x</script>\n"), "modules/a/main.tf": []byte("")})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestZipIsReadOnce shows that clients that ask at once share one read of a zip, and that its result is kept.
func TestZipIsReadOnce(t *testing.T) {
	r, zip := open(t), &stored{data: vpc(t), waits: make(chan struct{})}
	found := version(zip.data)
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if m, err := r.Module(t.Context(), found, zip); err != nil || m.Root.Inputs[0].Name != "size" {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
	close(zip.waits)
	clients.Wait()
	m, err := r.Module(t.Context(), found, zip)
	if err != nil || zip.opens.Load() != 1 {
		t.Fatalf("opened %d times, %v", zip.opens.Load(), err)
	}
	html, err := r.Readme(t.Context(), m, &m.Root, func(path string) string { return "?part=" + path })
	if err != nil || !strings.Contains(string(html), `href="?part=modules/a"`) || strings.Contains(string(html), "<script") {
		t.Errorf("%s, %v", html, err)
	}
}

// TestFailureIsNoManual shows that a registry that fails, or sends other bytes, gives an error that is not about the module, and that
// a later client makes a new attempt, in the repository that it asks about.
func TestFailureIsNoManual(t *testing.T) {
	data := vpc(t)
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		broken := &stored{fails: errors.New("unreachable")}
		if _, err := r.Module(t.Context(), version(data), broken); err == nil || errors.Is(err, manuals.ErrUnreadable) {
			t.Errorf("the registry fails: %v", err)
		}
		time.Sleep(time.Minute) // failures are remembered for a while
		other := bytes.Clone(data)
		other[len(other)/2]++
		if _, err := r.Module(t.Context(), version(data), &stored{data: other}); err == nil || errors.Is(err, manuals.ErrUnreadable) {
			t.Errorf("other bytes: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := r.Module(t.Context(), version(data), &stored{data: data}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestUnreadableZip shows that the answer about a verified zip that is none is kept, and that too large a zip is not opened.
func TestUnreadableZip(t *testing.T) {
	r, zip := open(t), &stored{data: []byte("no zip")}
	for range 2 {
		if _, err := r.Module(t.Context(), version(zip.data), zip); !errors.Is(err, manuals.ErrUnreadable) {
			t.Errorf("no zip: %v", err)
		}
	}
	large := version(zip.data)
	large.Packages[0].Size = moduledoc.MaxZip + 1
	large.Packages[0].Digest = digest.FromString("large")
	if _, err := r.Module(t.Context(), large, zip); !errors.Is(err, manuals.ErrUnreadable) || zip.opens.Load() != 1 {
		t.Errorf("too large: %v, opened %d times", err, zip.opens.Load())
	}
}

// TestReadOutlivesNoReader shows that a client that leaves does not wait, and that a closed reader ends its reads.
func TestReadOutlivesNoReader(t *testing.T) {
	r, zip := manuals.New(manuals.Options{}), &stored{data: vpc(t), waits: make(chan struct{})}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := r.Module(ctx, version(zip.data), zip)
		left <- err
	}()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that leaves: %v", err)
	}
	r.Close() // returns only when its reads have ended
	if _, err := r.Module(t.Context(), version(zip.data), zip); err == nil {
		t.Error("a closed reader reads")
	}
}

var _ archives.Blob = (*stored)(nil)
