package pusher_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// mirror writes the bench's release into a mirror folder.
func (b *bench) mirror(dir string, platforms ...string) (*pusher.Result, error) {
	b.T.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.T.Fatal(err)
	}
	defer root.Close()
	r, err := b.Get(platforms...)
	if err != nil {
		b.T.Fatal(err)
	}
	return pusher.New(b.Options).Mirror(b.T.Context(), root, r)
}

func mirrorFile(dir, name string) string {
	return filepath.Join(dir, pushbench.Host, "acme", "widget", name)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMirror(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	r, err := b.mirror(dir, "linux_amd64")
	if err != nil || r.Status != pusher.Pushed || len(r.Packages) != 1 || !r.Packages[0].Sent {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = b.mirror(dir); err != nil || r.Status != pusher.Completed || len(r.Packages) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = b.mirror(dir); err != nil || r.Status != pusher.Unchanged {
		t.Fatalf("%+v, %v", r, err)
	}
	entries, err := os.ReadDir(mirrorFile(dir, ""))
	if err != nil || len(entries) != 5 {
		t.Errorf("%v, %v", entries, err)
	}
	if got, want := readFile(t, mirrorFile(dir, "index.json")), "{\n  \"versions\": {\n    \"1.0.0\": {}\n  }\n}"; got != want {
		t.Errorf("index.json is %s", got)
	}
	// The reader of mirror folders finds the same packages.
	m, err := realorigin.OpenMirrorDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	releases, err := m.Releases(t.Context(), nil)
	if err != nil || len(releases) != 1 || len(releases[0].Packages) != 3 {
		t.Fatalf("%v, %v", releases, err)
	}
	b.Options.Policy = func(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} }
	if _, err := pusher.New(b.Options).Push(t.Context(), releases[0]); err != nil {
		t.Errorf("pushed from the folder: %v", err)
	}
}

// TestMirrorUnchanged shows that a repeated push into a mirror folder writes no file, and reports no package as fetched.
func TestMirrorUnchanged(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	if _, err := b.mirror(dir); err != nil {
		t.Fatal(err)
	}
	files := func() (out []os.FileInfo) {
		entries, err := os.ReadDir(mirrorFile(dir, ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, info)
		}
		return out
	}
	before := files()
	var present, other atomic.Int32
	b.Options.OnEvent = func(e pusher.Event) {
		if e.Stage == pusher.StagePresent {
			present.Add(1)
		} else {
			other.Add(1)
		}
	}
	if r, err := b.mirror(dir); err != nil || r.Status != pusher.Unchanged {
		t.Fatalf("%+v, %v", r, err)
	}
	if present.Load() != 3 || other.Load() != 0 {
		t.Errorf("%d packages are in place, %d other events", present.Load(), other.Load())
	}
	if !slices.EqualFunc(before, files(), os.SameFile) {
		t.Error("a file was replaced")
	}
}

// TestMirrorAfterAKill shows that the temporary files of a killed copy are removed.
func TestMirrorAfterAKill(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	left := mirrorFile(dir, ".ocibridge-A")
	if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.mirror(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); err == nil {
		t.Errorf("%s is left", left)
	}
}

// TestMirrorKeeps shows that Mirror keeps the other versions and platforms that a mirror folder already has.
func TestMirrorKeeps(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	if err := os.MkdirAll(mirrorFile(dir, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	other := `"plan9_386": {"hashes": ["h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="], "url": "terraform-provider-widget_1.0.0_plan9_386.zip"}`
	for name, content := range map[string]string{
		"index.json": `{"versions": {"0.9.0": {}}}`,
		"0.9.0.json": "untouched",
		"1.0.0.json": `{"archives": {` + other + `}}`,
	} {
		if err := os.WriteFile(mirrorFile(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := b.mirror(dir); err != nil || r.Status != pusher.Completed {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := readFile(t, mirrorFile(dir, "index.json")); !strings.Contains(got, "0.9.0") || !strings.Contains(got, "1.0.0") {
		t.Errorf("index.json is %s", got)
	}
	if got := readFile(t, mirrorFile(dir, "1.0.0.json")); !strings.Contains(got, "plan9_386") || !strings.Contains(got, "linux_amd64") {
		t.Errorf("1.0.0.json is %s", got)
	}
	if got := readFile(t, mirrorFile(dir, "0.9.0.json")); got != "untouched" {
		t.Errorf("0.9.0.json is %s", got)
	}
}

// TestMirrorOfNull shows that Mirror accepts a mirror folder whose JSON has null in place of its objects.
func TestMirrorOfNull(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	if err := os.MkdirAll(mirrorFile(dir, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"index.json": `{"versions": null}`, "1.0.0.json": `{"archives": null}`} {
		if err := os.WriteFile(mirrorFile(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := b.mirror(dir, "linux_amd64"); err != nil || r.Status != pusher.Pushed || len(r.Packages) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMirrorConflicts shows that Mirror refuses a folder with other content for the same version, or with damaged JSON.
func TestMirrorConflicts(t *testing.T) {
	const zip = "terraform-provider-widget_1.0.0_linux_amd64.zip"
	for name, tc := range map[string]struct {
		file, content string
		err           error
	}{
		"another package": {zip, "something else", pusher.ErrConflict},
		"other hashes":    {"1.0.0.json", `{"archives": {"linux_amd64": {"hashes": ["zh:0000000000000000000000000000000000000000000000000000000000000000"], "url": "` + zip + `"}}}`, pusher.ErrConflict},
		"another place":   {"1.0.0.json", `{"archives": {"linux_amd64": {"hashes": [], "url": "https://example.com/a.zip"}}}`, pusher.ErrConflict},
		"damaged JSON":    {"1.0.0.json", `{"archives"`, nil},
		"damaged index":   {"index.json", `{"versions": 3}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			dir := t.TempDir()
			if err := os.MkdirAll(mirrorFile(dir, ""), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(mirrorFile(dir, tc.file), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := b.mirror(dir, "linux_amd64"); err == nil || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			entries, err := os.ReadDir(mirrorFile(dir, ""))
			if err != nil || len(entries) != 1 || readFile(t, mirrorFile(dir, tc.file)) != tc.content {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

// TestMirrorStoresNothingUnverified shows that Mirror stores neither a package that differs from the signed package nor
// a signed file that is not a zip.
func TestMirrorStoresNothingUnverified(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*bench) error
		err   error
	}{
		"something else": {func(b *bench) error {
			b.Release.Package("linux", "amd64").Data = []byte("something else")
			return nil
		}, trust.ErrChecksum},
		"no zip": {func(b *bench) error { return b.Release.Repack("linux", "amd64", []byte("<html>"), b.Signer) }, provider.ErrNotZip},
	} {
		b := newBench(t)
		if err := tc.spoil(b); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := b.mirror(dir, "linux_amd64"); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		if entries, err := os.ReadDir(mirrorFile(dir, "")); err != nil || len(entries) != 0 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
}
