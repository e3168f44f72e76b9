package artifact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

const (
	// TypeBundle is the artifact type of a manifest with a Sigstore bundle, and the media type of its layer.
	TypeBundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// bundlePrefix is the beginning of TypeBundle and of the types of older bundles.
	bundlePrefix = "application/vnd.dev.sigstore.bundle"
	// mediaTypeSimple is the media type of a layer with a simple signing payload.
	mediaTypeSimple = "application/vnd.dev.cosign.simplesigning.v1+json"
)

const (
	// maxSignatureManifest is the maximum size in bytes of a manifest with signatures. cosign's manifests have about 1 KiB, and
	// about 6 KiB for each older signature with a certificate.
	maxSignatureManifest = 1 << 20
	// maxSignatures is the maximum number of signatures that are read of one manifest. One more than are checked, so that the
	// verdict says that some were ignored.
	maxSignatures = approval.MaxSignatures + 1
	// maxSignatureBytes is the maximum size in bytes of all signatures of one manifest, with their annotations.
	maxSignatureBytes = 4 << 20
	// signatureFetches is the maximum number of concurrent fetches of the signatures of one manifest.
	signatureFetches = 8
)

// Signatures reads the signatures of a manifest. They are not verified. It reads three groups, one after the other:
//
//  1. the referrers that the list describes as Sigstore bundles
//  2. the other referrers, because lists under fallback tags can describe a bundle as something else
//  3. the manifest under the tag sha256-HEX.sig, where older versions of cosign store signatures
//
// After each group, Signatures calls enough with all signatures that it has read so far. If enough returns true, Signatures
// returns these signatures. If enough is nil, it reads all groups. It ignores signatures that are missing or too large, and those
// above the maximum of 65 signatures or 4 MiB.
//
// An error means that signatures may exist which could not be read: the registry, the connection or the login failed, or
// content is damaged. It never means that there are no signatures.
func Signatures(ctx context.Context, store ReferrerStore, of ocispec.Descriptor, enough func([]approval.Signature) bool) ([]approval.Signature, error) {
	return new(ReferrersAPI).Signatures(ctx, store, of, enough)
}

// ReferrersAPI remembers whether one registry refuses the referrers API. Reading signatures then begins with those that tags lead
// to, and uses the API only if they are not enough. The zero value works, and is safe for concurrent use.
//
// A refusal changes only this order, and never means that there are no signatures: another repository of the registry can have
// the API, the registry can get it, and a proxy can refuse a request while the registry is down.
type ReferrersAPI struct{ refused atomic.Bool }

// Signatures is like the function [Signatures]. It learns of refusals only if the store does not read fallback tags itself.
func (a *ReferrersAPI) Signatures(ctx context.Context, store ReferrerStore, of ocispec.Descriptor, enough func([]approval.Signature) bool) ([]approval.Signature, error) {
	return a.read(ctx, store, of, nil, enough)
}

// read is like [ReferrersAPI.Signatures], but does not read the manifests with the given digests.
func (a *ReferrersAPI) read(ctx context.Context, store ReferrerStore, of ocispec.Descriptor, except []digest.Digest, enough func([]approval.Signature) bool) ([]approval.Signature, error) {
	r := &signatureReader{store: store, lister: store, of: of, seen: map[digest.Digest]bool{}}
	for _, d := range except {
		r.seen[d] = true
	}
	type step = func(context.Context) (int, error)
	list := func(ctx context.Context) (int, error) { return 0, r.list(ctx, a) }
	steps := []step{list, r.readBundles, r.readOthers, r.readTag}
	if a.refused.Load() {
		fallback := func(ctx context.Context) (int, error) { return 0, r.listFallback(ctx) }
		steps = []step{fallback, r.readBundles, r.readOthers, r.readTag, list, r.readBundles, r.readOthers}
	}
	for _, step := range steps {
		n, err := step(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the signatures: %w", err)
		}
		if n > 0 && enough != nil && enough(r.found) {
			break
		}
	}
	return r.found, nil
}

// signatureReader reads the signatures of one manifest.
type signatureReader struct {
	store    ReferenceFetcher
	lister   ReferrerLister
	of       ocispec.Descriptor
	seen     map[digest.Digest]bool // the manifests that are listed, or must not be read
	bundles  listed                 // referrers that the list describes as bundles
	others   listed
	fallback bool // the list under the fallback tag was read
	found    []approval.Signature
	count    int   // the signatures that were chosen for reading
	bytes    int64 // their size, with their annotations
}

// listed are referrers that can have signatures. The first ones were read.
type listed struct {
	all  []ocispec.Descriptor
	read int
}

// list lists the referrers with the API. If the registry refuses the API, it reads the list under the fallback tag, where signers
// then write it. If there is no valid list either, nothing is listed.
func (r *signatureReader) list(ctx context.Context, api *ReferrersAPI) error {
	err := r.lister.Referrers(ctx, r.of, "", r.add)
	switch {
	case err == nil:
		api.refused.Store(false)
		return nil
	case isNotFound(err), IsInvalid(err):
		return nil
	case !refusesReferrers(err):
		return err
	case errors.Is(err, errdef.ErrUnsupported), refusals.Content(err): // status 401 may be about the login
		api.refused.Store(true)
	}
	return r.listFallback(ctx)
}

// listFallback lists the referrers under the fallback tag, once.
func (r *signatureReader) listFallback(ctx context.Context) error {
	if r.fallback {
		return nil
	}
	r.fallback = true
	if _, err := listFallback(ctx, r.store, r.of, r.add); err != nil && !IsInvalid(err) {
		return err
	}
	return nil
}

// add adds those referrers of a page that can have signatures.
func (r *signatureReader) add(page []ocispec.Descriptor) error {
	for _, d := range page {
		if r.seen[d.Digest] || d.MediaType != ocispec.MediaTypeImageManifest || checkDescriptor(d, maxSignatureManifest) != nil {
			continue
		}
		group := &r.others
		if strings.HasPrefix(d.ArtifactType, bundlePrefix) {
			group = &r.bundles
		}
		if len(group.all) == maxSignatures {
			continue
		}
		// Without clones, the strings would keep the whole page in memory.
		d = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(strings.Clone(string(d.Digest))), Size: d.Size}
		r.seen[d.Digest] = true
		group.all = append(group.all, d)
	}
	return nil
}

func (r *signatureReader) readBundles(ctx context.Context) (int, error) {
	return r.manifests(ctx, &r.bundles)
}

func (r *signatureReader) readOthers(ctx context.Context) (int, error) {
	return r.manifests(ctx, &r.others)
}

// signatureLayer is a layer that contains a signature.
type signatureLayer struct {
	ocispec.Descriptor
	manifest digest.Digest
}

// manifests reads the signatures in the manifests that were not read yet. It returns their number.
func (r *signatureReader) manifests(ctx context.Context, group *listed) (int, error) {
	all := group.all[group.read:]
	group.read = len(group.all)
	layers := make([][]signatureLayer, len(all))
	err := fetchAll(ctx, len(all), func(ctx context.Context, i int) error {
		data, err := r.manifest(ctx, all[i])
		layers[i] = signatureLayers(all[i].Digest, data)
		return err
	})
	if err != nil {
		return 0, err
	}
	return r.layers(ctx, slices.Concat(layers...))
}

// manifest fetches a manifest. If the list gives it a wrong size or type, the digest alone counts: a wrong entry in a list that
// anybody who can push can write must not make the version unavailable. data is nil if the manifest is too large.
func (r *signatureReader) manifest(ctx context.Context, listed ocispec.Descriptor) (data []byte, err error) {
	data, err = fetchVerified(ctx, r.store, listed, maxSignatureManifest)
	if err == nil || errors.Is(err, ErrMissing) || errors.As(err, new(*errcode.ErrorResponse)) || ctx.Err() != nil {
		return data, err
	}
	desc, data, again := fetchTag(ctx, r.store, string(listed.Digest))
	switch {
	case errors.Is(again, ErrTooLarge):
		return nil, nil
	case again != nil || desc.Digest != listed.Digest:
		return nil, err
	case len(data) > maxSignatureManifest:
		return nil, nil
	}
	return data, nil
}

// readTag reads the signatures in the manifest under the tag of older versions of cosign. There are none if the tag does not exist.
// Harbor lists this manifest as a referrer, too.
func (r *signatureReader) readTag(ctx context.Context) (int, error) {
	desc, data, err := fetchTag(ctx, r.store, string(ociaddr.CosignTags(r.of.Digest)[0]))
	switch {
	case isNotFound(err), errors.Is(err, ErrTooLarge), err == nil && len(data) > maxSignatureManifest:
		return 0, nil
	case err != nil:
		return 0, err
	case r.seen[desc.Digest]:
		return 0, nil
	}
	r.seen[desc.Digest] = true
	return r.layers(ctx, signatureLayers(desc.Digest, data))
}

// SignaturesIn reads the signatures in the content of one manifest. They are not verified. whole reports whether the manifest has
// nothing but these signatures. An error is like that of [Signatures].
func SignaturesIn(ctx context.Context, store ReferenceFetcher, manifest digest.Digest, data []byte) (sigs []approval.Signature, whole bool, err error) {
	var m ocispec.Manifest
	layers := signatureLayers(manifest, data)
	if len(layers) == 0 || Unmarshal(data, &m) != nil {
		return nil, false, nil
	}
	r := &signatureReader{store: store}
	n, err := r.layers(ctx, layers)
	return r.found, n == len(m.Layers), err
}

// layers reads the signatures in layers, within the limits. It returns their number.
func (r *signatureReader) layers(ctx context.Context, all []signatureLayer) (int, error) {
	all = slices.DeleteFunc(all, func(l signatureLayer) bool { return !r.choose(l) })
	out := make([]approval.Signature, len(all))
	err := fetchAll(ctx, len(all), func(ctx context.Context, i int) error {
		s := approval.Signature{Manifest: all[i].manifest, Annotations: all[i].Annotations}
		content := &s.Bundle
		if all[i].MediaType == mediaTypeSimple {
			content = &s.Payload
		}
		data, err := fetchVerified(ctx, r.store, all[i].Descriptor, all[i].Size)
		*content = data
		out[i] = s
		return err
	})
	if err != nil {
		return 0, err
	}
	out = slices.DeleteFunc(out, func(s approval.Signature) bool { return s.Bundle == nil && s.Payload == nil })
	r.found = append(r.found, out...)
	return len(out), nil
}

// choose reports whether a layer is within the limits, and counts it then.
func (r *signatureReader) choose(l signatureLayer) bool {
	size := l.Size
	for name, value := range l.Annotations {
		size += int64(len(name) + len(value))
	}
	if r.count == maxSignatures || r.bytes+size > maxSignatureBytes {
		return false
	}
	r.count++
	r.bytes += size
	return true
}

// signatureLayers returns the layers of a manifest that contain signatures and are not too large. A manifest of another kind has none.
func signatureLayers(manifest digest.Digest, data []byte) (out []signatureLayer) {
	var m ocispec.Manifest
	if Unmarshal(data, &m) != nil || m.MediaType != "" && m.MediaType != ocispec.MediaTypeImageManifest {
		return nil
	}
	for _, layer := range m.Layers {
		limit := int64(approval.MaxPayloadBytes)
		if strings.HasPrefix(layer.MediaType, bundlePrefix) {
			layer.Annotations, limit = nil, approval.MaxBundleBytes
		} else if layer.MediaType != mediaTypeSimple {
			continue
		}
		layer.Data = nil
		if checkDescriptor(layer, limit) == nil && len(out) < maxSignatures {
			out = append(out, signatureLayer{layer, manifest})
		}
	}
	return out
}

// fetchAll calls fetch for the numbers below n, some of them concurrently. It ignores errors that wrap [ErrMissing]: a list of
// referrers can name a manifest that was deleted.
func fetchAll(ctx context.Context, n int, fetch func(ctx context.Context, i int) error) error {
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(signatureFetches)
	for i := range n {
		g.Go(func() error {
			if err := fetch(ctx, i); !errors.Is(err, ErrMissing) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}

// NamesItself returns an error unless the index or manifest of a version names the given address and version in its own
// annotations. A signature over a manifest that does not name them could be used for any address and version. The error wraps
// [ErrForeign] if the manifest names another one.
func NamesItself(v *Version, a subject.Address, ver provider.Version) error {
	where, push := "index", subject.TraitsOf(a).Replace
	if a.Kind() != subject.Provider {
		where = "manifest"
	}
	if err := v.checkOwner(a, ver, where); err != nil {
		return hint.Wrap(err, "%s", HelpForeign(err, a))
	}
	if v.Owner == nil || v.Version.IsZero() {
		return hint.Wrap(fmt.Errorf("its %s does not name the %s and the version, so that a signature over it proves neither", where, a.Kind()),
			"push it again with %s, and approve it then", push)
	}
	return nil
}

// ResolveNamed returns the descriptor of the manifest under a tag of a version, like [Resolve]. unnamed is the reason if no signature over
// the manifest can approve the version, because the manifest does not name it, or names another one: see [NamesItself]. It is nil for
// content that is invalid in other ways, which [Read] and [ReadZip] return an error for.
func ResolveNamed(ctx context.Context, store ReferenceFetcher, a subject.Address, v provider.Version, tag ociaddr.Tag) (desc ocispec.Descriptor, unnamed, err error) {
	desc, data, err := fetchTag(ctx, store, string(tag))
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	var found *Version
	var invalid error
	if a.Kind() == subject.Provider {
		found, invalid = decodeIndex(desc, data)
	} else {
		found, invalid = zipLayoutOf(a).decode(desc, data)
	}
	if invalid == nil {
		return desc, NamesItself(found, a, v), nil
	}
	if foreign := foreignOr(invalid, data, a); errors.Is(foreign, ErrForeign) {
		unnamed = hint.Wrap(foreign, "%s", HelpForeign(foreign, a))
	}
	return desc, unnamed, nil
}

// CheckApprovals reads the signatures of a stored version, and returns the verdict of the policy for the given address and
// version. If the version's index or manifest does not name both, all requirements are missing. It reads no more signatures
// than the policy needs, and none for a policy without requirements.
//
// An error means that nothing was decided: see [Signatures] and [approval.Policy.Check].
func CheckApprovals(ctx context.Context, store ReferrerStore, p *approval.Policy, v *Version, a subject.Address, ver provider.Version) (approval.Verdict, error) {
	if p.IsZero() {
		return approval.Verdict{}, nil
	}
	if err := NamesItself(v, a, ver); err != nil {
		return p.Unnamed(err), nil
	}
	verdict, undecided := p.Check(ctx, v.Index.Digest, nil) // without any signature
	_, err := new(ReferrersAPI).read(ctx, store, v.Index, v.parts(), func(found []approval.Signature) bool {
		verdict, undecided = p.Check(ctx, v.Index.Digest, found)
		return undecided != nil || len(verdict.Missing) == 0
	})
	if err = errors.Join(err, undecided); err != nil {
		return approval.Verdict{}, err
	}
	return verdict, nil
}

// parts returns the digests of the manifests that belong to the version itself. A list of referrers contains them if a tool has
// given the index its own fallback tag.
func (v *Version) parts() []digest.Digest {
	out := []digest.Digest{v.Index.Digest, v.evidence()}
	for _, p := range v.Packages {
		out = append(out, p.Manifest.Digest)
	}
	for _, m := range v.Missing {
		out = append(out, m.Manifest)
	}
	return out
}
