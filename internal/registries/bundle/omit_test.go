package bundle_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/provider"
)

// widgetIn reads the version of the provider widget in a bundle.
func widgetIn(t *testing.T, name string) *artifact.Version {
	t.Helper()
	b, err := bundle.Open(t.Context(), name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	found, err := artifact.Read(t.Context(), b.Repository(widget), widget, provider.MustParseVersion("1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// omit removes a blob from a bundle in a folder, and lists the blob as omitted, with the given size.
func omit(t *testing.T, dir string, desc ocispec.Descriptor, size int64) {
	t.Helper()
	if err := os.Remove(blob(dir, desc)); err != nil {
		t.Fatal(err)
	}
	rewriteList(t, dir, func(list map[string]map[string]any) {
		delete(list["contents"], desc.Digest.String())
		list["omitted"] = map[string]any{desc.Digest.String(): size}
	})
}

// TestOmitted shows what can be read from a bundle that omits a package, and that the bundle can be extended.
func TestOmitted(t *testing.T) {
	dir := create(t, false)
	layer := widgetIn(t, dir).Packages[0].Layer()
	omit(t, dir, layer, layer.Size)
	for _, extend := range []bool{false, true, false} {
		open := bundle.Open
		if extend {
			open = bundle.Create
		}
		b, err := open(t.Context(), dir, false)
		if err != nil {
			t.Fatal(err)
		}
		if n, bytes := b.Omitted(); n != 1 || bytes != layer.Size {
			t.Errorf("%d omitted, %d bytes", n, bytes)
		}
		repo := b.Repository(widget)
		if _, err := repo.Fetch(t.Context(), layer); !errors.Is(err, bundle.ErrOmitted) || errors.Is(err, errdef.ErrNotFound) || hint.Of(err) == "" {
			t.Errorf("%v", err)
		}
		if desc, err := repo.Blobs().Resolve(t.Context(), layer.Digest.String()); err != nil || desc.Size != layer.Size {
			t.Errorf("%d bytes, %v", desc.Size, err)
		}
		if there, err := repo.Exists(t.Context(), layer); there || err != nil {
			t.Errorf("exists: %v, %v", there, err)
		}
		if extend {
			fill(t, b, "1.1.0", gadget)
		}
		b.Close()
	}
}

// TestOmittedIsStored shows that a bundle does not omit a package that it has, although its list says so.
func TestOmittedIsStored(t *testing.T) {
	dir := create(t, false)
	layer := widgetIn(t, dir).Packages[0].Layer()
	data, err := os.ReadFile(blob(dir, layer))
	if err != nil {
		t.Fatal(err)
	}
	omit(t, dir, layer, layer.Size)
	write(t, blob(dir, layer), data)
	b, err := bundle.Open(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if n, _ := b.Omitted(); n != 0 {
		t.Errorf("%d omitted", n)
	}
	contents(t, dir, false)
}

// TestOmittedContent shows that a bundle cannot omit manifests, or blobs of another size.
func TestOmittedContent(t *testing.T) {
	for name, tc := range map[string]struct {
		of   func(*artifact.Version) ocispec.Descriptor
		grow int64
	}{
		"an index":             {func(v *artifact.Version) ocispec.Descriptor { return v.Index }, 0},
		"a platform manifest":  {func(v *artifact.Version) ocispec.Descriptor { return v.Packages[0].Manifest }, 0},
		"an evidence manifest": {func(v *artifact.Version) ocispec.Descriptor { return *v.Evidence }, 0},
		"another size":         {func(v *artifact.Version) ocispec.Descriptor { return v.Packages[0].Layer() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := create(t, false)
			desc := tc.of(widgetIn(t, dir))
			omit(t, dir, desc, desc.Size+tc.grow)
			if _, err := bundle.Open(t.Context(), dir, false); !errors.Is(err, bundle.ErrIncomplete) || !strings.Contains(err.Error(), desc.Digest.String()) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestPreview shows that a preview has what is in a folder, and cannot be written to.
func TestPreview(t *testing.T) {
	b, err := bundle.Preview(t.Context(), create(t, false), false)
	if err != nil || len(b.All(subject.Provider)) != 2 {
		t.Errorf("%v", err)
	}
	b.Close()
	for _, archive := range []bool{false, true} {
		b, err := bundle.Preview(t.Context(), t.TempDir()+"/new", archive)
		if err != nil || len(b.All(subject.Provider)) != 0 {
			t.Fatalf("%v", err)
		}
		if err := b.Save(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		b.Close()
		if _, err := bundle.Preview(t.Context(), create(t, !archive), archive); err == nil {
			t.Errorf("archive %v: opened the other kind", archive)
		}
	}
}
