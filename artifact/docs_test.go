package artifact_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

var docsZip = []byte("a zip with pages")

// documented stores a version with documentation, and returns the manifest of the documentation.
func (b *bench) documented() artifact.Blob {
	b.t.Helper()
	docs, err := artifact.EncodeDocs(artifact.Docs{Provider: widget, Version: v100, Zip: artifact.DocsZip(docsZip)})
	if err != nil {
		b.t.Fatal(err)
	}
	e := encode(b.t, linux)
	b.push(e)
	b.send(artifact.Blob{Descriptor: artifact.DocsZip(docsZip), Data: docsZip}, docs)
	e.version.Docs = &docs.Descriptor
	index, err := artifact.EncodeIndex(e.version)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tag(index, "1.0.0")
	return docs
}

func TestDocsRoundTrip(t *testing.T) {
	b := newBench(t)
	docs := b.documented()
	v, err := b.read()
	if err != nil || v.Docs == nil || !reflect.DeepEqual(*v.Docs, docs.Descriptor) || len(v.Packages) != 1 || v.Evidence == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	d, err := artifact.ReadDocs(t.Context(), b.repo, *v.Docs, widget, v100)
	if err != nil || d.Zip.Digest != digest.FromBytes(docsZip) {
		t.Fatalf("%+v, %v", d, err)
	}
	if data, err := artifact.FetchDocs(t.Context(), b.repo, d); err != nil || string(data) != string(docsZip) {
		t.Errorf("%q, %v", data, err)
	}
	index, err := artifact.EncodeIndex(*v)
	if err != nil || index.Descriptor.Digest != v.Index.Digest {
		t.Errorf("encoded again, the index is %s, want %s (%v)", index.Descriptor.Digest, v.Index.Digest, err)
	}
	linted, err := artifact.Lint(t.Context(), b.repo, widget, v100)
	if err != nil || len(linted.Findings) != 0 {
		t.Errorf("%+v, %v", linted, err)
	}
	// No two versions share the manifest, so the deletion of one takes nothing from the other.
	other, err := artifact.EncodeDocs(artifact.Docs{Provider: widget, Version: provider.MustParseVersion("1.0.1"), Zip: artifact.DocsZip(docsZip)})
	if err != nil || other.Descriptor.Digest == docs.Descriptor.Digest {
		t.Errorf("%s, %v", other.Descriptor.Digest, err)
	}
	large := artifact.DocsZip(docsZip)
	large.Size = artifact.MaxDocsBytes + 1
	if _, err := artifact.EncodeDocs(artifact.Docs{Provider: widget, Version: v100, Zip: large}); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("a large zip: %v", err)
	}
}

// TestDamagedDocs shows that a version with unusable documentation is read, and that Lint reports the documentation.
func TestDamagedDocs(t *testing.T) {
	type manifest = ocispec.Manifest
	for name, tc := range map[string]struct {
		spoil func(*bench, *manifest)
		err   error
	}{
		"of another type":     {func(_ *bench, m *manifest) { m.ArtifactType = artifact.TypeEvidence }, artifact.ErrNotProvider},
		"no layers":           {func(_ *bench, m *manifest) { m.Layers = nil }, artifact.ErrNotProvider},
		"two layers":          {func(_ *bench, m *manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, artifact.ErrAmbiguous},
		"a large layer":       {func(_ *bench, m *manifest) { m.Layers[0].Size = artifact.MaxDocsBytes + 1 }, artifact.ErrTooLarge},
		"of another version":  {func(_ *bench, m *manifest) { m.Annotations[artifact.AnnotationVersion] = "2.0.0" }, artifact.ErrForeign},
		"of another provider": {func(_ *bench, m *manifest) { m.Annotations[artifact.AnnotationProvider] = "example.com/a/b" }, artifact.ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			docs := b.documented()
			m := unmarshal[manifest](t, docs.Data)
			tc.spoil(b, &m)
			v, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			wrong := b.answerManifest(m)
			v.Docs = &wrong
			index, err := artifact.EncodeIndex(*v)
			if err != nil {
				t.Fatal(err)
			}
			b.answerIndex(unmarshal[ocispec.Index](t, index.Data))
			if _, err := artifact.ReadDocs(t.Context(), b.repo, wrong, widget, v100); !errors.Is(err, tc.err) || errors.Is(err, errdef.ErrNotFound) || !strings.HasPrefix(err.Error(), "documentation: ") {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			b.wantDocsFinding("")
		})
	}
	for name, change := range map[string]func(*bench, *ocispec.Index, *ocispec.Descriptor){
		"two entries": func(_ *bench, index *ocispec.Index, entry *ocispec.Descriptor) {
			index.Manifests = append(index.Manifests, *entry)
		},
		"no digest": func(_ *bench, _ *ocispec.Index, entry *ocispec.Descriptor) { entry.Digest = "" },
		"no manifest": func(_ *bench, _ *ocispec.Index, entry *ocispec.Descriptor) {
			entry.Digest = digest.FromString("nobody has this")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.documented()
			v, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			index := unmarshal[ocispec.Index](t, b.fetchAll(v.Index))
			change(b, &index, &index.Manifests[len(index.Manifests)-1])
			b.answerIndex(index)
			if v, err := b.read(); err != nil || len(v.Packages) != 1 {
				t.Errorf("the version is not read: %v", err)
			}
			b.wantDocsFinding("")
		})
	}
	t.Run("no zip", func(t *testing.T) {
		b := newBench(t)
		b.documented()
		desc := artifact.DocsZip(docsZip)
		if err := b.repo.Blobs().Delete(t.Context(), desc); err != nil {
			t.Fatal(err)
		}
		b.wantDocsFinding("the registry lacks content")
		d := artifact.Docs{Zip: desc}
		if _, err := artifact.FetchDocs(t.Context(), b.repo, d); !errors.Is(err, artifact.ErrMissing) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("other bytes", func(t *testing.T) {
		b := newBench(t)
		b.documented()
		b.lie(artifact.DocsZip(docsZip), func(d []byte) []byte { d[0]++; return d })
		if _, err := artifact.FetchDocs(t.Context(), b.repo, artifact.Docs{Zip: artifact.DocsZip(docsZip)}); !errors.Is(err, artifact.ErrDamaged) {
			t.Errorf("error %v", err)
		}
	})
}

// wantDocsFinding fails the test unless Lint reports one error, about the documentation.
func (b *bench) wantDocsFinding(what string) {
	b.t.Helper()
	linted, err := artifact.Lint(b.t.Context(), b.repo, widget, v100)
	if err != nil {
		b.t.Fatal(err)
	}
	if f := linted.Findings; len(f) != 1 || f[0].Where != artifact.DocsWhere || f[0].Severity != artifact.SeverityError || !strings.Contains(f[0].What, what) || f[0].Hint != artifact.HelpDocs {
		b.t.Errorf("%+v", f)
	}
}
