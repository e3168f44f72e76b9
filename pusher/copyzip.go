package pusher

import (
	"context"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// readZip returns a version of a module, and the bytes of its manifest. The error wraps
// [origin.ErrVersionNotFound] if the version is not stored.
func (s Stored) readZip(ctx context.Context, v provider.Version) (*artifact.Version, artifact.Blob, error) {
	found, err := artifact.ReadZip(ctx, s.Store, s.Subject, v)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, artifact.Blob{}, s.absent(v)
	}
	var data []byte
	if err == nil {
		data, err = artifact.FetchManifest(ctx, s.Store, found.Index)
	}
	if err == nil {
		// A registry would attach the copy to that other manifest.
		var attached bool
		if attached, err = hasSubject(data); err == nil && attached {
			err = fmt.Errorf("%w: it refers to another manifest", artifact.ErrNotModule)
		}
	}
	switch {
	case repo.IsUnusable(err):
		return nil, artifact.Blob{}, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Subject, v, s.Repository, err), "this version cannot be copied: push it again with ocibridge module push")
	case err != nil:
		return nil, artifact.Blob{}, s.failed(v, err)
	}
	found.Owner, found.Version = s.Subject, v // other tools do not record them
	return found, artifact.Blob{Descriptor: repo.Plain(found.Index), Data: data}, nil
}

// copyZip copies a version of a module from another repository, byte for byte: its
// manifest, everything that the manifest names, and its referrers. It verifies sizes and
// digests. If the source has the version under a tag with a leading v, the copy has a tag
// without it.
//
// The errors are those of [Pusher.PushZip]. The copy is unchanged if the destination has
// the same content, even under another manifest. copyZip then copies no referrers to it.
func (p *Pusher) copyZip(ctx context.Context, from Stored, v provider.Version) (*Result, error) {
	w, err := p.newZipCopy(ctx, from, v)
	if err != nil {
		return nil, err
	}
	unlock, err := w.Dest.LockFor(ctx, "copy of %s %s", from.Subject, v)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = repo.MayPush(ctx, w.Dest.Repository)
	out, err := w.run(ctx)
	if err != nil || p.o.WithoutReferrers || out.Digest != w.manifest.Descriptor.Digest.String() {
		return out, err
	}
	warn := func(format string, args ...any) { out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...)) }
	w.carrier.help = helpAttached
	out.Referrers, out.ReferrersSent, err = w.carrier.copyReferrers(ctx, []ocispec.Descriptor{w.manifest.Descriptor}, warn)
	if err != nil {
		return nil, err
	}
	if out.ReferrersSent > 0 && out.Status == Unchanged {
		out.Status = Completed
	}
	return out, nil
}

// planCopyZip returns the result that copyZip would have, without the referrers. It writes
// nothing. It reads the zips only to compare them, if they have no h1: hashes.
func (p *Pusher) planCopyZip(ctx context.Context, from Stored, v provider.Version) (*Result, error) {
	w, err := p.newZipCopy(ctx, from, v)
	if err != nil {
		return nil, err
	}
	out, err := w.plan(ctx)
	if err != nil || out.Status == Unchanged {
		return out, err
	}
	exists, err := w.Dest.Store.Exists(ctx, w.want.Zip().Layer())
	if err != nil {
		return nil, w.Failed("look for the zip in", err)
	}
	out.Packages[0].Sent = !exists
	return out, nil
}

func (p *Pusher) newZipCopy(ctx context.Context, from Stored, v provider.Version) (*zipPush, error) {
	dest, err := p.o.Destination(ctx, from.Subject)
	if err != nil {
		return nil, err
	}
	found, manifest, err := from.readZip(ctx, v)
	if err != nil {
		return nil, err
	}
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return nil, err
	}
	to := p.to(dest)
	c := newCarrier(from, to, v)
	c.zip, c.help = found.Zip().Digest, "a module has a zip of at most 4 GiB, and 2,000 other parts of 1 GiB together: use the registry's own tools to copy this one"
	return &zipPush{target: to, want: found, manifest: manifest, tag: tag, carrier: c}, nil
}

// carryContent copies everything that the manifest names. exists says whether the destination
// has the zip.
func (w *zipPush) carryContent(ctx context.Context, exists bool) (Stage, error) {
	stage := StageFound
	if !exists {
		stage = StageDone
		w.event(StageSend, 0)
	}
	if err := w.carrier.storeParts(ctx, w.manifest.Descriptor, w.manifest.Data); err != nil {
		return "", err
	}
	w.event(stage, 0)
	return stage, nil
}
