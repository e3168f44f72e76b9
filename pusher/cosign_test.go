package pusher_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher"
)

// TestCopyOfCosignTags shows that a copy moves a cosign tag only if the destination loses no signature.
func TestCopyOfCosignTags(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	tag := string(ociaddr.CosignTags(b.Tagged().Index.Digest)[0])
	b.Store(b.Repo, "first", "", tag)
	from, _ := b.Source()
	b.mustCopy(from)
	source := from.Store.(*remote.Repository)
	both := b.layers(source, tag, "first", "second")
	if r := b.mustCopy(from); r.ReferrersSent != 1 {
		t.Errorf("%+v", r)
	}
	if desc, err := artifact.Resolve(t.Context(), b.Repo, tag); err != nil || desc.Digest != both {
		t.Errorf("%v, %v", desc.Digest, err)
	}
	b.layers(source, tag, "third")
	r := b.mustCopy(from, "names something else than in source.test/acme/widget, and is left as it is")
	if desc, err := artifact.Resolve(t.Context(), b.Repo, tag); err != nil || desc.Digest != both || r.Referrers != 0 {
		t.Errorf("%v, %v, %+v", desc.Digest, err, r)
	}
}

// TestCopyKeepsOtherSignatures shows that a copy does not move a cosign tag of the destination if the tagged manifest
// has another signature of the same payload, or another subject.
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
			b.MustPush()
			index := b.Tagged().Index.Digest
			tag := string(ociaddr.CosignTags(index)[0])
			there, here := manifests(index)
			b.signed(b.Repo, tag, here)
			from, _ := b.Source()
			want := b.signed(b.Repo, tag, there)
			b.mustCopy(from, "names something else than in source.test/acme/widget, and is left as it is")
			if desc, err := artifact.Resolve(t.Context(), b.Repo, tag); err != nil || desc.Digest != want {
				t.Errorf("%v, %v", desc.Digest, err)
			}
		})
	}
}

// TestCopyListsTagsAgain shows that, if a copy fails to list the tags of the source, the next copy with the same
// Pusher lists the tags again.
func TestCopyListsTagsAgain(t *testing.T) {
	b := newBench(t)
	b.MustPush()
	from, registry := b.Source()
	var failed atomic.Bool
	registry.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/tags/list") || failed.Swap(true) {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	p := pusher.New(b.Options)
	if _, err := p.Copy(t.Context(), from, pushbench.One, nil); err == nil || !strings.Contains(err.Error(), "list tags of") {
		t.Errorf("%v", err)
	}
	if _, err := p.Copy(t.Context(), from, pushbench.One, nil); err != nil {
		t.Error(err)
	}
}

// signed stores the manifest m under a tag, and gives all layers of m the same payload.
func (b *bench) signed(repo *remote.Repository, tag string, m ocispec.Manifest) digest.Digest {
	b.T.Helper()
	const payload = "payload"
	d := content.NewDescriptorFromBytes("text/plain", []byte(payload))
	m.Config = artifact.Config().Descriptor
	for _, blob := range []artifact.Blob{{Descriptor: d, Data: []byte(payload)}, artifact.Config()} {
		if err := repo.Push(b.T.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			b.T.Fatal(err)
		}
	}
	for i := range m.Layers {
		m.Layers[i].MediaType, m.Layers[i].Digest, m.Layers[i].Size = d.MediaType, d.Digest, d.Size
	}
	m.MediaType, m.SchemaVersion = ocispec.MediaTypeImageManifest, 2
	data, err := json.Marshal(m)
	if err != nil {
		b.T.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := repo.PushReference(b.T.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.T.Fatal(err)
	}
	return desc.Digest
}

// layers stores a manifest under a tag, with one layer for each text.
func (b *bench) layers(repo *remote.Repository, tag string, texts ...string) digest.Digest {
	b.T.Helper()
	var layers []ocispec.Descriptor
	for _, text := range texts {
		d := content.NewDescriptorFromBytes("text/plain", []byte(text))
		if err := repo.Push(b.T.Context(), d, strings.NewReader(text)); err != nil {
			b.T.Fatal(err)
		}
		layers = append(layers, d)
	}
	data, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: artifact.Config().Descriptor, Layers: layers})
	if err != nil {
		b.T.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`"schemaVersion":0`), []byte(`"schemaVersion":2`), 1)
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := repo.PushReference(b.T.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.T.Fatal(err)
	}
	return desc.Digest
}
