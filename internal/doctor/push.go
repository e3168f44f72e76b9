package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/refusals"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/provider"
)

// writeTag is the tag that every trial writes. All trials write the same manifests under it, so at most one tag
// and its manifests remain if the login is not allowed to delete.
const writeTag = "ocibridge-doctor.may-be-deleted"

// purpose is the description in the package manifest of a trial, for people who find the manifest.
const purpose = "ocibridge doctor --write wrote this to find out whether it may push. It is no provider, and may be deleted."

// trial is a test push of a version, with the media types and artifact types of a real version.
type trial struct {
	Repository
	tag    string
	stored []ocispec.Descriptor // the stored manifests, in the order of their push
	lost   bool                 // whether the registry has lost a manifest that was pushed
}

// push pushes a test version, and deletes it if the login is allowed to.
func (x Repository) push(ctx context.Context, r *Report) {
	if !x.Write {
		r.skip("push", "--write pushes a test version, and deletes it where the login may delete", "it was not tried")
		return
	}
	t := &trial{Repository: x, tag: writeTag}
	tried := &Report{}
	if t.run(ctx, tried); t.lost { // another run has deleted the manifests that the index names
		tried = &Report{}
		t.run(ctx, tried)
	}
	r.Checks = append(r.Checks, tried.Checks...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientTimeout)
	defer cancel()
	t.remove(ctx, r)
}

// run pushes the parts of the version, until the registry refuses a required part.
func (t *trial) run(ctx context.Context, r *Report) {
	content := []byte(t.tag)
	v := artifact.Version{Provider: t.Provider, Version: provider.MustParseVersion("0.0.0-doctor")}
	p := artifact.Package{
		Platform: provider.MustParsePlatform("linux_amd64"), Filename: "doctor.zip", Digest: digest.FromBytes(content), Size: int64(len(content)),
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifact.TypeTarget,
		Config: artifact.Config().Descriptor, Layers: []ocispec.Descriptor{p.Layer()},
		Annotations: map[string]string{ocispec.AnnotationDescription: purpose},
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
	if err := t.index(ctx, index); err != nil {
		t.lost = refusals.UnknownBlob(err)
		r.fail("versions", t.Explain(err), allow(artifact.TypeProvider))
		return
	}
	r.ok("versions", "indexes of the type %s are accepted", artifact.TypeProvider)
}

const flaw = "this is a flaw of ocibridge: report it"

func allow(artifactType string) string {
	return "ask the operator of the registry to allow the artifact type " + artifactType
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

// manifest pushes a manifest, under tag if tag is not "".
func (t *trial) manifest(ctx context.Context, b artifact.Blob, tag string) error {
	var err error
	if tag == "" {
		err = t.Store.Push(ctx, b.Descriptor, bytes.NewReader(b.Data))
	} else {
		err = t.Store.PushReference(ctx, b.Descriptor, bytes.NewReader(b.Data), tag)
	}
	if err == nil && !t.hasStored(b.Descriptor) {
		t.stored = append(t.stored, b.Descriptor)
	}
	return err
}

func (t *trial) hasStored(desc ocispec.Descriptor) bool {
	return slices.ContainsFunc(t.stored, func(d ocispec.Descriptor) bool { return d.Digest == desc.Digest })
}

// index pushes the index under the tag. If tags are immutable and an earlier trial has left the tag, index
// pushes it by its digest.
func (t *trial) index(ctx context.Context, b artifact.Blob) error {
	err := t.manifest(ctx, b, t.tag)
	if err == nil {
		return nil
	}
	there, rerr := t.Store.Resolve(ctx, t.tag)
	if rerr != nil || there.Digest != b.Descriptor.Digest {
		return err
	}
	return t.manifest(ctx, b, "")
}

// remove deletes the manifests, the index before the manifests that it names. It reports the manifests that
// remain. Some registries do not delete a tagged manifest. Others delete a tag only together with its manifest.
func (t *trial) remove(ctx context.Context, r *Report) {
	if len(t.stored) == 0 {
		return
	}
	if there, err := t.Store.Resolve(ctx, t.tag); err == nil && t.hasStored(there) {
		_ = registry.Repository{Repository: t.Store}.Untag(ctx, t.tag) // deleting the manifests shows whether this worked
	}
	var refused error
	left := 0
	for i := range t.stored {
		err := t.Store.Delete(ctx, t.stored[len(t.stored)-1-i])
		if err == nil || errors.Is(err, errdef.ErrNotFound) {
			continue
		}
		if left++; refused == nil {
			refused = err
		}
	}
	if left == 0 {
		r.ok("removal", "the test version is gone again: no tag and no manifest of it is left, and the registry's garbage collection removes its blobs")
		return
	}
	const again = "the next run writes the same content again and adds nothing; "
	stays := count(left, "manifest")
	if _, err := t.Store.Resolve(ctx, t.tag); errors.Is(err, errdef.ErrNotFound) {
		r.warn("removal", again+"a garbage collection that takes untagged manifests removes it", "the test version stays, as %s without a tag: %v", stays, refused)
		return
	}
	r.warn("removal", again+"to remove it, run this again with a login that may delete, or delete the tag "+t.tag+", its index and the manifests in that index with the registry's own tools",
		"the test version stays, as the tag %s and %s: %v", t.tag, stays, refused)
}
