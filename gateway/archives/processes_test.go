package archives_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

const (
	// sharedArchives is the number of archives that processes fetch into a shared folder.
	sharedArchives = 16
	// sharedSize is the size limit of the shared folder. It is less than half of all archives.
	sharedSize = 1 << 20
)

// sharedArchive returns the content of an archive.
func sharedArchive(i int) []byte { return random(100_000+10_000*i, byte(i)) }

// memory is a package in a fake registry that sends it in pieces.
type memory []byte

func (memory) Redirect(context.Context) (string, error) { return "", nil }
func (memory) Exists(context.Context) (bool, error)     { return true, nil }

func (m memory) Open(context.Context, int64, int64) (io.ReadCloser, int64, error) {
	r := bytes.NewReader(m)
	return io.NopCloser(readerFunc(func(p []byte) (int, error) { return r.Read(p[:min(len(p), 8<<10)]) })), 0, nil
}

// useShared requests random archives through a cache, concurrently, as a gateway does. It returns
// an error if any response is wrong.
func useShared(dir string, seed uint64, log io.Writer) error {
	cache, err := archives.OpenCache(dir, sharedSize, archives.CacheOptions{H1: true, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		return err
	}
	defer cache.Close()
	h := archives.New(archives.Options{Cache: cache, Limits: limits})
	errs := make(chan error, 4)
	for client := range uint64(cap(errs)) {
		go func() { errs <- requestShared(h, rand.New(rand.NewPCG(seed, client))) }()
	}
	for range cap(errs) {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

func requestShared(h *archives.Handler, random *rand.Rand) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("broken off: %v", r)
		}
	}()
	for range 60 {
		data := sharedArchive(random.IntN(sharedArchives))
		p := artifact.Package{Digest: digest.FromBytes(data), Size: int64(len(data))}
		w := httptest.NewRecorder()
		if err := h.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), archives.Archive{Package: p, Blob: memory(data)}); err != nil {
			return err
		}
		if !bytes.Equal(w.Body.Bytes(), data) {
			return fmt.Errorf("%d bytes of %d", w.Body.Len(), len(data))
		}
	}
	return nil
}

// TestUseSharedForParent runs in the processes that [TestManyProcesses] starts.
func TestUseSharedForParent(t *testing.T) {
	dir, seed := os.Getenv("SHARE"), os.Getenv("SHARE_SEED")
	if dir == "" {
		return // this is not such a process
	}
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := useShared(dir, n, os.Stdout); err != nil {
		t.Error(err)
	}
}

// TestManyProcesses shows that processes with a shared folder evict each other's archives and
// disturb no response: every response is complete, no process reports trouble with the folder, and
// the folder never exceeds its size limit. Another process is killed at random moments. In the
// end, no temporary file is left, and each file has its digest.
func TestManyProcesses(t *testing.T) {
	testkit.LeaveToAll(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var helpers, all sync.WaitGroup
	helpers.Go(func() { killRepeatedly(ctx, t, dir) })
	helpers.Go(func() {
		for ctx.Err() == nil {
			if total := sharedTotal(t, dir); total > sharedSize {
				t.Errorf("the folder has %d bytes", total)
			}
		}
	})
	for seed := range 4 {
		all.Go(func() {
			out, err := process(t.Context(), dir, seed).CombinedOutput()
			if err != nil || strings.Contains(string(out), "level=WARN") || strings.Contains(string(out), "level=ERROR") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
	cancel()
	helpers.Wait()
	cache, err := archives.OpenCache(dir, sharedSize, archives.CacheOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	checkShared(t, dir)
}

func process(ctx context.Context, dir string, seed int) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestUseSharedForParent$")
	cmd.Env = append(os.Environ(), "SHARE="+dir, fmt.Sprintf("SHARE_SEED=%d", seed))
	return cmd
}

// killRepeatedly starts processes, and kills each after a few milliseconds, until ctx ends.
func killRepeatedly(ctx context.Context, t *testing.T, dir string) {
	for seed := 1000; ctx.Err() == nil; seed++ {
		within, cancel := context.WithTimeout(ctx, time.Duration(20+rand.IntN(100))*time.Millisecond)
		_ = process(within, dir, seed).Run() // it is killed
		cancel()
	}
}

// sharedTotal returns the size of the folder while no process reserves room.
func sharedTotal(t *testing.T, dir string) (total int64) {
	if _, err := os.Stat(filepath.Join(dir, "archives")); err != nil {
		return 0 // no process has started yet
	}
	lock, err := privatefolder.Lock(filepath.Join(dir, "archives", "lock"), time.Minute)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer lock.Close()
	// A file that gets its final name during the walk is counted at most once, because the walk
	// visits tmp last.
	filepath.WalkDir(filepath.Join(dir, "archives"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(e.Name(), ".meta") || e.Name() == "lock" {
			return nil
		}
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}

// checkShared checks that the folder contains only complete archives and their meta files.
func checkShared(t *testing.T, dir string) {
	t.Helper()
	found := 0
	for i := range sharedArchives {
		want := digest.FromBytes(sharedArchive(i)).Encoded()
		got, err := os.ReadFile(filepath.Join(dir, "archives", "sha256", want[:2], want))
		if err == nil && digest.FromBytes(got).Encoded() == want {
			found++
		} else if err == nil {
			t.Errorf("%s is damaged", want)
		}
	}
	if found == 0 {
		t.Error("nothing is cached")
	}
	left, err := os.ReadDir(filepath.Join(dir, "archives", "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files: %v, %v", left, err)
	}
}

// TestArchiveOfAnotherProcess shows that the folder alone decides what is cached. A process serves
// an archive that another process has fetched, even while the registry is down. If another
// process has evicted an archive, a process fetches it again.
func TestArchiveOfAnotherProcess(t *testing.T) {
	s := newScene(t)
	s.max = 150_000
	s.restart()
	d := s.add("/a", random(100_000, 1))
	s.add("/b", random(100_000, 2))
	first, second := s.cache, s.open()
	on := func(c *archives.Cache, path string, fetches int32) {
		t.Helper()
		s.cache = c
		s.start(c)
		s.want(path, fetches)
		s.idle()
	}
	on(first, "/a", 1)
	s.registry.gone = true
	on(second, "/a", 0)
	s.registry.gone = false
	if _, ok := second.SizeOf(d); !ok {
		t.Error("the other process does not see the archive")
	}
	on(second, "/b", 1) // evicts /a
	on(first, "/b", 0)
	if _, ok := first.SizeOf(d); ok {
		t.Error("the archive is still there")
	}
	on(first, "/a", 1)
	on(second, "/a", 0)
	if strings.Contains(s.log.String(), "level=WARN") || strings.Contains(s.log.String(), "level=ERROR") {
		t.Errorf("log:\n%s", s.log)
	}
}

// TestUseByAnotherProcess shows that a process evicts the archive that no process has used for
// the longest time.
func TestUseByAnotherProcess(t *testing.T) {
	s := newScene(t)
	s.max = 250_000
	s.restart()
	for i, path := range []string{"/a", "/b", "/c"} {
		s.add(path, random(100_000, byte(i)))
	}
	first, second := s.cache, s.open()
	s.want("/a", 1)
	s.idle()
	s.want("/b", 1)
	s.idle()
	s.cache = second
	s.start(second)
	s.want("/a", 0)
	s.idle()
	s.cache = first
	s.start(first)
	s.want("/c", 1)
	if !s.kept("/a") || s.kept("/b") {
		t.Errorf("kept /a: %t, /b: %t", s.kept("/a"), s.kept("/b"))
	}
}

// TestLockIsHeld shows that clients get archives while another process holds the lock. The cache
// then fetches nothing into the folder, and waits for the lock only once. This is no failure of
// the folder: the cache uses it again as soon as the lock is released.
func TestLockIsHeld(t *testing.T) {
	s := newScene(t)
	s.add("/a", random(100_000, 1))
	s.add("/b", random(100_000, 2))
	s.add("/c", random(100_000, 3))
	s.want("/a", 1)
	s.idle()
	lock, err := privatefolder.Lock(filepath.Join(s.dir, "archives", "lock"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { lock.Close() }()
	s.want("/a", 0)
	s.want("/b", 1)
	if log := s.log.String(); s.kept("/b") || !strings.Contains(log, "level=INFO msg=\"an archive is not kept, because another process holds the cache's lock\"") || strings.Contains(log, "level=ERROR") {
		t.Errorf("kept: %t, log:\n%s", s.kept("/b"), log)
	}
	s.want("/c", 1)
	if waits, attempts := strings.Count(s.log.String(), "for 2s"), strings.Count(s.log.String(), "has locked it"); waits != 1 || attempts != 2 {
		t.Errorf("%d of %d attempts have waited; log:\n%s", waits, attempts, s.log)
	}
	lock.Close()
	s.want("/b", 1)
	s.idle()
	if !s.kept("/b") {
		t.Errorf("nothing is kept after the lock was released; log:\n%s", s.log)
	}
	if lock, err = privatefolder.Lock(filepath.Join(s.dir, "archives", "lock"), time.Minute); err != nil {
		t.Fatal(err)
	}
	s.max = 1
	s.restart() // opens although it cannot evict
	s.want("/a", 0)
}
