package pusher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// maxRounds bounds how often a push writes its tag because others write it, too.
const maxRounds = 20

// publish makes the tag name every package of the release, beside those that
// were there and those that other pushes left, and returns what it names in the
// end.
func (w *push) publish(ctx context.Context, sent []artifact.Package) (*artifact.Version, Status, error) {
	own := w.ownPackages(sent)
	if w.before != nil && len(sent) == 0 {
		// In place, unless another push was ended before it could put back what it
		// overwrote.
		left, err := w.parts(ctx)
		if err != nil {
			return nil, "", err
		}
		next, err := w.union(ctx, w.before, left, own, w.before.Evidence)
		if err != nil || same(w.before, next) {
			return w.before, Unchanged, err
		}
	}
	evidence, err := w.sendEvidence(ctx)
	if err != nil {
		return nil, "", err
	}
	joined := w.release.Partial
	if joined {
		if err := w.leave(ctx, own, evidence); err != nil {
			return nil, "", err
		}
	}
	// Every round reads after the last write, so that whoever writes last has
	// seen the tags that all others left before they wrote.
	for range maxRounds {
		left, err := w.parts(ctx)
		if err != nil {
			return nil, "", err
		}
		if len(left.packages) > 0 && !joined {
			// Somebody pushes platform by platform: do as they do, and look again.
			if err := w.leave(ctx, own, evidence); err != nil {
				return nil, "", err
			}
			joined = true
			continue
		}
		now, err := w.current(ctx)
		if err != nil {
			return nil, "", err
		}
		next, err := w.union(ctx, now, left, own, evidence)
		if err != nil {
			return nil, "", err
		}
		if now != nil && same(now, next) {
			return now, w.status(now), nil
		}
		if err := w.sendIndex(ctx, next); err != nil {
			return nil, "", err
		}
	}
	return nil, "", hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", w.dest.Repository, w.tag), "let one push of this version run at a time")
}

// same reports whether two versions hold the same packages and evidence.
func same(a, b *artifact.Version) bool {
	if (a.Evidence == nil) != (b.Evidence == nil) || a.Evidence != nil && a.Evidence.Digest != b.Evidence.Digest {
		return false
	}
	return samePackages(a.Packages, b.Packages)
}

// left is what pushes of only some platforms of this version left under tags of
// their own.
type left struct {
	packages []artifact.Package
	evidence *ocispec.Descriptor // signed; nil for none
}

// ownPackages returns all packages of the release: those sent now, and those
// that were in place.
func (w *push) ownPackages(sent []artifact.Package) []artifact.Package {
	own := slices.Clone(sent)
	for _, pkg := range w.release.Packages {
		if there := w.present(pkg.Platform); there != nil && find(own, pkg.Platform) == nil {
			own = append(own, *there)
		}
	}
	return own
}

// status tells the outcome from what was there before.
func (w *push) status(after *artifact.Version) Status {
	if w.before == nil {
		return Pushed
	}
	for _, p := range w.before.Packages {
		if q := find(after.Packages, p.Platform); q == nil || q.Digest != p.Digest {
			return Replaced
		}
	}
	if len(after.Packages) == len(w.before.Packages) {
		return Unchanged // by force, what was deleted of it is there again
	}
	return Completed
}

// current reads what the tag names now; nil for nothing, or for what --force
// replaces.
func (w *push) current(ctx context.Context) (*artifact.Version, error) {
	v, err := artifact.Read(ctx, w.dest.Store, w.release.Provider(), w.release.Version())
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, errdef.ErrNotFound):
		return nil, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, w.occupied(err, "let the template give each provider a repository of its own")
	case w.o.Force && (errors.Is(err, artifact.ErrNotProvider) || errors.Is(err, artifact.ErrAmbiguous) || errors.Is(err, artifact.ErrTooLarge)):
		return nil, nil
	}
	return nil, w.registryError("read "+string(w.tag)+" in", err)
}

// union returns the version to be tagged: the release's own packages, those that
// the tag names now, and those that others have left. A package that the
// release's checksum document contradicts is a conflict if it is tagged, and is
// passed over if it was only left.
func (w *push) union(ctx context.Context, now *artifact.Version, others left, own []artifact.Package, evidence *ocispec.Descriptor) (*artifact.Version, error) {
	next := &artifact.Version{
		Provider: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols,
		Packages: slices.Clone(own),
	}
	replaced := false
	var tagged *ocispec.Descriptor
	if now != nil {
		for _, p := range now.Packages {
			mine := find(own, p.Platform)
			want, known := w.listed(p)
			if mine != nil {
				want, known = mine.Digest, true
			}
			conflicts := known && want != p.Digest
			if conflicts && !w.o.Force {
				return nil, w.conflict(p, want)
			}
			replaced = replaced || conflicts
			if mine == nil && !conflicts { // by force, what belongs to another release goes
				next.Packages = append(next.Packages, p)
			}
		}
		if next.Protocols == nil {
			next.Protocols = now.Protocols
		}
		tagged = now.Evidence
	}
	for _, p := range others.packages {
		// It was left by who knows whom: a signed release vouches for what it lists
		// and for nothing else.
		d, listed := w.listed(p)
		vouched := listed && d == p.Digest || !listed && w.sums.Verdict() == trust.ChecksumOnly
		if find(next.Packages, p.Platform) == nil && vouched && !provider.Misnamed(p.Filename, w.release.Version(), p.Platform) {
			next.Packages = append(next.Packages, p)
		}
	}
	var err error
	next.Evidence, err = w.strongest(ctx, replaced, tagged, others.evidence, evidence)
	return next, err
}

// strongest returns the evidence to keep: what is tagged, unless it is weaker than
// what was left or is our own, or is about packages that were replaced.
func (w *push) strongest(ctx context.Context, replaced bool, tagged, left, own *ocispec.Descriptor) (*ocispec.Descriptor, error) {
	switch {
	case replaced:
		return own, nil
	case tagged == nil && left != nil:
		return left, nil
	case tagged == nil:
		return own, nil
	case own != nil && own.Digest == tagged.Digest && w.sums.Verdict() == trust.Signed,
		left == nil && (own == nil || w.sums.Verdict() != trust.Signed):
		return tagged, nil // nothing here is stronger
	}
	e, err := artifact.ReadEvidence(ctx, w.dest.Store, *tagged)
	switch {
	case err == nil && e.Record.Verdict == trust.Signed:
		described := artifact.DescribeEvidence(*tagged, trust.Signed)
		return &described, nil
	case err != nil && !errors.Is(err, artifact.ErrNotProvider) && !errors.Is(err, artifact.ErrAmbiguous) && !errors.Is(err, artifact.ErrTooLarge):
		return nil, w.registryError("read evidence in", err)
	case left != nil:
		return left, nil
	}
	return own, nil
}

// listed returns the digest that the release's checksum document gives for a
// package: by the name that its platform's package is published under, whatever
// name it says it has, or else by that.
func (w *push) listed(p artifact.Package) (digest.Digest, bool) {
	sum, ok := w.sums.Sum(provider.PackageFilename(w.release.Provider(), w.release.Version(), p.Platform))
	if !ok {
		sum, ok = w.sums.Sum(p.Filename)
	}
	return digest.NewDigestFromBytes(digest.SHA256, sum[:]), ok
}

// evidence encodes what the release was accepted on.
func (w *push) evidence() (artifact.Blob, []artifact.Blob, error) {
	return artifact.EncodeEvidence(artifact.NewEvidence(w.sums, w.release.Origin, w.release.Protocols))
}

// sendEvidence stores the evidence. A registry that takes packages and refuses
// this has a list of allowed types: the push goes on without, and says so.
func (w *push) sendEvidence(ctx context.Context) (*ocispec.Descriptor, error) {
	manifest, blobs, err := w.evidence()
	if err != nil {
		return nil, err
	}
	for _, b := range append(blobs, artifact.Config(), manifest) {
		err := w.sendBlob(ctx, "push evidence to", b)
		var answer *errcode.ErrorResponse
		if errors.As(err, &answer) && refuses(answer.StatusCode) {
			w.warnings = append(w.warnings,
				fmt.Sprintf("%s refuses the evidence (%v): stored without it, so the publisher's signature cannot be checked again later", w.dest.Repository.Registry, answer))
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return &manifest.Descriptor, nil
}

// refuses reports whether a status means that the content is not wanted, rather
// than that something is in the way of it.
func refuses(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// sendIndex stores the index by digest, and then under the tag.
func (w *push) sendIndex(ctx context.Context, v *artifact.Version) error {
	index, err := artifact.EncodeIndex(*v)
	if err != nil {
		return err
	}
	if err := w.sendBlob(ctx, "push index to", index); err != nil {
		return err
	}
	return w.sendTag(ctx, "tag "+string(w.tag)+" in", index.Descriptor, index.Data, string(w.tag))
}

// leave tags the platform manifests of the packages given, and signed evidence.
func (w *push) leave(ctx context.Context, packages []artifact.Package, evidence *ocispec.Descriptor) error {
	for _, p := range packages {
		tag, err := ociaddr.PartialTag(w.release.Version(), p.Platform)
		if err != nil {
			return err
		}
		if err := w.leaveManifest(ctx, p.Manifest, tag); err != nil {
			return err
		}
	}
	if evidence == nil || w.sums.Verdict() != trust.Signed {
		return nil
	}
	tag, err := ociaddr.PartialEvidenceTag(w.release.Version())
	if err != nil {
		return err
	}
	return w.leaveManifest(ctx, *evidence, tag)
}

func (w *push) leaveManifest(ctx context.Context, desc ocispec.Descriptor, tag ociaddr.Tag) error {
	data, err := artifact.FetchManifest(ctx, w.dest.Store, desc)
	if err != nil {
		return w.registryError("read a manifest in", err)
	}
	return w.sendTag(ctx, "tag "+string(tag)+" in", desc, data, string(tag))
}

// parts returns what pushes of only some platforms of this version have left.
// What does not read as such is passed over: it says nothing.
func (w *push) parts(ctx context.Context) (left, error) {
	var out left
	tags, err := w.tags(ctx)
	if err != nil {
		return out, err
	}
	evidenceTag, err := ociaddr.PartialEvidenceTag(w.release.Version())
	for _, t := range tags {
		if err == nil && t == evidenceTag {
			if out.evidence, err = w.leftEvidence(ctx, t); err != nil {
				return out, err
			}
			continue
		}
		v, platform, ok := t.Partial()
		if !ok || v != w.release.Version() {
			continue
		}
		p, err := artifact.ReadPackage(ctx, w.dest.Store, string(t), w.release.Provider(), v, platform)
		if isUnusable(err) {
			continue
		}
		if err != nil {
			return out, w.registryError("read "+string(t)+" in", err)
		}
		out.packages = append(out.packages, *p)
	}
	return out, nil
}

// leftEvidence returns the evidence that a tag names, nil if it names none that
// is signed.
func (w *push) leftEvidence(ctx context.Context, tag ociaddr.Tag) (*ocispec.Descriptor, error) {
	desc, err := artifact.Resolve(ctx, w.dest.Store, string(tag))
	var e *artifact.Evidence
	if err == nil {
		e, err = artifact.ReadEvidence(ctx, w.dest.Store, desc)
	}
	switch {
	case isUnusable(err), err == nil && e.Record.Verdict != trust.Signed:
		return nil, nil
	case err != nil:
		return nil, w.registryError("read "+string(tag)+" in", err)
	}
	desc = artifact.DescribeEvidence(desc, trust.Signed)
	return &desc, nil
}

// isUnusable reports whether an error is about content, and not about the way to
// it.
func isUnusable(err error) bool {
	for _, reason := range []error{artifact.ErrNotProvider, artifact.ErrAmbiguous, artifact.ErrTooLarge, artifact.ErrDamaged, errdef.ErrNotFound} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}
