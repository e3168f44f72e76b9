package pusher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// foreign replaces the index of the bench's version with an index that looks as if another tool had created it.
func (b *bench) foreign(change func(index *ocispec.Index)) digest.Digest {
	b.T.Helper()
	v := b.Tagged()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, ArtifactType: artifact.TypeProvider, Annotations: map[string]string{"org.example.made-by": "another tool"}}
	index.SchemaVersion = 2
	for _, p := range v.Packages {
		layer := p.Layer()
		layer.Annotations = map[string]string{ocispec.AnnotationTitle: p.Filename}
		m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer},
			Annotations: map[string]string{ocispec.AnnotationCreated: "2026-01-01T00:00:00Z"}}
		m.SchemaVersion = 2
		index.Manifests = append(index.Manifests, b.manifest(m, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget, Platform: &ocispec.Platform{OS: p.Platform.OS, Architecture: p.Platform.Arch},
		}))
	}
	change(&index)
	data, err := json.Marshal(index)
	if err != nil {
		b.T.Fatal(err)
	}
	return b.PushManifest(ocispec.MediaTypeImageIndex, data, "1.0.0").Digest
}

// manifest stores a manifest by its digest, and returns desc with the manifest's digest and size.
func (b *bench) manifest(m ocispec.Manifest, desc ocispec.Descriptor) ocispec.Descriptor {
	b.T.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		b.T.Fatal(err)
	}
	d := digest.FromBytes(data)
	b.PushManifest(ocispec.MediaTypeImageManifest, data, d.String())
	desc.Digest, desc.Size = d, int64(len(data))
	return desc
}

// TestCopyKeepsForeignManifests shows that a copy stores manifests of other tools byte for byte.
func TestCopyKeepsForeignManifests(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	b.Options.Policy = pushbench.AllowUnsigned
	want := b.foreign(func(index *ocispec.Index) {
		extra := b.Store(b.Repo, "an SBOM in the index", "", "")
		extra.ArtifactType = "application/vnd.example.sbom"
		index.Manifests = append(index.Manifests, extra)
	})
	v := b.Tagged()
	signature := b.Store(b.Repo, "signature", want, "")
	from, _ := b.Source()
	r := b.mustCopy(from)
	if r.Digest != want.String() || r.Verdict != artifact.NoEvidence || r.Status != pusher.Pushed || r.Referrers != 1 {
		t.Errorf("%+v", r)
	}
	if got := b.Tagged(); got.Index.Digest != want || got.Packages[0].Manifest.Digest != v.Packages[0].Manifest.Digest || got.Evidence != nil {
		t.Errorf("%+v", got)
	}
	if got := b.referrers(b.Repo, want); !slices.Equal(got, []digest.Digest{signature.Digest}) {
		t.Errorf("referrers %v", got)
	}
	b.Registry.Reset()
	if r := b.mustCopy(from); r.Status != pusher.Unchanged || r.Digest != want.String() || b.Registry.Count(recorder.Writes()) != 0 {
		t.Errorf("again: %+v, %d writes", r, b.Registry.Count(recorder.Writes()))
	}
	// A copy of some platforms also keeps the manifests of these platforms.
	b.NewRegistry()
	// Like the original, the copy has no evidence.
	if r, err := b.CopyWith(from, v.Packages[1].Platform.String()); err != nil || b.Tagged().Packages[0].Manifest.Digest != v.Packages[1].Manifest.Digest || r.Verdict != artifact.NoEvidence || b.Tagged().Evidence != nil {
		t.Errorf("one platform: %v, %+v", err, b.Tagged())
	}
}

// TestCopyLeavesOutLostPlatforms shows that, if the source lacks the manifest of a platform, a copy stores the other
// platforms and says what is lost. A gateway serves these platforms, too.
func TestCopyLeavesOutLostPlatforms(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	b.Options.Policy = pushbench.AllowUnsigned
	index := b.foreign(func(*ocispec.Index) {})
	v := b.Tagged()
	lost, whole := v.Packages[0], v.Packages[1:]
	if err := b.Repo.Manifests().Delete(t.Context(), lost.Manifest); err != nil {
		t.Fatal(err)
	}
	from, _ := b.Source()
	for name, tt := range map[string]struct {
		platforms []string
		want      int // the number of stored packages; 0: an error
		lost      bool
	}{
		"all platforms":      {nil, len(whole), true},
		"lost and whole":     {[]string{lost.Platform.String(), whole[0].Platform.String()}, 1, true},
		"whole":              {[]string{whole[0].Platform.String()}, 1, false},
		"only the lost":      {[]string{lost.Platform.String()}, 0, false},
		"lost and not there": {[]string{lost.Platform.String(), "plan9_arm"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			b.NewRegistry()
			r, err := b.CopyWith(from, tt.platforms...)
			if tt.want == 0 {
				if err == nil || hint.Of(err) == "" {
					t.Fatalf("%+v, %v, hint %q", r, err, hint.Of(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := b.Tagged()
			if len(got.Packages) != tt.want || got.Index.Digest == index || got.Packages[0].Manifest.Digest != whole[0].Manifest.Digest {
				t.Errorf("stored %+v", got)
			}
			if err := r.LostError(); (err != nil) != tt.lost || tt.lost && !strings.Contains(err.Error(), "is not copied for "+lost.Platform.String()+": the registry lacks content that it refers to") {
				t.Errorf("lost: %v", err)
			}
			if said := strings.Contains(strings.Join(r.Warnings, "\n"), "lacks its manifest "+lost.Manifest.Digest.String()); said != tt.lost {
				t.Errorf("warnings %q", r.Warnings)
			}
		})
	}
}

// TestCopyKeepsNothingUnverified shows that, if manifests of other tools contradict the verified packages, a copy does
// not keep these manifests.
func TestCopyKeepsNothingUnverified(t *testing.T) {
	const keyH1, wrong = "io.github.ocibridge.h1", "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	for name, tc := range map[string]struct {
		change func(b *bench, index *ocispec.Index)
		want   string
	}{
		"the h1 hash of an index's entry": {func(b *bench, index *ocispec.Index) {
			p := b.Tagged().Packages[0]
			index.Manifests[0].Annotations = map[string]string{
				"io.github.ocibridge.layer.digest": p.Digest.String(), "io.github.ocibridge.layer.size": fmt.Sprint(p.Size), "io.github.ocibridge.filename": p.Filename, keyH1: wrong,
			}
		}, "its entry for darwin_arm64 contradicts the verified package"},
		"the h1 hash of a layer": {func(b *bench, index *ocispec.Index) {
			p := b.Tagged().Packages[0]
			layer := p.Layer()
			layer.Annotations = map[string]string{ocispec.AnnotationTitle: p.Filename, keyH1: wrong}
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer}}
			m.SchemaVersion = 2
			index.Manifests[0] = b.manifest(m, index.Manifests[0])
			index.Manifests[0].Annotations = map[string]string{
				"io.github.ocibridge.layer.digest": p.Digest.String(), "io.github.ocibridge.layer.size": fmt.Sprint(p.Size), "io.github.ocibridge.filename": p.Filename,
			}
		}, "the manifest for darwin_arm64 contradicts the verified package"},
		"a fingerprint in evidence": {func(b *bench, index *ocispec.Index) {
			e := b.evidence()
			e.Record.Fingerprint = "0123456789ABCDEF0123456789ABCDEF01234567"
			manifest, blobs, err := artifact.EncodeEvidence(*e)
			for _, blob := range append(blobs, manifest) {
				if err == nil {
					err = b.Repo.Push(b.T.Context(), blob.Descriptor, bytes.NewReader(blob.Data))
				}
			}
			if err != nil {
				b.T.Fatal(err)
			}
			entry := manifest.Descriptor
			entry.ArtifactType = artifact.TypeEvidence
			index.Manifests = append(index.Manifests, entry)
		}, "its evidence is encoded differently"},
		"the verdict of evidence": {func(b *bench, index *ocispec.Index) {
			entry := *b.Tagged().Evidence
			entry.ArtifactType, entry.Annotations = artifact.TypeEvidence, map[string]string{"io.github.ocibridge.verdict": string(trust.ChecksumOnly)}
			index.Manifests = append(index.Manifests, entry)
		}, "its entry for the evidence is wrong"},
		"a package that clients ignore": {func(_ *bench, index *ocispec.Index) {
			more := index.Manifests[0]
			more.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64", OSVersion: "1"}
			index.Manifests = append(index.Manifests, more)
		}, "it has packages for platforms that clients ignore"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.MustPush()
			b.Options.Policy = pushbench.AllowUnsigned
			unwanted := b.foreign(func(index *ocispec.Index) { tc.change(b, index) })
			from, _ := b.Source()
			r := b.mustCopy(from, tc.want)
			if r.Digest == unwanted.String() {
				t.Errorf("it was copied as it is: %+v", r)
			}
			for _, p := range b.Tagged().Packages {
				if p.H1.IsZero() || p.H1.String() == wrong {
					t.Errorf("%s: %s", p.Platform, p.H1)
				}
			}
		})
	}
}

// TestCopyAttachesNothingElsewhere shows that a copy attaches nothing to another manifest of the destination, even if
// copied manifests name that manifest as their subject.
func TestCopyAttachesNothingElsewhere(t *testing.T) {
	victim := digest.FromString("another version of the destination")
	subject := &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: victim, Size: 1}
	for name, tc := range map[string]struct {
		change   func(b *bench, index *ocispec.Index)
		tag      bool
		warnings []string
	}{
		"an index": {func(_ *bench, index *ocispec.Index) { index.Subject = subject }, false,
			[]string{"the index in source.test/acme/widget is not copied as it is, and a new one is stored: it refers to another manifest"}},
		"a platform's manifest": {func(b *bench, index *ocispec.Index) {
			p := b.Tagged().Packages[0]
			layer := p.Layer()
			layer.Annotations = map[string]string{ocispec.AnnotationTitle: p.Filename}
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer}, Subject: subject}
			m.SchemaVersion = 2
			index.Manifests[0] = b.manifest(m, index.Manifests[0])
		}, false, []string{"the manifest for darwin_arm64 in source.test/acme/widget is not copied as it is, and a new one is stored: it refers to another manifest", "the index in"}},
		"another entry of an index": {func(b *bench, index *ocispec.Index) {
			extra := b.Store(b.Repo, "an SBOM in the index", victim, "")
			extra.ArtifactType = "application/vnd.example.sbom"
			index.Manifests = append(index.Manifests, extra)
		}, false, []string{"refers to another manifest"}},
		"what a tag names": {func(*bench, *ocispec.Index) {}, true, []string{"which has another subject, and is not copied"}},
	} {
		for _, api := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, referrers API %t", name, api), func(t *testing.T) {
				b := newBench(t)
				b.MustPush()
				b.Options.Policy = pushbench.AllowUnsigned
				index := b.foreign(func(index *ocispec.Index) { tc.change(b, index) })
				if tc.tag {
					b.Store(b.Repo, "cosign", victim, string(ociaddr.CosignTags(index)[0]))
				}
				from, _ := b.Source()
				if !api {
					pushbench.WithoutAPI(b.Registry.Recorder)
				}
				b.mustCopy(from, tc.warnings...)
				if got := b.referrers(b.Repo, victim); len(got) > 0 {
					t.Errorf("%s has the referrers %v", victim, got)
				}
				if desc, err := artifact.Resolve(t.Context(), b.Repo, string(ociaddr.ReferrersTag(victim))); err == nil {
					t.Errorf("its fallback tag names %s", desc.Digest)
				}
				if got := len(b.Tagged().Packages); got == 0 {
					t.Error("no packages")
				}
			})
		}
	}
}

// TestCopyOfForeignIndexGoesOn shows that, if a copy cannot store the index of another tool byte for byte, the copy
// warns and stores a new index.
func TestCopyOfForeignIndexGoesOn(t *testing.T) {
	sbom := func(b *bench, index *ocispec.Index, desc ocispec.Descriptor) {
		desc.ArtifactType = "application/vnd.example.sbom"
		index.Manifests = append(index.Manifests, desc)
	}
	for name, tc := range map[string]struct {
		change  func(b *bench, index *ocispec.Index)
		refuses string // the destination refuses manifests with this text
		want    string
	}{
		"the source lacks an entry": {func(b *bench, index *ocispec.Index) {
			sbom(b, index, b.Store(b.Repo, "gone", "", ""))
		}, "", "not found"},
		"too deep": {func(b *bench, index *ocispec.Index) {
			inner := b.Store(b.Repo, "x", "", "")
			for range 4 {
				outer := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{inner}}
				outer.SchemaVersion = 2
				data, err := json.Marshal(outer)
				if err != nil {
					b.T.Fatal(err)
				}
				inner = b.PushManifest(ocispec.MediaTypeImageIndex, data, digest.FromBytes(data).String())
			}
			sbom(b, index, inner)
		}, "", "is nested in more than 3 manifests"},
		"too much": {func(b *bench, index *ocispec.Index) {
			layer := content.NewDescriptorFromBytes("text/plain", []byte("x"))
			if err := b.Repo.Push(b.T.Context(), layer, strings.NewReader("x")); err != nil {
				b.T.Fatal(err)
			}
			layer.Size = 2 << 30
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.example.sbom", Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer}}
			m.SchemaVersion = 2
			sbom(b, index, b.manifest(m, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest}))
		}, "", "bytes"},
		"the destination refuses an entry":              {func(b *bench, index *ocispec.Index) { sbom(b, index, b.Store(b.Repo, "refused", "", "")) }, string(digest.FromString("refused")), "415"},
		"the destination refuses the index":             {func(*bench, *ocispec.Index) {}, "org.example.made-by", "415"},
		"the destination refuses a platform's manifest": {func(b *bench, index *ocispec.Index) {}, "2026-01-01T00:00:00Z", "the manifest for"},
	} {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, without referrers %t", name, without), func(t *testing.T) {
				b := newBench(t)
				b.MustPush()
				b.Options.Policy = pushbench.AllowUnsigned
				var last digest.Digest
				unwanted := b.foreign(func(index *ocispec.Index) {
					tc.change(b, index)
					last = index.Manifests[len(index.Manifests)-1].Digest
				})
				platforms := b.Tagged().Packages
				signature := b.Store(b.Repo, "signature", platforms[1].Manifest.Digest, "")
				from, source := b.Source()
				source.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
					if name != "the source lacks an entry" || !strings.HasSuffix(req.URL.Path, "/manifests/"+last.String()) {
						return false
					}
					http.NotFound(w, req)
					return true
				})
				b.Registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
					if tc.refuses == "" || req.Method != http.MethodPut || !strings.Contains(req.URL.Path, "/manifests/") {
						return false
					}
					body, _ := io.ReadAll(req.Body)
					req.Body = io.NopCloser(bytes.NewReader(body))
					if !bytes.Contains(body, []byte(tc.refuses)) {
						return false
					}
					w.WriteHeader(http.StatusUnsupportedMediaType)
					return true
				})
				b.Options.WithoutReferrers = without
				r, err := b.CopyWith(from)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(r.Warnings, func(w string) bool {
					return strings.Contains(w, "is not copied as it is, and a new one is stored: ") && strings.Contains(w, tc.want)
				}) {
					t.Errorf("warnings %q, want %q", r.Warnings, tc.want)
				}
				if got := b.Tagged(); r.Digest == unwanted.String() || len(got.Packages) != len(platforms) {
					t.Errorf("%+v, %d packages", r, len(got.Packages))
				}
				if kept := b.Tagged().Packages[1].Manifest.Digest == platforms[1].Manifest.Digest; !without && kept && !slices.Contains(b.referrers(b.Repo, platforms[1].Manifest.Digest), signature.Digest) {
					t.Error("a referrer of a platform's manifest was not copied")
				}
			})
		}
	}
}

// TestCopyLeavesOutWhatABundleRefuses shows that a copy into a bundle skips the second of two referrers if a list of
// both referrers would exceed the size limit of a manifest.
func TestCopyLeavesOutWhatABundleRefuses(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	index := b.Tagged().Index
	var entries []ocispec.Descriptor
	if err := b.Repo.SetReferrersCapability(true); err != nil { // so that b.repo writes no fallback tag
		t.Fatal(err)
	}
	for i := range 2 {
		m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: pushbench.AttachedType, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{},
			Subject: &index, Annotations: map[string]string{fmt.Sprint("note", i): strings.Repeat("x", 3<<20)}}
		m.SchemaVersion = 2
		entries = append(entries, b.manifest(m, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest}))
	}
	from, registry := b.Source()
	list(registry, index.Digest, entries...)
	made, err := bundle.Create(t.Context(), filepath.Join(t.TempDir(), "bundle"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	b.Options.Destination = func(_ context.Context, a subject.Address) (repo.Destination, error) {
		return repo.Destination{Repository: ociaddr.Repository{Registry: "bundle.test", Name: "acme/widget"}, Store: made.Repository(a)}, nil
	}
	if r := b.mustCopy(from, "bundle.test refuses the referrer "+entries[1].Digest.String()); r.Referrers != 1 {
		t.Errorf("%+v", r)
	}
	if err := made.Save(t.Context()); err != nil {
		t.Error(err)
	}
}
