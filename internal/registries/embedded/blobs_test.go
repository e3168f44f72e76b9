package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
)

// pushBlob pushes random bytes as a blob. It returns the bytes and their descriptor.
func pushBlob(t *testing.T, repo *remote.Repository, size int) ([]byte, ocispec.Descriptor) {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(data)
	desc := content.NewDescriptorFromBytes("application/zip", data)
	if err := repo.Blobs().Push(t.Context(), desc, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return data, desc
}

// TestBlobsAreServedAsByDistribution shows that a blob from its file has the same answer as from
// distribution: the same status, headers and body. A client in this process gets the same answer without a server.
func TestBlobsAreServedAsByDistribution(t *testing.T) {
	r := open(t, t.TempDir())
	repo := repository(t, r)
	_, desc := pushBlob(t, repo, 100_000)
	push(t, repo, "hello", "1.0.0")
	other, err := r.Repository("registry.example.com/acme/other")
	if err != nil {
		t.Fatal(err)
	}
	pushBlob(t, other, 10)
	blob := "/v2/" + name + "/blobs/" + desc.Digest.String()
	etag := `"` + desc.Digest.String() + `"`
	for what, tc := range map[string]struct {
		method, path string
		header       []string
	}{
		"whole":                 {http.MethodGet, blob, nil},
		"HEAD":                  {http.MethodHead, blob, nil},
		"range":                 {http.MethodGet, blob, []string{"Range", "bytes=10-19"}},
		"range of HEAD":         {http.MethodHead, blob, []string{"Range", "bytes=10-19"}},
		"to the end":            {http.MethodGet, blob, []string{"Range", "bytes=99990-"}},
		"beyond the end":        {http.MethodGet, blob, []string{"Range", "bytes=100000-"}},
		"last bytes":            {http.MethodGet, blob, []string{"Range", "bytes=-7"}},
		"no range":              {http.MethodGet, blob, []string{"Range", "lines=1-2"}},
		"if-range":              {http.MethodGet, blob, []string{"Range", "bytes=1-2", "If-Range", etag}},
		"if-range of another":   {http.MethodGet, blob, []string{"Range", "bytes=1-2", "If-Range", `"sha256:0"`}},
		"not modified":          {http.MethodGet, blob, []string{"If-None-Match", etag}},
		"failed precondition":   {http.MethodGet, blob, []string{"If-Match", `"sha256:0"`}},
		"absent":                {http.MethodGet, "/v2/" + name + "/blobs/" + digest.FromString("absent").String(), nil},
		"of another repository": {http.MethodGet, "/v2/registry.example.com/acme/other/blobs/" + desc.Digest.String(), nil},
		"of no repository":      {http.MethodGet, "/v2/registry.example.com/acme/none/blobs/" + desc.Digest.String(), nil},
		"invalid digest":        {http.MethodGet, "/v2/" + name + "/blobs/sha256:0", nil},
		"name with dots":        {http.MethodGet, "/v2/registry.example.com/acme/other/../widget/blobs/" + desc.Digest.String(), nil},
		"invalid name":          {http.MethodGet, "/v2/ACME/blobs/" + desc.Digest.String(), nil},
		"deletion of an absent": {http.MethodDelete, "/v2/" + name + "/blobs/" + digest.FromString("absent").String(), nil},
	} {
		ask := func() *http.Request { return request(t, tc.method, tc.path, tc.header...) }
		want := served(r.Distribution(), ask())
		for who, got := range map[string]answer{"handler": served(r.Handler(), ask()), "client": fetched(t, repo, ask())} {
			if who == "client" && want.status == http.StatusMovedPermanently {
				continue // the client follows the redirect to the clean path
			}
			if want.status >= http.StatusMultipleChoices {
				// A server sets the length of an error itself.
				got.header.Del("Content-Length")
				want.header.Del("Content-Length")
			}
			got.header.Del("Date")
			if got.status != want.status || got.body != want.body || !maps.EqualFunc(got.header, want.header, func(a, b []string) bool { return strings.Join(a, ",") == strings.Join(b, ",") }) {
				t.Errorf("%s, %s: %d with %d bytes, %v; want %d with %d bytes, %v", what, who, got.status, len(got.body), got.header, want.status, len(want.body), want.header)
			}
		}
	}
}

// request returns a request to the registry, with the given keys and values in its header.
func request(t *testing.T, method, path string, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://embedded"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func served(h http.Handler, req *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func fetched(t *testing.T, repo *remote.Repository, req *http.Request) answer {
	t.Helper()
	resp, err := repo.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// TestOpenBlobsTakeNoMemory shows that a blob that is opened and not read on takes at most the buffer
// of a copy, by a client in this process and by the handler.
func TestOpenBlobsTakeNoMemory(t *testing.T) {
	const opened, allowed = 32, 48 << 10
	r := open(t, t.TempDir())
	repo := repository(t, r)
	_, desc := pushBlob(t, repo, 8<<20)
	for who, begin := range map[string]func() (end func()){
		"client": func() func() {
			body, err := repo.Fetch(t.Context(), desc)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			return func() { body.Close() }
		},
		"handler": func() func() {
			w := &blockedWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r.ReadOnly().ServeHTTP(w, request(t, http.MethodGet, "/v2/"+name+"/blobs/"+desc.Digest.String()))
			}()
			<-w.writes
			return func() { close(w.gone); <-ended }
		},
	} {
		t.Run(who, func(t *testing.T) {
			begin()() // makes the process allocate what it allocates only once
			before := heap()
			for range opened {
				defer begin()()
			}
			if each := (heap() - before) / opened; each > allowed {
				t.Errorf("an open blob takes %d bytes of memory, more than %d", each, allowed)
			}
		})
	}
}

// blockedWriter is an [http.ResponseWriter] whose client reads nothing.
type blockedWriter struct {
	*httptest.ResponseRecorder
	writes chan struct{} // receives an element when a write begins
	gone   chan struct{} // closed when the client leaves
}

// Write implements [io.Writer].
func (w *blockedWriter) Write([]byte) (int, error) {
	w.writes <- struct{}{}
	<-w.gone
	return 0, io.ErrClosedPipe
}

// heap returns the bytes of live objects in the heap.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBlobInTrouble shows that a body fails if its file is too short or if its request ends, and that a
// closed registry opens no blob.
func TestBlobInTrouble(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	repo := repository(t, r)
	data, desc := pushBlob(t, repo, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	fetch := func() io.ReadCloser {
		body, err := repo.Fetch(ctx, desc)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for name, tc := range map[string]struct {
		trouble func()
		want    error
	}{
		"too short": {func() {
			os.Truncate(storage(dir, "blobs", "sha256", desc.Digest.Encoded()[:2], desc.Digest.Encoded(), "data"), 500)
		}, io.ErrUnexpectedEOF},
		"the request ended": {func() { cancel() }, context.Canceled},
	} {
		body := fetch()
		tc.trouble()
		if _, err := io.ReadAll(body); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		body.Close()
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		path := storage(dir, "blobs", "sha256", desc.Digest.Encoded()[:2], desc.Digest.Encoded(), "data")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	if body, err := repo.Fetch(t.Context(), desc); err == nil {
		body.Close()
		t.Error("a closed registry opens a blob")
	}
}

// TestBlobIsDeletedWhileItIsRead shows that a client reads the whole blob even if a garbage collection
// deletes it in between, and that the blob is absent afterwards.
func TestBlobIsDeletedWhileItIsRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be deleted")
	}
	r := open(t, t.TempDir())
	repo := repository(t, r)
	data, desc := pushBlob(t, repo, 1<<20)
	body, err := repo.Fetch(t.Context(), desc)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	collect(t, r)
	if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if body, err := repo.Fetch(t.Context(), desc); !errors.Is(err, errdef.ErrNotFound) {
		if err == nil {
			body.Close()
		}
		t.Errorf("after the garbage collection: %v", err)
	}
}
