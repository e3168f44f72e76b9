package doctor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// writeTag is the tag under which every trial writes. All trials write the same manifests under this tag.
// Therefore, if the login is not allowed to delete, at most one tag and its manifests remain.
const writeTag = "ocibridge-doctor.may-be-deleted"

// purpose is the description in a trial's package manifest. It is for people who find the manifest in the
// registry.
const purpose = "ocibridge doctor --write wrote this to find out whether it may push. It is no provider, and may be deleted."

// testVersion returns the version that a trial pushes.
func testVersion() provider.Version { return provider.MustParseVersion("0.0.0-doctor") }

// trial is the push of a test version, which has the media types and artifact types of a real version.
type trial struct {
	Repository
	tag    string
	stored []ocispec.Descriptor // the manifests that were stored, in the order in which they were pushed
	lost   bool                 // whether the registry lost a manifest between its push and the push of the index
}

// push pushes a test version, and then deletes that version if the login may delete.
func (x Repository) push(ctx context.Context, r *Report) {
	if !x.Write {
		r.skip("push", "--write pushes a test version, and deletes it where the login may delete", "it was not tried")
		return
	}
	t := &trial{Repository: x, tag: writeTag}
	tried := &Report{}
	if t.layout().run(ctx, t, tried); t.lost { // a concurrent run has deleted manifests that the index refers to
		tried = &Report{}
		t.layout().run(ctx, t, tried)
	}
	r.Checks = append(r.Checks, tried.Checks...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientTimeout)
	defer cancel()
	t.remove(ctx, r)
}

// run pushes a single manifest, and its zip.
func (a ofZip) run(ctx context.Context, t *trial, r *Report) {
	content := []byte(t.tag)
	_, artifactType := artifact.TypeOf(a.Kind())
	m := artifact.Version{Owner: a.Address, Version: testVersion(), Packages: []artifact.Package{{Digest: digest.FromBytes(content), Size: int64(len(content))}}}
	manifest, err := artifact.EncodeZip(m)
	if err != nil {
		r.fail("push", err, flaw)
		return
	}
	if !t.content(ctx, r, artifact.Blob{Descriptor: m.Zip().Layer(), Data: content}) {
		return
	}
	if err := t.tagged(ctx, manifest); err != nil {
		t.lost = refusals.UnknownBlob(err)
		t.fail(r, "versions", err, allow(artifactType))
		return
	}
	r.ok("versions", "manifests of the type %s are accepted", artifactType)
}

// content pushes the config and the content of the test version. The content takes the place of a zip. The bool is
// false if the registry refuses one of the two.
func (t *trial) content(ctx context.Context, r *Report, content artifact.Blob) bool {
	if err := t.blobs(ctx, artifact.Config(), content); err != nil {
		t.fail(r, "push", err, "the credential may lack the right to write")
		return false
	}
	r.ok("push", "blobs are accepted")
	return true
}

func (a ofProvider) run(ctx context.Context, t *trial, r *Report) {
	content := []byte(t.tag)
	v := artifact.Version{Owner: a.Address, Version: testVersion()}
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

	if !t.content(ctx, r, artifact.Blob{Descriptor: p.Layer(), Data: content}) {
		return
	}
	if err := t.manifest(ctx, artifact.Blob{Descriptor: p.Manifest, Data: manifest}, ""); err != nil {
		t.fail(r, "packages", err, allow(artifact.TypeTarget))
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
	if err := t.tagged(ctx, index); err != nil {
		t.lost = refusals.UnknownBlob(err)
		t.fail(r, "versions", err, allow(artifact.TypeProvider))
		return
	}
	r.ok("versions", "indexes of the type %s are accepted", artifact.TypeProvider)
}

// fail adds a failed check. Its name is quota if the registry has no room for more.
func (t *trial) fail(r *Report, name string, err error, help string) {
	if refusals.Full(err) {
		name = "quota"
	}
	r.fail(name, t.Explain(err), help)
}

const flaw = "this is a flaw of ocibridge: report it"

func allow(artifactType string) string {
	return "ask the operator of the registry to allow the artifact type " + artifactType
}

func (t *trial) evidence(ctx context.Context) (ocispec.Descriptor, error) {
	manifest, blobs, err := artifact.EncodeEvidence(artifact.Evidence{
		SHA256SUMS: fmt.Appendf(nil, "%x  doctor.zip\n", sha256.Sum256([]byte(t.tag))), Record: artifact.Record{Verdict: trust.ChecksumOnly},
	})
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

// manifest pushes a manifest under a tag, or under its digest if tag is "".
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

// tagged pushes the manifest of the version under the tag. The registry may refuse the push because tags are immutable
// and an earlier trial has left the tag. In that case tagged pushes the manifest under its digest.
func (t *trial) tagged(ctx context.Context, b artifact.Blob) error {
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

// remove deletes the stored manifests, and reports the manifests that remain. It deletes the index before the manifests
// that the index refers to. It also deletes the tag, because some registries do not delete a tagged manifest. Other
// registries delete a tag only together with its manifest.
func (t *trial) remove(ctx context.Context, r *Report) {
	if len(t.stored) == 0 {
		return
	}
	if there, err := t.Store.Resolve(ctx, t.tag); err == nil && t.hasStored(there) {
		_ = registry.Repository{Repository: t.Store}.Untag(ctx, t.tag) // the deletions below show whether this worked
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
	r.warn("removal", again+"to remove it, run this again with a login that may delete, or delete the tag "+t.tag+" and the manifests that it names with the registry's own tools",
		"the test version stays, as the tag %s and %s: %v", t.tag, stays, refused)
}
