package bundle_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const host = "registry.acme.example"

var (
	widget = provider.MustParseAddress(host + "/acme/widget")
	gadget = provider.MustParseAddress(host + "/acme/gadget")
	_      = repo.Store((*bundle.Repository)(nil))
)

// fill pushes one release of each given provider into a bundle, and saves the bundle.
func fill(t testing.TB, b *bundle.Bundle, version string, providers ...provider.Address) {
	t.Helper()
	push(t, b, version, providers...)
	if err := b.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

var signer *pgp.Signer

func push(t testing.TB, b *bundle.Bundle, version string, providers ...provider.Address) {
	t.Helper()
	p := pusher.New(pusher.Options{Destination: func(_ context.Context, a subject.Address) (repo.Destination, error) {
		return repo.Destination{Store: b.Repository(a)}, nil
	}})
	for _, a := range providers {
		dir := t.TempDir()
		spec := release.Spec{Host: host, Namespace: a.Namespace(), Type: a.Type(), Version: version, Signer: signer}
		for _, os := range []string{"linux", "darwin"} {
			spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: "amd64", Files: map[string][]byte{"terraform-provider-" + a.Type(): []byte(a.Type() + os)}})
		}
		if err := release.For(t, spec).WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		from, err := origin.OpenReleaseDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		r, err := from.Release(t.Context(), a, provider.MustParseVersion(version), signer.ArmoredPublicKey(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Push(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMain(m *testing.M) {
	var err error
	if signer, err = pgp.NewSigner("Acme"); err != nil {
		panic(err)
	}
	os.Exit(leaks.M{M: m}.Run())
}

// create creates a bundle with releases of two providers, and returns its path.
func create(t testing.TB, archive bool) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bundle")
	b, err := bundle.Create(t.Context(), name, archive)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, b, "1.0.0", widget, gadget)
	return name
}

// contents opens a bundle, and reads every package and evidence in it. It returns the index
// digest of each version, by type and version.
func contents(t *testing.T, name string, archive bool) map[string]string {
	t.Helper()
	b, err := bundle.Open(t.Context(), name, archive)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	out := map[string]string{}
	for _, a := range subject.Of[provider.Address](b.All(subject.Provider)) {
		s := pusher.Stored{Subject: a, Store: b.Repository(a)}
		versions, err := s.Versions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			found, err := artifact.Read(t.Context(), b.Repository(a), a, v)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range found.Packages {
				body, err := b.Fetch(t.Context(), p.Layer())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := content.ReadAll(body, p.Layer()); err != nil {
					t.Errorf("%s %s: %v", a, p.Platform, err)
				}
				body.Close()
			}
			if _, err := artifact.ReadEvidence(t.Context(), b.Repository(a), *found.Evidence); err != nil {
				t.Error(err)
			}
			out[a.Type()+" "+v.String()] = found.Index.Digest.String()
		}
	}
	return out
}

// TestRoundTrip shows that a bundle has the same contents after a copy from a folder into
// an archive, and from the archive into another folder.
func TestRoundTrip(t *testing.T) {
	from := create(t, false)
	want := contents(t, from, false)
	for _, archive := range []bool{true, false} {
		src, err := bundle.Open(t.Context(), from, !archive)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "bundle")
		dst, err := bundle.Create(t.Context(), to, archive)
		if err != nil {
			t.Fatal(err)
		}
		p := pusher.New(pusher.Options{Destination: func(_ context.Context, a subject.Address) (repo.Destination, error) {
			return repo.Destination{Store: dst.Repository(a)}, nil
		}})
		for _, a := range subject.Of[provider.Address](src.All(subject.Provider)) {
			r, err := pusher.Stored{Subject: a, Store: src.Repository(a)}.Release(t.Context(), provider.MustParseVersion("1.0.0"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Push(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(dst.Save(t.Context()), dst.Close(), src.Close()); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, to, archive); len(want) != 2 || !maps.Equal(got, want) {
			t.Errorf("archive %v: %v, want %v", archive, got, want)
		}
		from = to
	}
}

// TestFolderIsAddedTo shows that a bundle in a folder can be extended, and keeps the
// versions that it already had.
func TestFolderIsAddedTo(t *testing.T) {
	name := create(t, false)
	before := contents(t, name, false)
	b, err := bundle.Create(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, b, "1.1.0", widget)
	after := contents(t, name, false)
	if len(after) != 3 || after["widget 1.0.0"] != before["widget 1.0.0"] || after["widget 1.1.0"] == "" {
		t.Errorf("%v", after)
	}
}

// TestTwoAtOnce shows that if two writers extend one folder concurrently, the second writer
// cannot save.
func TestTwoAtOnce(t *testing.T) {
	name := create(t, false)
	var open [2]*bundle.Bundle
	for i := range open {
		var err error
		if open[i], err = bundle.Create(t.Context(), name, false); err != nil {
			t.Fatal(err)
		}
		defer open[i].Close()
	}
	push(t, open[0], "1.1.0", widget)
	push(t, open[1], "1.1.0", gadget)
	if err := open[0].Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := open[1].Save(t.Context()); err == nil || !strings.Contains(err.Error(), "changed by somebody else") || hint.Of(err) == "" {
		t.Errorf("the second: %v", err)
	}
	if got := contents(t, name, false); got["widget 1.1.0"] == "" || got["gadget 1.1.0"] != "" {
		t.Errorf("%v", got)
	}
}

// TestInterrupted shows that a write that ends before Save leaves no archive, and does not
// change the bundle in a folder.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "archive"), filepath.Join(dir, "folder")
	b, err := bundle.Create(t.Context(), file, true)
	if err != nil {
		t.Fatal(err)
	}
	push(t, b, "1.0.0", widget)
	b.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if b, err = bundle.Create(t.Context(), folder, false); err != nil {
		t.Fatal(err)
	}
	push(t, b, "1.0.0", widget)
	b.Close()
	if _, err := bundle.Open(t.Context(), folder, false); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("half a folder: %v", err)
	}
	if b, err = bundle.Create(t.Context(), folder, false); err != nil {
		t.Fatal(err)
	}
	fill(t, b, "1.0.0", widget)
	whole := contents(t, folder, false)
	if b, err = bundle.Create(t.Context(), folder, false); err != nil {
		t.Fatal(err)
	}
	push(t, b, "2.0.0", gadget)
	b.Close()
	if got := contents(t, folder, false); len(got) != 1 || got["widget 1.0.0"] != whole["widget 1.0.0"] {
		t.Errorf("%v, before %v", got, whole)
	}
}

// TestKilled shows that a bundle is added to after a copy was killed, and that its temporary files are removed.
func TestKilled(t *testing.T) {
	folder := t.TempDir()
	left := []string{".ocibridge-A", "blobs/sha256/.ocibridge-B"}
	for range 2 { // into a folder without a bundle, and into one with a bundle
		if err := os.MkdirAll(filepath.Join(folder, "blobs", "sha256"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range left {
			if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := bundle.Create(t.Context(), folder, false)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, b, "1.0.0", widget)
		for _, name := range left {
			if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
				t.Errorf("%s is left", name)
			}
		}
	}
}

// TestCreateRefuses shows that Create refuses an archive that exists, and a folder with
// other content.
func TestCreateRefuses(t *testing.T) {
	archive := create(t, true)
	if _, err := bundle.Create(t.Context(), archive, true); !errors.Is(err, bundle.ErrExists) {
		t.Errorf("an existing archive: %v", err)
	}
	if _, err := bundle.Create(t.Context(), archive, false); err == nil {
		t.Error("a file as a folder")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Create(t.Context(), dir, false); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("folder with something else: %v", err)
	}
	if _, err := bundle.Create(t.Context(), filepath.Join(dir, "missing", "archive"), true); err == nil || hint.Of(err) == "" {
		t.Errorf("no folder: %v", err)
	}
}

// TestPushChecks shows that a push stores content only if the content matches its
// descriptor.
func TestPushChecks(t *testing.T) {
	for _, archive := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "bundle")
		b, err := bundle.Create(t.Context(), name, archive)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		repo := b.Repository(widget)
		good := content.NewDescriptorFromBytes("text/plain", []byte("content"))
		for what, body := range map[string]string{"other": "CONTENT", "short": "cont", "long": "contents"} {
			if err := repo.Push(t.Context(), good, strings.NewReader(body)); err == nil {
				t.Errorf("archive %v: %s is accepted", archive, what)
			}
			if ok, err := repo.Exists(t.Context(), good); ok || err != nil {
				t.Errorf("archive %v: %s exists, %v", archive, what, err)
			}
		}
		for range 2 {
			if err := repo.Push(t.Context(), good, strings.NewReader("content")); err != nil {
				t.Error(err)
			}
		}
		body, err := repo.Fetch(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := content.ReadAll(body, good); err != nil || string(data) != "content" {
			t.Errorf("archive %v: %q, %v", archive, data, err)
		}
		body.Close()
		// Eight concurrent pushes store four blobs, so that two pushes store the same blob.
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				data := bytes.Repeat([]byte{byte(i / 2)}, 3000)
				if err := repo.Push(t.Context(), content.NewDescriptorFromBytes("text/plain", data), bytes.NewReader(data)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := b.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		if again, err := bundle.Open(t.Context(), name, archive); err != nil {
			t.Error(err)
		} else {
			for i := range 4 {
				data := bytes.Repeat([]byte{byte(i)}, 3000)
				if got, err := content.FetchAll(t.Context(), again, content.NewDescriptorFromBytes("text/plain", data)); err != nil || !bytes.Equal(got, data) {
					t.Errorf("archive %v: %d: %v", archive, i, err)
				}
			}
			again.Close()
		}
		strange := good
		strange.Digest = "sha256:../../../etc/passwd"
		if _, err := repo.Fetch(t.Context(), strange); err == nil {
			t.Error("a path is accepted as a digest")
		}
	}
}

// readIndex returns the index.json of a bundle in a folder.
func readIndex(t *testing.T, dir string) (index ocispec.Index) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeIndex(t *testing.T, dir string, index any) {
	t.Helper()
	data, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "index.json"), data)
}

// blob returns the path of a blob in a bundle.
func blob(dir string, desc ocispec.Descriptor) string {
	return filepath.Join(dir, "blobs", "sha256", desc.Digest.Encoded())
}

// relist changes the list of a bundle's contents, and corrects the digests in its manifest
// and in index.json.
func relist(t *testing.T, dir string, change func(versions, contents map[string]any)) {
	t.Helper()
	rewriteList(t, dir, func(list map[string]map[string]any) { change(list["versions"], list["contents"]) })
}

// rewriteList is like relist, for all parts of the list.
func rewriteList(t *testing.T, dir string, change func(list map[string]map[string]any)) {
	t.Helper()
	index := readIndex(t, dir)
	last := &index.Manifests[len(index.Manifests)-1]
	read := func(desc ocispec.Descriptor, out any) {
		data, err := os.ReadFile(blob(dir, desc))
		if err == nil {
			err = json.Unmarshal(data, out)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	store := func(mediaType string, doc any) ocispec.Descriptor {
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		desc := content.NewDescriptorFromBytes(mediaType, data)
		write(t, blob(dir, desc), data)
		return desc
	}
	var manifest ocispec.Manifest
	var list map[string]map[string]any
	read(*last, &manifest)
	read(manifest.Layers[0], &list)
	change(list)
	manifest.Layers[0] = store(manifest.Layers[0].MediaType, list)
	desc := store(last.MediaType, manifest)
	last.Digest, last.Size = desc.Digest, desc.Size
	writeIndex(t, dir, index)
}

// TestNotWhole shows that Open detects all damage to a bundle that can be detected without
// reading packages.
func TestNotWhole(t *testing.T) {
	testkit.WithoutRace(t)
	const incomplete, none = "incomplete bundle", "not a bundle"
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"no layout file": {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "oci-layout")) }, none},
		"another layout": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"2.0.0"}`))
		}, none},
		"no index":      {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "index.json")) }, none},
		"damaged index": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "index.json"), []byte(`{"manifests":`)) }, none},
		"index of too many entries": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "index.json"), cost.Filled(8<<20, `{"manifests":[`, `{}`, `]}`))
		}, "more than 40000 elements"},
		"index too large": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "index.json"), cost.Filled(12<<20+100, `{"manifests":["`, `xxxxxxxxxxxxxxxx`, `"]}`))
		}, "more than 12582912 bytes"},
		"list of too many blobs": {func(t *testing.T, dir string) {
			relist(t, dir, func(_, contents map[string]any) {
				for i := range 200_001 {
					contents[fmt.Sprint(i)] = 1
				}
			})
		}, "more than 200000 elements"},
		"no list": {func(t *testing.T, dir string) {
			index := readIndex(t, dir)
			index.Manifests = index.Manifests[:2]
			writeIndex(t, dir, index)
		}, none},
		"list is gone": {func(t *testing.T, dir string) { os.Remove(blob(dir, readIndex(t, dir).Manifests[2])) }, incomplete},
		"list is changed": {func(t *testing.T, dir string) {
			desc := readIndex(t, dir).Manifests[2]
			write(t, blob(dir, desc), bytes.Repeat([]byte(" "), int(desc.Size)))
		}, incomplete},
		"a version less": {func(t *testing.T, dir string) {
			index := readIndex(t, dir)
			index.Manifests = index.Manifests[1:]
			writeIndex(t, dir, index)
		}, "it should hold registry.acme.example/acme/gadget/1.0.0 as sha256:"},
		"a version more": {func(t *testing.T, dir string) {
			index := readIndex(t, dir)
			extra := index.Manifests[0]
			extra.Annotations = map[string]string{ocispec.AnnotationRefName: host + "/acme/gadget/2.0.0"}
			index.Manifests = append(index.Manifests, extra)
			writeIndex(t, dir, index)
		}, "registry.acme.example/acme/gadget/2.0.0 is not in its list"},
		"a version twice": {func(t *testing.T, dir string) {
			index := readIndex(t, dir)
			index.Manifests = append(index.Manifests, index.Manifests[0])
			writeIndex(t, dir, index)
		}, "two entries registry.acme.example/acme/gadget/1.0.0"},
		"another version in its place": {func(t *testing.T, dir string) {
			index := readIndex(t, dir)
			index.Manifests[0].Digest, index.Manifests[0].Size = index.Manifests[1].Digest, index.Manifests[1].Size
			writeIndex(t, dir, index)
		}, incomplete},
		"an entry of another kind": {func(t *testing.T, dir string) {
			index := readIndex(t, dir)
			index.Manifests = append(index.Manifests, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Annotations: map[string]string{ocispec.AnnotationRefName: "latest"}})
			writeIndex(t, dir, index)
		}, `the entry "latest", which is neither a version of a provider or module nor attached`},
		"indexes within one another": {func(t *testing.T, dir string) {
			// An attacker can list deeply nested manifests.
			index := readIndex(t, dir)
			relist(t, dir, func(versions, contents map[string]any) {
				inner := index.Manifests[0]
				for range 1000 {
					data, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{inner}})
					if err != nil {
						t.Fatal(err)
					}
					inner = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(data), Size: int64(len(data))}
					write(t, blob(dir, inner), data)
					contents[inner.Digest.String()] = inner.Size
				}
				versions[host+"/acme/gadget/1.0.0"] = inner.Digest
				index.Manifests[0].Digest, index.Manifests[0].Size = inner.Digest, inner.Size
			})
			relisted := readIndex(t, dir)
			relisted.Manifests[0] = index.Manifests[0]
			writeIndex(t, dir, relisted)
		}, "within one another"},
		"a manifest is gone": {func(t *testing.T, dir string) { os.Remove(blob(dir, readIndex(t, dir).Manifests[0])) }, "it lacks sha256:"},
		"a manifest is cut":  {func(t *testing.T, dir string) { os.Truncate(blob(dir, readIndex(t, dir).Manifests[0]), 10) }, "has 10 bytes, and should have"},
		"a manifest is another": {func(t *testing.T, dir string) {
			desc := readIndex(t, dir).Manifests[0]
			write(t, blob(dir, desc), bytes.Repeat([]byte(" "), int(desc.Size)))
		}, incomplete},
		"a package is not listed": {func(t *testing.T, dir string) {
			desc := ocispec.DescriptorEmptyJSON
			relist(t, dir, func(_, contents map[string]any) { delete(contents, desc.Digest.String()) })
		}, "is needed, but is not in its list"},
		"a version is not listed": {func(t *testing.T, dir string) {
			relist(t, dir, func(versions, _ map[string]any) { delete(versions, host+"/acme/widget/1.0.0") })
		}, "registry.acme.example/acme/widget/1.0.0 is not in its list"},
		"something else is listed": {func(t *testing.T, dir string) {
			relist(t, dir, func(_, contents map[string]any) { contents["sha256:"+strings.Repeat("0", 64)] = 5 })
		}, "it lacks sha256:0000"},
		"a path is listed": {func(t *testing.T, dir string) {
			relist(t, dir, func(_, contents map[string]any) { contents["sha256:../../etc/passwd"] = 5 })
		}, "is no SHA-256 digest"},
		"a link leads outside": {func(t *testing.T, dir string) {
			desc := readIndex(t, dir).Manifests[0]
			outside := filepath.Join(t.TempDir(), "outside")
			if err := os.Rename(blob(dir, desc), outside); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, blob(dir, desc)); err != nil {
				t.Fatal(err)
			}
		}, "escapes"},
		"a folder in its place": {func(t *testing.T, dir string) {
			desc := readIndex(t, dir).Manifests[0]
			os.Remove(blob(dir, desc))
			os.Mkdir(blob(dir, desc), 0o700)
		}, "is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := create(t, false)
			contents(t, dir, false)
			tc.spoil(t, dir)
			_, err := bundle.Open(t.Context(), dir, false)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			if !errors.Is(err, bundle.ErrNotBundle) && !errors.Is(err, bundle.ErrIncomplete) && !strings.Contains(err.Error(), "escapes") && !strings.Contains(err.Error(), "regular") {
				t.Errorf("%v", err)
			}
			if name == "no index" || name == "no layout file" {
				return // Create takes the remaining files for an interrupted first copy
			}
			if _, err := bundle.Create(t.Context(), dir, false); err == nil {
				t.Error("an incomplete bundle can be extended")
			}
		})
	}
}

// TestBadArchive shows that Open refuses an invalid archive, and an archive with a
// forbidden entry.
func TestBadArchive(t *testing.T) {
	good, err := os.ReadFile(create(t, true))
	if err != nil {
		t.Fatal(err)
	}
	with := func(headers ...tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				io.CopyN(w, zeros{}, h.Size)
			}
		}
		w.Flush()
		return append(out.Bytes(), good...)
	}
	file := tar.Header{Typeflag: tar.TypeReg, Name: "index.json", Size: 10}
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":                {nil, bundle.ErrNotBundle},
		"text":                   {bytes.Repeat([]byte("text"), 1000), bundle.ErrNotBundle},
		"compressed":             {append([]byte{0x1f, 0x8b, 8}, good...), bundle.ErrNotBundle},
		"cut in a blob":          {good[:bytes.LastIndex(good, []byte("blobs/sha256/"))+512+10], bundle.ErrIncomplete},
		"cut in index.json":      {good[:len(good)-1024-512], bundle.ErrIncomplete},
		"cut before index.json":  {good[:bytes.LastIndex(good, []byte("index.json"))], bundle.ErrNotBundle},
		"a name leads outside":   {with(tar.Header{Typeflag: tar.TypeReg, Name: "../outside", Size: 1}), bundle.ErrNotBundle},
		"a name leads up":        {with(tar.Header{Typeflag: tar.TypeReg, Name: "blobs/../../outside", Size: 1}), bundle.ErrNotBundle},
		"a name from the root":   {with(tar.Header{Typeflag: tar.TypeReg, Name: "/etc/passwd", Size: 1}), bundle.ErrNotBundle},
		"a name as on Windows":   {with(tar.Header{Typeflag: tar.TypeReg, Name: `..\outside`, Size: 1}), bundle.ErrNotBundle},
		"a symbolic link":        {with(tar.Header{Typeflag: tar.TypeSymlink, Name: "blobs/x", Linkname: "/etc/passwd"}), bundle.ErrNotBundle},
		"a hard link":            {with(tar.Header{Typeflag: tar.TypeLink, Name: "blobs/x", Linkname: "/etc/passwd"}), bundle.ErrNotBundle},
		"a device":               {with(tar.Header{Typeflag: tar.TypeChar, Name: "blobs/x"}), bundle.ErrNotBundle},
		"a pipe":                 {with(tar.Header{Typeflag: tar.TypeFifo, Name: "blobs/x"}), bundle.ErrNotBundle},
		"a file twice":           {with(file), bundle.ErrNotBundle},
		"another index.json":     {with(file, file), bundle.ErrNotBundle},
		"a folder and a comment": {with(tar.Header{Typeflag: tar.TypeDir, Name: "./"}, tar.Header{Typeflag: tar.TypeDir, Name: "blobs/"}, tar.Header{Typeflag: tar.TypeReg, Name: "./README", Size: 3}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "bundle")
			write(t, name, tc.data)
			b, err := bundle.Open(t.Context(), name, true)
			if !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if err != nil && strings.HasSuffix(hint.Of(err), "transfer it again") != errors.Is(tc.want, bundle.ErrIncomplete) || err != nil && hint.Of(err) == "" {
				t.Errorf("hint %q", hint.Of(err))
			}
			if strings.HasSuffix(fmt.Sprint(err), "regular file") && !strings.Contains(err.Error(), `: "blobs/x" in it`) {
				t.Errorf("message %q", err)
			}
			if err == nil {
				b.Close()
			}
			if entries, err := os.ReadDir(filepath.Dir(name)); err != nil || len(entries) != 1 {
				t.Errorf("other files in the folder: %v, %v", entries, err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestModulesAndProviders shows that a provider and a module whose address begins with the
// provider's address have separate tags, and that a bundle is opened with both.
func TestModulesAndProviders(t *testing.T) {
	name := create(t, false)
	b, err := bundle.Create(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	a := module.MustParseAddress(widget.String() + "/aws")
	zip := artifact.Blob{Descriptor: content.NewDescriptorFromBytes("archive/zip", []byte("zip")), Data: []byte("zip")}
	manifest, err := artifact.EncodeZip(artifact.Version{Owner: a, Version: provider.MustParseVersion("3.0.0"), Packages: []artifact.Package{{Digest: zip.Descriptor.Digest, Size: zip.Descriptor.Size}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range []artifact.Blob{zip, artifact.Config()} {
		if err := b.Repository(a).Push(t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Repository(a).PushReference(t.Context(), manifest.Descriptor, bytes.NewReader(manifest.Data), "3.0.0"); err != nil {
		t.Fatal(err)
	}
	if err := b.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if b, err = bundle.Open(t.Context(), name, false); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := b.All(subject.Module); len(got) != 1 || got[0] != a || len(b.All(subject.Provider)) != 2 {
		t.Errorf("modules %v, providers %v", got, b.All(subject.Provider))
	}
	if v, err := (pusher.Stored{Subject: widget, Store: b.Repository(widget)}).Versions(t.Context()); err != nil || len(v) != 1 || v[0].String() != "1.0.0" {
		t.Errorf("versions of the provider: %v, %v", v, err)
	}
	if m, err := artifact.ReadZip(t.Context(), b.Repository(a), a, provider.MustParseVersion("3.0.0")); err != nil || m.Zip().Digest != zip.Descriptor.Digest {
		t.Errorf("%+v, %v", m, err)
	}
}
