package artifact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"

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

// FuzzDecodeIndex shows that every index that can be decoded can also be served and
// encoded.
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

// FuzzEncodeIndex shows that decoding an encoded index returns the original version.
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
		v := artifact.Version{Owner: widget, Version: v100, Packages: []artifact.Package{p}}
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

// FuzzState shows that every decoded state is within the limits, and stays the same if it
// is encoded and decoded again.
func FuzzState(f *testing.F) {
	addGolden(f, "evidence.json", "index.json")
	for _, text := range []string{
		"", "{}", "[]", `{"cooldown":true,"seen":{"1.0.0":"first sync","1.1.0":"2026-01-02T03:04:05Z"}}`,
		`{"replaced":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:4769443e4767eb95755535e7822bf659ee7fa489b8bcfd94dd8a0a7883a7f8d1","size":517,"version":"1.0.0"}]}`,
		`{"replaced":[{"mediaType":"application/zip","digest":"sha256:00","size":-1,"version":"1"}]}`,
		`{"seen":{"1.0":"yesterday"}}`,
	} {
		f.Add(fmt.Appendf(nil, `{"artifactType":%q,"annotations":{%q:%q,%q:%q}}`, artifact.TypeState, artifact.AnnotationProvider, widget.Path(), artifact.AnnotationState, text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := artifact.DecodeState(data, widget)
		if err != nil {
			return
		}
		if s.Owner != widget || len(s.Seen) > artifact.MaxSeen || len(s.Replaced) > artifact.MaxReplaced {
			t.Errorf("%s, %d versions, %d replaced manifests", s.Owner, len(s.Seen), len(s.Replaced))
		}
		for _, r := range s.Replaced {
			checkManifest(t, r.Manifest)
		}
		b, err := artifact.EncodeState(*s)
		if errors.Is(err, artifact.ErrTooLarge) {
			return // the encoded text is longer, because it has more escapes
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := artifact.DecodeState(b.Data, widget)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s is %+v, then %+v, %v", data, s, again, err)
		}
	})
}

// FuzzSummary shows that a decoded summary is within the limits, describes each version with what an index can have,
// and stays the same if it is encoded and decoded again. An invalid summary does not affect the state.
func FuzzSummary(f *testing.F) {
	group := `{"platforms":["linux_amd64","darwin_arm64"],"protocols":["5.0"],"verdict":"signed","versions":{"1.0.0":"sha256:4769443e4767eb95755535e7822bf659ee7fa489b8bcfd94dd8a0a7883a7f8d1"}}`
	for _, text := range []string{
		"", "{}", `{"format":1}`, `{"format":2,"groups":[]}`, `{"format":1,"groups":[` + group + `]}`, `{"format":1,"groups":[` + group + `,` + group + `]}`,
		`{"format":1,"groups":[{"platforms":[null],"verdict":"signed"}]}`, `{"format":1,"groups":[{"verdict":"none","versions":{"1.0.0-a+b":"sha256:00"}}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data, err := json.Marshal(map[string]any{"artifactType": artifact.TypeState, "annotations": map[string]string{
			artifact.AnnotationProvider: widget.Path(), artifact.AnnotationState: "{}", artifact.AnnotationVersions: text,
		}})
		if err != nil || len(data) > artifact.MaxManifestBytes {
			return
		}
		state, err := artifact.DecodeState(data, widget)
		if err != nil {
			t.Fatalf("the summary %q makes the state invalid: %v", text, err)
		}
		s, _, err := artifact.ReadSummary(t.Context(), oneAnswer(data), widget)
		if !reflect.DeepEqual(s, state.Summary) || err != nil && s != nil {
			t.Errorf("%+v, with the state %+v, %v", s, state.Summary, err)
		}
		if len(s) > artifact.MaxSummarized {
			t.Errorf("%d versions", len(s))
		}
		for v, e := range s {
			checkSummarized(t, v, e)
		}
		b, err := artifact.EncodeState(*state)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := artifact.ReadSummary(t.Context(), oneAnswer(b.Data), widget)
		if err != nil || len(text) < artifact.MaxSummaryBytes/6 && !reflect.DeepEqual(again, s) { // an escape takes six bytes
			t.Errorf("%q is %+v, then %+v, %v", text, s, again, err)
		}
	})
}

func checkSummarized(t *testing.T, v provider.Version, e artifact.VersionSummary) {
	t.Helper()
	if v.IsZero() || e.Index.Validate() != nil || len(e.Protocols) > 16 || !slices.Contains([]trust.Verdict{trust.Signed, trust.ChecksumOnly, artifact.NoEvidence}, e.Verdict) {
		t.Errorf("version %s: %+v", v, e)
	}
	for i, p := range e.Platforms {
		if _, err := provider.NewPlatform(p.OS, p.Arch); err != nil || i > 0 && e.Platforms[i-1].Compare(p) >= 0 {
			t.Errorf("version %s has the platforms %v: %v", v, e.Platforms, err)
		}
	}
}

// oneAnswer is a store that returns the same content for every request.
type oneAnswer []byte

func (a oneAnswer) FetchReference(context.Context, string) (ocispec.Descriptor, io.ReadCloser, error) {
	return ocispec.Descriptor{}, io.NopCloser(bytes.NewReader(a)), nil
}

func (a oneAnswer) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(a)), nil
}

func (a oneAnswer) Blobs() registry.BlobStore { return oneBlob{} }

// oneBlob is a store that contains a blob of one byte under every digest.
type oneBlob struct{ registry.BlobStore }

func (oneBlob) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{Digest: digest.Digest(reference), Size: 1}, nil
}

// FuzzLint shows that Lint finds an error in every index that Read refuses.
func FuzzLint(f *testing.F) {
	addGolden(f, "index.json", "linux_amd64.json", "evidence.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := artifact.Read(t.Context(), oneAnswer(data), widget, v100)
		linted, lintErr := artifact.Lint(t.Context(), oneAnswer(data), widget, v100)
		if lintErr != nil {
			t.Fatalf("%v", lintErr)
		}
		bad := slices.ContainsFunc(linted.Findings, func(f artifact.Finding) bool { return f.Severity == artifact.SeverityError })
		if err != nil && !bad {
			t.Errorf("%s is refused with %v, and lint finds %+v", data, err, linted.Findings)
		}
		for _, f := range linted.Findings {
			if f.What == "" || f.Hint == "" || f.Severity != artifact.SeverityError && f.Severity != artifact.SeverityWarning {
				t.Errorf("incomplete: %+v", f)
			}
		}
		if _, _, err := artifact.Children(t.Context(), oneAnswer(data), "1.0.0"); err == nil && !json.Valid(data) {
			t.Error("Children accepts invalid JSON")
		}
	})
}

// blobsByDigest is a store with one manifest and the blobs that evidence.json refers to.
type blobsByDigest struct {
	blobs map[digest.Digest][]byte
	asked int
}

func (b *blobsByDigest) Fetch(_ context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	b.asked++
	data, ok := b.blobs[desc.Digest]
	if !ok {
		return nil, errdef.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// FuzzReadEvidence shows that any manifest of evidence is read safely: each part is fetched
// at most once, matches its digest, and is used according to its media type.
func FuzzReadEvidence(f *testing.F) {
	addGolden(f, "evidence.json", "linux_amd64.json", "index.json")
	want := artifact.Evidence{SHA256SUMS: []byte("sums"), Signature: []byte("signature"), SigningKeys: []byte(`{"keys":[]}`), Record: artifact.Record{Origin: "registry.acme.example", Verdict: trust.Signed}}
	manifest, blobs, err := artifact.EncodeEvidence(want)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(manifest.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		store := &blobsByDigest{blobs: map[digest.Digest][]byte{digest.FromBytes(data): data}}
		for _, b := range blobs {
			store.blobs[b.Descriptor.Digest] = b.Data
		}
		e, err := artifact.ReadEvidence(t.Context(), store, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(data), Size: int64(len(data))})
		if store.asked > 5 {
			t.Errorf("%d requests", store.asked)
		}
		if err != nil {
			return
		}
		if e.Record.Verdict != trust.Signed && e.Record.Verdict != trust.ChecksumOnly {
			t.Errorf("verdict %q", e.Record.Verdict)
		}
		for _, part := range [][]byte{e.SHA256SUMS, e.Signature, e.SigningKeys} {
			if part != nil && store.blobs[digest.FromBytes(part)] == nil {
				t.Errorf("part %q is not in the registry", part)
			}
		}
	})
}
