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
	"github.com/ocibridge/ocibridge/trust"
)

// maxRounds bounds how often a push writes its tag because others write it, too.
const maxRounds = 20

// publish makes the tag name every package of the release, beside those that
// were there, and returns what it names in the end.
func (w *push) publish(ctx context.Context, sent []artifact.Package) (*artifact.Version, Status, error) {
	if w.before != nil && len(sent) == 0 {
		return w.before, Unchanged, nil
	}
	own := w.ownPackages(sent)
	evidence, err := w.sendEvidence(ctx)
	if err != nil {
		return nil, "", err
	}
	joined := w.release.Partial
	if joined {
		if err := w.leaveParts(ctx, own); err != nil {
			return nil, "", err
		}
	}
	// Every round reads after the last write, so that whoever writes last has
	// seen the tags that all others left before they wrote.
	for range maxRounds {
		parts, err := w.parts(ctx)
		if err != nil {
			return nil, "", err
		}
		if len(parts) > 0 && !joined {
			// Somebody pushes platform by platform: do as they do, and look again.
			if err := w.leaveParts(ctx, own); err != nil {
				return nil, "", err
			}
			joined = true
			continue
		}
		now, err := w.current(ctx)
		if err != nil {
			return nil, "", err
		}
		next, err := w.union(now, parts, own, evidence)
		if err != nil {
			return nil, "", err
		}
		if now != nil && samePackages(now.Packages, next.Packages) {
			return now, w.status(now), nil
		}
		if err := w.sendIndex(ctx, next); err != nil {
			return nil, "", err
		}
	}
	return nil, "", hint.New(fmt.Sprintf("%s:%s changes faster than it can be written", w.dest.Repository, w.tag), "let one push of this version run at a time")
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
	return nil, w.registryError("read "+string(w.tag), err)
}

// union returns the version to be tagged: the release's own packages, those that
// the tag names now, and those that others have left. A package that the
// release's checksum document contradicts is a conflict if it is tagged, and is
// passed over if it was only left.
func (w *push) union(now *artifact.Version, parts, own []artifact.Package, evidence *ocispec.Descriptor) (*artifact.Version, error) {
	next := &artifact.Version{
		Provider: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols,
		Packages: slices.Clone(own), Evidence: evidence,
	}
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
			if mine == nil && !conflicts { // by force, what belongs to another release goes
				next.Packages = append(next.Packages, p)
			}
		}
		if next.Protocols == nil {
			next.Protocols = now.Protocols
		}
		if now.Evidence != nil && (evidence == nil || w.sums.Verdict() == trust.ChecksumOnly) {
			next.Evidence = now.Evidence // never replaced by weaker
		}
	}
	for _, p := range parts {
		if d, listed := w.listed(p); find(next.Packages, p.Platform) == nil && (!listed || d == p.Digest) {
			next.Packages = append(next.Packages, p)
		}
	}
	return next, nil
}

// listed returns the digest that the release's checksum document gives for a
// package's file name.
func (w *push) listed(p artifact.Package) (digest.Digest, bool) {
	sum, ok := w.sums.Sum(p.Filename)
	return digest.NewDigestFromBytes(digest.SHA256, sum[:]), ok
}

// sendEvidence stores the evidence. A registry that takes packages and refuses
// this has a list of allowed types: the push goes on without, and says so.
func (w *push) sendEvidence(ctx context.Context) (*ocispec.Descriptor, error) {
	manifest, blobs, err := artifact.EncodeEvidence(artifact.NewEvidence(w.sums, w.release.Origin, w.release.Protocols))
	if err != nil {
		return nil, err
	}
	for _, b := range append(blobs, artifact.Config(), manifest) {
		err := w.sendBlob(ctx, "push evidence", b)
		var answer *errcode.ErrorResponse
		if errors.As(err, &answer) && refuses(answer.StatusCode) {
			w.release.Warnings = append(w.release.Warnings,
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
	if err := w.sendBlob(ctx, "push index", index); err != nil {
		return err
	}
	return w.sendTag(ctx, "tag "+string(w.tag), index.Descriptor, index.Data, string(w.tag))
}

// leaveParts tags the platform manifests of the packages given.
func (w *push) leaveParts(ctx context.Context, packages []artifact.Package) error {
	for _, p := range packages {
		tag, err := ociaddr.PartialTag(w.release.Version(), p.Platform)
		if err != nil {
			return err
		}
		data, err := artifact.FetchManifest(ctx, w.dest.Store, p.Manifest)
		if err != nil {
			return w.registryError("read manifest of "+p.Platform.String(), err)
		}
		if err := w.sendTag(ctx, "tag "+string(tag), p.Manifest, data, string(tag)); err != nil {
			return err
		}
	}
	return nil
}

// parts returns the packages of this version that pushes of only some platforms
// have left. What does not read as one is passed over: it says nothing.
func (w *push) parts(ctx context.Context) ([]artifact.Package, error) {
	tags, err := w.tags(ctx)
	if err != nil {
		return nil, err
	}
	var out []artifact.Package
	for _, t := range tags {
		v, platform, ok := t.Partial()
		if !ok || v != w.release.Version() {
			continue
		}
		p, err := artifact.ReadPackage(ctx, w.dest.Store, string(t), w.release.Provider(), v, platform)
		if errors.Is(err, artifact.ErrNotProvider) || errors.Is(err, artifact.ErrAmbiguous) || errors.Is(err, errdef.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, w.registryError("read "+string(t), err)
		}
		out = append(out, *p)
	}
	return out, nil
}
