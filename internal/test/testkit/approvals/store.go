package approvals

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/ociaddr"
)

const (
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	simpleType = "application/vnd.dev.cosign.simplesigning.v1+json"
)

// Attach stores a bundle as a referrer of a manifest, as cosign 3 does. If the registry has no referrers API, oras-go maintains
// the fallback tag.
func Attach(tb testkit.TB, repo *remote.Repository, to ocispec.Descriptor, bundle []byte) ocispec.Descriptor {
	tb.Helper()
	layer := content.NewDescriptorFromBytes(bundleType, bundle)
	return push(tb, repo, ocispec.Manifest{
		ArtifactType: bundleType, Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{layer},
		Subject: &ocispec.Descriptor{MediaType: to.MediaType, Digest: to.Digest, Size: to.Size},
	}, "", bundle)
}

// Layer is a simple signing in a manifest.
type Layer struct {
	Payload     []byte
	Annotations map[string]string
}

// Tag stores simple signings under the tag of a manifest, as older versions of cosign do.
func Tag(tb testkit.TB, repo *remote.Repository, of digest.Digest, layers ...Layer) ocispec.Descriptor {
	tb.Helper()
	m := ocispec.Manifest{Config: artifact.Config().Descriptor}
	var blobs [][]byte
	for _, l := range layers {
		desc := content.NewDescriptorFromBytes(simpleType, l.Payload)
		desc.Annotations = l.Annotations
		m.Layers = append(m.Layers, desc)
		blobs = append(blobs, l.Payload)
	}
	return push(tb, repo, m, string(ociaddr.CosignTags(of)[0]), blobs...)
}

func push(tb testkit.TB, repo *remote.Repository, m ocispec.Manifest, tag string, layers ...[]byte) ocispec.Descriptor {
	tb.Helper()
	ctx := context.Background()
	blobs := []artifact.Blob{artifact.Config()}
	for i, data := range layers {
		blobs = append(blobs, artifact.Blob{Descriptor: m.Layers[i], Data: data})
	}
	for _, b := range blobs {
		if err := repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)); err != nil {
			tb.Fatalf("push a blob: %v", err)
		}
	}
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	data, err := json.Marshal(m)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	desc := content.NewDescriptorFromBytes(m.MediaType, data)
	if tag == "" {
		err = repo.Push(ctx, desc, bytes.NewReader(data))
	} else {
		err = repo.PushReference(ctx, desc, bytes.NewReader(data), tag)
	}
	if err != nil {
		tb.Fatalf("push a manifest: %v", err)
	}
	return desc
}
