package embedded_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
)

// gcRepo is a repository of a registry that is collected.
type gcRepo struct {
	*testing.T
	*remote.Repository
}

func gcRepository(t *testing.T, r *embedded.Registry, name string) gcRepo {
	t.Helper()
	repo, err := r.Repository(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.SetReferrersCapability(true); err != nil {
		t.Fatal(err)
	}
	return gcRepo{t, repo}
}

func (g gcRepo) blob(text string) ocispec.Descriptor {
	g.Helper()
	desc := content.NewDescriptorFromBytes("application/zip", []byte(text))
	if err := g.Push(g.Context(), desc, strings.NewReader(text)); err != nil {
		g.Fatal(err)
	}
	return desc
}

func (g gcRepo) put(document any, mediaType, tag string) ocispec.Descriptor {
	g.Helper()
	data, err := json.Marshal(document)
	if err != nil {
		g.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(mediaType, data)
	if tag == "" {
		tag = desc.Digest.String()
	}
	if err := g.PushReference(g.Context(), desc, bytes.NewReader(data), tag); err != nil {
		g.Fatal(err)
	}
	return desc
}

// manifest pushes a manifest with one layer for each text. subject may be nil.
func (g gcRepo) manifest(tag string, subject *ocispec.Descriptor, layers ...string) ocispec.Descriptor {
	g.Helper()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: g.blob("{}"), Subject: subject}
	for _, text := range layers {
		m.Layers = append(m.Layers, g.blob(text))
	}
	return g.put(m, ocispec.MediaTypeImageManifest, tag)
}

func (g gcRepo) index(tag string, manifests ...ocispec.Descriptor) ocispec.Descriptor {
	g.Helper()
	return g.put(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: manifests}, ocispec.MediaTypeImageIndex, tag)
}

// storage returns the path of a file in the folder of distribution's storage format.
func storage(dir string, elem ...string) string {
	return filepath.Join(append([]string{dir, "registry", "docker", "registry", "v2"}, elem...)...)
}

// blobsOf returns the digests of all blobs in a data folder.
func blobsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for name := range filesOf(t, dir) {
		if rest, ok := strings.CutSuffix(name, "/data"); ok && strings.HasPrefix(name, "blobs/") {
			out[filepath.Base(rest)] = true
		}
	}
	return out
}

// filesOf returns the content of all files in the storage folder, by their paths.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := storage(dir)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		out[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

func collect(t *testing.T, r *embedded.Registry) embedded.Garbage {
	t.Helper()
	freed, err := r.GC(t.Context(), embedded.GCOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return freed
}

// TestGC shows what a garbage collection deletes and keeps, and that its prediction is right.
func TestGC(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	serving := open(t, dir)
	a, b, c := gcRepository(t, r, "host/acme/a"), gcRepository(t, r, "host/acme/b"), gcRepository(t, r, "host/other/c")

	one := a.manifest("", nil, "linux 1", "shared by a and b")
	index := a.index("1.0.0", one)
	signature := a.manifest("", &index, "signature of 1")
	countersignature := a.manifest("", &signature, "signature of the signature")
	named := a.manifest("", nil, "names itself only by a tag")
	a.index("sha256-"+index.Digest.Encoded(), named)
	kept := maps.Clone(blobsOf(t, dir))

	old := a.manifest("", nil, "linux 2", "linux 1")
	oldIndex := a.index("2.0.0", old, one)
	a.manifest("", &oldIndex, "signature of 2")
	two := a.manifest("", nil, "linux 2, again")
	newIndex := a.index("2.0.0", two)
	for _, text := range []string{"linux 2, again"} {
		kept[digest.FromString(text).Encoded()] = true
	}
	kept[two.Digest.Encoded()], kept[newIndex.Digest.Encoded()] = true, true
	bManifest := b.manifest("1.0.0", nil, "shared by a and b")
	kept[bManifest.Digest.Encoded()] = true
	b.blob("linux 1") // a link to a blob that only another repository needs
	c.manifest("", nil, "never tagged")
	uuid := storage(dir, "repositories", "host", "acme", "b", "_uploads", "4711")
	leftover := storage(dir, "blobs", "sha256", index.Digest.Encoded()[:2], index.Digest.Encoded(), "data.4711.tmp")
	nameless := storage(dir, "repositories", "host", "acme", "a", "_manifests", "tags", "3.0.0", "index", "sha256", old.Digest.Encoded())
	for name, text := range map[string]string{filepath.Join(uuid, "data"): "half a package", filepath.Join(uuid, "startedat"): "now", leftover: "half a blob", filepath.Join(nameless, "link"): old.Digest.String()} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}

	want, before := embedded.Garbage{Manifests: 4, Files: 3, Repositories: []string{"host/other/c"}}, filesOf(t, dir)
	for name, data := range before {
		isBlob := strings.HasPrefix(name, "blobs/") && strings.HasSuffix(name, "/data")
		if isBlob && !kept[filepath.Base(filepath.Dir(name))] {
			want.Blobs++
		} else if isBlob || strings.HasSuffix(name, "link") {
			continue
		}
		want.Bytes += int64(len(data))
	}
	found, _, err := serving.Garbage(t.Context(), embedded.Retention{})
	if err != nil || fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("the prediction is %+v, want %+v, %v", found, want, err)
	}
	if !maps.Equal(before, filesOf(t, dir)) {
		t.Error("the prediction has changed files")
	}
	if freed := collect(t, r); fmt.Sprint(freed) != fmt.Sprint(want) {
		t.Errorf("freed is %+v, want %+v", freed, want)
	}
	if got := blobsOf(t, dir); !maps.Equal(got, kept) {
		t.Errorf("left are %d blobs, want %d", len(got), len(kept))
	}
	if again := collect(t, r); again.Bytes+int64(again.Manifests+again.Blobs+again.Files+len(again.Repositories)) != 0 {
		t.Errorf("the second collection frees %+v", again)
	}
	if _, err := os.Stat(storage(dir, "repositories", "host", "other")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a repository without tags: %v", err)
	}

	// A registry that was open all the time serves what is kept, and nothing else.
	served := gcRepository(t, serving, "host/acme/a")
	for _, desc := range []ocispec.Descriptor{index, one, signature, countersignature, named, newIndex, two} {
		if _, err := content.FetchAll(t.Context(), served, desc); err != nil {
			t.Errorf("%s: %v", desc.Digest, err)
		}
	}
	for _, desc := range []ocispec.Descriptor{oldIndex, old} {
		if ok, err := served.Exists(t.Context(), desc); ok || err != nil {
			t.Errorf("deleted %s: %v, %v", desc.Digest, ok, err)
		}
	}
	referrers := 0
	err = served.Referrers(t.Context(), index, "", func(list []ocispec.Descriptor) error { referrers += len(list); return nil })
	if err != nil || referrers != 2 { // the signature, and the manifest that the fallback tag names
		t.Errorf("%d referrers, %v", referrers, err)
	}
	if err := served.Referrers(t.Context(), oldIndex, "", func(list []ocispec.Descriptor) error {
		if len(list) > 0 {
			return fmt.Errorf("%d referrers of a deleted index", len(list))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := tags(t, served.Repository); !slices.Equal(got, []string{"1.0.0", "2.0.0", "sha256-" + index.Digest.Encoded()}) {
		t.Errorf("tags %v", got)
	}
	// Deleted content can be pushed again.
	a.index("2.0.1", a.manifest("", nil, "linux 2", "linux 1"))
	if _, err := content.FetchAll(t.Context(), served, old); err != nil {
		t.Error(err)
	}
}

// TestGCOfNothing shows that an empty registry has no garbage, and that a folder that is gone is an
// error.
func TestGCOfNothing(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	if freed := collect(t, r); freed.Bytes != 0 || freed.Repositories == nil {
		t.Errorf("%+v", freed)
	}
	if err := os.Rename(filepath.Join(dir, "ocibridge-registry"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.GC(t.Context(), embedded.GCOptions{}); err == nil {
		t.Error("it succeeds without the data folder")
	}
	if unlock, err := r.Lock(t.Context(), "test"); err == nil {
		unlock()
		t.Error("the lock of a folder that is gone")
	}
}

// TestGCStops shows that a garbage collection deletes nothing if it does not understand all of the
// folder.
func TestGCStops(t *testing.T) {
	for name, damage := range map[string]func(dir string, child digest.Digest) error{
		"a tagged version lacks a manifest": func(dir string, child digest.Digest) error {
			return os.RemoveAll(storage(dir, "blobs", "sha256", child.Encoded()[:2], child.Encoded()))
		},
		"a manifest is damaged": func(dir string, child digest.Digest) error {
			return os.WriteFile(storage(dir, "blobs", "sha256", child.Encoded()[:2], child.Encoded(), "data"), []byte("{}"), 0o600)
		},
		"a manifest is truncated": func(dir string, child digest.Digest) error {
			return os.Truncate(storage(dir, "blobs", "sha256", child.Encoded()[:2], child.Encoded(), "data"), 5)
		},
		"a tag is empty": func(dir string, _ digest.Digest) error {
			return os.Truncate(storage(dir, "repositories", "host", "acme", "a", "_manifests", "tags", "1.0.0", "current", "link"), 0)
		},
		"a tag cannot be read": func(dir string, _ digest.Digest) error {
			link := storage(dir, "repositories", "host", "acme", "a", "_manifests", "tags", "1.0.0", "current", "link")
			return errors.Join(os.Remove(link), os.Mkdir(link, 0o700), os.WriteFile(filepath.Join(link, "x"), nil, 0o600), os.Symlink("link", filepath.Join(filepath.Dir(link), "loop")))
		},
		"a folder is a link": func(dir string, _ digest.Digest) error {
			repo := storage(dir, "repositories", "host", "acme")
			return errors.Join(os.Rename(repo, filepath.Join(dir, "elsewhere")), os.Symlink(filepath.Join(dir, "elsewhere"), repo))
		},
		"the repositories are gone": func(dir string, _ digest.Digest) error {
			return os.RemoveAll(storage(dir, "repositories"))
		},
		"digests of another algorithm": func(dir string, _ digest.Digest) error {
			link := storage(dir, "repositories", "host", "acme", "a", "_layers", "sha512", strings.Repeat("0", 128), "link")
			return errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.WriteFile(link, []byte("x"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := open(t, dir)
			repo := gcRepository(t, r, "host/acme/a")
			child := repo.manifest("", nil, "linux 1")
			repo.index("1.0.0", child)
			repo.manifest("", nil, "garbage")
			if err := damage(dir, child.Digest); err != nil {
				t.Fatal(err)
			}
			before := filesOf(t, dir)
			if _, _, err := r.Garbage(t.Context(), embedded.Retention{}); err == nil {
				t.Error("the prediction succeeds")
			}
			freed, err := r.GC(t.Context(), embedded.GCOptions{})
			if err == nil || freed.Bytes != 0 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v, %v", freed, err)
			}
			if !maps.Equal(before, filesOf(t, dir)) {
				t.Error("files have changed")
			}
		})
	}
}

// TestDamagedTagIsRepaired shows that the hint about a damaged tag names a folder. Once the user has
// deleted that folder, a garbage collection and a push succeed.
func TestDamagedTagIsRepaired(t *testing.T) {
	for name, damage := range map[string]func(dir string, index digest.Digest) error{
		"the index is truncated": func(dir string, index digest.Digest) error {
			return os.Truncate(storage(dir, "blobs", "sha256", index.Encoded()[:2], index.Encoded(), "data"), 5)
		},
		"the tag is empty": func(dir string, _ digest.Digest) error {
			return os.Truncate(storage(dir, "repositories", "host", "acme", "a", "_manifests", "tags", "1.0.0", "current", "link"), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := open(t, dir)
			repo := gcRepository(t, r, "host/acme/a")
			child := repo.manifest("", nil, "linux 1")
			index := repo.index("1.0.0", child)
			if err := damage(dir, index.Digest); err != nil {
				t.Fatal(err)
			}
			_, err := r.GC(t.Context(), embedded.GCOptions{})
			_, folder, ok := strings.Cut(hint.Of(err), "the folder ")
			folder, _, _ = strings.Cut(folder, ",")
			if !ok || os.RemoveAll(folder) != nil {
				t.Fatalf("%v, hint %q", err, hint.Of(err))
			}
			if freed := collect(t, r); freed.Blobs == 0 {
				t.Errorf("%+v", freed)
			}
			repo.index("1.0.0", repo.manifest("", nil, "linux 1"))
			if freed := collect(t, r); freed.Blobs != 0 {
				t.Errorf("%+v", freed)
			}
		})
	}
}

// TestGCWaitsForWriters shows that a garbage collection gives up if a writer takes too long, and
// names the writer. Writers that begin while it waits for others wait for it.
func TestGCWaitsForWriters(t *testing.T) {
	dir := t.TempDir()
	r, other := open(t, dir), open(t, dir)
	gcRepository(t, r, "host/acme/a").manifest("", nil, "garbage")
	unlock, err := other.Lock(t.Context(), "push of \x1b[31mwidget 1.0.0"+strings.Repeat("x", 1000))
	if err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	_, err = r.GC(t.Context(), embedded.GCOptions{Wait: time.Millisecond})
	if !errors.Is(err, embedded.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("process %d: push of [31mwidget 1.0.0xxx", os.Getpid())) || len(err.Error()) > 500 {
		t.Errorf("%v", err)
	}
	if hint.Of(err) == "" || !maps.Equal(before, filesOf(t, dir)) {
		t.Errorf("hint %q", hint.Of(err))
	}

	waiting, done := make(chan struct{}), make(chan error, 2)
	r.SetBeforeFile(func(operation, _ string) {
		if operation == "wait" {
			close(waiting)
			r.SetBeforeFile(func(string, string) {})
		}
	})
	go func() {
		_, err := r.GC(t.Context(), embedded.GCOptions{Wait: time.Minute})
		done <- err
	}()
	select {
	case <-waiting:
	case err := <-done:
		t.Fatalf("the collection does not wait: %v", err)
	}
	second := make(chan struct{})
	go func() {
		unlock, err := other.Lock(t.Context(), "second writer")
		if err == nil {
			if got := blobsOf(t, dir); len(got) > 0 {
				err = fmt.Errorf("the second writer begins while %d blobs are left", len(got))
			}
			unlock()
		}
		close(second)
		done <- err
	}()
	unlock()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	<-second
	entries, err := os.ReadDir(filepath.Join(dir, "locks"))
	if err != nil || len(entries) != 1 {
		t.Errorf("in the folder of locks are %v, %v", entries, err)
	}
}
