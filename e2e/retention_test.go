package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// retained is the output of gc.
type retained struct {
	Removed []struct {
		Provider, Version, Reason string
		Bytes                     int64
	}
	Bytes int64
}

// gc runs ocibridge gc on the embedded registry.
func (s *scene) gc(args ...string) (out retained) {
	s.t.Helper()
	text := s.mustRun(append([]string{"gc", "--data", s.data, "--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return out
}

func (r retained) versions() (out []string) {
	for _, v := range r.Removed {
		out = append(out, v.Version+" "+v.Reason)
	}
	slices.Sort(out)
	return out
}

// tagFile returns the file of a version's tag in the embedded registry.
func (s *scene) tagFile(version string) string {
	return filepath.Join(s.data, "registry/docker/registry/v2/repositories", filepath.FromSlash(world.Null), "_manifests/tags", version, "current/link")
}

// mark returns the mark of a version that pull-through has stored.
func (s *scene) mark(version string) string {
	return filepath.Join(s.data, "pulled", filepath.FromSlash(world.Null), version)
}

func (s *scene) blobFile(sum string) string {
	return filepath.Join(s.data, "registry/docker/registry/v2/blobs/sha256", sum[:2], sum, "data")
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(clients.DefaultTimeout); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// download downloads a version's package for this machine's platform from a gateway.
func (s *scene) download(g *world.Gateway, r *release.Release) {
	s.t.Helper()
	goos, goarch, _ := strings.Cut(hostPlatform, "_")
	if status, body := (&pulled{scene: s}).get(g, archive(r, goos, goarch)); status != http.StatusOK || int64(len(body)) != r.Package(goos, goarch).Size {
		s.t.Fatalf("the package of %s: status %d, %d B", r.Version, status, len(body))
	}
}

// downloads returns the number of downloads of a version's package from the origin.
func (s *scene) downloadsOf(r *release.Release) int {
	goos, goarch, _ := strings.Cut(hostPlatform, "_")
	return s.Origin.Count(recorder.Method(http.MethodGet), recorder.PathSuffix(r.Package(goos, goarch).Filename))
}

func setBack(t *testing.T, name string, days int) {
	t.Helper()
	then := time.Now().AddDate(0, 0, -days)
	clients.Must(t, os.Chtimes(name, then, then))
}

// TestRetention shows that gc removes the versions that pull-through has stored and that clients have not used for
// long, while the gateway runs. Clients then pull them through again. gc removes no version that was pushed or that a
// sync has found in place.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	unused, used, synced, pushed := s.null, s.offer("3.2.5"), s.offer("3.2.6"), s.offer("3.2.7")
	all := []*release.Release{unused, used, synced, pushed}
	config := s.config(fmt.Sprintf(`
pull_through {
  include   = ["%s/acme/*"]
  platforms = [%q]
  retention {
    unused = "90d"
  }
}
provider %q {
  versions  = "3.2.6"
  platforms = [%[2]q]
}
`, world.Host, hostPlatform, world.Null))
	g := s.serve(config, "--data", s.data)
	for _, r := range []*release.Release{unused, used, synced} {
		s.download(g, r)
		until(t, r.Version+" is stored", func() bool { return exists(s.tagFile(r.Version)) })
		setBack(t, s.mark(r.Version), 100)
	}
	s.push("--platform", hostPlatform, world.Null+"@"+pushed.Version)
	s.mustRun("sync", config, "--data", s.data)

	other := s.serve(config, "--data", s.data)
	s.download(other, used)
	until(t, "the use in another process is recorded", func() bool {
		info, err := os.Stat(s.mark(used.Version))
		return err == nil && time.Since(info.ModTime()) < 50*24*time.Hour
	})
	clients.Must(t, other.Stop())

	goos, goarch, _ := strings.Cut(hostPlatform, "_")
	size := unused.Package(goos, goarch).Size
	predicted := s.gc(config, "--dry-run")
	if got := predicted.versions(); !slices.Equal(got, []string{unused.Version + " unused"}) || predicted.Removed[0].Bytes < size {
		t.Fatalf("gc --dry-run: %+v", predicted)
	}
	if !exists(s.tagFile(unused.Version)) {
		t.Fatal("gc --dry-run removes a version")
	}
	freed := s.gc(config)
	if got := freed.versions(); !slices.Equal(got, predicted.versions()) || freed.Bytes < predicted.Removed[0].Bytes {
		t.Errorf("gc: %+v, and --dry-run: %+v", freed, predicted)
	}
	if exists(s.tagFile(unused.Version)) || exists(s.blobFile(unused.Package(goos, goarch).SHA256)) || exists(s.mark(unused.Version)) {
		t.Error("gc leaves parts of the unused version")
	}
	for _, r := range all[1:] {
		if !exists(s.tagFile(r.Version)) || !exists(s.blobFile(r.Package(goos, goarch).SHA256)) {
			t.Errorf("gc removes %s", r.Version)
		}
	}

	ws := s.user("", unused.Version)
	// The first gateway could still have the package of the download.
	clients.Must(t, ws.WriteCLIConfig(world.NetworkMirror(s.serve(config, "--data", s.data).URL)))
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	if got := s.downloadsOf(unused); got != 2 {
		t.Errorf("the removed version is downloaded %d times from its origin, want 2", got)
	}
	until(t, "the removed version is stored again", func() bool { return exists(s.tagFile(unused.Version)) })

	setBack(t, s.mark(used.Version), 10)
	if got := s.gc(config, fmt.Sprintf("--max-size=%dB", size+size/2)).versions(); !slices.Equal(got, []string{used.Version + " max_size"}) {
		t.Errorf("with room for one version, gc removes %v", got)
	}
	if got := s.gc(config, "--unused=0", "--max-size=1B").versions(); !slices.Equal(got, []string{unused.Version + " max_size"}) {
		t.Errorf("without room, gc removes %v", got)
	}
	if got := s.gc("--unused=2d", "--max-size=1B").versions(); len(got) > 0 {
		t.Errorf("gc removes %v, which pull-through has not stored alone", got)
	}
	s.verify(0, "--data", s.data, "--packages")
}

// TestTakeBack shows how a release is taken back while the gateway runs: it is denied with a reason, removed, and its
// bytes are freed. Clients see the reason. Nothing of the release is left in the registry.
func TestTakeBack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	good, bad := s.null, s.offer("3.2.5")
	file := filepath.Join(t.TempDir(), "ocibridge.hcl")
	clients.Must(t, os.WriteFile(file, nil, 0o600))
	g := s.serve("--config="+file, "--data", s.data)
	s.push(world.Null+"@"+good.Version, world.Null+"@"+bad.Version)
	install := func(version string) *clients.Workspace {
		ws := s.user("", version)
		clients.Must(t, ws.WriteCLIConfig(world.NetworkMirror(g.URL)))
		return ws
	}
	install(bad.Version).MustRun(t, clients.Tofu(t), "init", "-no-color")

	const reason = "corrupts state files, see ticket 1234"
	clients.Must(t, os.WriteFile(file, fmt.Appendf(nil, "gateway {\n  deny = [{ match = %q, reason = %q }]\n}\n", world.Null+"@"+bad.Version, reason), 0o600))
	denied := func() string {
		status, body := (&pulled{scene: s}).get(g, bad.Version+".json")
		return fmt.Sprint(status, " ", body)
	}
	until(t, "the release is denied", func() bool { return strings.HasPrefix(denied(), "451 ") })
	if got := denied(); !strings.Contains(got, reason) {
		t.Errorf("the answer gives no reason: %s", got)
	}

	s.mustRun("remove", "--config="+file, "--data", s.data, world.Null+"@"+bad.Version)
	var size int64
	for _, pkg := range bad.Packages {
		size += pkg.Size
	}
	if freed := s.gc("--config=" + file); freed.Bytes < size || len(freed.Removed) > 0 {
		t.Errorf("gc: %+v, want at least %d B", freed, size)
	}
	s.wantNoTrace(bad)
	if out := install(bad.Version).MustFail(t, clients.Tofu(t), "init", "-no-color"); !strings.Contains(out, "no available") {
		t.Errorf("a client of the denied release: %s", out)
	}
	if got := denied(); !strings.Contains(got, reason) {
		t.Errorf("after the removal, the answer gives no reason: %s", got)
	}
	install(good.Version).MustRun(t, clients.Tofu(t), "init", "-no-color")

	clients.Must(t, os.WriteFile(file, []byte("gateway {}\n"), 0o600))
	until(t, "the gateway notices that the release is gone", func() bool { return strings.TrimSpace(denied()) == `200 {"archives":{}}` })
}

// wantNoTrace checks that no file of the embedded registry belongs to a release.
func (s *scene) wantNoTrace(r *release.Release) {
	s.t.Helper()
	root := filepath.Join(s.data, "registry")
	clients.Must(s.t, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		traces := []string{r.Version}
		for _, pkg := range r.Packages {
			traces = append(traces, pkg.SHA256)
		}
		for _, trace := range traces {
			if strings.Contains(name, trace) || strings.Contains(string(text), trace) {
				s.t.Errorf("%s is in %s", trace, name)
			}
		}
		return err
	}))
}
