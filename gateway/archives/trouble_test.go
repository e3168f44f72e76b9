package archives_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/archives"
)

// TestFullDisk shows that clients get the complete archive if the disk becomes full during a fetch. Each
// response continues at its offset with a stream from the registry.
func TestFullDisk(t *testing.T) {
	protocols(t, func(t *testing.T, s *scene) {
		const size = 1_000_000
		data := random(size, 1)
		s.add("/a", data)
		s.cache.FillUp(500_000)
		g := s.holdAt(300_000)
		var all sync.WaitGroup
		for headers, want := range map[string][]byte{"": data, "bytes=0-99": data[:100], "bytes=400000-": data[400_000:], "bytes=-10": data[size-10:], "bytes=600000-700000": data[600_000:700_001]} {
			all.Go(func() {
				var given []string
				if headers != "" {
					given = []string{"Range", headers}
				}
				if a := s.get("/a", given...); a.err != nil || !bytes.Equal(a.body, want) {
					t.Errorf("%q: %d with %d bytes, %v", headers, a.status, len(a.body), a.err)
				}
			})
		}
		s.until("six are waiting", func() bool { return s.cache.Users() >= 6 })
		close(g.open)
		all.Wait()
		s.idle()
		if s.files("") != 0 {
			t.Errorf("%d files are left", s.files(""))
		}
		if !strings.Contains(s.log.String(), "no space left") {
			t.Errorf("log:\n%s", s.log)
		}
		s.want("/a", 1) // the cache writes nothing for a while
	})
}

// TestFullDiskBeforeTheResponse shows that a client gets the complete archive if the disk becomes full between the start of the
// fetch and the start of the client's response.
func TestFullDiskBeforeTheResponse(t *testing.T) {
	s := newScene(t)
	data := random(100_000, 1)
	s.add("/a", data)
	s.cache.FillUp(0)
	g := s.holdAt(0)
	got := httptest.NewRecorder()
	s.ServeHTTP(&slowToBegin{ResponseWriter: got, begin: sync.OnceFunc(func() {
		close(g.open)
		s.until("the fetch has failed", func() bool { return s.cache.Users() == 1 })
	})}, httptest.NewRequest(http.MethodGet, "/a", nil))
	if got.Code != http.StatusOK || !bytes.Equal(got.Body.Bytes(), data) {
		t.Errorf("%d with %d bytes\nlog:\n%s", got.Code, got.Body.Len(), s.log)
	}
}

// slowToBegin calls begin before the response gets its headers.
type slowToBegin struct {
	http.ResponseWriter
	begin func()
}

func (w *slowToBegin) Header() http.Header {
	w.begin()
	return w.ResponseWriter.Header()
}

// TestFullDiskAndWrongArchive shows that a wrong archive is detected even if the disk is full and the archive
// is streamed.
func TestFullDiskAndWrongArchive(t *testing.T) {
	s := newScene(t)
	data := random(1_000_000, 1)
	d := s.add("/a", data)
	wrong := bytes.Clone(data)
	wrong[10] ^= 1
	s.registry.data[d] = wrong
	s.cache.FillUp(500_000)
	if a := s.get("/a"); a.err == nil || len(a.body) >= len(data) {
		t.Errorf("%d with %d bytes, and no error", a.status, len(a.body))
	}
}

// TestFolderThatIsGone shows that a process still serves archives after someone has removed the cache's
// folder.
func TestFolderThatIsGone(t *testing.T) {
	s := newScene(t)
	s.add("/a", random(100_000, 1))
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	s.want("/a", 1)
	s.want("/a", 1)
	if !strings.Contains(s.log.String(), "the cache cannot be written") {
		t.Errorf("log:\n%s", s.log)
	}
}

func TestFolderThatCannotBeCreated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archives.OpenCache(file, 1<<20, archives.CacheOptions{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}

// TestAlteredFile shows that the cache does not serve a file that was truncated, extended, rewritten or
// replaced. Instead, it fetches the archive again.
func TestAlteredFile(t *testing.T) {
	data := random(200_000, 1)
	flipped := bytes.Clone(data)
	flipped[100_000] ^= 1
	for name, alter := range map[string]func(file string) error{
		"shorter":   func(f string) error { return os.Truncate(f, 100_000) },
		"longer":    func(f string) error { return os.WriteFile(f, append(bytes.Clone(data), 0), 0o600) },
		"empty":     func(f string) error { return os.Truncate(f, 0) },
		"rewritten": func(f string) error { return os.WriteFile(f, flipped, 0o600) },
		"replaced":  func(f string) error { os.Remove(f); return os.WriteFile(f, flipped, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.add("/a", data)
			for _, restart := range []bool{true, false} {
				s.want("/a", 1)
				s.idle()
				if err := alter(s.file("/a")); err != nil {
					t.Fatal(err)
				}
				s.age("/a")
				if restart {
					s.restart()
				}
				s.want("/a", 1)
				if !strings.Contains(s.log.String(), "damaged") {
					t.Errorf("log:\n%s", s.log)
				}
				s.idle()
				os.Remove(s.file("/a"))
			}
		})
	}
}

// TestRotBetweenProcesses shows that a new process detects a change to a file that preserves the file's size
// and mtime.
func TestRotBetweenProcesses(t *testing.T) {
	s := newScene(t)
	data := random(200_000, 1)
	s.add("/a", data)
	s.want("/a", 1)
	s.idle()
	info, err := os.Stat(s.file("/a"))
	if err != nil {
		t.Fatal(err)
	}
	data[7] ^= 1
	if err := os.WriteFile(s.file("/a"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	data[7] ^= 1
	if err := os.Chtimes(s.file("/a"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	s.restart()
	s.want("/a", 1)
	s.want("/a", 0)
}

// TestFetchPanics shows that a fetch that panics costs the clients that wait for it an error, and leaves no file. The next
// request fetches the archive.
func TestFetchPanics(t *testing.T) {
	s := newScene(t)
	data := random(100_000, 1)
	s.add("/a", data)
	s.registry.before = func(fetch, offset int) error {
		if fetch == 1 && offset > 50_000 {
			panic("a bug")
		}
		return nil
	}
	if a := s.get("/a"); a.err == nil && a.status == http.StatusOK {
		t.Errorf("%d with %d bytes", a.status, len(a.body))
	}
	s.idle()
	if n := strings.Count(s.log.String(), "msg=panic"); n != 1 || s.files("") != 0 {
		t.Errorf("%d files are left, and the log has\n%s", s.files(""), s.log)
	}
	s.want("/a", 1)
}
