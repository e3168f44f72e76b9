package pusher_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// list makes the referrers API of a registry return the given entries for one subject.
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

// TestLyingListOfReferrers shows that a copy stores no manifest that the source wrongly lists as a referrer. Such a
// manifest has no subject or another subject, does not exist, or has other bytes.
func TestLyingListOfReferrers(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	subject := b.Tagged().Index.Digest
	none, other := b.Store(b.Repo, "no subject", "", ""), b.Store(b.Repo, "another's", digest.FromString("another"), "")
	missing := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, []byte("missing"))
	odd := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digest.FromString("odd"), Size: 3}
	from, registry := b.Source()
	from = fresh(from)
	list(registry, subject, none, other, missing, odd)
	r := b.mustCopy(from, none.Digest.String()+" is listed as a referrer", other.Digest.String()+" is listed as a referrer", "cannot be read in source.test/acme/widget", "has the media type")
	if r.Referrers != 0 || len(b.referrers(b.Repo, subject)) != 0 || len(b.referrers(b.Repo, digest.FromString("another"))) != 0 {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"no subject", "another's"} {
		if there, err := b.Repo.Blobs().Exists(t.Context(), content.NewDescriptorFromBytes("text/plain", []byte(text))); err != nil || there {
			t.Errorf("the layer %q was stored: %t, %v", text, there, err)
		}
	}

	// A copy stores neither a small blob nor a large blob with wrong bytes.
	registry.Intercept(nil)
	for name, text := range map[string]string{"small": "signature", "large": strings.Repeat("signature", 1<<20)} {
		b.NewRegistry()
		signature := b.Store(from.Store.(*remote.Repository), text, subject, "")
		registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, digest.FromString(text).String()) {
				return false
			}
			fmt.Fprint(w, strings.Replace(text, "signature", "forgeries", 1))
			return true
		})
		r, err := b.CopyWith(from)
		if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], signature.Digest.String()+" cannot be read in source.test/acme/widget") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		for _, d := range b.referrers(b.Repo, subject) {
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

// TestCopiedReferrersAreBounded shows that a copy fails if the version's referrers are too many, too large or nested
// too deeply.
func TestCopiedReferrersAreBounded(t *testing.T) {
	for name, attach := range map[string]func(b *bench, subject digest.Digest) []ocispec.Descriptor{
		"many": func(*bench, digest.Digest) (out []ocispec.Descriptor) {
			for i := range 1001 {
				out = append(out, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(fmt.Sprint(i)), Size: 10})
			}
			return out
		},
		"large": func(b *bench, subject digest.Digest) []ocispec.Descriptor {
			signature := b.Store(b.Repo, "x", subject, "")
			signature.Size = 2 << 30
			return []ocispec.Descriptor{signature}
		},
		"deep": func(b *bench, subject digest.Digest) []ocispec.Descriptor {
			var first ocispec.Descriptor
			for i := range 9 {
				d := b.Store(b.Repo, "x", subject, "")
				if i == 0 {
					first = d
				}
				subject = d.Digest
			}
			return []ocispec.Descriptor{first}
		},
		"nested": func(b *bench, subject digest.Digest) []ocispec.Descriptor {
			inner := b.Store(b.Repo, "x", "", "")
			for i := range 4 {
				index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{inner}}
				index.SchemaVersion = 2
				if i == 3 {
					index.Subject = &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: subject, Size: 1}
				}
				data, err := json.Marshal(index)
				if err != nil {
					b.T.Fatal(err)
				}
				inner = b.PushManifest(ocispec.MediaTypeImageIndex, data, digest.FromBytes(data).String())
			}
			return []ocispec.Descriptor{inner}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.MustPush()
			subject := b.Tagged().Index.Digest
			entries := attach(b, subject)
			from, registry := b.Source()
			from = fresh(from)
			list(registry, subject, entries...)
			if _, err := b.CopyWith(from); !errors.Is(err, repo.ErrTooMuchAttached) || !strings.Contains(hint.Of(err), "--without-referrers") {
				t.Errorf("%v", err)
			}
			b.Options.WithoutReferrers = true
			b.mustCopy(from)
		})
	}
}

// TestListsOfReferrersAreBounded shows that a copy skips invalid list entries, and limits its warnings about them.
// It fails if the lists of all subjects together have too many entries.
func TestListsOfReferrersAreBounded(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	v := b.Tagged()
	subject := v.Index.Digest
	long := strings.Repeat("x", 256)
	entry := func(mediaType, artifactType string, d digest.Digest) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, ArtifactType: artifactType, Digest: d, Size: 3, Annotations: map[string]string{"long": long}}
	}
	from, registry := b.Source()
	from = fresh(from)

	// A copy skips entries that describe no manifest, both in the source's list and in the destination's list.
	bad := []ocispec.Descriptor{entry(ocispec.MediaTypeImageManifest, "", "no digest"), entry(long, "", digest.FromString("1")), entry(ocispec.MediaTypeImageManifest, long, digest.FromString("2"))}
	list(registry, subject, append(bad, entry("application/octet-stream", "", digest.FromString("3")))...)
	list(b.Registry.Recorder, subject, bad...)
	if r := b.mustCopy(from, "has the media type", "lists 3 referrers without a digest, or with a type of more than 255 bytes"); r.Referrers != 0 {
		t.Errorf("%+v", r)
	}

	// If each of many referrers causes a warning, the copy limits the number of warnings.
	var odd []ocispec.Descriptor
	for i := range 500 {
		odd = append(odd, entry("application/octet-stream", "", digest.FromString(fmt.Sprint(i))))
	}
	list(registry, subject, odd...)
	r, err := b.CopyWith(from)
	if err != nil || len(r.Warnings) != 20 || !strings.Contains(r.Warnings[19], "more referrers of source.test/acme/widget are not copied") {
		t.Errorf("%v, %d warnings", err, len(r.Warnings))
	}

	// If each list is within the limit, but all lists together exceed the limit, the copy fails.
	registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/referrers/") {
			return false
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		json.NewEncoder(w).Encode(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: odd})
		return true
	})
	if _, err := b.CopyWith(from); !errors.Is(err, repo.ErrTooMuchAttached) || !strings.Contains(fmt.Sprint(err), "lists of more than 1000 referrers") {
		t.Errorf("%v", err)
	}
}
