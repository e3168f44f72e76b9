package pusher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// original is the stored version that a copy reads.
type original struct {
	from    Stored
	version *artifact.Version
	whole   bool           // all platforms of the version are copied
	index   *artifact.Blob // the original's index, if it is stored byte for byte; nil: a new index is stored
	carrier *carrier
	omits   []artifact.Package // the packages that may be left out
	// attached is the result of copying the referrers before the tag moved. It is nil if they were not copied yet.
	attached *attached

	// Packages are sent concurrently.
	mu       sync.Mutex
	warnings []string // about platform manifests
	omitted  []provider.Platform
}

// warnRewritten warns that a platform's manifest is not copied byte for byte.
func (o *original) warnRewritten(p provider.Platform, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.warnings = append(o.warnings, fmt.Sprintf("the manifest for %s in %s is not copied as it is, and a new one is stored: %s", p, o.from.Repository, reason))
}

// rewriteIndex makes the copy store a new index, warns, and resets the count of copied content.
func (w *push) rewriteIndex(reason string) {
	w.warn("the index in %s is not copied as it is, and a new one is stored: %s", w.original.from.Repository, reason)
	w.original.index, w.original.carrier = nil, newCarrier(w.original.from, w.target, w.release.Version())
}

// cannotCarry reports whether err means that a manifest cannot be copied byte for byte: its parts cannot be read
// or exceed a limit, or the destination refuses them.
func (w *push) cannotCarry(err error) bool {
	return repo.IsUnusable(err) || errors.Is(err, repo.ErrTooMuchAttached) || w.IsRefusal(err)
}

// Copy copies the wanted platforms of a version from another repository, or the whole version if want is empty or
// the version has no platforms. It verifies the version of a provider in the same way as [Pusher.Push] does. The
// errors for a module are those of [Pusher.PushZip].
//
// Copy stores a manifest byte for byte if everything that the manifest says was verified. If the destination lacks
// the version and Copy copies all of it, the index therefore keeps its digest, whatever tool created the index.
// Copy then copies the referrers of these manifests, which it does not verify. It copies no tags of referrers
// except those of cosign, which contain the digest of the subject.
func (p *Pusher) Copy(ctx context.Context, from Stored, v provider.Version, want []provider.Platform) (*Result, error) {
	if !subject.TraitsOf(from.Subject).Packages {
		return p.copyZip(ctx, from, v)
	}
	w, err := p.beginCopy(ctx, from, v, want)
	if err != nil {
		return nil, err
	}
	defer w.unlock()
	ctx = repo.MayPush(ctx, w.Dest.Repository)
	after, status, err := w.run(ctx)
	if err != nil {
		return nil, err
	}
	copied, err := w.copyAttached(ctx, after)
	if err != nil {
		return nil, err
	}
	referrers, sent := copied.total, copied.sent
	if sent > 0 && status == Unchanged {
		status = Completed
	}
	if err := w.noteCopiedApprovals(ctx, after, referrers > 0); err != nil {
		return nil, err
	}
	slices.Sort(w.original.warnings)
	w.warnings = append(w.original.warnings, w.warnings...)
	out := w.result(ctx, after, status)
	out.Referrers, out.ReferrersSent = referrers, sent
	return out, nil
}

// attached counts the referrers that a copy has found at the destination or sent.
type attached struct{ total, sent int }

// copyAttached copies the referrers of the manifests that the version has in the source and in the destination, once.
func (w *push) copyAttached(ctx context.Context, of *artifact.Version) (attached, error) {
	o := w.original
	if w.o.WithoutReferrers {
		return attached{}, nil
	}
	if o.attached == nil {
		total, sent, err := o.carrier.copyReferrers(ctx, w.subjects(of), w.warn)
		if err != nil {
			return attached{}, err
		}
		o.attached = &attached{total, sent}
	}
	return *o.attached, nil
}

// attachFirst copies the referrers before the tag names the original's index, so that a gateway never finds the version without its
// approvals.
func (w *push) attachFirst(ctx context.Context, index artifact.Blob) error {
	if w.original == nil || w.original.version.Index.Digest != index.Descriptor.Digest {
		return nil
	}
	_, err := w.copyAttached(ctx, w.original.version)
	return err
}

// beginCopy reads a version of another repository, and accepts it. The caller unlocks the push.
func (p *Pusher) beginCopy(ctx context.Context, from Stored, v provider.Version, want []provider.Platform) (*push, error) {
	r, found, err := from.release(ctx, v, want)
	if err != nil {
		return nil, err
	}
	w, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	w.original = &original{from: from, version: found, whole: len(r.Packages) == len(found.Packages) && len(found.Missing) == 0, carrier: newCarrier(from, w.target, v)}
	if err := w.copyDocs(ctx); err != nil {
		w.unlock()
		return nil, err
	}
	if p.o.Omits != nil {
		if w.original.omits, err = p.o.Omits(ctx, r.Provider(), v, found); err != nil {
			w.unlock()
			return nil, err
		}
	}
	return w, nil
}

// platformManifest returns a package with the manifest to store for it. If the original's manifest agrees with
// the package, platformManifest stores that manifest with its parts, and returns it. Otherwise, it returns its
// arguments.
func (w *push) platformManifest(ctx context.Context, p artifact.Package, encoded artifact.Blob) (artifact.Package, artifact.Blob, error) {
	if w.original == nil {
		return p, encoded, nil
	}
	o := w.original
	found := repo.Find(o.version.Packages, p.Platform)
	if found.Manifest.Digest == encoded.Descriptor.Digest {
		return p, encoded, nil
	}
	data, err := artifact.FetchManifest(ctx, o.from.Store, found.Manifest)
	if repo.IsUnusable(err) {
		return p, encoded, nil // the original's index has described the package, so its manifest is not needed
	}
	if err != nil {
		return p, encoded, o.from.failed(w.release.Version(), err)
	}
	decoded, err := artifact.DecodePackage(found.Manifest, data, w.release.Provider(), w.release.Version(), p.Platform)
	if err != nil || !decoded.Claims(p) {
		return p, encoded, nil
	}
	if subject, err := hasSubject(data); err != nil || subject {
		o.warnRewritten(p.Platform, "it refers to another manifest")
		return p, encoded, nil
	}
	o.carrier.markStored(p.Digest)
	manifest := artifact.Blob{Descriptor: found.Manifest, Data: data}
	err = o.carrier.storeParts(ctx, found.Manifest, data)
	if err == nil {
		err = w.SendBlob(ctx, "push manifest of "+p.Platform.String()+" to", manifest)
	}
	if w.cannotCarry(err) {
		o.warnRewritten(p.Platform, err.Error())
		return p, encoded, nil
	}
	if err != nil {
		return p, encoded, err
	}
	p.Manifest = found.Manifest
	return p, manifest, nil
}

// omittable returns a package that may be left out, or nil if the package has to be read. It has to be
// read, for example, if the checksums do not give the same digest as the source's index.
func (a *asked) omittable(pkg origin.Package) *artifact.Package {
	if a.original == nil {
		return nil
	}
	p := repo.Find(a.original.omits, pkg.Platform)
	sum, known := a.knownSum(pkg)
	switch {
	case p == nil || !known || p.Digest != sum || p.Filename != pkg.Filename:
		return nil
	case p.H1.IsZero() && !a.original.whole: // a new index is written, and needs the hash
		return nil
	}
	return p
}

// omit stores the manifest of a package, and leaves the package out. It returns nil if the package is not
// omittable, or if its manifest cannot be copied.
func (w *push) omit(ctx context.Context, pkg origin.Package) (*artifact.Package, error) {
	p := w.omittable(pkg)
	if p == nil {
		return nil, nil
	}
	out, manifest, err := w.platformManifest(ctx, *p, artifact.Blob{})
	if err != nil || manifest.Data == nil {
		return nil, err
	}
	w.original.mu.Lock()
	w.original.omitted = append(w.original.omitted, p.Platform)
	w.original.mu.Unlock()
	w.event(p.Platform, StageOmitted, 0, p.Size)
	return &out, nil
}

// storeOriginal stores everything that the original's index names, but not the index itself. It reports whether
// it has stored this content. The index can be copied byte for byte if the destination lacks the version, and
// everything in the index was verified.
func (w *push) storeOriginal(ctx context.Context, packages []artifact.Package) (bool, error) {
	o := w.original
	if o == nil || !o.whole || w.before != nil {
		return false, nil
	}
	encoded, err := artifact.EncodeIndex(artifact.Version{
		Owner: w.release.Provider(), Version: w.release.Version(), Protocols: w.release.Protocols, Packages: packages, Evidence: &w.evidence.Descriptor, Docs: o.version.Docs,
	})
	if err == nil && encoded.Descriptor.Digest == o.version.Index.Digest {
		return false, nil // the push will encode the same index
	}
	data, err := artifact.FetchManifest(ctx, o.from.Store, o.version.Index)
	if err != nil {
		return false, o.from.failed(w.release.Version(), err)
	}
	if reason := w.unverified(data, packages); reason != "" {
		w.rewriteIndex(reason)
		return false, nil
	}
	err = o.carrier.storeParts(ctx, o.version.Index, data)
	if w.cannotCarry(err) {
		w.rewriteIndex(err.Error())
		return false, nil
	}
	if err == nil {
		o.index = &artifact.Blob{Descriptor: o.version.Index, Data: data}
	}
	return err == nil, err
}

// isOriginal reports whether the tag already names the original's index, and next has the same content.
func (a *asked) isOriginal(stored, next *artifact.Version) bool {
	return a.original != nil && a.original.index != nil && stored.Index.Digest == a.original.index.Descriptor.Digest && sameContent(stored, next)
}

// unverified describes the first claim of the original's index that was not verified, or returns "".
func (a *asked) unverified(data []byte, packages []artifact.Package) string {
	found := a.original.version
	for _, p := range found.Packages {
		verified := repo.Find(packages, p.Platform)
		switch {
		case verified == nil || !p.Claims(*verified):
			return fmt.Sprintf("its entry for %s contradicts the verified package", p.Platform)
		case verified.Manifest.Digest != p.Manifest.Digest:
			return fmt.Sprintf("the manifest for %s contradicts the verified package", p.Platform)
		}
	}
	var index ocispec.Index
	if err := artifact.Unmarshal(data, &index); err != nil {
		return err.Error()
	}
	targets := 0
	for _, entry := range index.Manifests {
		if entry.ArtifactType == artifact.TypeTarget {
			targets++
		}
	}
	evidence := a.evidence.Descriptor
	switch {
	case index.Subject != nil:
		return "it refers to another manifest"
	case targets != len(found.Packages):
		return "it has packages for platforms that clients ignore"
	case found.Protocols != nil && !slices.Equal(found.Protocols, a.release.Protocols):
		return "its protocols differ from those of its evidence"
	case found.Evidence != nil && found.Evidence.Digest != evidence.Digest:
		return "its evidence is encoded differently"
	case found.Evidence != nil && len(found.Evidence.Annotations) > 0 && !maps.Equal(found.Evidence.Annotations, evidence.Annotations):
		return "its entry for the evidence is wrong"
	case found.Docs != nil && a.docs == nil:
		return "its documentation cannot be read"
	}
	return ""
}

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
		// A manifest with a subject is refused: a registry would attach the copy to that subject.
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

// copyZip copies a version of a module from another repository, byte for byte: its manifest, everything that the
// manifest names, and its referrers. A copy has a tag without a leading v, even if the source's tag has one.
//
// The errors are those of [Pusher.PushZip]. The status is [Unchanged] if the destination has the same content,
// even under another manifest. copyZip copies no referrers to another manifest.
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
	copied, err := w.copyAttached(ctx)
	if err != nil {
		return nil, err
	}
	out.Referrers, out.ReferrersSent, out.Warnings = copied.total, copied.sent, w.warnings
	if out.ReferrersSent > 0 && out.Status == Unchanged {
		out.Status = Completed
	}
	return out, nil
}

// copyAttached copies the referrers of the manifest, once.
func (w *zipPush) copyAttached(ctx context.Context) (attached, error) {
	if w.copied == nil {
		w.carrier.help = helpAttached
		total, sent, err := w.carrier.copyReferrers(ctx, []ocispec.Descriptor{w.manifest.Descriptor}, w.warn)
		if err != nil {
			return attached{}, err
		}
		w.copied = &attached{total, sent}
	}
	return *w.copied, nil
}

// attachFirst stores the manifest of a copy, and copies its referrers, before a tag names it, so that a gateway never finds the version
// without its approvals.
func (w *zipPush) attachFirst(ctx context.Context) error {
	if w.o.WithoutReferrers {
		return nil
	}
	if err := w.SendBlob(ctx, "push manifest to", w.manifest); err != nil {
		return err
	}
	_, err := w.copyAttached(ctx)
	return err
}

// planCopyZip returns the result that copyZip would have, without the referrers. It reads zips only to compare
// them, if they have no h1: hashes.
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
