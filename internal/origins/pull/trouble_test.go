package pull_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

// TestBrokenDownloadIsResumed shows that a broken download resumes at its last offset.
func TestBrokenDownloadIsResumed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.build("1.0.0", 2<<20)
	b.origin.Add(r)
	linux := r.Package("linux", "amd64")
	b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, linux.Filename) || r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(linux.Size))
		w.Write(linux.Data[:linux.Size/3])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	s := b.serve(siteOptions{})
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(linux.Data) || got.err != nil {
		t.Errorf("%d, %d bytes, %v", got.status, len(got.body), got.err)
	}
	if e := s.await(pull.Stored, 1); e.Err != nil {
		t.Error(e.Err)
	}
	if ranges := b.origin.Requests(recorder.Method(http.MethodGet), recorder.PathSuffix(linux.Filename)); len(ranges) != 2 || ranges[1].Range == "" {
		t.Errorf("%+v", ranges)
	}
}

// TestOriginDown shows that, while an origin is down, the versions in the registry stay available. Versions that only
// the origin has are not reported as absent.
func TestOriginDown(t *testing.T) {
	t.Parallel()
	down := func(w http.ResponseWriter, r *http.Request) bool { panic(http.ErrAbortHandler) }
	t.Run("nothing is known", func(t *testing.T) {
		b := newBench(t)
		b.publish("1.0.0")
		b.origin.Intercept(down)
		s := b.serve(siteOptions{})
		if got := s.get(mirror + "index.json"); got.status != 502 && got.status != 504 || !strings.HasPrefix(got.body, "the origin ") {
			t.Errorf("index.json: %+v", got)
		}
		if got := s.hashes("1.0.0"); got != "502" && got != "504" {
			t.Errorf("1.0.0.json: %s", got)
		}
	})
	t.Run("the registry has some", func(t *testing.T) {
		b := newBench(t)
		b.publish("1.0.0")
		warm := b.serve(siteOptions{})
		warm.get(archivePath("1.0.0", "linux_amd64"))
		warm.await(pull.Stored, 1)
		b.publish("2.0.0")
		b.origin.Intercept(down)
		s := b.serve(siteOptions{})
		if got := s.versions(); got != "1.0.0" {
			t.Errorf("index.json: %s", got)
		}
		if got := s.hashes("1.0.0"); strings.Count(got, "h1:") != 3 {
			t.Errorf("1.0.0.json: %s", got)
		}
		if got := s.get(archivePath("1.0.0", "darwin_arm64")); got.status != http.StatusOK {
			t.Errorf("archive: %+v", got)
		}
		if got := s.versions(); got != "1.0.0" {
			t.Errorf("2.0.0.json: %s", got)
		}
	})
	t.Run("the list is on disk", func(t *testing.T) {
		b := newBench(t)
		b.publish("1.0.0")
		o := siteOptions{pull: pull.Options{Directory: t.TempDir()}}
		first := b.serve(o)
		if got := first.versions(); got != "1.0.0" {
			t.Fatalf("index.json: %s", got)
		}
		first.close()
		b.origin.Intercept(down)
		if got := b.serve(o).versions(); got != "1.0.0" {
			t.Errorf("index.json: %s", got)
		}
	})
}

// TestWithdrawn shows that, if the origin has withdrawn a version, only the packages that the registry has are served.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	b.publish("1.1.0")
	s := b.serve(siteOptions{pull: pull.Options{ListTTL: 1}})
	s.get(archivePath("1.0.0", "linux_amd64"))
	s.await(pull.Stored, 1)
	s.hashes("1.1.0")
	b.origin.Remove("acme", "widget", "1.0.0")
	b.origin.Remove("acme", "widget", "1.1.0")
	b.publish("1.2.0")
	if got := s.versions(); got != "1.0.0 1.2.0" {
		t.Errorf("index.json: %s", got)
	}
	if got := s.hashes("1.0.0"); strings.Count(got, "h1:") != 3 {
		t.Errorf("1.0.0.json: %s", got)
	}
	if got := s.get(mirror + "1.1.0.json"); got.body != `{"archives":{}}` {
		t.Errorf("1.1.0.json: %+v", got)
	}
}

// refuseWrites makes the registry refuse writes, as if the login allowed only reads.
func refuseWrites(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return false
	}
	w.WriteHeader(http.StatusForbidden)
	return true
}

// TestRegistryRefuses shows that clients are served even if the registry refuses writes.
func TestRegistryRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	b.registry.Intercept(refuseWrites)
	s := b.serve(siteOptions{})
	for range 2 {
		if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(r.Package("linux", "amd64").Data) {
			t.Errorf("%+v", got)
		}
		if e := s.await(pull.Stored, 1); e.Err == nil {
			t.Errorf("%+v", e)
		}
	}
	if !strings.Contains(s.log.String(), "level=ERROR") {
		t.Error("the log does not mention it")
	}
}

// TestUnwantedDownloadsAreCancelled shows that, if a push fails, the downloads that it has started are cancelled. A
// download that a client has requested is not cancelled.
func TestUnwantedDownloadsAreCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	begun, ended := make(chan struct{}), make(chan struct{})
	b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "windows_amd64.zip") {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte("some"))
		http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
		close(ended)
		return true
	})
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return false
		}
		<-begun
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	s := b.serve(siteOptions{})
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(r.Package("linux", "amd64").Data) {
		t.Errorf("%+v", got)
	}
	if e := s.await(pull.Stored, 1); e.Err == nil {
		t.Errorf("%+v", e)
	}
	<-ended
}

// TestRegistryDown shows that requests fail while the registry is down, whatever the origin offers.
func TestRegistryDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	s := b.serve(siteOptions{})
	if got := s.versions(); got != "502" {
		t.Errorf("index.json: %s", got)
	}
	if got := s.hashes("1.0.0"); got != "502" {
		t.Errorf("1.0.0.json: %s", got)
	}
}

// TestConflict shows that, if the registry and the origin have different packages for a version, the registry's package
// is served.
func TestConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine := b.publish("1.0.0")
	o := siteOptions{}
	o.pull.Scope.Platforms = []provider.Platform{provider.MustParsePlatform("linux_amd64")}
	first := b.serve(o)
	first.get(archivePath("1.0.0", "linux_amd64"))
	first.await(pull.Stored, 1)
	b.publish("1.0.0") // the same version again, with other packages
	s := b.serve(o)
	got := s.hashes("1.0.0")
	if !strings.Contains(got, mine.Package("linux", "amd64").SHA256) || strings.Contains(got, "darwin") {
		t.Errorf("1.0.0.json: %s", got)
	}
	if !strings.Contains(s.log.String(), "different packages") {
		t.Error("the log does not mention it")
	}
}

// TestLimitIsReached shows that a request that would exceed a limit gets status 503 and a Retry-After header.
func TestLimitIsReached(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("1.0.0")
	s := b.serve(siteOptions{pull: pull.Options{Limits: pull.Limits{MaxPerDay: 10}}})
	got := s.get(archivePath("1.0.0", "linux_amd64"))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "a limit") {
		t.Errorf("%+v", got)
	}
}

// TestEndInTheMiddle shows that, if the gateway shuts down in the middle of a download, no incomplete version remains
// in the registry. The next start removes the files that a killed process has left on disk.
func TestEndInTheMiddle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.build("1.0.0", 1<<20)
	b.origin.Add(r)
	linux := r.Package("linux", "amd64")
	b.halfThenWait(linux.Filename, linux.Data, nil)
	o := siteOptions{pull: pull.Options{Spool: t.TempDir()}}
	s := b.serve(o)
	resp, err := s.server.Client().Get(s.server.URL + archivePath("1.0.0", "linux_amd64"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, linux.Size/4)); err != nil {
		t.Fatal(err)
	}
	s.close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the interrupted download ended without an error")
	}
	resp.Body.Close()
	if got := b.tagged("1.0.0"); got != nil {
		t.Errorf("tagged: %+v", got)
	}
	left := filepath.Join(o.pull.Spool, "ocibridge-pull-1.zip")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.origin.Intercept(nil)
	s = b.serve(o)
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.body != string(linux.Data) {
		t.Errorf("%d, %d bytes, %v", got.status, len(got.body), got.err)
	}
	if e := s.await(pull.Stored, 1); e.Err != nil || platformsOf(b.tagged("1.0.0")) != strings.Join(platforms, " ") {
		t.Errorf("%+v", e)
	}
	s.close()
	files, err := os.ReadDir(o.pull.Spool)
	if err != nil || len(files) != 0 {
		t.Errorf("left on disk: %v, %v", files, err)
	}
}

// TestOriginContradictsItself shows that, if the origin announces a package that differs from the accepted SHA256SUMS,
// the platform of that package is refused. The other platforms are served.
func TestOriginContradictsItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.publish("1.0.0")
	evil := bytes.Repeat([]byte("x"), 1000)
	b.origin.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case strings.HasSuffix(req.URL.Path, "/download/darwin/arm64"):
			name := r.Package("darwin", "arm64").Filename
			fmt.Fprintf(w, `{"os":"darwin","arch":"arm64","filename":%q,"shasum":"%x","download_url":"/evil.zip","shasums_url":"/files/acme/widget/1.0.0/%s","shasums_signature_url":"/files/acme/widget/1.0.0/%s"}`,
				name, sha256.Sum256(evil), r.SHA256SUMSName(), r.SignatureName())
		case req.URL.Path == "/evil.zip":
			w.Write(evil)
		default:
			return false
		}
		return true
	})
	s := b.serve(siteOptions{pull: pull.Options{Scope: pull.Scope{Platforms: []provider.Platform{provider.MustParsePlatform("linux_amd64")}}}})
	if got := s.hashes("1.0.0"); got != zh(r) {
		t.Errorf("1.0.0.json lists\n%s", got)
	}
	if got := s.get(archivePath("1.0.0", "darwin_arm64")); got.status != http.StatusBadGateway {
		t.Errorf("%+v", got)
	}
	if got := s.get(archivePath("1.0.0", "linux_amd64")); got.status != http.StatusOK || got.body != string(r.Package("linux", "amd64").Data) {
		t.Errorf("another platform: %d", got.status)
	}
	if !strings.Contains(s.log.String(), "with another SHA-256") {
		t.Error("the log does not mention the contradiction")
	}
	if n := b.origin.Count(recorder.Path("/evil.zip")); n != 0 {
		t.Errorf("the package is downloaded %d times", n)
	}
}

// TestRetryAfterOfTheOrigin shows that, if the origin sends a Retry-After header, the client whose request failed gets
// this header. Clients also get it while the failure is cached.
func TestRetryAfterOfTheOrigin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends        string // the end of the paths that get this response
		status      int
		after       string
		asked       string
		least, most int // the bounds of Retry-After in seconds; it decreases while a slow machine runs the test
	}{
		"versions":      {"/versions", 429, "200", mirror + "index.json", 100, 200},
		"package":       {"/download/darwin/arm64", 503, "200", mirror + "1.0.0.json", 100, 200},
		"SHA256SUMS":    {"_SHA256SUMS", 429, "200", mirror + "1.0.0.json", 100, 200},
		"archive":       {"darwin_arm64.zip", 503, "200", archivePath("1.0.0", "darwin_arm64"), 100, 200},
		"hours":         {"/versions", 503, "86400", mirror + "index.json", 300, 300},
		"other trouble": {"/versions", 501, "200", mirror + "index.json", 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.publish("1.0.0")
			b.origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, tc.ends) {
					return false
				}
				w.Header().Set("Retry-After", tc.after)
				w.WriteHeader(tc.status)
				return true
			})
			var o siteOptions
			o.pull.Scope.Platforms = []provider.Platform{provider.MustParsePlatform("darwin_arm64")}
			s := b.serve(o)
			status := http.StatusServiceUnavailable
			if tc.status == 501 {
				status = http.StatusBadGateway
			}
			for _, when := range []string{"at once", "remembered"} {
				got := s.get(tc.asked)
				after, err := strconv.Atoi(got.header.Get("Retry-After"))
				if got.status != status || err != nil || after < tc.least || after > tc.most {
					t.Errorf("%s: %d, Retry-After %q; want %d, between %d and %d", when, got.status, got.header.Get("Retry-After"), status, tc.least, tc.most)
				}
			}
		})
	}
}
