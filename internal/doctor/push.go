package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/repository"
	"github.com/ocibridge/ocibridge/provider"
)

// trial is a version that is pushed to see whether one can be, of the media types
// and artifact types that a version has.
type trial struct {
	Repository
	tag    string
	stored []ocispec.Descriptor // manifests, in the order in which they were pushed
}

// push pushes a version under a throw-away tag, and removes it.
func (x Repository) push(ctx context.Context, r *Report) {
	if !x.Write {
		r.skip("push", "--write pushes to a throw-away tag, and removes it again", "it was not tried")
		return
	}
	t := &trial{Repository: x, tag: "ocibridge-doctor." + strings.ToLower(rand.Text()[:10])}
	t.run(ctx, r)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientTimeout)
	defer cancel()
	t.remove(ctx, r)
}

// run pushes until a part that cannot be left out is refused.
func (t *trial) run(ctx context.Context, r *Report) {
	content := []byte(t.tag)
	v := artifact.Version{Provider: t.Provider, Version: provider.MustParseVersion("0.0.0-doctor")}
	p := artifact.Package{
		Platform: provider.MustParsePlatform("linux_amd64"), Filename: "doctor.zip", Digest: digest.FromBytes(content), Size: int64(len(content)),
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget,
		Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{p.Layer()},
	})
	if err != nil {
		r.fail("push", err, flaw)
		return
	}
	p.Manifest = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(manifest), Size: int64(len(manifest))}
	v.Packages = []artifact.Package{p}

	if err := t.blobs(ctx, artifact.Config(), artifact.Blob{Descriptor: p.Layer(), Data: content}); err != nil {
		r.fail("push", t.Explain(err), "the credential may lack the right to write")
		return
	}
	r.ok("push", "blobs are accepted")
	if err := t.manifest(ctx, artifact.Blob{Descriptor: p.Manifest, Data: manifest}, ""); err != nil {
		r.fail("packages", t.Explain(err), allow(artifact.TypeTarget))
		return
	}
	r.ok("packages", "manifests of the type %s are accepted", artifact.TypeTarget)
	if evidence, err := t.evidence(ctx); err != nil {
		r.warn("evidence", allow(artifact.TypeEvidence)+"; providers work without it, signatures cannot be checked again later", "not accepted: %v", err)
	} else {
		v.Evidence = &evidence
		r.ok("evidence", "manifests of the type %s are accepted", artifact.TypeEvidence)
	}
	index, err := artifact.EncodeIndex(v)
	if err != nil {
		r.fail("versions", err, flaw)
		return
	}
	if err := t.manifest(ctx, index, t.tag); err != nil {
		r.fail("versions", t.Explain(err), allow(artifact.TypeProvider))
		return
	}
	r.ok("versions", "indexes of the type %s are accepted", artifact.TypeProvider)
}

const flaw = "this is a flaw of ocibridge: report it"

func allow(artifactType string) string {
	return "ask whoever runs the registry to allow the artifact type " + artifactType
}

func (t *trial) evidence(ctx context.Context) (ocispec.Descriptor, error) {
	manifest, blobs, err := artifact.EncodeEvidence(artifact.Evidence{SHA256SUMS: []byte(t.tag)})
	if err == nil {
		err = t.blobs(ctx, blobs...)
	}
	if err == nil {
		err = t.manifest(ctx, manifest, "")
	}
	return manifest.Descriptor, err
}

func (t *trial) blobs(ctx context.Context, blobs ...artifact.Blob) error {
	for _, b := range blobs {
		if err := t.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return err
		}
	}
	return nil
}

// manifest stores a manifest, under a tag if there is one.
func (t *trial) manifest(ctx context.Context, b artifact.Blob, tag string) error {
	var err error
	if tag == "" {
		err = t.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
	} else {
		err = t.Store.PushReference(ctx, b.Descriptor, bytes.NewReader(b.Data), tag)
	}
	if err == nil {
		t.stored = append(t.stored, b.Descriptor)
	}
	return err
}

// remove removes what was stored, what refers to others before these. Some
// registries delete nothing that has a tag.
func (t *trial) remove(ctx context.Context, r *Report) {
	if len(t.stored) == 0 {
		return
	}
	_ = repository.Repository{Repository: t.Store}.Untag(ctx, t.tag) // the deletion tells
	var failed error
	for i := range t.stored {
		err := t.Store.Delete(ctx, t.stored[len(t.stored)-1-i])
		if err != nil && !errors.Is(err, errdef.ErrNotFound) && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		r.warn("removal", "delete the tag "+t.tag+" by hand; without deletes, the registry keeps every version", "what was pushed is still there: %v", failed)
		return
	}
	r.ok("removal", "what was pushed is gone again")
}
