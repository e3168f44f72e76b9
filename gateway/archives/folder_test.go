package archives_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
)

// TestLeastRecentlyUsedGoesFirst shows that a cache at its size limit evicts the least
// recently used archives. A restart preserves the order of their last uses.
func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	s := newScene(t)
	s.max = 350_000
	s.restart()
	for i, path := range []string{"/a", "/b", "/c", "/d", "/e"} {
		s.add(path, random(100_000, byte(i)))
	}
	for _, path := range []string{"/a", "/b", "/c"} {
		s.want(path, 1)
		s.idle()
	}
	s.want("/a", 0)
	s.idle()
	check := func(want string) {
		t.Helper()
		got := ""
		for _, path := range []string{"/a", "/b", "/c", "/d", "/e"} {
			if s.kept(path) {
				got += path
			}
		}
		if got != want {
			t.Errorf("kept %s, want %s", got, want)
		}
	}
	s.want("/d", 1)
	s.idle()
	check("/a/c/d")
	s.want("/c", 0)
	s.idle() // the use is recorded when the answer ends
	s.restart()
	s.want("/e", 1)
	s.idle()
	check("/c/d/e")
	s.want("/d", 0)
	s.idle()
	s.max = 100_000
	s.restart()
	check("/d")
	// The folder has only the remaining archive and its meta file.
	if n := s.files(""); n != 2 {
		t.Errorf("%d files", n)
	}
}

// TestArchiveLargerThanTheCache shows that an archive that is larger than the cache is
// streamed. The archive evicts no other archives.
func TestArchiveLargerThanTheCache(t *testing.T) {
	s := newScene(t)
	s.max = 150_000
	s.restart()
	s.add("/a", random(100_000, 1))
	s.add("/big", random(200_000, 2))
	s.want("/a", 1)
	s.want("/big", 1)
	s.want("/big", 1)
	s.want("/a", 0)
}

// TestEvictionBreaksNoDownload shows that a slow download completes although new archives
// fill the cache and another process evicts all files in the folder.
func TestEvictionBreaksNoDownload(t *testing.T) {
	s := newScene(t)
	const size = 32 << 20 // more than the buffers of a connection hold
	s.max = size + 250_000
	s.restart()
	data := random(size, 1)
	s.add("/a", data)
	s.add("/b", random(200_000, 2))
	s.add("/c", random(200_000, 3))
	s.want("/a", 1)
	s.idle() // waits until the archive has its final name
	resp, err := s.server.Client().Get(s.server.URL + "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	s.want("/b", 1)
	s.want("/c", 1)
	if !s.kept("/a") {
		t.Error("an archive in use was removed")
	}
	s.max = 1000
	other := s.open() // evicts all archives, because no archive is in use by this "process"
	defer other.Close()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(first, rest...), data) {
		t.Errorf("%d bytes, %v", len(first)+len(rest), err)
	}
}

// TestTwoProcesses shows that two processes can share a folder while one of them fetches an
// archive. It also shows that an archive is fetched again after someone has removed it from
// the folder.
func TestTwoProcesses(t *testing.T) {
	s := newScene(t)
	data := random(1_000_000, 1)
	s.add("/a", data)
	s.add("/b", random(1000, 2))
	g := s.holdAt(500_000)
	var done sync.WaitGroup
	old := s.server
	done.Go(func() {
		resp, err := old.Client().Get(old.URL + "/a")
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
	<-g.reached
	first := s.cache
	s.cache = nil
	s.restart()
	if n := s.files("tmp"); n != 1 {
		t.Errorf("%d temporary files: the other process is at work", n)
	}
	close(g.open)
	done.Wait()
	for first.Users() > 0 {
		time.Sleep(time.Millisecond)
	}
	s.want("/a", 0) // from the folder, by the new process
	// The cache notices that a person has removed an archive.
	s.want("/b", 1)
	s.idle()
	if err := os.Remove(s.file("/b")); err != nil {
		t.Fatal(err)
	}
	s.want("/b", 1)
}

// TestKilledInTheMiddle kills a process during a fetch. It shows that the next process
// removes the temporary file of the killed process, and fetches the archive itself.
func TestKilledInTheMiddle(t *testing.T) {
	s := newScene(t)
	data := random(3<<20, 1)
	s.add("/a", data)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(data[:2<<20])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer upstream.Close()
	s.cache.Close()
	child := exec.Command(os.Args[0], "-test.run=^TestFetchForParent$")
	child.Env = append(os.Environ(), "FETCH_INTO="+s.dir, "FETCH_FROM="+upstream.URL, "FETCH_DIGEST="+digest.FromBytes(data).String())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	read := make([]byte, len(halfway))
	if _, err := io.ReadFull(out, read); err != nil || string(read) != halfway {
		t.Fatalf("%q, %v", read, err)
	}
	if n := s.files("tmp"); n != 1 {
		t.Errorf("%d temporary files", n)
	}
	child.Process.Kill()
	child.Wait()
	s.cache = nil
	s.restart()
	if n := s.files(""); n != 0 {
		t.Errorf("%d files are left", n)
	}
	s.want("/a", 1)
	s.want("/a", 0)
}

const halfway = "halfway\n"

// TestFetchForParent runs in the process that [TestKilledInTheMiddle] starts and kills.
func TestFetchForParent(t *testing.T) {
	dir := os.Getenv("FETCH_INTO")
	if dir == "" {
		return // this is not the other process
	}
	cache, err := archives.OpenCache(dir, 1<<30, archives.CacheOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := archives.New(archives.Options{Cache: cache, Limits: limits})
	p := artifact.Package{Digest: digest.Digest(os.Getenv("FETCH_DIGEST")), Size: 3 << 20}
	w := &halfWriter{ResponseRecorder: httptest.NewRecorder()}
	h.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), archives.Archive{Package: p, Blob: fetcher(os.Getenv("FETCH_FROM"))})
}

// halfWriter prints "halfway" after it has received a megabyte.
type halfWriter struct {
	*httptest.ResponseRecorder
	n int
}

func (w *halfWriter) Write(p []byte) (int, error) {
	if w.n < 1<<20 && w.n+len(p) >= 1<<20 {
		fmt.Print(halfway)
	}
	w.n += len(p)
	return len(p), nil
}

// TestAbandonedFetchIsCancelled shows that a fetch without clients is cancelled after five
// minutes, and not earlier.
func TestAbandonedFetchIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache, err := archives.OpenCache(t.TempDir(), 1<<30, archives.CacheOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h := archives.New(archives.Options{Cache: cache, Limits: limits})
		data := random(1_000_000, 1)
		p := artifact.Package{Digest: digest.FromBytes(data), Size: int64(len(data))}
		slow := &registry{data: map[digest.Digest][]byte{p.Digest: data}, before: func(_, _ int) error {
			time.Sleep(30 * time.Second)
			return nil
		}}
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("not broken off")
				}
			}()
			h.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), archives.Archive{Package: p, Blob: blob{slow, p.Digest}})
		}()
		// The fetch still runs three minutes after its client has left, but not after six.
		time.Sleep(3 * time.Minute)
		if cache.Users() != 1 {
			t.Errorf("%d users", cache.Users())
		}
		time.Sleep(3 * time.Minute)
		if cache.Users() != 0 {
			t.Errorf("%d users", cache.Users())
		}
		slow.before = nil
		w := httptest.NewRecorder()
		if err := h.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), archives.Archive{Package: p, Blob: blob{slow, p.Digest}}); err != nil || !bytes.Equal(w.Body.Bytes(), data) {
			t.Errorf("%v, %d bytes", err, w.Body.Len())
		}
		if n := slow.fetches.Load(); n != 2 {
			t.Errorf("%d fetches", n)
		}
		cache.Close()
	})
}

// TestH1 checks that the cache computes the h1: hash of an archive, and keeps the hash
// across restarts. The cache ignores a damaged meta file. It drops the hash when it evicts
// the archive.
func TestH1(t *testing.T) {
	s := newScene(t)
	s.options.H1 = true
	s.restart()
	zip, err := release.Zip(map[string][]byte{"terraform-provider-widget_v1.0.0": random(100_000, 1)})
	if err != nil {
		t.Fatal(err)
	}
	want, err := provider.H1(t.Context(), bytes.NewReader(zip), int64(len(zip)))
	if err != nil {
		t.Fatal(err)
	}
	d, noZip := s.add("/a", zip), s.add("/b", random(1000, 1))
	check := func(d digest.Digest, want string) {
		t.Helper()
		if got, ok := s.cache.H1(d); got.String() != want || ok != (want != "") {
			t.Errorf("%s, %v, want %q", got, ok, want)
		}
	}
	check(d, "")
	s.want("/a", 1)
	s.want("/b", 1)
	s.idle()
	check(d, want.String())
	check(noZip, "")
	check("sha512:00", "")
	check("", "")
	s.restart()
	check(d, want.String())

	// A damaged meta file is ignored, and written again.
	meta := s.file("/a") + ".meta"
	note, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{strings.Replace(string(note), "h1:", "h1:A", 1), string(note[:40]), "", string(note) + "x", strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(meta, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		s.restart()
		check(d, "")
		s.want("/a", 0)
		s.idle()
		check(d, want.String())
	}
	// The meta file of another archive is ignored, too.
	other, err := os.ReadFile(s.file("/b") + ".meta")
	if err != nil || !strings.HasPrefix(string(other), "none ") {
		t.Fatalf("%q, %v", other, err)
	}
	if err := os.WriteFile(s.file("/b")+".meta", note, 0o600); err != nil {
		t.Fatal(err)
	}
	s.restart()
	check(noZip, "")

	s.max = 1
	s.restart()
	check(d, "")
	if _, ok := (*archives.Cache)(nil).H1(d); ok {
		t.Error("a nil cache returns a hash")
	}
}

// TestH1OfAnotherProcess shows that the cache finds a hash that another process has added.
func TestH1OfAnotherProcess(t *testing.T) {
	zip, err := release.Zip(map[string][]byte{"x": nil})
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t)
	s.options.H1 = true
	s.restart()
	d := s.add("/a", zip)
	s.want("/a", 1)
	s.idle()
	want, ok := s.cache.H1(d)
	if !ok {
		t.Fatal("none")
	}
	meta := s.file("/a") + ".meta"
	hidden := meta + "x"
	if err := os.Rename(meta, hidden); err != nil {
		t.Fatal(err)
	}
	c, err := archives.OpenCache(s.dir, s.max, s.options)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if h, ok := c.H1(d); ok {
		t.Errorf("%s of nothing", h)
	}
	if err := os.Rename(hidden, meta); err != nil {
		t.Fatal(err)
	}
	if h, ok := c.H1(d); !ok || h != want {
		t.Errorf("%s, %v, want %s", h, ok, want)
	}
}

// TestH1IsOptional shows that the cache computes h1: hashes only if the option H1 is set.
func TestH1IsOptional(t *testing.T) {
	s := newScene(t)
	zip, err := release.Zip(map[string][]byte{"x": nil})
	if err != nil {
		t.Fatal(err)
	}
	d := s.add("/a", zip)
	s.want("/a", 1)
	s.idle()
	if h, ok := s.cache.H1(d); ok {
		t.Errorf("%s", h)
	}
	// If the option is set later, the hash is computed when the archive is next used.
	s.options.H1 = true
	s.restart()
	s.want("/a", 0)
	s.idle()
	if _, ok := s.cache.H1(d); !ok {
		t.Error("none")
	}
}

// TestFolderIsItsOwnersAlone shows that only the folder's owner can read and write the
// folder. The reason is that packages may be private, and that other users must not forge
// h1 hashes.
func TestFolderIsItsOwnersAlone(t *testing.T) {
	s := newScene(t)
	s.dir = filepath.Join(t.TempDir(), "cache")
	s.options.H1 = true
	s.restart()
	s.add("/a.zip", random(100_000, 1))
	s.want("/a.zip", 1)
	s.idle() // waits until each file has its final name
	files := 0
	err := filepath.WalkDir(s.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", name, info.Mode())
		}
		if !d.IsDir() {
			files++
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestWideFolderIsNarrowed(t *testing.T) {
	s := newScene(t)
	dir := filepath.Join(s.dir, "archives")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.restart()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestForeignFilesStay shows that the cache does not remove files that it has not created.
func TestForeignFilesStay(t *testing.T) {
	s := newScene(t)
	s.add("/a", random(1000, 1))
	s.want("/a", 1)
	s.idle()
	mine := filepath.Join(filepath.Dir(s.file("/a")), "notes.txt")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.max = 1
	s.restart()
	if _, err := os.Stat(mine); err != nil || s.kept("/a") {
		t.Errorf("%v, kept %v", err, s.kept("/a"))
	}
}

// TestOpenAtOnce opens caches of one folder at the same time, as many commands do that start together. Each removes the
// temporary files that nobody uses.
func TestOpenAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			for range 50 {
				cache, err := archives.OpenCache(dir, 1<<30, archives.CacheOptions{})
				if err != nil {
					return err
				}
				cache.Close()
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}
