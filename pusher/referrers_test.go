package pusher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/bundle"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

const attachedType = "application/vnd.example.signature"

// copyWith copies a stored version, referrers included.
func (b *bench) copyWith(from pusher.Stored, platforms ...string) (*pusher.Result, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	return pusher.New(b.options).Copy(b.t.Context(), from, one, want)
}

// store pushes a manifest with one layer and, unless it is "", a subject.
func (b *bench) store(repo *remote.Repository, text string, subject digest.Digest, tag string) ocispec.Descriptor {
	b.t.Helper()
	layer := content.NewDescriptorFromBytes("text/plain", []byte(text))
	m := map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "artifactType": attachedType,
		"config": ocispec.DescriptorEmptyJSON, "layers": []ocispec.Descriptor{layer},
	}
	if subject != "" {
		m["subject"] = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: subject, Size: 1}
	}
	data, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	for d, bytes_ := range map[*ocispec.Descriptor][]byte{&layer: []byte(text), {MediaType: ocispec.DescriptorEmptyJSON.MediaType, Digest: ocispec.DescriptorEmptyJSON.Digest, Size: 2}: []byte("{}")} {
		if err := repo.Push(b.t.Context(), *d, bytes.NewReader(bytes_)); err != nil {
			b.t.Fatal(err)
		}
	}
	if tag == "" {
		tag = desc.Digest.String()
	}
	if err := repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.t.Fatal(err)
	}
	return desc
}

// referrers lists what refers to a manifest in a repository.
func (b *bench) referrers(repo *remote.Repository, subject digest.Digest) []digest.Digest {
	b.t.Helper()
	var out []digest.Digest
	err := repo.Referrers(b.t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: subject, Size: 1}, "", func(page []ocispec.Descriptor) error {
		for _, d := range page {
			out = append(out, d.Digest)
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// mustCopy copies a stored version, and fails where that warns of something else than
// wanted.
func (b *bench) mustCopy(from pusher.Stored, warnings ...string) *pusher.Result {
	b.t.Helper()
	r, err := b.copyWith(from)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(r.Warnings) != len(warnings) {
		b.t.Errorf("warnings %q, want %q", r.Warnings, warnings)
		return r
	}
	for i, w := range warnings {
		if !strings.Contains(r.Warnings[i], w) {
			b.t.Errorf("warning %q, want %q", r.Warnings[i], w)
		}
	}
	return r
}

// fresh returns a client that does not know yet whether the registry has the referrers
// API.
func fresh(from pusher.Stored) pusher.Stored {
	known := from.Store.(*remote.Repository)
	from.Store = &remote.Repository{Client: known.Client, Reference: known.Reference, PlainHTTP: known.PlainHTTP}
	return from
}

// withoutAPI has a registry answer as one without the referrers API.
func withoutAPI(r *recorder.Recorder) {
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/referrers/") {
			return false
		}
		http.NotFound(w, req)
		return true
	})
}

// TestCopyReferrers copies what refers to an index, a platform's manifest, evidence and
// a referrer, between registries with and without the referrers API.
func TestCopyReferrers(t *testing.T) {
	for name, api := range map[string]struct{ source, destination bool }{
		"API": {true, true}, "fallback tags": {false, false}, "from API to fallback tags": {true, false}, "from fallback tags to API": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if !api.source {
				withoutAPI(b.registry)
			}
			pushed := b.mustPush()
			v := b.tagged()
			index := b.store(b.repo, "signature", v.Index.Digest, "")
			second := b.store(b.repo, "another signature", v.Index.Digest, "")
			platform := b.store(b.repo, "sbom", v.Packages[1].Manifest.Digest, "")
			ofPlatform := b.store(b.repo, "signature of the sbom", platform.Digest, "")
			evidence := b.store(b.repo, "of the evidence", v.Evidence.Digest, "")
			tag := string(ociaddr.CosignTags(v.Index.Digest)[0])
			cosign := b.store(b.repo, "cosign", "", tag)
			b.store(b.repo, "unrelated", "", "notes")
			b.store(b.repo, "of something else", digest.FromString("else"), "")

			from, _ := b.source()
			from = fresh(from)
			if !api.destination {
				withoutAPI(b.registry)
			}
			r := b.mustCopy(from)
			if r.Digest != pushed.Digest || r.Status != pusher.Pushed || r.Referrers != 6 || r.ReferrersSent != 6 {
				t.Errorf("copied %+v", r)
			}
			for subject, want := range map[digest.Digest][]digest.Digest{
				v.Index.Digest: {index.Digest, second.Digest}, v.Packages[1].Manifest.Digest: {platform.Digest}, platform.Digest: {ofPlatform.Digest},
				v.Evidence.Digest: {evidence.Digest}, digest.FromString("else"): nil,
			} {
				got := b.referrers(b.repo, subject)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("of %s: %v, want %v", subject, got, want)
				}
			}
			if desc, err := artifact.Resolve(t.Context(), b.repo, tag); err != nil || desc.Digest != cosign.Digest {
				t.Errorf("%s: %v, %v", tag, desc.Digest, err)
			}
			if _, err := artifact.Resolve(t.Context(), b.repo, "notes"); err == nil {
				t.Error("a tag that is not attached was copied")
			}
			_, err := artifact.Resolve(t.Context(), b.repo, string(ociaddr.ReferrersTag(v.Index.Digest)))
			if (err == nil) == api.destination {
				t.Errorf("fallback tag: %v", err)
			}
			if list, err := from.Versions(t.Context()); err != nil || !slices.Equal(list, []provider.Version{one}) {
				t.Errorf("versions %v, %v", list, err)
			}

			// Again: nothing is sent. One more: it alone is.
			b.registry.Reset()
			if r := b.mustCopy(from); r.Status != pusher.Unchanged || r.Referrers != 6 || r.ReferrersSent != 0 || b.registry.Count(recorder.Writes()) != 0 {
				t.Errorf("again: %+v, %d writes", r, b.registry.Count(recorder.Writes()))
			}
			b.store(from.Store.(*remote.Repository), "later", ofPlatform.Digest, "")
			if r := b.mustCopy(from); r.Status != pusher.Completed || r.Referrers != 7 || r.ReferrersSent != 1 {
				t.Errorf("with one more: %+v", r)
			}
			b.newRegistry()
			b.options.WithoutReferrers = true
			if r := b.mustCopy(from); r.Digest != pushed.Digest || r.Referrers != 0 || len(b.referrers(b.repo, v.Index.Digest)) != 0 {
				t.Errorf("without referrers: %+v", r)
			}
		})
	}
}

// TestCopyReferrersWhereTheAPIIsRefused copies from registries that refuse the referrers
// API instead of answering 404: the fallback tags count. Without them, a warning names
// the refusal.
func TestCopyReferrersWhereTheAPIIsRefused(t *testing.T) {
	refused := func(answer func(w http.ResponseWriter), tags bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/referrers/") || tags && strings.Contains(req.URL.Path, "/manifests/sha256-") {
				answer(w)
				return true
			}
			return false
		}
	}
	basic := func(w http.ResponseWriter) {
		w.Header().Set("WWW-Authenticate", `Basic realm="source"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	answers := map[string]func(http.ResponseWriter){"Basic": basic}
	for _, status := range []int{400, 401, 403, 405, 415, 422} {
		answers[fmt.Sprintf("status code %d", status)] = func(w http.ResponseWriter) { w.WriteHeader(status) }
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			withoutAPI(b.registry)
			b.mustPush()
			v := b.tagged()
			subjects := []digest.Digest{v.Index.Digest, v.Evidence.Digest}
			for _, p := range v.Packages {
				subjects = append(subjects, p.Manifest.Digest)
			}
			for _, subject := range subjects[1:] {
				nothing := b.store(b.repo, "of "+string(subject), subject, "")
				subjects = append(subjects, nothing.Digest)
			}
			from, registry := b.source()
			from = fresh(from)

			// Not every manifest has a fallback tag.
			registry.Intercept(refused(answer, false))
			if name == "Basic" {
				from.Store.(*remote.Repository).Client = &auth.Client{Client: from.Store.(*remote.Repository).Client.(*http.Client)}
			}
			if r := b.mustCopy(from, "source.test/acme/widget refuses to list referrers (GET "); r.Referrers != len(v.Packages)+1 || r.Status != pusher.Pushed {
				t.Errorf("copied %+v", r)
			}

			// A true refusal, for the tags as well.
			b.newRegistry()
			registry.Intercept(refused(answer, true))
			r, err := b.copyWith(from)
			if name == "Basic" || name == "status code 401" {
				if err == nil || !strings.Contains(err.Error(), "list referrers in source.test/acme/widget") {
					t.Errorf("no login: %+v, %v", r, err)
				}
			} else if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], name) || r.Referrers != 0 {
				t.Errorf("refused: %+v, %v", r, err)
			}
		})
	}
}

// TestCopyReferrersOfPlatforms copies one platform of several: the index is another one
// than the source's, so that its referrers have no subject.
func TestCopyReferrersOfPlatforms(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	v := b.tagged()
	b.store(b.repo, "of the index", v.Index.Digest, "")
	b.store(b.repo, "of another platform", v.Packages[0].Manifest.Digest, "")
	platform := b.store(b.repo, "of the platform", v.Packages[1].Manifest.Digest, "")
	from, _ := b.source()
	r, err := b.copyWith(from, v.Packages[1].Platform.String())
	if err != nil || r.Referrers != 1 || r.ReferrersSent != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := b.referrers(b.repo, v.Packages[1].Manifest.Digest); !slices.Equal(got, []digest.Digest{platform.Digest}) || len(b.referrers(b.repo, v.Index.Digest)) != 0 {
		t.Errorf("%v", got)
	}
}

// TestCopyOfCosignTags moves a tag of cosign's only where nothing is lost by that.
func TestCopyOfCosignTags(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	tag := string(ociaddr.CosignTags(b.tagged().Index.Digest)[0])
	b.store(b.repo, "first", "", tag)
	from, _ := b.source()
	b.mustCopy(from)
	source := from.Store.(*remote.Repository)
	both := b.layers(source, tag, "first", "second")
	if r := b.mustCopy(from); r.ReferrersSent != 1 {
		t.Errorf("%+v", r)
	}
	if desc, err := artifact.Resolve(t.Context(), b.repo, tag); err != nil || desc.Digest != both {
		t.Errorf("%v, %v", desc.Digest, err)
	}
	b.layers(source, tag, "third")
	r := b.mustCopy(from, "names something else than in source.test/acme/widget, and is left as it is")
	if desc, err := artifact.Resolve(t.Context(), b.repo, tag); err != nil || desc.Digest != both || r.Referrers != 0 {
		t.Errorf("%v, %v, %+v", desc.Digest, err, r)
	}
}

// TestCopyKeepsOtherSignatures leaves a tag of the destination that has another signature
// of the same payload, or another subject.
func TestCopyKeepsOtherSignatures(t *testing.T) {
	for name, manifests := range map[string]func(index digest.Digest) (there, here ocispec.Manifest){
		"another signature": func(digest.Digest) (there, here ocispec.Manifest) {
			there.Layers = []ocispec.Descriptor{{Annotations: map[string]string{"dev.cosignproject.cosign/signature": "of the destination"}}}
			here.Layers = []ocispec.Descriptor{{Annotations: map[string]string{"dev.cosignproject.cosign/signature": "of the source"}}}
			return there, here
		},
		"without a subject": func(index digest.Digest) (there, here ocispec.Manifest) {
			there.Layers, here.Layers = make([]ocispec.Descriptor, 1), make([]ocispec.Descriptor, 1)
			there.Subject = &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: index, Size: 1}
			return there, here
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustPush()
			index := b.tagged().Index.Digest
			tag := string(ociaddr.CosignTags(index)[0])
			there, here := manifests(index)
			b.signed(b.repo, tag, here)
			from, _ := b.source()
			want := b.signed(b.repo, tag, there)
			b.mustCopy(from, "names something else than in source.test/acme/widget, and is left as it is")
			if desc, err := artifact.Resolve(t.Context(), b.repo, tag); err != nil || desc.Digest != want {
				t.Errorf("%v, %v", desc.Digest, err)
			}
		})
	}
}

// TestCopyListsTagsAgain has the source fail once: the next copy of the same run lists
// its tags.
func TestCopyListsTagsAgain(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	from, registry := b.source()
	var failed atomic.Bool
	registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/tags/list") || failed.Swap(true) {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	p := pusher.New(b.options)
	if _, err := p.Copy(t.Context(), from, one, nil); err == nil || !strings.Contains(err.Error(), "list tags of") {
		t.Errorf("%v", err)
	}
	if _, err := p.Copy(t.Context(), from, one, nil); err != nil {
		t.Error(err)
	}
}

// signed tags a manifest whose layers have the same payload.
func (b *bench) signed(repo *remote.Repository, tag string, m ocispec.Manifest) digest.Digest {
	b.t.Helper()
	const payload = "payload"
	d := content.NewDescriptorFromBytes("text/plain", []byte(payload))
	m.Config = artifact.Config().Descriptor
	for _, blob := range []artifact.Blob{{Descriptor: d, Data: []byte(payload)}, artifact.Config()} {
		if err := repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			b.t.Fatal(err)
		}
	}
	for i := range m.Layers {
		m.Layers[i].MediaType, m.Layers[i].Digest, m.Layers[i].Size = d.MediaType, d.Digest, d.Size
	}
	m.MediaType, m.SchemaVersion = ocispec.MediaTypeImageManifest, 2
	data, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.t.Fatal(err)
	}
	return desc.Digest
}

// layers tags a manifest with several layers.
func (b *bench) layers(repo *remote.Repository, tag string, texts ...string) digest.Digest {
	b.t.Helper()
	var layers []ocispec.Descriptor
	for _, text := range texts {
		d := content.NewDescriptorFromBytes("text/plain", []byte(text))
		if err := repo.Push(b.t.Context(), d, strings.NewReader(text)); err != nil {
			b.t.Fatal(err)
		}
		layers = append(layers, d)
	}
	data, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: artifact.Config().Descriptor, Layers: layers})
	if err != nil {
		b.t.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`"schemaVersion":0`), []byte(`"schemaVersion":2`), 1)
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.t.Fatal(err)
	}
	return desc.Digest
}

// list has a registry's referrers API answer for one subject with what it likes.
func list(r *recorder.Recorder, subject digest.Digest, entries ...ocispec.Descriptor) {
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/referrers/"+subject.String()) {
			return false
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		json.NewEncoder(w).Encode(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: entries})
		return true
	})
}

// TestLyingListOfReferrers has the source list what is no referrer, what it lacks, and
// what it sends other bytes for: nothing of that is stored.
func TestLyingListOfReferrers(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	subject := b.tagged().Index.Digest
	none, other := b.store(b.repo, "no subject", "", ""), b.store(b.repo, "another's", digest.FromString("another"), "")
	missing := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, []byte("missing"))
	odd := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digest.FromString("odd"), Size: 3}
	from, registry := b.source()
	from = fresh(from)
	list(registry, subject, none, other, missing, odd)
	r := b.mustCopy(from, none.Digest.String()+" is listed as a referrer", other.Digest.String()+" is listed as a referrer", "cannot be read in source.test/acme/widget", "has the media type")
	if r.Referrers != 0 || len(b.referrers(b.repo, subject)) != 0 || len(b.referrers(b.repo, digest.FromString("another"))) != 0 {
		t.Errorf("%+v", r)
	}

	// Other bytes than its digest says, small ones and ones that are streamed.
	registry.Intercept(nil)
	for name, text := range map[string]string{"small": "signature", "streamed": strings.Repeat("signature", 1<<20)} {
		b.newRegistry()
		signature := b.store(from.Store.(*remote.Repository), text, subject, "")
		registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, digest.FromString(text).String()) {
				return false
			}
			fmt.Fprint(w, strings.Replace(text, "signature", "forgeries", 1))
			return true
		})
		r, err := b.copyWith(from)
		if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], signature.Digest.String()+" cannot be read in source.test/acme/widget") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		for _, d := range b.referrers(b.repo, subject) {
			if d == signature.Digest {
				t.Errorf("%s: it was stored", name)
			}
		}
		registry.Intercept(nil)
		deleted := from.Store.(*remote.Repository)
		if err := deleted.Delete(t.Context(), signature); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopiedReferrersAreBounded has more attached to a version than a copy takes.
func TestCopiedReferrersAreBounded(t *testing.T) {
	for name, attach := range map[string]func(b *bench, subject digest.Digest) []ocispec.Descriptor{
		"many": func(*bench, digest.Digest) (out []ocispec.Descriptor) {
			for i := range 1001 {
				out = append(out, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(fmt.Sprint(i)), Size: 10})
			}
			return out
		},
		"large": func(b *bench, subject digest.Digest) []ocispec.Descriptor {
			signature := b.store(b.repo, "x", subject, "")
			signature.Size = 2 << 30
			return []ocispec.Descriptor{signature}
		},
		"deep": func(b *bench, subject digest.Digest) []ocispec.Descriptor {
			var first ocispec.Descriptor
			for i := range 9 {
				d := b.store(b.repo, "x", subject, "")
				if i == 0 {
					first = d
				}
				subject = d.Digest
			}
			return []ocispec.Descriptor{first}
		},
		"nested": func(b *bench, subject digest.Digest) []ocispec.Descriptor {
			inner := b.store(b.repo, "x", "", "")
			for i := range 4 {
				index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{inner}}
				index.SchemaVersion = 2
				if i == 3 {
					index.Subject = &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: subject, Size: 1}
				}
				data, err := json.Marshal(index)
				if err != nil {
					b.t.Fatal(err)
				}
				inner = b.pushManifest(ocispec.MediaTypeImageIndex, data, digest.FromBytes(data).String())
			}
			return []ocispec.Descriptor{inner}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.mustPush()
			subject := b.tagged().Index.Digest
			entries := attach(b, subject)
			from, registry := b.source()
			from = fresh(from)
			list(registry, subject, entries...)
			if _, err := b.copyWith(from); !errors.Is(err, pusher.ErrTooMuchAttached) || !strings.Contains(hint.Of(err), "--without-referrers") {
				t.Errorf("%v", err)
			}
			b.options.WithoutReferrers = true
			b.mustCopy(from)
		})
	}
}

// foreign gives the bench's version an index that another tool made.
func (b *bench) foreign(change func(index *ocispec.Index)) digest.Digest {
	b.t.Helper()
	v := b.tagged()
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
		b.t.Fatal(err)
	}
	return b.pushManifest(ocispec.MediaTypeImageIndex, data, "1.0.0").Digest
}

// manifest stores a manifest by its digest, and completes its descriptor.
func (b *bench) manifest(m ocispec.Manifest, desc ocispec.Descriptor) ocispec.Descriptor {
	b.t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	d := digest.FromBytes(data)
	b.pushManifest(ocispec.MediaTypeImageManifest, data, d.String())
	desc.Digest, desc.Size = d, int64(len(data))
	return desc
}

// TestCopyKeepsForeignManifests copies what other tools made, byte for byte.
func TestCopyKeepsForeignManifests(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	b.options.Policy = allowUnsigned
	want := b.foreign(func(index *ocispec.Index) {
		extra := b.store(b.repo, "an SBOM in the index", "", "")
		extra.ArtifactType = "application/vnd.example.sbom"
		index.Manifests = append(index.Manifests, extra)
	})
	v := b.tagged()
	signature := b.store(b.repo, "signature", want, "")
	from, _ := b.source()
	r := b.mustCopy(from)
	if r.Digest != want.String() || r.Verdict != artifact.NoEvidence || r.Status != pusher.Pushed || r.Referrers != 1 {
		t.Errorf("%+v", r)
	}
	if got := b.tagged(); got.Index.Digest != want || got.Packages[0].Manifest.Digest != v.Packages[0].Manifest.Digest || got.Evidence != nil {
		t.Errorf("%+v", got)
	}
	if got := b.referrers(b.repo, want); !slices.Equal(got, []digest.Digest{signature.Digest}) {
		t.Errorf("referrers %v", got)
	}
	b.registry.Reset()
	if r := b.mustCopy(from); r.Status != pusher.Unchanged || r.Digest != want.String() || b.registry.Count(recorder.Writes()) != 0 {
		t.Errorf("again: %+v, %d writes", r, b.registry.Count(recorder.Writes()))
	}
	// A part of it has the manifests of its platforms.
	b.newRegistry()
	// It has no evidence, as the original has none.
	if r, err := b.copyWith(from, v.Packages[1].Platform.String()); err != nil || b.tagged().Packages[0].Manifest.Digest != v.Packages[1].Manifest.Digest || r.Verdict != artifact.NoEvidence || b.tagged().Evidence != nil {
		t.Errorf("one platform: %v, %+v", err, b.tagged())
	}
}

// TestCopyKeepsNothingUnverified has manifests of other tools say what is not so.
func TestCopyKeepsNothingUnverified(t *testing.T) {
	const keyH1, wrong = "io.github.ocibridge.h1", "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	for name, tc := range map[string]struct {
		change func(b *bench, index *ocispec.Index)
		want   string
	}{
		"the h1 hash of an index's entry": {func(b *bench, index *ocispec.Index) {
			p := b.tagged().Packages[0]
			index.Manifests[0].Annotations = map[string]string{
				"io.github.ocibridge.layer.digest": p.Digest.String(), "io.github.ocibridge.layer.size": fmt.Sprint(p.Size), "io.github.ocibridge.filename": p.Filename, keyH1: wrong,
			}
		}, "its entry for darwin_arm64 contradicts the verified package"},
		"the h1 hash of a layer": {func(b *bench, index *ocispec.Index) {
			p := b.tagged().Packages[0]
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
					err = b.repo.Push(b.t.Context(), blob.Descriptor, bytes.NewReader(blob.Data))
				}
			}
			if err != nil {
				b.t.Fatal(err)
			}
			entry := manifest.Descriptor
			entry.ArtifactType = artifact.TypeEvidence
			index.Manifests = append(index.Manifests, entry)
		}, "its evidence is encoded differently"},
		"the verdict of evidence": {func(b *bench, index *ocispec.Index) {
			entry := *b.tagged().Evidence
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
			b.mustPush()
			b.options.Policy = allowUnsigned
			unwanted := b.foreign(func(index *ocispec.Index) { tc.change(b, index) })
			from, _ := b.source()
			r := b.mustCopy(from, tc.want)
			if r.Digest == unwanted.String() {
				t.Errorf("it was copied as it is: %+v", r)
			}
			for _, p := range b.tagged().Packages {
				if p.H1.IsZero() || p.H1.String() == wrong {
					t.Errorf("%s: %s", p.Platform, p.H1)
				}
			}
		})
	}
}

// TestCopyAttachesNothingElsewhere has what is copied with a version name another
// manifest of the destination as its subject: nothing is attached to that.
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
			p := b.tagged().Packages[0]
			layer := p.Layer()
			layer.Annotations = map[string]string{ocispec.AnnotationTitle: p.Filename}
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer}, Subject: subject}
			m.SchemaVersion = 2
			index.Manifests[0] = b.manifest(m, index.Manifests[0])
		}, false, []string{"the manifest for darwin_arm64 in source.test/acme/widget is not copied as it is, and a new one is stored: it refers to another manifest", "the index in"}},
		"another entry of an index": {func(b *bench, index *ocispec.Index) {
			extra := b.store(b.repo, "an SBOM in the index", victim, "")
			extra.ArtifactType = "application/vnd.example.sbom"
			index.Manifests = append(index.Manifests, extra)
		}, false, []string{"refers to another manifest"}},
		"what a tag names": {func(*bench, *ocispec.Index) {}, true, []string{"which has another subject, and is not copied"}},
	} {
		for _, api := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, referrers API %t", name, api), func(t *testing.T) {
				b := newBench(t)
				b.mustPush()
				b.options.Policy = allowUnsigned
				index := b.foreign(func(index *ocispec.Index) { tc.change(b, index) })
				if tc.tag {
					b.store(b.repo, "cosign", victim, string(ociaddr.CosignTags(index)[0]))
				}
				from, _ := b.source()
				if !api {
					withoutAPI(b.registry)
				}
				b.mustCopy(from, tc.warnings...)
				if got := b.referrers(b.repo, victim); len(got) > 0 {
					t.Errorf("%s has the referrers %v", victim, got)
				}
				if desc, err := artifact.Resolve(t.Context(), b.repo, string(ociaddr.ReferrersTag(victim))); err == nil {
					t.Errorf("its fallback tag names %s", desc.Digest)
				}
				if got := len(b.tagged().Packages); got == 0 {
					t.Error("no packages")
				}
			})
		}
	}
}

// TestCopyOfForeignIndexGoesOn has an index of another tool that cannot be copied as it
// is: a new one is stored.
func TestCopyOfForeignIndexGoesOn(t *testing.T) {
	sbom := func(b *bench, index *ocispec.Index, desc ocispec.Descriptor) {
		desc.ArtifactType = "application/vnd.example.sbom"
		index.Manifests = append(index.Manifests, desc)
	}
	for name, tc := range map[string]struct {
		change  func(b *bench, index *ocispec.Index)
		refuses string // a text in manifests
		want    string
	}{
		"the source lacks an entry": {func(b *bench, index *ocispec.Index) {
			sbom(b, index, b.store(b.repo, "gone", "", ""))
		}, "", "not found"},
		"too deep": {func(b *bench, index *ocispec.Index) {
			inner := b.store(b.repo, "x", "", "")
			for range 4 {
				outer := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{inner}}
				outer.SchemaVersion = 2
				data, err := json.Marshal(outer)
				if err != nil {
					b.t.Fatal(err)
				}
				inner = b.pushManifest(ocispec.MediaTypeImageIndex, data, digest.FromBytes(data).String())
			}
			sbom(b, index, inner)
		}, "", "is nested in more than 3 manifests"},
		"too much": {func(b *bench, index *ocispec.Index) {
			layer := content.NewDescriptorFromBytes("text/plain", []byte("x"))
			if err := b.repo.Push(b.t.Context(), layer, strings.NewReader("x")); err != nil {
				b.t.Fatal(err)
			}
			layer.Size = 2 << 30
			m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.example.sbom", Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer}}
			m.SchemaVersion = 2
			sbom(b, index, b.manifest(m, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest}))
		}, "", "bytes"},
		"the destination refuses an entry":              {func(b *bench, index *ocispec.Index) { sbom(b, index, b.store(b.repo, "refused", "", "")) }, string(digest.FromString("refused")), "415"},
		"the destination refuses the index":             {func(*bench, *ocispec.Index) {}, "org.example.made-by", "415"},
		"the destination refuses a platform's manifest": {func(b *bench, index *ocispec.Index) {}, "2026-01-01T00:00:00Z", "the manifest for"},
	} {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, without referrers %t", name, without), func(t *testing.T) {
				b := newBench(t)
				b.mustPush()
				b.options.Policy = allowUnsigned
				var last digest.Digest
				unwanted := b.foreign(func(index *ocispec.Index) {
					tc.change(b, index)
					last = index.Manifests[len(index.Manifests)-1].Digest
				})
				platforms := b.tagged().Packages
				signature := b.store(b.repo, "signature", platforms[1].Manifest.Digest, "")
				from, source := b.source()
				source.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
					if name != "the source lacks an entry" || !strings.HasSuffix(req.URL.Path, "/manifests/"+last.String()) {
						return false
					}
					http.NotFound(w, req)
					return true
				})
				b.registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
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
				b.options.WithoutReferrers = without
				r, err := b.copyWith(from)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(r.Warnings, func(w string) bool {
					return strings.Contains(w, "is not copied as it is, and a new one is stored: ") && strings.Contains(w, tc.want)
				}) {
					t.Errorf("warnings %q, want %q", r.Warnings, tc.want)
				}
				if got := b.tagged(); r.Digest == unwanted.String() || len(got.Packages) != len(platforms) {
					t.Errorf("%+v, %d packages", r, len(got.Packages))
				}
				if kept := b.tagged().Packages[1].Manifest.Digest == platforms[1].Manifest.Digest; !without && kept && !slices.Contains(b.referrers(b.repo, platforms[1].Manifest.Digest), signature.Digest) {
					t.Error("a referrer of a platform's manifest was not copied")
				}
			})
		}
	}
}

// TestListsOfReferrersAreBounded has the source list referrers that are none, with long
// texts, or for many subjects.
func TestListsOfReferrersAreBounded(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	v := b.tagged()
	subject := v.Index.Digest
	long := strings.Repeat("x", 256)
	entry := func(mediaType, artifactType string, d digest.Digest) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, ArtifactType: artifactType, Digest: d, Size: 3, Annotations: map[string]string{"long": long}}
	}
	from, registry := b.source()
	from = fresh(from)

	// Entries that describe no manifest, in the lists of both sides.
	bad := []ocispec.Descriptor{entry(ocispec.MediaTypeImageManifest, "", "no digest"), entry(long, "", digest.FromString("1")), entry(ocispec.MediaTypeImageManifest, long, digest.FromString("2"))}
	list(registry, subject, append(bad, entry("application/octet-stream", "", digest.FromString("3")))...)
	list(b.registry, subject, bad...)
	if r := b.mustCopy(from, "has the media type", "lists 3 referrers without a digest, or with a type of more than 255 bytes"); r.Referrers != 0 {
		t.Errorf("%+v", r)
	}

	// A warning for each of very many.
	var odd []ocispec.Descriptor
	for i := range 500 {
		odd = append(odd, entry("application/octet-stream", "", digest.FromString(fmt.Sprint(i))))
	}
	list(registry, subject, odd...)
	r, err := b.copyWith(from)
	if err != nil || len(r.Warnings) != 20 || !strings.Contains(r.Warnings[19], "more referrers of source.test/acme/widget are not copied") {
		t.Errorf("%v, %d warnings", err, len(r.Warnings))
	}

	// Lists that are within the bound each, and beyond it together.
	registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/referrers/") {
			return false
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		json.NewEncoder(w).Encode(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: odd})
		return true
	})
	if _, err := b.copyWith(from); !errors.Is(err, pusher.ErrTooMuchAttached) || !strings.Contains(fmt.Sprint(err), "lists of more than 1000 referrers") {
		t.Errorf("%v", err)
	}
}

// TestCopyLeavesOutWhatABundleRefuses has two referrers whose list is longer than a
// manifest may be: the bundle gets one of them.
func TestCopyLeavesOutWhatABundleRefuses(t *testing.T) {
	b := newBench(t)
	b.mustPush()
	index := b.tagged().Index
	var entries []ocispec.Descriptor
	if err := b.repo.SetReferrersCapability(true); err != nil { // no fallback tag is kept
		t.Fatal(err)
	}
	for i := range 2 {
		m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: attachedType, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{},
			Subject: &index, Annotations: map[string]string{fmt.Sprint("note", i): strings.Repeat("x", 3<<20)}}
		m.SchemaVersion = 2
		entries = append(entries, b.manifest(m, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest}))
	}
	from, registry := b.source()
	list(registry, index.Digest, entries...)
	made, err := bundle.Create(t.Context(), filepath.Join(t.TempDir(), "bundle"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	b.options.Destination = func(_ context.Context, a provider.Address) (pusher.Destination, error) {
		return pusher.Destination{Repository: ociaddr.Repository{Registry: "bundle.test", Name: "acme/widget"}, Store: made.Repository(a)}, nil
	}
	if r := b.mustCopy(from, "bundle.test refuses the referrer "+entries[1].Digest.String()); r.Referrers != 1 {
		t.Errorf("%+v", r)
	}
	if err := made.Save(t.Context()); err != nil {
		t.Error(err)
	}
}
