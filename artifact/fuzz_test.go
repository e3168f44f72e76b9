package artifact_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

func addGolden(f *testing.F, names ...string) {
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzDecodeIndex shows that whatever decodes is fit to be served, and that it
// survives being encoded anew.
func FuzzDecodeIndex(f *testing.F) {
	addGolden(f, "index.json", "linux_amd64.json")
	f.Add([]byte(`{"mediaType":"application/vnd.oci.image.index.v1+json","artifactType":"application/vnd.opentofu.provider","manifests":[
		{"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.opentofu.provider-target","digest":"sha256:4769443e4767eb95755535e7822bf659ee7fa489b8bcfd94dd8a0a7883a7f8d1","size":517,"platform":{"os":"linux","architecture":"amd64"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := artifact.DecodeIndex(data)
		if err != nil {
			return
		}
		complete := len(v.Packages) > 0
		for i, p := range v.Packages {
			checkManifest(t, p.Manifest)
			if _, err := provider.NewPlatform(p.Platform.OS, p.Platform.Arch); err != nil {
				t.Error(err)
			}
			if i > 0 && v.Packages[i-1].Platform.Compare(p.Platform) >= 0 {
				t.Errorf("%s after %s", p.Platform, v.Packages[i-1].Platform)
			}
			if p.Digest == "" {
				complete = false
				continue
			}
			if p.Size <= 0 || !provider.ValidFilename(p.Filename) || p.H1.IsZip() || !p.ZipHash().IsZip() {
				t.Errorf("package %+v", p)
			}
		}
		if v.Evidence != nil {
			checkManifest(t, *v.Evidence)
		}
		if !complete {
			return
		}
		b, err := artifact.EncodeIndex(*v)
		if err != nil {
			t.Fatalf("decoded, but does not encode: %v", err)
		}
		again, err := artifact.DecodeIndex(b.Data)
		if err != nil {
			t.Fatalf("encoded as %s, which does not decode: %v", b.Data, err)
		}
		want := *v
		want.Index = b.Descriptor
		if want.Evidence != nil {
			want.Evidence = &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: v.Evidence.Digest, Size: v.Evidence.Size, Annotations: v.Evidence.Annotations}
		}
		if len(want.Protocols) == 0 {
			want.Protocols = nil
		}
		if !reflect.DeepEqual(again, &want) {
			t.Fatalf("decoded as\n%+v\nand again as\n%+v", want, again)
		}
	})
}

func checkManifest(t *testing.T, d ocispec.Descriptor) {
	t.Helper()
	if err := d.Digest.Validate(); err != nil || d.Size <= 0 || d.Size > artifact.MaxManifestBytes {
		t.Errorf("descriptor %+v: %v", d, err)
	}
}

// FuzzEncodeIndex shows that what is encoded at all reads back as it was.
func FuzzEncodeIndex(f *testing.F) {
	f.Add("linux", "amd64", "terraform-provider-widget_1.0.0_linux_amd64.zip", "content", int64(7), int64(500), "5.0", true)
	f.Add("", "x_y", "../x", "", int64(0), int64(-1), ",", false)
	f.Fuzz(func(t *testing.T, os, arch, filename, content string, size, manifestSize int64, protocol string, withH1 bool) {
		p := artifact.Package{
			Platform: provider.Platform{OS: os, Arch: arch}, Filename: filename,
			Digest: digest.FromString(content), Size: size,
			Manifest: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(content + "!"), Size: manifestSize},
		}
		if withH1 {
			h, err := provider.ParseHash("h1:zlZpCFY72wdT+5tSWikKelIrCO0BM9TCocz1LxnZSUo=")
			if err != nil {
				t.Fatal(err)
			}
			p.H1 = h
		}
		v := artifact.Version{Provider: widget, Version: v100, Packages: []artifact.Package{p}}
		if protocol == "5.0" {
			v.Protocols = []string{protocol}
		}
		b, err := artifact.EncodeIndex(v)
		if err != nil {
			return
		}
		v.Index = b.Descriptor
		if got, err := artifact.DecodeIndex(b.Data); err != nil || !reflect.DeepEqual(got, &v) {
			t.Fatalf("encoded\n%+v\nread\n%+v, %v", v, got, err)
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	addGolden(f, "linux_amd64.json", "darwin_arm64.json", "evidence.json", "index.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		layer, err := artifact.DecodeLayer(data)
		if err != nil {
			return
		}
		if layer.Digest.Validate() != nil || layer.Digest.Algorithm() != digest.SHA256 || layer.Size <= 0 {
			t.Errorf("layer %+v", layer)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	addGolden(f, "record.json")
	f.Add([]byte(`{"verdict":"checksum only"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := artifact.DecodeRecord(data)
		if err != nil {
			return
		}
		if r.Verdict != trust.Signed && r.Verdict != trust.ChecksumOnly {
			t.Errorf("verdict %q", r.Verdict)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := artifact.DecodeRecord(again)
		if err != nil || back.Origin != r.Origin || back.Verdict != r.Verdict || back.Fingerprint != r.Fingerprint || len(back.Protocols) != len(r.Protocols) {
			t.Errorf("%s reads as %+v, then as %+v, %v", data, r, back, err)
		}
	})
}
