package archives_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// packed returns a package with a program of the given content, a licence, and a file in a folder.
func packed(t *testing.T, program []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode fs.FileMode
		data []byte
	}{{"terraform-provider-null_v1.0.0", 0o755, program}, {"LICENSE", 0o644, []byte("free")}, {"docs/index.md", 0o600, []byte("# null")}} {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpack fetches a package into the cache and unpacks it.
func (s *scene) unpack(path string, fetches int32) provider.Hash {
	s.t.Helper()
	s.want(path, fetches)
	p := s.packages[path]
	h, err := s.cache.Unpack(s.t.Context(), p.Digest, p.Size)
	if err != nil {
		s.t.Fatal(err)
	}
	s.idle() // an archive in use is not evicted
	return h
}

// stored returns the folder of an unpacked package.
func (s *scene) stored(h provider.Hash) string {
	s.t.Helper()
	to, err := s.cache.Linked(s.t.Context(), h)
	if err != nil {
		s.t.Fatal(err)
	}
	return to
}

// listing describes the files in a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		text := rel + " " + info.Mode().String()
		if !e.IsDir() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += " " + string(data)
		}
		out = append(out, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// TestUnpack shows what is stored and laid, and that the cache finds it again.
func TestUnpack(t *testing.T) {
	s := newScene(t)
	d := s.add("/a", packed(t, []byte("program")))
	if _, err := s.cache.Unpack(t.Context(), d, s.packages["/a"].Size); !errors.Is(err, archives.ErrNotCached) {
		t.Errorf("before it is cached: %v", err)
	}
	h := s.unpack("/a", 1)
	if want, err := provider.H1(t.Context(), bytes.NewReader(s.registry.data[d]), s.packages["/a"].Size); err != nil || h != want {
		t.Errorf("%v; want %v, %v", h, want, err)
	}
	s.restart()
	other := provider.ZipHash([32]byte{})
	if got, ok := s.cache.Unpacked(d, []provider.Hash{other, h}); !ok || got != h {
		t.Errorf("found %v, %t", got, ok)
	}
	if _, ok := s.cache.Unpacked(s.add("/b", random(10, 1)), []provider.Hash{other, h}); ok {
		t.Error("found for another zip")
	}
	if runtime.GOOS != "windows" {
		const want = ". drwxr-xr-x\nLICENSE -r--r--r-- free\ndocs drwxr-xr-x\ndocs/index.md -r--r--r-- # null\nterraform-provider-null_v1.0.0 -r-xr-xr-x program"
		if got := listing(t, s.stored(h)); got != want {
			t.Errorf("stored:\n%s", got)
		}
	}
	to := filepath.Join(t.TempDir(), "linux_amd64")
	if err := s.cache.Lay(t.Context(), h, to); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		const want = ". drwxr-xr-x\nLICENSE -rw-r--r-- free\ndocs drwxr-xr-x\ndocs/index.md -rw-r--r-- # null\nterraform-provider-null_v1.0.0 -rwxr-xr-x program"
		if got := listing(t, to); got != want {
			t.Errorf("laid:\n%s", got)
		}
	}
	// Another time is no error, and changes nothing.
	if again, err := s.cache.Unpack(t.Context(), d, s.packages["/a"].Size); err != nil || again != h {
		t.Errorf("again: %v, %v", again, err)
	}
	if n := s.files("tmp"); n != 0 {
		t.Errorf("%d files are left in tmp", n)
	}
	if got, ok := archives.UnpackedHash(s.stored(h)); !ok || got != h {
		t.Errorf("the folder is that of %v, %t", got, ok)
	}
	for _, other := range []string{to, filepath.Dir(s.stored(h)), filepath.Join(to, filepath.Base(s.stored(h)))} {
		if got, ok := archives.UnpackedHash(other); ok {
			t.Errorf("%s is the folder of %v", other, got)
		}
	}
	if !s.cache.Runs(h, "null") || s.cache.Runs(h, "nul") || s.cache.Runs(h, "time") {
		t.Error("the program is not found, or the wrong one")
	}
}

// TestNotStored shows that a package is not stored that clients unpack in ways of their own.
func TestNotStored(t *testing.T) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for range 2 {
		if _, err := z.Create("twice"); err != nil {
			t.Fatal(err)
		}
	}
	z.Close()
	s := newScene(t)
	d := s.add("/a", out.Bytes())
	s.want("/a", 1)
	s.idle()
	if _, err := s.cache.Unpack(t.Context(), d, s.packages["/a"].Size); !errors.Is(err, provider.ErrNotPlain) {
		t.Error(err)
	}
	if s.files("unpacked")+s.files("tmp") != 0 {
		t.Error("something is stored")
	}
}

// TestDamagedUnpacked shows that every change to an unpacked package is noticed before it is laid or linked. The package is
// then removed, and can be unpacked again.
func TestDamagedUnpacked(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"one byte": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "terraform-provider-null_v1.0.0"), []byte("progrAm"), 0)
		},
		"one file more":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "docs", "more"), nil, 0o444) },
		"one file less":   func(dir string) error { return os.Remove(filepath.Join(dir, "docs", "index.md")) },
		"another name":    func(dir string) error { return os.Rename(filepath.Join(dir, "LICENSE"), filepath.Join(dir, "licence")) },
		"not executable":  func(dir string) error { return os.Chmod(filepath.Join(dir, "terraform-provider-null_v1.0.0"), 0o444) },
		"also executable": func(dir string) error { return os.Chmod(filepath.Join(dir, "LICENSE"), 0o555) },
		"a link": func(dir string) error {
			name := filepath.Join(dir, "LICENSE")
			if err := os.Rename(name, filepath.Join(filepath.Dir(dir), "elsewhere")); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(filepath.Dir(dir), "elsewhere"), name)
		},
		"a link in place of the folder": func(dir string) error {
			if err := os.Rename(dir, dir+".elsewhere"); err != nil {
				return err
			}
			return os.Symlink(dir+".elsewhere", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(name, "executable") {
				return // there is no such mode
			}
			s := newScene(t)
			s.options.Counters = &telemetry.ArchiveCounters{}
			s.restart()
			s.add("/a", packed(t, []byte("program")))
			h := s.unpack("/a", 1)
			dir := s.stored(h)
			if err := os.Chmod(filepath.Join(dir, "terraform-provider-null_v1.0.0"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if err := s.cache.Lay(t.Context(), h, filepath.Join(t.TempDir(), "to")); !errors.Is(err, archives.ErrDigest) {
				t.Errorf("laid: %v", err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
			if n := s.options.Counters.Damaged.Load(); n != 1 {
				t.Errorf("%d are counted", n)
			}
			if _, err := s.cache.Linked(t.Context(), h); !errors.Is(err, archives.ErrNotCached) {
				t.Errorf("linked: %v", err)
			}
			if again := s.unpack("/a", 0); again != h {
				t.Errorf("again: %v", again)
			}
			if err := s.cache.Lay(t.Context(), h, filepath.Join(t.TempDir(), "to")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRotInUnpacked shows that a change that the file system does not show is noticed by a check of everything, and a day after
// the package was last hashed.
func TestRotInUnpacked(t *testing.T) {
	for _, always := range []bool{true, false} {
		s := newScene(t)
		s.add("/a", packed(t, []byte("program")))
		h := s.unpack("/a", 1)
		name := filepath.Join(s.stored(h), "LICENSE")
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(name, 0o644), os.WriteFile(name, []byte("frEe"), 0), os.Chmod(name, 0o444), os.Chtimes(name, info.ModTime(), info.ModTime())); err != nil {
			t.Fatal(err)
		}
		if _, err := s.cache.Linked(t.Context(), h); err != nil {
			t.Errorf("within a day: %v", err)
		}
		if always {
			all, err := s.cache.Entries(t.Context())
			if err != nil || len(all) != 2 || all[0].H1 != h {
				t.Fatalf("%+v, %v", all, err)
			}
			err = s.cache.Verify(t.Context(), all[0])
			if !errors.Is(err, archives.ErrDigest) || s.isStored(h) {
				t.Errorf("a check of everything: %v", err)
			}
			continue
		}
		s.cache.AgeUnpacked(h, 25*time.Hour)
		if _, err := s.cache.Linked(t.Context(), h); !errors.Is(err, archives.ErrDigest) || s.isStored(h) {
			t.Errorf("after a day: %v", err)
		}
	}
}

// TestRestoredUnpacked shows that a package is hashed once, and stays, if the times of its files have changed.
func TestRestoredUnpacked(t *testing.T) {
	s := newScene(t)
	s.add("/a", packed(t, []byte("program")))
	h := s.unpack("/a", 1)
	name := filepath.Join(s.stored(h), "LICENSE")
	at := time.Now().Add(-time.Hour).Truncate(time.Second) // as in an archive of the folder
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
	before := s.cache.StateOf(h)
	for range 2 {
		if err := s.cache.Lay(t.Context(), h, filepath.Join(t.TempDir(), "to")); err != nil {
			t.Fatal(err)
		}
	}
	if now := s.cache.StateOf(h); now == before {
		t.Error("the new state is not kept")
	}
}

// TestUnpackedEviction shows what goes first when there is no room: the zip of a package that is also stored unpacked, and
// then what was not used for longest.
func TestUnpackedEviction(t *testing.T) {
	s := newScene(t)
	s.max = 350_000
	s.restart()
	s.add("/a", packed(t, random(100_000, 1)))
	s.add("/b", random(100_000, 2))
	s.add("/c", random(100_000, 3))
	s.add("/d", random(100_000, 4))
	h := s.unpack("/a", 1)
	s.want("/b", 1)
	s.want("/b", 0)
	s.want("/a", 0) // used last, but its package is stored unpacked
	s.idle()
	s.want("/c", 1)
	s.idle()
	if s.kept("/a") || !s.kept("/b") || !s.kept("/c") || !s.isStored(h) {
		t.Errorf("kept: %t %t %t, stored %t", s.kept("/a"), s.kept("/b"), s.kept("/c"), s.isStored(h))
	}
	s.want("/d", 1)
	s.idle()
	if s.isStored(h) || !s.kept("/b") || !s.kept("/c") || !s.kept("/d") {
		t.Errorf("kept: %t %t %t, stored %t", s.kept("/b"), s.kept("/c"), s.kept("/d"), s.isStored(h))
	}
	if n := s.files("unpacked") + s.files("tmp"); n != 0 {
		t.Errorf("%d files are left of the unpacked package", n)
	}
}

// isStored reports whether a package is stored unpacked, and does not use it.
func (s *scene) isStored(h provider.Hash) bool {
	for _, digest := range s.packages {
		if _, ok := s.cache.Unpacked(digest.Digest, []provider.Hash{h}); ok {
			return true
		}
	}
	return false
}

// TestLinkedIsKept shows that a package that was linked is kept for 30 days after its last use, although there is no room.
func TestLinkedIsKept(t *testing.T) {
	for _, tc := range []struct {
		linked bool
		age    time.Duration
		kept   bool
	}{{true, 29 * 24 * time.Hour, true}, {true, 31 * 24 * time.Hour, false}, {false, 0, false}} {
		s := newScene(t)
		s.max = 250_000
		s.restart()
		s.add("/a", packed(t, random(100_000, 1)))
		s.add("/b", random(100_000, 2))
		s.add("/c", random(100_000, 3))
		h := s.unpack("/a", 1)
		if tc.linked {
			s.stored(h)
		}
		s.want("/b", 1)
		s.want("/b", 0)
		s.idle()
		at := time.Now().Add(-tc.age - time.Hour)
		found, err := filepath.Glob(filepath.Join(s.dir, "archives", "unpacked", "*.meta"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		if err := os.Chtimes(found[0], at, at); err != nil {
			t.Fatal(err)
		}
		s.restart()
		s.want("/c", 1)
		s.idle()
		if got := s.isStored(h); got != tc.kept {
			t.Errorf("%+v: kept %t", tc, got)
		}
	}
}

// TestUnpackAtOnce shows that many processes unpack a package once, and that all of them find it.
func TestUnpackAtOnce(t *testing.T) {
	s := newScene(t)
	d := s.add("/a", packed(t, random(1<<20, 1)))
	s.want("/a", 1)
	s.idle()
	var all sync.WaitGroup
	for range 8 {
		c := s.open()
		all.Go(func() {
			h, err := c.Unpack(t.Context(), d, s.packages["/a"].Size)
			if err == nil {
				err = c.Lay(t.Context(), h, filepath.Join(t.TempDir(), "to"))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := s.files("tmp"); n != 0 {
		t.Errorf("%d files are left in tmp", n)
	}
	s.restart()
	if got, want := s.cache.Size().Bytes, s.packages["/a"].Size+int64(1<<20+len("free")+len("# null")); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// TestUnpackedLeftovers shows that what a killed process has left is removed, and that nothing of a living one is.
func TestUnpackedLeftovers(t *testing.T) {
	s := newScene(t)
	s.add("/a", packed(t, []byte("program")))
	h := s.unpack("/a", 1)
	tmp, unpacked := filepath.Join(s.dir, "archives", "tmp"), filepath.Dir(s.stored(h))
	living, err := files.CreateNew(filepath.Join(tmp, "LIVING"))
	if err == nil {
		err = files.Lock(living)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	dead, alone := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for _, dir := range []string{filepath.Join(tmp, "LIVING.folder"), filepath.Join(tmp, "DEAD.folder", "docs"), filepath.Join(unpacked, dead, "docs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{filepath.Join(tmp, "DEAD"), filepath.Join(unpacked, alone+".meta"), filepath.Join(unpacked, alone+".linked")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.restart()
	for _, suffix := range []string{".meta", ".linked"} { // its folder may be about to come
		if _, err := os.Lstat(filepath.Join(unpacked, alone+suffix)); err != nil {
			t.Error(err)
		}
	}
	if removed, err := s.cache.Prune(t.Context(), false, func(archives.Entry) bool { return false }); err != nil || len(removed) > 0 {
		t.Errorf("%v, %v", removed, err)
	}
	for path, want := range map[string]bool{
		filepath.Join(tmp, "LIVING.folder"): true, filepath.Join(tmp, "LIVING"): true, filepath.Join(tmp, "DEAD.folder"): false, filepath.Join(tmp, "DEAD"): false,
		filepath.Join(unpacked, dead): false, s.stored(h): true, filepath.Join(unpacked, alone+".meta"): false, filepath.Join(unpacked, alone+".linked"): false,
	} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEntries shows what the cache says about its packages, that a check finds what has changed, and what is pruned.
func TestEntries(t *testing.T) {
	s := newScene(t)
	d := s.add("/a", packed(t, []byte("program")))
	s.add("/b", random(1000, 1))
	h := s.unpack("/a", 1)
	s.want("/b", 1)
	s.idle()
	all, err := s.cache.Entries(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[0].Program != "" || all[1].Program != "terraform-provider-null_v1.0.0" || all[1].H1 != h || all[2].Digest != d || all[2].Size != s.packages["/a"].Size {
		t.Errorf("%+v", all)
	}
	for _, e := range all {
		if err := s.cache.Verify(t.Context(), e); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if err := os.WriteFile(s.file("/b"), random(1000, 2), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.cache.Verify(t.Context(), all[0]); !errors.Is(err, archives.ErrDigest) || s.kept("/b") {
		t.Errorf("%v, kept %t", err, s.kept("/b"))
	}
	if err := s.cache.Verify(t.Context(), all[0]); !errors.Is(err, archives.ErrNotCached) {
		t.Error(err)
	}
	unpacked := func(e archives.Entry) bool { return !e.H1.IsZero() }
	for _, dryRun := range []bool{true, false} {
		if chosen, err := s.cache.Prune(t.Context(), dryRun, unpacked); err != nil || len(chosen) != 1 || chosen[0].H1 != h || s.isStored(h) != dryRun || !s.kept("/a") {
			t.Errorf("dry run %t: %+v, %v", dryRun, chosen, err)
		}
	}
}
