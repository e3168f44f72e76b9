package pusher

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/trust"
)

// strongest returns the evidence to keep: what is tagged, unless it is weaker than
// what was left or is our own, or is about packages that were replaced, or is to
// be refreshed.
func (w *push) strongest(ctx context.Context, replaced bool, tagged, left, own *ocispec.Descriptor, packages []artifact.Package) (*ocispec.Descriptor, error) {
	refresh := w.refreshes(tagged, own)
	switch {
	case replaced:
		return own, nil
	case tagged == nil && left != nil:
		return left, nil
	case tagged == nil:
		return own, nil
	case own != nil && own.Digest == tagged.Digest && w.sums.Verdict() == trust.Signed,
		!refresh && left == nil && (own == nil || w.sums.Verdict() != trust.Signed):
		return tagged, nil // nothing here is stronger
	}
	e, err := w.readEvidence(ctx, *tagged)
	switch {
	case err == nil && refresh && w.atLeast(e, packages):
		return own, nil
	case err == nil && e.Record.Verdict == trust.Signed:
		described := artifact.DescribeEvidence(*tagged, trust.Signed)
		return &described, nil
	case err == nil && refresh && left == nil:
		return tagged, nil
	case err != nil && !errors.Is(err, artifact.ErrNotProvider) && !errors.Is(err, artifact.ErrAmbiguous) && !errors.Is(err, artifact.ErrTooLarge):
		return nil, w.registryError("read evidence in", err)
	case left != nil:
		return left, nil
	}
	return own, nil
}

// refreshes reports whether our own evidence is to take the place of what is
// tagged. What another push has put there since this one began stays: two that
// refresh it would never come to an end.
func (w *push) refreshes(tagged, own *ocispec.Descriptor) bool {
	return w.o.RefreshEvidence && own != nil && tagged != nil && own.Digest != tagged.Digest &&
		w.before != nil && w.before.Evidence != nil && w.before.Evidence.Digest == tagged.Digest
}

// wantsOwnEvidence reports whether the evidence of the version that is tagged is
// to be refreshed, and is not what this push would leave anyway.
func (w *push) wantsOwnEvidence() bool {
	if !w.o.RefreshEvidence {
		return false
	}
	own, _, err := w.evidence()
	return err != nil || w.before.Evidence == nil || w.before.Evidence.Digest != own.Descriptor.Digest
}

// atLeast reports whether our own evidence is no weaker than the one given: it
// must be of the same or a better kind, and where it is signed, vouch for as many
// of the packages.
func (w *push) atLeast(e *artifact.Evidence, packages []artifact.Package) bool {
	kind := func(v trust.Verdict, document []byte) int {
		switch {
		case v == trust.Signed:
			return 2
		case len(document) > 0:
			return 1
		}
		return 0
	}
	document, _, _ := w.sums.Document()
	if kind(w.sums.Verdict(), document) < kind(e.Record.Verdict, e.SHA256SUMS) {
		return false
	}
	if e.Record.Verdict != trust.Signed {
		return true
	}
	for _, p := range packages {
		if d, listed := w.listed(p); !listed || d != p.Digest {
			return false
		}
	}
	return true
}

// evidence encodes what the release was accepted on.
func (w *push) evidence() (artifact.Blob, []artifact.Blob, error) {
	return artifact.EncodeEvidence(artifact.NewEvidence(w.sums, w.release.Origin, w.release.Protocols, w.release.About))
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
