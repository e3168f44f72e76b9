package pusher

import (
	"context"

	"github.com/ocibridge/ocibridge/pusher/repo"
)

// checkApproved returns ErrApproved if the push would replace the manifest of an approved version, and cannot approve the next
// one.
func (w *zipPush) checkApproved(ctx context.Context) error {
	if w.stored == nil || w.unchanged() || w.stored.Index.Digest == w.manifest.Descriptor.Digest {
		return nil
	}
	a, err := w.approvalsOf(ctx, w.want.Owner, w.stored.Index, w.warn)
	if err == nil && a.foreign {
		stored := *w.stored
		stored.Owner, stored.Version = w.want.Owner, w.want.Version
		err = w.approvedError(&stored, a, w.cannotReplace())
	}
	return err
}

// approve stores the manifest, and approves it, before a tag names it. A copy approves nothing: its manifest is copied with the
// approvals that it has. The push has made the zip and the manifest.
func (w *zipPush) approve(ctx context.Context) error {
	switch err := w.checkApproved(ctx); {
	case err != nil:
		return err
	case w.carrier != nil:
		return w.attachFirst(ctx)
	case w.o.Sign == nil:
		return nil
	}
	if err := w.SendBlob(ctx, "push manifest to", w.manifest); err != nil {
		return err
	}
	return w.sign(ctx)
}

// approveStored approves the version that is in place, if its manifest is the one that the push would store. Another manifest
// can say about the module what the push has not verified, such as its commit.
func (w *zipPush) approveStored(ctx context.Context) error {
	switch {
	case w.o.Sign == nil, w.carrier != nil:
		return nil
	case w.stored.Index.Digest != w.manifest.Descriptor.Digest:
		return w.noteApproved(ctx)
	}
	return w.sign(ctx)
}

// noteApproved notes whether the stored version is approved by the key, and warns if it is not.
func (w *zipPush) noteApproved(ctx context.Context) error {
	sigs, err := w.Signatures(ctx, w.stored.Index)
	if err != nil {
		return err
	}
	has, err := repo.SignedBy(ctx, w.o.Sign, w.stored.Index.Digest, sigs)
	if err != nil {
		return err
	}
	if has {
		w.approvedBy = w.o.Sign.Public().Fingerprint()
		return nil
	}
	w.warn("it is not approved: another push has stored it, with a manifest that says something else about it; ocibridge approve %s@%s checks and approves the version",
		w.want.Owner, w.want.Version)
	return nil
}

// sign approves the manifest.
func (w *zipPush) sign(ctx context.Context) error {
	_, _, err := w.Sign(ctx, w.manifest.Descriptor, w.o.Sign)
	if err == nil {
		w.approvedBy = w.o.Sign.Public().Fingerprint()
	}
	return err
}
