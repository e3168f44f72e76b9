package artifact_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/provider"
)

// TestEncodingIsForEver compares encoded versions with golden files byte for byte. A
// release must have the same digests with every version of ocibridge.
func TestEncodingIsForEver(t *testing.T) {
	e := encode(t, linux, darwin, windows)
	files := map[string][]byte{
		"index.json":         e.index.Data,
		"linux_amd64.json":   e.manifests[linux].Data,
		"darwin_arm64.json":  e.manifests[darwin].Data,
		"windows_amd64.json": e.manifests[windows].Data,
		"evidence.json":      e.evidence.Data,
		"record.json":        e.parts[len(e.parts)-1].Data,
	}
	for name, got := range files {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is now\n%s\nand was\n%s", name, got, want)
		}
	}
}

func TestEncodingDescribesItself(t *testing.T) {
	e := encode(t, linux, darwin)
	blobs := append([]artifact.Blob{artifact.Config(), e.index, e.evidence, e.manifests[linux], e.manifests[darwin]}, e.parts...)
	for _, b := range blobs {
		if b.Descriptor.Digest != digest.FromBytes(b.Data) || b.Descriptor.Size != int64(len(b.Data)) || b.Descriptor.MediaType == "" {
			t.Errorf("%s is described as %+v", b.Data, b.Descriptor)
		}
	}
	for _, p := range e.version.Packages {
		if p.Manifest.Digest != e.manifests[p.Platform].Descriptor.Digest || p.ZipHash().String() != "zh:"+p.Digest.Encoded() || p.Digest != digest.FromBytes(contents(t)[p.Platform]) {
			t.Errorf("package %+v", p)
		}
	}
}

func TestOrderOfPackagesDoesNotMatter(t *testing.T) {
	want := encode(t, linux, darwin, windows).index.Descriptor.Digest
	for _, order := range [][]provider.Platform{{linux, windows, darwin}, {windows, darwin, linux}, {darwin, linux, windows}} {
		e := encode(t, order...)
		if got := e.index.Descriptor.Digest; got != want {
			t.Errorf("%v gives %s, not %s", order, got, want)
		}
		if !slices.EqualFunc(e.version.Packages, order, func(p artifact.Package, o provider.Platform) bool { return p.Platform == o }) {
			t.Error("encoding has sorted the packages of its caller")
		}
	}
}

func TestEncodeIndexRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*artifact.Version){
		"no package":                func(v *artifact.Version) { v.Packages = nil },
		"two for a platform":        func(v *artifact.Version) { v.Packages = append(v.Packages, v.Packages[0]) },
		"no platform":               func(v *artifact.Version) { v.Packages[0].Platform = provider.Platform{} },
		"no digest":                 func(v *artifact.Version) { v.Packages[0].Digest = "" },
		"digest without algorithm":  func(v *artifact.Version) { v.Packages[0].Digest = "abc" },
		"SHA-512":                   func(v *artifact.Version) { v.Packages[0].Digest = digest.SHA512.FromString("x") },
		"no size":                   func(v *artifact.Version) { v.Packages[0].Size = 0 },
		"file name with a path":     func(v *artifact.Version) { v.Packages[0].Filename = "../widget.zip" },
		"manifest without a digest": func(v *artifact.Version) { v.Packages[0].Manifest.Digest = "" },
		"manifest without a size":   func(v *artifact.Version) { v.Packages[0].Manifest.Size = 0 },
		"manifest too large":        func(v *artifact.Version) { v.Packages[0].Manifest.Size = artifact.MaxManifestBytes + 1 },
		"too large itself":          func(v *artifact.Version) { v.Protocols = []string{strings.Repeat("5", artifact.MaxManifestBytes)} },
	} {
		t.Run(name, func(t *testing.T) {
			e := encode(t, linux, darwin)
			spoil(&e.version)
			b, err := artifact.EncodeIndex(e.version)
			if err == nil {
				t.Fatalf("encoded as %.200s", b.Data)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}
}

func TestEncodeIndexMakesNothingUp(t *testing.T) {
	v := encode(t, linux).version
	v.Owner, v.Version, v.Protocols, v.Evidence = nil, provider.Version{}, nil, nil
	b, err := artifact.EncodeIndex(v)
	if err != nil {
		t.Fatal(err)
	}
	if a := unmarshal[ocispec.Index](t, b.Data).Annotations; len(a) != 0 {
		t.Errorf("annotations %q", a)
	}
	if _, err := artifact.DecodeIndex(b.Data); err != nil {
		t.Errorf("it does not read back: %v", err)
	}
}

func TestEncodePackageRefusesFilenameThatIsNone(t *testing.T) {
	p, _ := accepted.Named(t, widget, v100, linux, "terraform-provider-widget/../x.zip", contents(t)[linux])
	if _, b, err := artifact.EncodePackage(p); err == nil {
		t.Errorf("encoded as %s", b.Data)
	}
}

func TestEncodeEvidence(t *testing.T) {
	t.Run("parts that are missing are left out", func(t *testing.T) {
		_, parts, err := artifact.EncodeEvidence(artifact.Evidence{Record: evidence.Record})
		if err != nil || len(parts) != 1 || parts[0].Descriptor.MediaType != artifact.MediaTypeRecord {
			t.Errorf("%+v, %v", parts, err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		e := evidence
		e.SHA256SUMS = make([]byte, artifact.MaxEvidenceBytes+1)
		if _, _, err := artifact.EncodeEvidence(e); !errors.Is(err, artifact.ErrTooLarge) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("index entry has no platform, which would make it a package", func(t *testing.T) {
		var entries []ocispec.Descriptor
		for _, m := range unmarshal[ocispec.Index](t, encode(t, linux).index.Data).Manifests {
			if m.ArtifactType == artifact.TypeEvidence {
				entries = append(entries, m)
			}
		}
		if len(entries) != 1 || entries[0].Platform != nil {
			t.Errorf("entries %+v", entries)
		}
	})
}
