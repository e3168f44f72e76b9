package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// fronted is a real registry behind a recorder. The recorder can answer requests instead of the registry.
type fronted struct {
	*recorder.Recorder
	template string
}

func newFronted(t *testing.T) *fronted {
	t.Helper()
	rec, _, template := front(t, registry.For(t, registry.Options{}))
	return &fronted{rec, template}
}

func refuse(w http.ResponseWriter, status int, code, message string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
	return true
}

// wantWhole checks that the null provider's version is complete.
func (s *scene) wantWhole(template string, platforms int) {
	s.t.Helper()
	out := s.ws.MustRun(s.t, s.bridge, "verify", "--packages", "--template", template, world.Null)
	if want := fmt.Sprintf("%s: ok, %d platform", nullVersion, platforms); !strings.Contains(out, want) {
		s.t.Errorf("verify does not say %q: %s", want, out)
	}
}

// TestImmutableTags shows that a push that adds a platform fails while the registry refuses to move tags. The
// tagged version stays complete. The push succeeds when the registry allows moved tags.
func TestImmutableTags(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := newFronted(t)
	push := func(platform string) []string {
		return []string{"push", world.Null + "@" + nullVersion, "--platform", platform, "--template", f.template}
	}
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		tag := path.Base(r.URL.Path)
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") || strings.HasPrefix(tag, "sha256:") || f.Count(recorder.Method(http.MethodPut), recorder.Path(r.URL.Path)) == 1 {
			return false
		}
		return refuse(w, http.StatusPreconditionFailed, "PRECONDITION", "Failed to process request due to 'null:"+tag+"' configured as immutable.")
	})
	s.ws.MustRun(t, s.bridge, push("linux_amd64")...)
	s.ws.MustRun(t, s.bridge, push("linux_amd64")...)
	if r := s.run(push("darwin_arm64")...); r.status != 1 || !strings.Contains(r.stderr, "configured as immutable") || !strings.Contains(r.stderr, "hint: the registry keeps what was uploaded, but the tag names the same index as before") {
		t.Errorf("status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	s.wantWhole(f.template, 1)
	f.Intercept(nil)
	if out := s.ws.MustRun(t, s.bridge, push("darwin_arm64")...); !strings.Contains(out, "completed") {
		t.Errorf("when it may be moved: %s", out)
	}
	s.wantWhole(f.template, 2)
}

// TestTooLargeForOneRequest shows that packages are uploaded in chunks if a proxy limits the size of requests.
func TestTooLargeForOneRequest(t *testing.T) {
	t.Parallel()
	const limit = 17 << 20
	s := newScene(t)
	big := make([]byte, 40<<20)
	for i := range big { // so that the content does not compress
		big[i] = byte(i*i>>7 ^ i>>13)
	}
	r := release.For(t, release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: nullVersion, Signer: s.Signer, Contents: []release.Content{
		{OS: runtime.GOOS, Arch: runtime.GOARCH, Files: map[string][]byte{"terraform-provider-null_v" + nullVersion: big}}}})
	s.Origin.Add(r)
	size := r.Packages[0].Size
	f := newFronted(t)
	var refused atomic.Int32
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.ContentLength <= min(limit, size-1) {
			return false
		}
		refused.Add(1)
		return refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID", "too large")
	})
	s.ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion, "--template", f.template)
	if refused.Load() != 1 || f.Count(recorder.Method(http.MethodPatch)) == 0 {
		t.Errorf("%d requests refused, then %d chunks of a package of %d bytes", refused.Load(), f.Count(recorder.Method(http.MethodPatch)), size)
	}
	s.wantWhole(f.template, 1)
}

// TestTooManyRequests shows that a push succeeds if the registry sometimes returns 429 with Retry-After.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := newFronted(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		kind := r.Method + " " + path.Base(path.Dir(r.URL.Path)) // the first request of each kind
		if seen[kind] {
			return false
		}
		seen[kind] = true
		w.Header().Set("Retry-After", "1")
		return refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "you have reached your rate limit")
	})
	s.ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion, "--template", f.template)
	f.Intercept(nil)
	if n := f.Count(recorder.Status(http.StatusTooManyRequests)); n < 4 {
		t.Errorf("%d requests were put off: %v", n, f.Requests())
	}
	s.wantWhole(f.template, len(s.null.Packages))
}

// TestOriginBreaksOff shows that, if the download of a package breaks off in the middle, the program requests
// only the rest of the package.
func TestOriginBreaksOff(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := newFronted(t)
	var mu sync.Mutex
	cut := map[string]bool{}
	honest := origin.New(origin.Options{}, s.null)
	s.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasSuffix(r.URL.Path, ".zip") || cut[r.URL.Path] {
			return false
		}
		cut[r.URL.Path] = true
		whole := httptest.NewRecorder()
		honest.ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()))
		w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	s.ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion, "--template", f.template)
	for _, p := range s.null.Packages {
		asked := s.Origin.Requests(recorder.PathSuffix("/" + p.Filename))
		if len(asked) != 2 || asked[0].Range != "" || asked[1].Range == "" || asked[1].Range == "bytes=0-" {
			t.Errorf("%s: asked for %+v", p.Filename, asked)
		}
	}
	s.wantWhole(f.template, len(s.null.Packages))
}

// TestMount shows that a copy within a registry mounts packages, and uploads none.
func TestMount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := newFronted(t)
	s.ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion, "--template", f.template)
	f.Reset()
	to := strings.Replace(f.template, "/providers/", "/promoted/", 1)
	out := s.ws.MustRun(t, s.bridge, "copy", "--from", f.template, "--to", to, world.Null+"@"+nullVersion)
	if n := strings.Count(out, ": mounted, "); n != len(s.null.Packages) || strings.Contains(out, ": stored") {
		t.Errorf("it prints\n%s", out)
	}
	mounts := 0
	for _, r := range f.Requests(recorder.Method(http.MethodPost), recorder.Status(http.StatusCreated)) {
		if strings.Contains(r.Query, "mount=sha256") {
			mounts++
		}
	}
	if mounts < len(s.null.Packages) {
		t.Errorf("%d mounts: %v", mounts, f.Requests(recorder.Writes()))
	}
	for _, p := range s.null.Packages {
		sent := f.Requests(recorder.Method(http.MethodPut), func(r recorder.Request) bool { return strings.Contains(r.Query, p.SHA256) })
		if len(sent) != 0 {
			t.Errorf("%s was sent: %v", p.Filename, sent)
		}
	}
	s.wantWhole(to, len(s.null.Packages))
}

// TestNewerAnswersOfOrigins shows that push stores and shows the hashes, sizes, protocols and warnings from an
// origin. It refuses a package that contradicts the origin's hash or size.
func TestNewerAnswersOfOrigins(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	f := newFronted(t)
	platform := runtime.GOOS + "_" + runtime.GOARCH
	p := hostPackage(t, s.null)
	honest := origin.New(origin.Options{}, s.null)
	said := map[string]any{}
	s.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		isList := strings.HasSuffix(r.URL.Path, "/versions")
		if !isList && !strings.Contains(r.URL.Path, "/download/") {
			return false
		}
		answer := httptest.NewRecorder()
		honest.ServeHTTP(answer, r)
		var body map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil {
			t.Error(err)
		}
		if isList {
			body["warnings"] = []string{"this provider has moved to acme/void"}
		} else {
			body["packages"] = map[string]any{platform: said}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(body)
		return true
	})
	push := []string{"push", world.Null + "@" + nullVersion, "--platform", platform, "--template", f.template}
	zh := "zh:" + p.SHA256
	for name, lie := range map[string]map[string]any{
		"size": {"hashes": []string{zh}, "package_size": p.Size + 1},
		"zh":   {"hashes": []string{"zh:" + strings.Repeat("0", 64)}, "package_size": p.Size},
		"h1":   {"hashes": []string{zh, "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}, "package_size": p.Size},
	} {
		said = lie
		if r := s.run(push...); r.status != 1 || !strings.Contains(r.stderr, "hint: ") || f.Count(recorder.Method(http.MethodPut), recorder.PathContains("/manifests/")) != 0 {
			t.Errorf("%s: status %d: %s%s", name, r.status, r.stdout, r.stderr)
		}
	}
	said = map[string]any{"hashes": []string{zh}, "package_size": p.Size}
	if r := s.run(push...); r.status != 0 || !strings.Contains(r.stderr, "this provider has moved to acme/void") {
		t.Fatalf("status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	s.wantWhole(f.template, 1)
	var shown struct {
		Protocols []string `json:"protocols"`
		Evidence  struct {
			Protocols []string `json:"protocols"`
		} `json:"evidence"`
	}
	text := s.ws.MustRun(t, s.bridge, "inspect", "--template", f.template, "--output", "json", world.Null+"@"+nullVersion)
	if err := json.Unmarshal([]byte(text), &shown); err != nil || fmt.Sprint(shown.Protocols, shown.Evidence.Protocols) != "[5.0] [5.0]" {
		t.Errorf("%v: %s", err, text)
	}
}
