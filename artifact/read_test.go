package artifact_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
)

func TestReadsWhatWasPushedFromOneManifest(t *testing.T) {
	b := newBench(t)
	e := encode(t, darwin, linux, windows)
	b.push(e)
	got, err := b.read()
	if err != nil {
		t.Fatal(err)
	}
	want := e.version
	want.Index = e.index.Descriptor
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("read\n%+v\npushed\n%+v", got, want)
	}
	if n := b.registry.Count(); n != 1 {
		t.Errorf("%d requests: %v", n, b.registry.Requests())
	}
	if got.Packages[1].H1.IsZero() {
		t.Error("no h1 for the package that is a zip")
	}
	for _, p := range got.Packages {
		if data := b.fetchAll(p.Layer()); !bytes.Equal(data, contents(t)[p.Platform]) {
			t.Errorf("%s: the layer is %q", p.Platform, data)
		}
	}
}

func TestReadVersionWithBuildMetadata(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	e.version.Version = provider.MustParseVersion("1.0.0-rc.1+build.5")
	index, err := artifact.EncodeIndex(e.version)
	if err != nil {
		t.Fatal(err)
	}
	b.tag(index, "1.0.0-rc.1_build.5")
	got, err := artifact.Read(t.Context(), b.repo, widget, e.version.Version)
	if err != nil || got.Version != e.version.Version {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestReadPackageLeftByPartialPush(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	const tag = "ocibridge-part.1.0.0.linux_amd64"
	b.tag(e.manifests[linux], tag)
	got, err := artifact.ReadPackage(t.Context(), b.repo, tag, widget, v100, linux)
	if err != nil || !reflect.DeepEqual(*got, e.version.Packages[0]) {
		t.Errorf("%+v, %v; want %+v", got, err, e.version.Packages[0])
	}
	if _, err := artifact.ReadPackage(t.Context(), b.repo, "1.0.0", widget, v100, linux); !errors.Is(err, artifact.ErrNotProvider) {
		t.Errorf("an index read as a package: %v", err)
	}
}

// pushByRecipe pushes the widget as OpenTofu documents it for the ORAS CLI. The manifests
// contain a time, and the index has no annotations.
func (b *bench) pushByRecipe(annotate func(ocispec.Descriptor) ocispec.Descriptor) (packages []artifact.Package) {
	b.t.Helper()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: "application/vnd.opentofu.provider"}
	index.SchemaVersion = 2
	b.send(artifact.Config())
	for _, platform := range []provider.Platform{windows, darwin, linux} { // unsorted
		data := contents(b.t)[platform]
		layer := annotate(ocispec.Descriptor{MediaType: "archive/zip", Digest: digest.FromBytes(data), Size: int64(len(data))})
		m := ocispec.Manifest{
			MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.opentofu.provider-target",
			Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer},
			Annotations: map[string]string{ocispec.AnnotationCreated: "2025-07-01T12:00:00Z"},
		}
		m.SchemaVersion = 2
		manifest := blobOf(ocispec.MediaTypeImageManifest, marshal(b.t, m))
		b.send(artifact.Blob{Descriptor: layer, Data: data}, manifest)
		entry := manifest.Descriptor
		entry.ArtifactType = m.ArtifactType
		entry.Platform = &ocispec.Platform{OS: platform.OS, Architecture: platform.Arch}
		index.Manifests = append(index.Manifests, entry)
		packages = append(packages, artifact.Package{
			Platform: platform, Filename: provider.PackageFilename(widget, v100, platform),
			Digest: layer.Digest, Size: layer.Size, Manifest: manifest.Descriptor,
		})
	}
	b.tag(blobOf(ocispec.MediaTypeImageIndex, marshal(b.t, index)), "1.0.0")
	b.registry.Reset()
	return []artifact.Package{packages[1], packages[2], packages[0]} // sorted by platform
}

func blobOf(mediaType string, data []byte) artifact.Blob {
	return artifact.Blob{Descriptor: ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, Data: data}
}

func TestReadsWhatOtherToolsPush(t *testing.T) {
	for name, title := range map[string]string{
		"layer without a title":          "",
		"layer with the published name":  "as published",
		"title that is a path":           "dist/terraform-provider-widget_1.0.0.zip",
		"title that climbs":              "../../etc/passwd",
		"title that is not ASCII":        "wídget.zip",
		"title that ends the URL's path": "widget.zip?x=y",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			want := b.pushByRecipe(func(layer ocispec.Descriptor) ocispec.Descriptor {
				if title == "as published" {
					layer.Annotations = map[string]string{ocispec.AnnotationTitle: "widget-" + layer.Digest.Encoded()[:4] + ".zip"}
				} else if title != "" {
					layer.Annotations = map[string]string{ocispec.AnnotationTitle: title}
				}
				return layer
			})
			if title == "as published" {
				for i := range want {
					want[i].Filename = "widget-" + want[i].Digest.Encoded()[:4] + ".zip"
				}
			}
			got, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Packages, want) {
				t.Errorf("packages\n%+v\nwant\n%+v", got.Packages, want)
			}
			if got.Owner != nil || !got.Version.IsZero() || got.Protocols != nil || got.Evidence != nil {
				t.Errorf("fields without a source are set: %+v", got)
			}
			if n := b.registry.Count(recorder.PathContains("/manifests/")); n != 4 || b.registry.Count() != 4 {
				t.Errorf("requests %v, want the index and three manifests", b.registry.Requests())
			}
		})
	}
}

// TestUnusableAnnotations shows that Read uses annotations only if they are complete.
// Otherwise, Read fetches the platform manifest.
func TestUnusableAnnotations(t *testing.T) {
	for name, tc := range map[string]struct {
		key, value string // an empty value removes the annotation
		fetches    int
		h1         bool // whether the package that is read has an h1 hash
	}{
		"no digest":                    {artifact.AnnotationDigest, "", 2, true},
		"no size":                      {artifact.AnnotationSize, "", 2, true},
		"no file name":                 {artifact.AnnotationFilename, "", 2, true},
		"digest that is none":          {artifact.AnnotationDigest, "abc", 2, true},
		"digest without an algorithm":  {artifact.AnnotationDigest, strings.Repeat("a", 64), 2, true},
		"digest cut off":               {artifact.AnnotationDigest, "sha256:dc53", 2, true},
		"digest in upper case":         {artifact.AnnotationDigest, "sha256:" + strings.Repeat("A", 64), 2, true},
		"SHA-512":                      {artifact.AnnotationDigest, digest.SHA512.FromString("x").String(), 2, true},
		"size 0":                       {artifact.AnnotationSize, "0", 2, true},
		"negative size":                {artifact.AnnotationSize, "-1", 2, true},
		"size in words":                {artifact.AnnotationSize, "12 MB", 2, true},
		"size beyond 64 bits":          {artifact.AnnotationSize, "9223372036854775808", 2, true},
		"file name with a path":        {artifact.AnnotationFilename, "a/b.zip", 2, true},
		"no h1, which is left out":     {artifact.AnnotationH1, "", 1, false},
		"h1 that is none":              {artifact.AnnotationH1, "h1:abc", 1, false},
		"zh in place of h1":            {artifact.AnnotationH1, "zh:" + strings.Repeat("0", 64), 1, false},
		"other annotations are no use": {"org.opencontainers.image.version", "1.0.0", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux, darwin)
			b.push(e)
			index := unmarshal[ocispec.Index](t, e.index.Data)
			entry := &index.Manifests[1]
			if entry.Platform.OS != "linux" {
				t.Fatal("the second entry is not the one for linux")
			}
			if entry.Annotations[tc.key] = tc.value; tc.value == "" {
				delete(entry.Annotations, tc.key)
			}
			b.tag(blobOf(ocispec.MediaTypeImageIndex, marshal(t, index)), "1.0.0")
			b.registry.Reset()
			v, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			want := e.version.Packages[0]
			if !tc.h1 {
				want.H1 = provider.Hash{}
			}
			want.UnusedAnnotations = tc.fetches == 2
			if got := v.Packages[1]; !reflect.DeepEqual(got, want) {
				t.Errorf("package\n%+v\nwant\n%+v", got, want)
			}
			if n := b.registry.Count(); n != tc.fetches {
				t.Errorf("%d requests: %v", n, b.registry.Requests())
			}
		})
	}
}

// TestMissingManifests shows that ReadAvailable lists the platforms whose manifests are not
// in the registry, and that Read refuses a version with such a platform.
func TestMissingManifests(t *testing.T) {
	available := func(b *bench) (*artifact.Version, error) {
		return artifact.ReadAvailable(b.t.Context(), b.repo, widget, v100)
	}
	b := newBench(t)
	packages := b.pushByRecipe(func(d ocispec.Descriptor) ocispec.Descriptor { return d })
	if v, err := available(b); err != nil || len(v.Packages) != 3 || v.Missing != nil {
		t.Errorf("%+v, %v", v, err)
	}
	gone := packages[1]
	if err := b.repo.Delete(t.Context(), gone.Manifest); err != nil {
		t.Fatal(err)
	}
	if v, err := b.read(); !errors.Is(err, artifact.ErrMissing) || errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("Read: %+v, %v", v, err)
	}
	v, err := available(b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v.Missing, []artifact.MissingPackage{{Platform: gone.Platform, Manifest: gone.Manifest.Digest}}) {
		t.Errorf("missing are %+v", v.Missing)
	}
	if len(v.Packages) != 2 || v.Packages[0].Digest != packages[0].Digest || v.Packages[1].Digest != packages[2].Digest {
		t.Errorf("packages are %+v", v.Packages)
	}
	if got := fmt.Sprint(v.Platforms()); got != fmt.Sprint([]provider.Platform{packages[0].Platform, gone.Platform, packages[2].Platform}) {
		t.Errorf("platforms are %s", got)
	}
	for _, p := range []artifact.Package{packages[0], packages[2]} {
		if err := b.repo.Delete(t.Context(), p.Manifest); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := available(b); !errors.Is(err, artifact.ErrMissing) || !errors.Is(err, artifact.ErrNotProvider) || errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("none left: %+v, %v", v, err)
	}
}

// TestTroubleWithOneManifest shows that a manifest does not count as missing if the
// registry responds with a server error.
func TestTroubleWithOneManifest(t *testing.T) {
	b := newBench(t)
	packages := b.pushByRecipe(func(d ocispec.Descriptor) ocispec.Descriptor { return d })
	if err := b.repo.Delete(t.Context(), packages[1].Manifest); err != nil {
		t.Fatal(err)
	}
	b.lies["/manifests/"+packages[0].Manifest.Digest.String()] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	if v, err := artifact.ReadAvailable(t.Context(), b.repo, widget, v100); err == nil || errors.Is(err, artifact.ErrMissing) {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestRefusedIndexes shows that Read refuses an index that OpenTofu refuses or
// misunderstands.
func TestRefusedIndexes(t *testing.T) {
	type index = ocispec.Index
	entry := func(change func(*ocispec.Descriptor)) func(*index) {
		return func(i *index) { change(&i.Manifests[0]) }
	}
	for name, tc := range map[string]struct {
		spoil func(*index)
		err   error
	}{
		"no media type":                 {func(i *index) { i.MediaType = "" }, artifact.ErrNotProvider},
		"Docker's manifest list":        {func(i *index) { i.MediaType = "application/vnd.docker.distribution.manifest.list.v2+json" }, artifact.ErrNotProvider},
		"no artifact type":              {func(i *index) { i.ArtifactType = "" }, artifact.ErrNotProvider},
		"a module":                      {func(i *index) { i.ArtifactType = "application/vnd.opentofu.modulepkg" }, artifact.ErrForeign},
		"a platform's artifact type":    {func(i *index) { i.ArtifactType = artifact.TypeTarget }, artifact.ErrNotProvider},
		"no entries":                    {func(i *index) { i.Manifests = nil }, artifact.ErrNotProvider},
		"only evidence":                 {func(i *index) { i.Manifests = i.Manifests[2:] }, artifact.ErrNotProvider},
		"a container image's entries":   {func(i *index) { i.Manifests[0].ArtifactType, i.Manifests[1].ArtifactType = "", "" }, artifact.ErrNotProvider},
		"entry is an index":             {entry(func(d *ocispec.Descriptor) { d.MediaType = ocispec.MediaTypeImageIndex }), artifact.ErrNotProvider},
		"entry without a media type":    {entry(func(d *ocispec.Descriptor) { d.MediaType = "" }), artifact.ErrNotProvider},
		"entry without a platform":      {entry(func(d *ocispec.Descriptor) { d.Platform = nil }), artifact.ErrNotProvider},
		"entry without a digest":        {entry(func(d *ocispec.Descriptor) { d.Digest = "" }), artifact.ErrNotProvider},
		"entry's digest is none":        {entry(func(d *ocispec.Descriptor) { d.Digest = "sha256:abc" }), artifact.ErrNotProvider},
		"entry's digest unknown":        {entry(func(d *ocispec.Descriptor) { d.Digest = "md5:d41d8cd98f00b204e9800998ecf8427e" }), artifact.ErrNotProvider},
		"entry without a size":          {entry(func(d *ocispec.Descriptor) { d.Size = 0 }), artifact.ErrNotProvider},
		"entry with a negative size":    {entry(func(d *ocispec.Descriptor) { d.Size = -1 }), artifact.ErrNotProvider},
		"entry over 4 MiB":              {entry(func(d *ocispec.Descriptor) { d.Size = artifact.MaxManifestBytes + 1 }), artifact.ErrTooLarge},
		"two entries for a platform":    {entry(func(d *ocispec.Descriptor) { d.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"} }), artifact.ErrAmbiguous},
		"two that differ in variant":    {func(i *index) { p := *i.Manifests[1].Platform; p.Variant = "v3"; i.Manifests[0].Platform = &p }, artifact.ErrAmbiguous},
		"evidence twice":                {func(i *index) { i.Manifests = append(i.Manifests, i.Manifests[2]) }, artifact.ErrAmbiguous},
		"evidence without a digest":     {func(i *index) { i.Manifests[2].Digest = "" }, artifact.ErrNotProvider},
		"evidence over 4 MiB":           {func(i *index) { i.Manifests[2].Size = artifact.MaxManifestBytes + 1 }, artifact.ErrTooLarge},
		"another provider":              {func(i *index) { i.Annotations[artifact.AnnotationProvider] = "registry.acme.example/ac/me-widget" }, artifact.ErrForeign},
		"the same provider elsewhere":   {func(i *index) { i.Annotations[artifact.AnnotationProvider] = "registry.other.example/acme/widget" }, artifact.ErrForeign},
		"provider that does not parse":  {func(i *index) { i.Annotations[artifact.AnnotationProvider] = "acme/widget" }, artifact.ErrNotProvider},
		"provider in upper case":        {func(i *index) { i.Annotations[artifact.AnnotationProvider] = "registry.acme.example/Acme/widget" }, artifact.ErrNotProvider},
		"another version":               {func(i *index) { i.Annotations[artifact.AnnotationVersion] = "1.0.1" }, artifact.ErrForeign},
		"the same but for its build":    {func(i *index) { i.Annotations[artifact.AnnotationVersion] = "1.0.0+other" }, artifact.ErrForeign},
		"version that does not parse":   {func(i *index) { i.Annotations[artifact.AnnotationVersion] = "v1.0.0" }, artifact.ErrNotProvider},
		"another type of its own entry": {entry(func(d *ocispec.Descriptor) { d.ArtifactType = "application/vnd.opentofu.provider" }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, darwin, linux)
			b.push(e)
			i := unmarshal[index](t, e.index.Data)
			tc.spoil(&i)
			b.answerIndex(i)
			v, err := b.read()
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("error %v, want %v; read %+v", err, tc.err, v)
			}
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			if n := b.registry.Count(); n != 1 {
				t.Errorf("%d requests: %v", n, b.registry.Requests())
			}
		})
	}
}

// TestIgnoredEntries shows that Read ignores the same index entries as OpenTofu.
func TestIgnoredEntries(t *testing.T) {
	for name, spoil := range map[string]func(*ocispec.Descriptor){
		"os.version": func(d *ocispec.Descriptor) { d.Platform.OSVersion = "10.0.17763" },
		"os.version, for a platform more": func(d *ocispec.Descriptor) {
			d.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64", OSVersion: "6"}
		},
		"os.version, and no digest":      func(d *ocispec.Descriptor) { d.Platform.OSVersion = "11"; d.Digest = "" },
		"other artifact type":            func(d *ocispec.Descriptor) { d.ArtifactType = "application/vnd.acme.sbom" },
		"no artifact type":               func(d *ocispec.Descriptor) { d.ArtifactType = "" },
		"architecture of another tongue": func(d *ocispec.Descriptor) { d.Platform.Architecture = "x86_64" },
		"empty platform":                 func(d *ocispec.Descriptor) { d.Platform = &ocispec.Platform{} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, darwin, linux)
			b.push(e)
			index := unmarshal[ocispec.Index](t, e.index.Data)
			spoil(&index.Manifests[0])
			b.answerIndex(index)
			v, err := b.read()
			if err != nil {
				t.Fatal(err)
			}
			if len(v.Packages) != 1 || v.Packages[0].Platform != linux {
				t.Errorf("packages %+v", v.Packages)
			}
		})
	}
	t.Run("all of them, which leaves a provider for no platform of ours", func(t *testing.T) {
		b := newBench(t)
		e := encode(t, darwin)
		b.push(e)
		index := unmarshal[ocispec.Index](t, e.index.Data)
		index.Manifests[0].Platform.OSVersion = "14"
		b.answerIndex(index)
		if v, err := b.read(); err != nil || len(v.Packages) != 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestRefusedPlatformManifests shows that Read refuses an index without annotations if the
// manifest for linux_amd64 is invalid.
func TestRefusedPlatformManifests(t *testing.T) {
	type manifest = ocispec.Manifest
	layer := func(change func(*ocispec.Descriptor)) func(*manifest) {
		return func(m *manifest) { change(&m.Layers[0]) }
	}
	for name, tc := range map[string]struct {
		spoil func(*manifest)
		err   error // nil means that the manifest is accepted
	}{
		"no media type":            {func(m *manifest) { m.MediaType = "" }, artifact.ErrNotProvider},
		"no artifact type":         {func(m *manifest) { m.ArtifactType = "" }, artifact.ErrNotProvider},
		"a module's":               {func(m *manifest) { m.ArtifactType = "application/vnd.opentofu.modulepkg" }, artifact.ErrNotProvider},
		"no layer":                 {func(m *manifest) { m.Layers = nil }, artifact.ErrNotProvider},
		"no zip among its layers":  {layer(func(d *ocispec.Descriptor) { d.MediaType = "application/zip" }), artifact.ErrNotProvider},
		"two zips":                 {func(m *manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, artifact.ErrAmbiguous},
		"zip by SHA-512":           {layer(func(d *ocispec.Descriptor) { d.Digest = digest.SHA512.FromString("x") }), artifact.ErrNotProvider},
		"zip without a digest":     {layer(func(d *ocispec.Descriptor) { d.Digest = "" }), artifact.ErrNotProvider},
		"zip whose digest is none": {layer(func(d *ocispec.Descriptor) { d.Digest = "sha256:" + digest.Digest(strings.Repeat("z", 64)) }), artifact.ErrNotProvider},
		"empty zip":                {layer(func(d *ocispec.Descriptor) { d.Size = 0 }), artifact.ErrNotProvider},
		"zip of negative size":     {layer(func(d *ocispec.Descriptor) { d.Size = -1 }), artifact.ErrNotProvider},
		"a layer more, not a zip": {func(m *manifest) {
			m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromString("x"), Size: 1})
		}, nil},
		"a config of some kind": {func(m *manifest) { m.Config.MediaType = "application/vnd.acme.config" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux, darwin)
			b.push(e)
			m := unmarshal[manifest](t, e.manifests[linux].Data)
			tc.spoil(&m)
			index := unmarshal[ocispec.Index](t, e.index.Data)
			desc := b.answerManifest(m)
			index.Manifests[1].Digest, index.Manifests[1].Size, index.Manifests[1].Annotations = desc.Digest, desc.Size, nil
			b.answerIndex(index)
			v, err := b.read()
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil && v.Packages[1].Digest != e.version.Packages[0].Digest {
				t.Errorf("package %+v", v.Packages[1])
			}
			if err != nil && !strings.Contains(err.Error(), "linux_amd64") {
				t.Errorf("%v does not name the platform", err)
			}
		})
	}
}

// TestSizeInTheIndexIsWrong shows that a manifest counts as damaged if it is one byte
// shorter than its index entry says.
func TestSizeInTheIndexIsWrong(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	index := unmarshal[ocispec.Index](t, e.index.Data)
	index.Manifests[0].Size++
	index.Manifests[0].Annotations = nil
	b.answerIndex(index)
	b.tamper("/manifests/"+index.Manifests[0].Digest.String(), same, func(h http.Header) { h.Del("Content-Length") })
	if v, err := b.read(); !errors.Is(err, artifact.ErrDamaged) {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestTagOnPlatformManifest shows that Read refuses a version whose tag names the manifest
// of a single platform. This is a common mistake.
func TestTagOnPlatformManifest(t *testing.T) {
	b := newBench(t)
	e := encode(t, linux)
	b.push(e)
	b.tag(e.manifests[linux], "1.0.0")
	if v, err := b.read(); !errors.Is(err, artifact.ErrNotProvider) {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestRegistryLies shows that Read verifies the bytes that it receives, and does not trust
// the headers of the response.
func TestRegistryLies(t *testing.T) {
	other := digest.FromString("something else").String()
	unannounced := func(h http.Header) { h.Del("Content-Length") }
	flip := func(data []byte) []byte { return bytes.Replace(data, []byte("amd64"), []byte("arm64"), 1) }
	grow := func(data []byte) []byte {
		return append(data, bytes.Repeat([]byte(" "), artifact.MaxManifestBytes)...)
	}
	asAnnounced := func(http.Header) {}
	for name, tc := range map[string]struct {
		platform bool // whether the platform manifest is changed, and not the index
		change   func([]byte) []byte
		announce func(http.Header)
		err      error // nil means any error
	}{
		"index: digest of something else":      {false, same, func(h http.Header) { h.Set("Docker-Content-Digest", other) }, artifact.ErrDamaged},
		"index: digest that is none":           {false, same, func(h http.Header) { h.Set("Docker-Content-Digest", "none") }, nil},
		"index: other bytes than its digest":   {false, flip, asAnnounced, artifact.ErrDamaged},
		"index: cut off":                       {false, func(data []byte) []byte { return data[:100] }, func(h http.Header) { h.Del("Docker-Content-Digest") }, artifact.ErrNotProvider},
		"index: HTML":                          {false, func([]byte) []byte { return []byte("<html>") }, func(h http.Header) { h.Del("Docker-Content-Digest") }, artifact.ErrNotProvider},
		"index: over 4 MiB":                    {false, grow, asAnnounced, artifact.ErrTooLarge},
		"index: over 4 MiB without a digest":   {false, grow, func(h http.Header) { h.Del("Docker-Content-Digest") }, artifact.ErrTooLarge},
		"manifest: digest of something else":   {true, same, func(h http.Header) { h.Set("Docker-Content-Digest", other) }, nil},
		"manifest: other bytes":                {true, flipCase, asAnnounced, artifact.ErrDamaged},
		"manifest: longer":                     {true, func(data []byte) []byte { return append(data, ' ') }, asAnnounced, nil},
		"manifest: longer, not announced":      {true, func(data []byte) []byte { return append(data, ' ') }, unannounced, artifact.ErrDamaged},
		"manifest: shorter, not announced":     {true, func(data []byte) []byte { return data[:len(data)-1] }, unannounced, artifact.ErrDamaged},
		"manifest: over 4 MiB, not announced":  {true, grow, unannounced, artifact.ErrDamaged},
		"manifest: of another type than asked": {true, same, func(h http.Header) { h.Set("Content-Type", "text/html") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			packages := b.pushByRecipe(func(layer ocispec.Descriptor) ocispec.Descriptor { return layer })
			suffix := "/manifests/1.0.0"
			if tc.platform {
				suffix = "/manifests/" + packages[1].Manifest.Digest.String()
			}
			b.tamper(suffix, tc.change, tc.announce)
			v, err := b.read()
			if err == nil || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v; read %+v", err, tc.err, v)
			}
			if errors.Is(err, errdef.ErrNotFound) {
				t.Errorf("%v is mistaken for an absent tag", err)
			}
		})
	}
}

func flipCase(data []byte) []byte {
	return bytes.Replace(data, []byte("opentofu"), []byte("OpenTofu"), 1)
}

// TestIndexesWithinIndexes shows that Read does not follow an index within an index. The
// nested index is labelled as an index or as a platform manifest, or the registry serves
// the outer index in its place.
func TestIndexesWithinIndexes(t *testing.T) {
	entry := func(mediaType string, data []byte) ocispec.Index {
		index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: artifact.TypeProvider, Manifests: []ocispec.Descriptor{{
			MediaType: mediaType, ArtifactType: artifact.TypeTarget, Digest: digest.FromBytes(data), Size: int64(len(data)),
			Platform: &ocispec.Platform{OS: linux.OS, Architecture: linux.Arch},
		}}}
		index.SchemaVersion = 2
		return index
	}
	for name, tc := range map[string]struct {
		mediaType string
		served    string // the media type that the registry announces; "" means the true one
		itself    bool
		err       error
		requests  int
	}{
		"as an index":              {ocispec.MediaTypeImageIndex, "", false, artifact.ErrNotProvider, 1},
		"as a platform's manifest": {ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageManifest, false, artifact.ErrNotProvider, 2},
		"the index itself instead": {ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageManifest, true, artifact.ErrDamaged, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.send(artifact.Config())
			inner := blobOf(ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`))
			for range 20 {
				b.tag(inner, "inner")
				inner = blobOf(ocispec.MediaTypeImageIndex, marshal(t, entry(ocispec.MediaTypeImageIndex, inner.Data)))
			}
			b.tag(inner, "inner")
			outer := blobOf(ocispec.MediaTypeImageIndex, marshal(t, entry(tc.mediaType, inner.Data)))
			b.tag(outer, "1.0.0")
			if tc.served != "" {
				data := inner.Data
				if tc.itself {
					data = append(bytes.Clone(outer.Data), bytes.Repeat([]byte(" "), len(inner.Data))...)[:len(inner.Data)]
				}
				b.lies["/manifests/"+inner.Descriptor.Digest.String()] = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", tc.served)
					w.Write(data)
				}
			}
			b.registry.Reset()
			if v, err := b.read(); !errors.Is(err, tc.err) {
				t.Errorf("%+v, %v", v, err)
			}
			if n := b.registry.Count(); n != tc.requests {
				t.Errorf("%d requests: %+v", n, b.registry.Requests())
			}
			b.registry.Reset()
			if _, _, err := artifact.Children(t.Context(), b.repo, "1.0.0"); err != nil || b.registry.Count() != 1 {
				t.Errorf("its children: %v after %d requests", err, b.registry.Count())
			}
		})
	}
}

// TestIndexOfUnannouncedSize shows that an index is bounded even if the response announces
// no length. Some proxies remove the length. oras-go then sends a HEAD request, and the
// response to HEAD can be wrong too.
func TestIndexOfUnannouncedSize(t *testing.T) {
	for name, tc := range map[string]struct {
		grow int // the number of bytes that GET sends after the index
		head int // the length that HEAD announces, minus the length of the index
		err  error
	}{
		"as HEAD says":         {0, 0, nil},
		"longer":               {1, 0, artifact.ErrDamaged},
		"shorter":              {0, 1, artifact.ErrDamaged},
		"larger than any":      {artifact.MaxManifestBytes, 0, artifact.ErrTooLarge},
		"far larger":           {16 * artifact.MaxManifestBytes, 0, artifact.ErrTooLarge},
		"said to be too large": {0, artifact.MaxManifestBytes, artifact.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e := encode(t, linux)
			b.push(e)
			b.lies["/manifests/1.0.0"] = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
				if r.Method == http.MethodHead {
					w.Header().Set("Docker-Content-Digest", e.index.Descriptor.Digest.String())
					w.Header().Set("Content-Length", fmt.Sprint(len(e.index.Data)+tc.head))
					return
				}
				http.NewResponseController(w).Flush()
				w.Write(e.index.Data)
				for left, piece := tc.grow, bytes.Repeat([]byte(" "), 64<<10); left > 0; left -= len(piece) {
					if _, err := w.Write(piece[:min(len(piece), left)]); err != nil {
						return
					}
				}
				if tc.grow > artifact.MaxManifestBytes { // more than the connection buffers
					t.Error("the whole response was read")
				}
			}
			if v, err := b.read(); !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// TestOnlyTheTagCanBeAbsent shows that the error for a version that does not exist differs
// from the error for a version whose manifests a clean-up job has deleted.
func TestOnlyTheTagCanBeAbsent(t *testing.T) {
	b := newBench(t)
	if _, err := b.read(); !errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("no repository: %v", err)
	}
	packages := b.pushByRecipe(func(layer ocispec.Descriptor) ocispec.Descriptor { return layer })
	if _, err := artifact.Read(t.Context(), b.repo, widget, provider.MustParseVersion("2.0.0")); !errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("no tag: %v", err)
	}
	if err := b.repo.Delete(t.Context(), packages[1].Manifest); err != nil {
		t.Fatal(err)
	}
	if v, err := b.read(); !errors.Is(err, artifact.ErrNotProvider) || errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("with a missing platform manifest: %+v, %v", v, err)
	}
	if _, err := artifact.FetchManifest(t.Context(), b.repo, packages[1].Manifest); !errors.Is(err, artifact.ErrNotProvider) || errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("the manifest alone: %v", err)
	}
}

// TestStoreErrorsAreKept shows that the error of a registry that is down differs from the
// error of invalid content.
func TestStoreErrorsAreKept(t *testing.T) {
	for _, suffix := range []string{"/manifests/1.0.0", "/manifests/" + digest.FromString("").Algorithm().String()} {
		b := newBench(t)
		b.pushByRecipe(func(layer ocispec.Descriptor) ocispec.Descriptor { return layer })
		b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, suffix) {
				return false
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		})
		_, err := b.read()
		for _, refusal := range []error{artifact.ErrNotProvider, artifact.ErrDamaged, artifact.ErrForeign, artifact.ErrAmbiguous, artifact.ErrTooLarge} {
			if errors.Is(err, refusal) {
				t.Errorf("%s: 503 is taken for %v", suffix, refusal)
			}
		}
		if err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("%s: error %v", suffix, err)
		}
	}
}
