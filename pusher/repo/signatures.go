package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Signatures returns the signatures of a manifest. They are not verified. An error is a *[RegistryError].
func (w Writer) Signatures(ctx context.Context, of ocispec.Descriptor) ([]approval.Signature, error) {
	sigs, err := artifact.Signatures(ctx, w.Dest.Store, Plain(of), nil)
	return sigs, w.wrap("read signatures in", err)
}

// SignedBy reports whether one of the signatures is a valid signature of a digest by the key. An error means that the signatures
// could not be checked.
func SignedBy(ctx context.Context, key *signing.Key, d digest.Digest, sigs []approval.Signature) (bool, error) {
	v, err := key.Policy().Check(ctx, d, sigs)
	return len(v.Approvals) > 0, err
}

// Approvals returns the signatures of a digest that meet a requirement of the policy. Without requirements, nobody has said whose
// signatures are approvals: it returns all that cosign has made. Attestations, such as provenance, are then no approvals.
func Approvals(ctx context.Context, p *approval.Policy, d digest.Digest, sigs []approval.Signature) (out []approval.Signature, err error) {
	if p.IsZero() {
		return slices.DeleteFunc(slices.Clone(sigs), func(s approval.Signature) bool { return !s.IsCosign(d) }), nil
	}
	for _, s := range sigs {
		v, err := p.Check(ctx, d, []approval.Signature{s})
		if err != nil {
			return nil, err
		}
		if len(v.Approvals) > 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// Sign stores a signature of a manifest, unless the manifest has a valid signature by the key. It returns all signatures
// of the manifest, and whether it has stored one. The caller has verified what the manifest names.
func (w Writer) Sign(ctx context.Context, of ocispec.Descriptor, key *signing.Key) (sigs []approval.Signature, signed bool, err error) {
	of = Plain(of)
	if sigs, err = w.Signatures(ctx, of); err != nil {
		return nil, false, err
	}
	if has, err := SignedBy(ctx, key, of.Digest, sigs); err != nil || has {
		return sigs, false, err
	}
	bundle, err := key.Sign(ctx, of.Digest)
	if err != nil {
		return nil, false, err
	}
	blobs, manifest, entry, err := encodeSignature(of, bundle)
	if err != nil {
		return nil, false, err
	}
	for _, b := range blobs {
		if err := w.SendBlob(ctx, "push a signature to", b); err != nil {
			return nil, false, err
		}
	}
	if err := w.Attach(ctx, of, manifest, entry); err != nil {
		return nil, false, err
	}
	// Read it back as a gateway does.
	if sigs, err = w.Signatures(ctx, of); err != nil {
		return nil, false, err
	}
	has, err := SignedBy(ctx, key, of.Digest, sigs)
	if err == nil && !has {
		err = hint.New(fmt.Sprintf("%s: the signature of %s was stored, and the registry does not return it", w.Dest.Repository, of.Digest),
			"run it again; ocibridge doctor shows what the registry can do")
	}
	return sigs, true, err
}

// The annotations with which cosign describes a bundle.
const (
	annotationContent   = "dev.sigstore.bundle.content"
	annotationPredicate = "dev.sigstore.bundle.predicateType"
)

// encodeSignature returns the manifest that attaches a bundle to a manifest, as cosign 3 writes it, the blobs that the manifest names,
// and the entry that describes it in a list of referrers.
func encodeSignature(of ocispec.Descriptor, bundle []byte) (blobs []artifact.Blob, manifest artifact.Blob, entry ocispec.Descriptor, err error) {
	config := artifact.Config()
	layer := artifact.Blob{Descriptor: content.NewDescriptorFromBytes(signing.MediaType, bundle), Data: bundle}
	annotations := map[string]string{annotationContent: "dsse-envelope", annotationPredicate: approval.PredicateCosign}
	data, err := document.Join(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: signing.MediaType,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor}, Subject: &of, Annotations: annotations,
	})
	if err != nil {
		return nil, artifact.Blob{}, entry, err
	}
	manifest = artifact.Blob{Descriptor: content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data), Data: data}
	entry = manifest.Descriptor
	entry.ArtifactType, entry.Annotations = signing.MediaType, annotations
	return []artifact.Blob{config, layer}, manifest, entry, nil
}

// Revoke removes signatures of a manifest. It keeps others that are stored in the same manifest. It returns the remaining
// signatures, and the number of removed ones.
func (w Writer) Revoke(ctx context.Context, of ocispec.Descriptor, chosen []approval.Signature, warn func(format string, args ...any)) (left []approval.Signature, removed int, err error) {
	of = Plain(of)
	sigs, err := w.Signatures(ctx, of)
	if err != nil || len(chosen) == 0 {
		return sigs, 0, err
	}
	selected, others := map[digest.Digest]bool{}, map[digest.Digest][]approval.Signature{}
	for _, s := range sigs {
		if hasSignature(chosen, s) {
			selected[s.Manifest] = true
			removed++
		} else {
			others[s.Manifest] = append(others[s.Manifest], s)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(selected)) {
		if err := w.removeSignatures(ctx, of, d, others[d], warn); err != nil {
			return nil, 0, err
		}
	}
	left, err = w.Signatures(ctx, of)
	if err == nil && slices.ContainsFunc(left, func(s approval.Signature) bool { return hasSignature(chosen, s) }) {
		err = hint.New(fmt.Sprintf("%s: the registry still returns a signature of %s that was removed", w.Dest.Repository, of.Digest),
			"run it again; until then, deny the digest in the gateway block")
	}
	return left, removed, err
}

// hasSignature reports whether a list has a signature with the same content.
func hasSignature(list []approval.Signature, s approval.Signature) bool {
	return slices.ContainsFunc(list, func(o approval.Signature) bool {
		return bytes.Equal(o.Bundle, s.Bundle) && bytes.Equal(o.Payload, s.Payload) && maps.Equal(o.Annotations, s.Annotations)
	})
}

// removeSignatures removes a manifest with signatures, or only the signatures that are not in keep.
func (w Writer) removeSignatures(ctx context.Context, of ocispec.Descriptor, d digest.Digest, keep []approval.Signature, warn func(format string, args ...any)) error {
	tag := SignatureTag(of.Digest)
	tagged, err := artifact.Resolve(ctx, w.Dest.Store, string(tag))
	switch {
	case err != nil && !IsUnusable(err) && !IsNotFound(err):
		return w.Failed("read "+string(tag)+" in", err)
	case err == nil && tagged.Digest == d && len(keep) > 0:
		return w.rewriteSignatures(ctx, tag, tagged, keep)
	case err == nil && tagged.Digest == d:
		if err := DeleteWithTag(ctx, w.Dest.Store, tagged, tag); err != nil {
			return w.Failed("remove "+string(tag)+" from", err)
		}
	}
	desc, err := w.Dest.Store.Resolve(ctx, string(d))
	if IsGone(err) {
		desc, err = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d}, nil
	}
	if err != nil {
		return w.Failed("look for a signature in", err)
	}
	return w.Detach(ctx, of, Plain(desc), warn)
}

// rewriteSignatures replaces the manifest under a tag of cosign by one that has only the given signatures.
func (w Writer) rewriteSignatures(ctx context.Context, tag ociaddr.Tag, desc ocispec.Descriptor, keep []approval.Signature) error {
	data, err := artifact.FetchManifest(ctx, w.Dest.Store, desc)
	if err != nil {
		return w.Failed("read "+string(tag)+" in", err)
	}
	var m ocispec.Manifest
	if err := artifact.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%s:%s: %w", w.Dest.Repository, tag, err)
	}
	m.Layers = slices.DeleteFunc(m.Layers, func(l ocispec.Descriptor) bool {
		return !slices.ContainsFunc(keep, func(s approval.Signature) bool {
			return l.Digest == digest.FromBytes(s.Payload) && maps.Equal(l.Annotations, s.Annotations)
		})
	})
	if data, err = document.Join(m); err != nil {
		return err
	}
	next := artifact.Blob{Descriptor: content.NewDescriptorFromBytes(desc.MediaType, data), Data: data}
	if err := w.SendTag(ctx, "tag "+string(tag)+" in", next, string(tag), helpImmutableList); err != nil {
		return err
	}
	if err := DeleteAny(ctx, w.Dest.Store, desc); err != nil && !CannotDelete(err) {
		return w.Failed("remove a signature from", err)
	}
	return nil
}

// SignatureTag returns the tag under which earlier releases of cosign store the signatures of a manifest.
func SignatureTag(d digest.Digest) ociaddr.Tag {
	return ociaddr.Tag(string(ociaddr.ReferrersTag(d)) + ".sig")
}

// SignersText names the signers of a digest. The signatures are not verified.
func SignersText(d digest.Digest, sigs []approval.Signature) string {
	var names []string
	for _, s := range approval.Signers(d, sigs) {
		if name := s.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// ErrApproved means that a change would lose the approvals of a version.
var ErrApproved = errors.New("it is approved")

// IsApproval reports whether a manifest is a referrer of the given subject, and holds only cosign's signatures of it. Attestations
// such as provenance are no approvals. It reads the manifest, because a list of referrers under a fallback tag can say anything. A
// manifest under the tag [SignatureTag] needs no subject (tagged). A manifest that cannot be read is no approval.
func IsApproval(ctx context.Context, store artifact.ReferenceFetcher, of digest.Digest, manifest ocispec.Descriptor, tagged bool) (bool, error) {
	if manifest.MediaType != ocispec.MediaTypeImageManifest {
		return false, nil
	}
	data, err := artifact.FetchManifest(ctx, store, Plain(manifest))
	if IsUnusable(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var m ocispec.Manifest
	if artifact.Unmarshal(data, &m) != nil || !tagged && m.Subject == nil || m.Subject != nil && m.Subject.Digest != of {
		return false, nil
	}
	sigs, whole, err := artifact.SignaturesIn(ctx, store, manifest.Digest, data)
	if IsUnusable(err) {
		return false, nil
	}
	return whole && !slices.ContainsFunc(sigs, func(s approval.Signature) bool { return !s.IsCosign(of) }), err
}
