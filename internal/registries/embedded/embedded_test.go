package embedded_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

const name = "registry.example.com/acme/widget"

// open opens the registry in the data folder dir, and closes it when the test ends.
func open(t *testing.T, dir string) *embedded.Registry {
	t.Helper()
	r, err := embedded.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func repository(t *testing.T, r *embedded.Registry) *remote.Repository {
	t.Helper()
	repo, err := r.Repository(name)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// push pushes a manifest with one layer and tags the manifest. It returns the descriptor
// of the layer.
func push(t *testing.T, repo *remote.Repository, layer, tag string) ocispec.Descriptor {
	t.Helper()
	blob := content.NewDescriptorFromBytes("application/zip", []byte(layer))
	if err := repo.Push(t.Context(), blob, strings.NewReader(layer)); err != nil {
		t.Fatal(err)
	}
	if err := repo.Push(t.Context(), ocispec.DescriptorEmptyJSON, bytes.NewReader(ocispec.DescriptorEmptyJSON.Data)); err != nil {
		t.Fatal(err)
	}
	manifest := []byte(`{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `","config":{"mediaType":"` + ocispec.MediaTypeEmptyJSON +
		`","digest":"` + ocispec.DescriptorEmptyJSON.Digest.String() + `","size":2},"layers":[{"mediaType":"application/zip","digest":"` + blob.Digest.String() + `","size":5}]}`)
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, manifest)
	if err := repo.PushReference(t.Context(), desc, bytes.NewReader(manifest), tag); err != nil {
		t.Fatal(err)
	}
	return blob
}

func tags(t *testing.T, repo *remote.Repository) []string {
	t.Helper()
	var out []string
	err := repo.Tags(t.Context(), "", func(page []string) error {
		out = append(out, page...)
		return nil
	})
	var answer *errcode.ErrorResponse
	if err != nil && !(errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound) {
		t.Fatal(err)
	}
	return out
}

// TestTwoRegistriesOnOneFolder opens two registries on one folder. It shows that content
// that is pushed through one registry is immediately visible through the other, even if
// the other registry has listed its tags before.
func TestTwoRegistriesOnOneFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "if missing")
	a, b := repository(t, open(t, dir)), repository(t, open(t, dir))
	for i, tag := range []string{"1.0.0", "1.1.0", "2.0.0"} {
		writer, reader := a, b
		if i%2 == 1 {
			writer, reader = b, a
		}
		if got := tags(t, reader); len(got) != i {
			t.Errorf("before %s is pushed: %v", tag, got)
		}
		if _, err := reader.Resolve(t.Context(), tag); !errors.Is(err, errdef.ErrNotFound) {
			t.Errorf("%s before it is pushed: %v", tag, err)
		}
		blob := push(t, writer, "v"+tag, tag)
		if got := tags(t, reader); !slices.Contains(got, tag) || len(got) != i+1 {
			t.Errorf("after %s was pushed: %v", tag, got)
		}
		if _, err := reader.Resolve(t.Context(), tag); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
		data, err := content.FetchAll(t.Context(), reader, blob)
		if err != nil || string(data) != "v"+tag {
			t.Errorf("layer of %s: %q, %v", tag, data, err)
		}
	}
}

func TestStaysAfterClose(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	push(t, repository(t, r), "hello", "1.0.0")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := repository(t, r).Resolve(t.Context(), "1.0.0"); err == nil {
		t.Error("a closed registry answers")
	}
	if _, err := repository(t, open(t, dir)).Resolve(t.Context(), "1.0.0"); err != nil {
		t.Error(err)
	}
}

// TestTagThatNamesNothing shows that a tag without a manifest is not listed, and that a
// manifest can be pushed under this tag. Such a tag remains if a process is killed while
// it creates the tag.
func TestTagThatNamesNothing(t *testing.T) {
	dir := t.TempDir()
	repo := repository(t, open(t, dir))
	push(t, repo, "one", "1.0.0")
	push(t, repo, "two", "2.0.0")
	link := filepath.Join(dir, "registry", "docker", "registry", "v2", "repositories", name, "_manifests", "tags", "2.0.0", "current", "link")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if got := tags(t, repo); !slices.Equal(got, []string{"1.0.0"}) {
		t.Errorf("tags %v", got)
	}
	if err := os.Symlink("link", link); err != nil { // an unreadable link may belong to a manifest
		t.Fatal(err)
	}
	if got := tags(t, repo); !slices.Equal(got, []string{"1.0.0", "2.0.0"}) {
		t.Errorf("tags with an unreadable one: %v", got)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	push(t, repo, "two", "2.0.0")
	if got := tags(t, repo); !slices.Equal(got, []string{"1.0.0", "2.0.0"}) {
		t.Errorf("tags in the end: %v", got)
	}
}

// TestReadOnly sends requests over the network. It shows that GET and HEAD are allowed,
// that all other methods are refused, and that refused requests change nothing.
func TestReadOnly(t *testing.T) {
	r := open(t, t.TempDir())
	blob := push(t, repository(t, r), "hello", "1.0.0")
	server := httptest.NewServer(r.ReadOnly())
	defer server.Close()
	base := server.URL + "/v2/" + name

	for _, path := range []string{"/manifests/1.0.0", "/blobs/" + blob.Digest.String()} {
		if resp := send(t, server.Client(), http.MethodHead, base+path, ""); resp.status != http.StatusOK || resp.body != "" {
			t.Errorf("HEAD %s: %d with %d bytes", path, resp.status, len(resp.body))
		}
	}
	for _, url := range []string{server.URL + "/v2/", base + "/manifests/1.0.0", base + "/blobs/" + blob.Digest.String(), base + "/tags/list"} {
		if resp := send(t, server.Client(), http.MethodGet, url, ""); resp.status != http.StatusOK || resp.body == "" {
			t.Errorf("GET %s: %d with %d bytes", url, resp.status, len(resp.body))
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace, "MKCOL", "get"} {
		for _, path := range []string{"/manifests/1.0.0", "/blobs/" + blob.Digest.String(), "/blobs/uploads/"} {
			if method == http.MethodConnect {
				path = ""
			}
			resp := send(t, server.Client(), method, base+path, "{}")
			if resp.status != http.StatusMethodNotAllowed || resp.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, resp.status, resp.header.Get("Allow"))
			}
			if !strings.Contains(resp.body, `"code":"UNSUPPORTED"`) {
				t.Errorf("%s %s: %q", method, path, resp.body)
			}
		}
	}
	if got := tags(t, repository(t, r)); !slices.Equal(got, []string{"1.0.0"}) {
		t.Errorf("tags %v", got)
	}
	if _, err := content.FetchAll(t.Context(), repository(t, r), blob); err != nil {
		t.Error(err)
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func send(t *testing.T, client *http.Client, method, url, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// TestFolderIsItsOwnersAlone shows that Open creates the data folder with mode 0700, so
// that only the owner has access to the folder.
func TestFolderIsItsOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "registry")
	push(t, repository(t, open(t, dir)), "layer", "1.0.0")
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestUnusableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{
		"a file":       file,
		"below a file": filepath.Join(file, "data"),
		// Even root, who can write to any folder on a real disk, cannot write to this
		// folder.
		"not writable": "/proc/self",
	}
	if runtime.GOOS != "linux" {
		delete(dirs, "not writable")
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			r, err := embedded.Open(dir, nil)
			if err == nil {
				r.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(hint.Of(err), "--data") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, hint %q", err, hint.Of(err))
			}
		})
	}
}

// TestOpenLeavesOnlyItsOwn shows that the data folder contains only the locks, the marker, the marks
// of pull-through and the folder of distribution.
func TestOpenLeavesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	push(t, repository(t, open(t, dir)), "hello", "1.0.0")
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, []string{"locks", "ocibridge-registry", "pulled", "registry"}) {
		t.Errorf("the folder has %v, %v", names, err)
	}
}

// TestCloseEndsGoroutines shows that Close ends all goroutines of a registry, even if
// the body of a download is still open.
func TestCloseEndsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	dir := t.TempDir()
	for range 10 {
		r, err := embedded.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		repo := repository(t, r)
		blob := push(t, repo, strings.Repeat("x", 1<<20), "1.0.0")
		body, err := repo.Fetch(t.Context(), blob)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		body.Close()
	}
	// For each registry, distribution starts one goroutine for events that it never
	// ends.
	const theirs = 10
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before+theirs || ours() != "" {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, before %d; ours:\n%s", runtime.NumGoroutine(), before, ours())
		}
		runtime.Gosched()
	}
}

// ours returns the stacks of the goroutines that belong to the package embedded, or to
// its HTTP server or HTTP client.
func ours() string {
	buf := make([]byte, 1<<20)
	var out []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "internal/registries/embedded.") && !strings.Contains(stack, "testing.tRunner") || strings.Contains(stack, "net/http.(*conn)") || strings.Contains(stack, "net/http.(*persistConn)") {
			out = append(out, stack)
		}
	}
	return strings.Join(out, "\n\n")
}

// TestLargeBlobStreams shows that pushing and reading a blob of 64 MiB needs at most 8
// MiB of heap.
func TestLargeBlobStreams(t *testing.T) {
	testkit.LeaveToAll(t)
	const size, allowed = 64 << 20, 8 << 20
	repo := repository(t, open(t, t.TempDir()))
	hash := sha256.New()
	if _, err := io.Copy(hash, noise(size)); err != nil {
		t.Fatal(err)
	}
	desc := ocispec.Descriptor{MediaType: "application/zip", Size: size, Digest: digest.NewDigest(digest.SHA256, hash)}
	push(t, repo, "warm-up", "1.0.0")

	added := heapGrowth(func() {
		if err := repo.Push(t.Context(), desc, noise(size)); err != nil {
			t.Fatal(err)
		}
	})
	if added > allowed {
		t.Errorf("a push of %d MiB adds %.1f MiB to the heap", size>>20, float64(added)/(1<<20))
	}
	added = heapGrowth(func() {
		body, err := repo.Fetch(t.Context(), desc)
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		verifier := desc.Digest.Verifier()
		if n, err := io.Copy(verifier, body); n != size || err != nil || !verifier.Verified() {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
	if added > allowed {
		t.Errorf("a read of %d MiB adds %.1f MiB to the heap", size>>20, float64(added)/(1<<20))
	}
}

// noise returns a reader of size pseudorandom bytes. The bytes are the same in every
// call.
func noise(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }

// heapGrowth returns the maximum number of bytes by which the heap grows while f
// runs.
func heapGrowth(f func()) int64 {
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	start := inUse()
	var peak atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			peak.Store(max(peak.Load(), inUse()))
		}
	}()
	f()
	stop()
	<-watched
	return peak.Load() - start
}
