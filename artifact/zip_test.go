package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	aModule  = module.MustParseAddress("registry.example.com/acme/net/aws")
	aVersion = provider.MustParseVersion("1.2.3+b1")
)

func exampleModule() Version {
	h1, err := provider.ParseHash("h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
	if err != nil {
		panic(err)
	}
	return Version{Owner: aModule, Version: aVersion, Packages: []Package{{Digest: digest.FromString("zip"), Size: 3, H1: h1}}, Revision: "0a1b2c"}
}

// tagged is a store that has manifests under tags, and nothing else.
type tagged map[string]string

func (s tagged) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errdef.ErrNotFound
}

func (s tagged) FetchReference(_ context.Context, tag string) (ocispec.Descriptor, io.ReadCloser, error) {
	data, ok := s[tag]
	if !ok {
		return ocispec.Descriptor{}, nil, errdef.ErrNotFound
	}
	return newBlob(ocispec.MediaTypeImageManifest, []byte(data)).Descriptor, io.NopCloser(strings.NewReader(data)), nil
}

// Tags lists the tags of the manifests.
func (s tagged) Tags(_ context.Context, _ string, fn func([]string) error) error {
	return fn(slices.Collect(maps.Keys(s)))
}

// listing is a store whose list of tags may differ from its manifests.
type listing struct {
	tagged
	list []string
	err  error // of the list
}

// Tags returns the list, or err.
func (s listing) Tags(_ context.Context, _ string, fn func([]string) error) error {
	return errors.Join(s.err, fn(s.list))
}

// TestModuleTagRule shows that ReadZip takes the tag that ociaddr.TagsOf takes from the list of tags. Where
// the list and the tags contradict each other, ReadZip never takes the tag with a leading v for the exact one.
func TestModuleTagRule(t *testing.T) {
	const exact, v = "1.2.3_b1", "v1.2.3_b1"
	refused := errors.New("no list")
	store := func(tags ...string) tagged {
		out := tagged{}
		for _, tag := range tags {
			m := exampleModule()
			m.Zip().Digest = digest.FromString(tag)
			blob, err := EncodeZip(m)
			if err != nil {
				t.Fatal(err)
			}
			out[tag] = string(blob.Data)
		}
		return out
	}
	for name, tc := range map[string]struct {
		tags, list []string
		listError  error
		want       ociaddr.Tag
		err        error
	}{
		"the exact tag":                       {tags: []string{exact}, list: []string{exact}, want: exact},
		"only the tag with a v":               {tags: []string{v}, list: []string{v}, want: v},
		"both":                                {tags: []string{exact, v}, list: []string{v, exact}, want: exact},
		"neither":                             {list: []string{"v1.2.4", "latest"}, err: errdef.ErrNotFound},
		"the exact tag is listed, but absent": {tags: []string{v}, list: []string{exact, v}, err: ErrMissing},
		"the v is listed, but absent":         {list: []string{v}, err: ErrMissing},
		"the exact tag is not listed yet":     {tags: []string{exact, v}, list: []string{v}, want: exact},
		"the v is not listed":                 {tags: []string{v}, err: errdef.ErrNotFound},
		"there is no list":                    {tags: []string{v}, listError: refused, err: refused},
	} {
		t.Run(name, func(t *testing.T) {
			s := listing{store(tc.tags...), tc.list, tc.listError}
			got, err := ReadZip(t.Context(), s, aModule, aVersion)
			if !errors.Is(err, tc.err) || tc.err != errdef.ErrNotFound && errors.Is(err, errdef.ErrNotFound) {
				t.Fatalf("%v, want %v", err, tc.err)
			}
			if tc.err == nil && (got.Tag != tc.want || got.Zip().Digest != digest.FromString(string(tc.want))) {
				t.Errorf("%+v, want the tag %s", got, tc.want)
			}
		})
	}
}

// TestEveryKind shows that each kind whose versions have no packages for platforms has a layout, and that no two kinds share
// an artifact type.
func TestEveryKind(t *testing.T) {
	types := map[string]subject.Kind{}
	for _, a := range []subject.Address{provider.MustParseAddress("registry.example.com/acme/net"), aModule} {
		if _, ok := zipLayouts[a.Kind()]; ok == subject.TraitsOf(a).Packages {
			t.Errorf("%s has a layout for zips: %t", a.Kind(), ok)
		}
		_, artifactType := TypeOf(a.Kind())
		types[artifactType] = a.Kind()
	}
	if len(types) != len(subject.Kinds) {
		t.Errorf("%d kinds, and artifact types of %v", len(subject.Kinds), types)
	}
}

func TestModuleRoundTrip(t *testing.T) {
	blob, err := EncodeZip(exampleModule())
	if err != nil {
		t.Fatal(err)
	}
	again, err := EncodeZip(exampleModule())
	if err != nil || !bytes.Equal(blob.Data, again.Data) {
		t.Errorf("encoded again: %s, %v", again.Data, err)
	}
	want := exampleModule()
	want.Index, want.Zip().Manifest, want.Zip().Filename = blob.Descriptor, blob.Descriptor, "net-1.2.3+b1.zip"
	for _, tag := range []ociaddr.Tag{"1.2.3_b1", "v1.2.3_b1"} {
		want.Tag = tag
		got, err := ReadZip(t.Context(), tagged{string(tag): string(blob.Data)}, aModule, aVersion)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v; want %+v", tag, got, err, want)
		}
	}
	other := exampleModule()
	other.Zip().Digest = digest.FromString("other")
	exact, err := EncodeZip(other)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadZip(t.Context(), tagged{"v1.2.3_b1": string(blob.Data), "1.2.3_b1": string(exact.Data)}, aModule, aVersion); err != nil || got.Zip().Digest != other.Zip().Digest {
		t.Errorf("the tag with a v wins: %+v, %v", got, err)
	}
	if _, err := ReadZip(t.Context(), tagged{}, aModule, aVersion); !errors.Is(err, errdef.ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
}

func TestModulesOfOtherTools(t *testing.T) {
	layer := fmt.Sprintf(`{"mediaType":"archive/zip","digest":%q,"size":3}`, digest.FromString("zip"))
	manifest := func(media, artifact, layers, annotations string) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":{},"layers":[%s],"annotations":{%s}}`, media, artifact, layers, annotations)
	}
	const image = ocispec.MediaTypeImageManifest
	readme := fmt.Sprintf(`{"mediaType":"text/markdown","digest":%q,"size":2}`, digest.FromString("md"))
	for name, data := range map[string]string{
		"the documented recipe": manifest(image, TypeModule, layer, ""),
		"with other layers":     manifest(image, TypeModule, readme+","+layer, `"org.opencontainers.image.created":"2026-01-01"`),
		"a commit of two lines": manifest(image, TypeModule, layer, fmt.Sprintf(`%q:%q`, ocispec.AnnotationRevision, "a\nb")),
		"a long commit":         manifest(image, TypeModule, layer, fmt.Sprintf(`%q:%q`, ocispec.AnnotationRevision, strings.Repeat("a", 129))),
		"a bad hash":            manifest(image, TypeModule, layer, fmt.Sprintf(`%q:"zh:00"`, annotationH1)),
	} {
		m, err := ReadZip(t.Context(), tagged{"1.2.3_b1": data}, aModule, aVersion)
		if err != nil || m.Zip().Digest != digest.FromString("zip") || m.Zip().Size != 3 || !m.Zip().H1.IsZero() || m.Revision != "" || m.Owner != nil {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"an index":         {manifest(ocispec.MediaTypeImageIndex, TypeModule, layer, ""), ErrNotModule},
		"no media type":    {manifest("", TypeModule, layer, ""), ErrNotModule},
		"an image":         {manifest(image, "application/vnd.oci.image.config.v1+json", layer, ""), ErrNotModule},
		"a provider":       {manifest(ocispec.MediaTypeImageIndex, TypeProvider, layer, ""), ErrForeign},
		"no zip":           {manifest(image, TypeModule, readme, ""), ErrNotModule},
		"two zips":         {manifest(image, TypeModule, layer+","+layer, ""), ErrAmbiguous},
		"no JSON":          {"<html>", ErrNotModule},
		"another module":   {manifest(image, TypeModule, layer, fmt.Sprintf(`%q:"r.example.com/a/b/c"`, annotationModule)), ErrForeign},
		"another, no zip":  {manifest(image, TypeModule, readme, fmt.Sprintf(`%q:"r.example.com/a/b/c"`, annotationModule)), ErrForeign},
		"another, broken":  {manifest(image, TypeModule, layer, fmt.Sprintf(`%q:"r.example.com/a/b/c",%q:"one"`, annotationModule, annotationVersion)), ErrForeign},
		"its own, no zip":  {manifest(image, TypeModule, readme, fmt.Sprintf(`%q:%q`, annotationModule, aModule.Path())), ErrNotModule},
		"another version":  {manifest(image, TypeModule, layer, fmt.Sprintf(`%q:"1.2.4"`, annotationVersion)), ErrForeign},
		"a broken address": {manifest(image, TypeModule, layer, fmt.Sprintf(`%q:"acme/net"`, annotationModule)), ErrNotModule},
		"a broken version": {manifest(image, TypeModule, layer, fmt.Sprintf(`%q:"one"`, annotationVersion)), ErrNotModule},
	} {
		if m, err := ReadZip(t.Context(), tagged{"1.2.3_b1": c.data}, aModule, aVersion); !errors.Is(err, c.want) || !IsInvalid(err) {
			t.Errorf("%s: %+v, %v; want %v", name, m, err, c.want)
		}
	}
}

func TestEncodeZipRefuses(t *testing.T) {
	for name, change := range map[string]func(*Version){
		"no digest":    func(m *Version) { m.Zip().Digest = "" },
		"no size":      func(m *Version) { m.Zip().Size = 0 },
		"no address":   func(m *Version) { m.Owner = nil },
		"zero address": func(m *Version) { m.Owner = module.Address{} },
		"no version":   func(m *Version) { m.Version = provider.Version{} },
		"a long commit": func(m *Version) {
			m.Revision = strings.Repeat("a", maxRevision+1)
		},
		"a commit of two lines": func(m *Version) { m.Revision = "a\nb" },
	} {
		m := exampleModule()
		change(&m)
		if blob, err := EncodeZip(m); err == nil {
			t.Errorf("%s: %s", name, blob.Data)
		}
	}
}

// FuzzModule checks that a module that was read can be encoded, and is read as the same again.
func FuzzModule(f *testing.F) {
	blob, err := EncodeZip(exampleModule())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(blob.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadZip(t.Context(), tagged{"1.2.3_b1": string(data)}, aModule, aVersion)
		if err != nil {
			return
		}
		m.Owner, m.Version = aModule, aVersion
		blob, err := EncodeZip(*m)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		again, err := ReadZip(t.Context(), tagged{"1.2.3_b1": string(blob.Data)}, aModule, aVersion)
		m.Index, m.Zip().Manifest = blob.Descriptor, blob.Descriptor
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v, %v; want %+v", again, err, m)
		}
	})
}

// provenance is where the module of TestProvenance comes from.
func provenance() Provenance {
	return Provenance{
		Location: "git::https://git.acme.example/vpc.git//modules/a?ref=v1.4.0", Folder: "modules/a", Tree: strings.Repeat("a", 40), TagObject: strings.Repeat("b", 64),
	}
}

// TestProvenance checks that the manifest of a fetched module says where the module comes from, and has the zh: hash.
func TestProvenance(t *testing.T) {
	want := exampleModule()
	want.Provenance = provenance()
	blob, err := EncodeZip(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := zipLayouts[subject.Module].decode(blob.Descriptor, blob.Data)
	if err != nil || got.Provenance != want.Provenance {
		t.Errorf("%+v, %v", got, err)
	}
	if zh := `"io.github.ocibridge.zh":"` + want.Zip().ZipHash().String() + `"`; !strings.Contains(string(blob.Data), zh) {
		t.Errorf("there is no %s in %s", zh, blob.Data)
	}
	for name, change := range map[string]func(*Provenance){
		"no location":        func(p *Provenance) { p.Location = "" },
		"control character":  func(p *Provenance) { p.Location = "a\nb" },
		"long location":      func(p *Provenance) { p.Location = strings.Repeat("a", 9<<10) },
		"folder outside":     func(p *Provenance) { p.Folder = "../a" },
		"absolute folder":    func(p *Provenance) { p.Folder = "/a" },
		"folder with query":  func(p *Provenance) { p.Folder = "a?b" },
		"folder with spaces": func(p *Provenance) { p.Folder = "a b" },
		"wildcard":           func(p *Provenance) { p.Folder = "*" },
		"no tree":            func(p *Provenance) { p.Tree = "main" },
		"no tag object":      func(p *Provenance) { p.TagObject = "B" },
	} {
		v := exampleModule()
		v.Provenance = provenance()
		change(&v.Provenance)
		if _, err := EncodeZip(v); err == nil {
			t.Errorf("%s is encoded", name)
		}
	}
}

// TestProvenanceOfOthers checks what is read from the annotations of other tools: everything or nothing, and no folder that
// leads elsewhere.
func TestProvenanceOfOthers(t *testing.T) {
	p := provenance()
	valid := map[string]string{annotationLocation: p.Location, annotationFolder: p.Folder, annotationTree: p.Tree, annotationTagObject: p.TagObject}
	with := func(key, value string) map[string]string {
		out := maps.Clone(valid)
		out[key] = value
		return out
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        Provenance
		fails       bool
	}{
		"all":      {valid, p, false},
		"none":     {nil, Provenance{}, false},
		"bad tree": {with(annotationTree, "x"), Provenance{Folder: p.Folder}, false},
		"bad path": {with(annotationFolder, "a/../../b"), Provenance{}, true},
	} {
		if got, err := provenanceOf(tc.annotations); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
