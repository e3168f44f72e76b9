package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// push is one release on its way to one repository.
type push struct {
	*Pusher
	release *origin.Release
	sums    *trust.Checksums
	dest    Destination
	tag     ociaddr.Tag
	// before is what the tag named when the push began; nil for nothing.
	before   *artifact.Version
	uploaded map[provider.Platform]bool // whose bytes were sent
	// refresh is set if the release's evidence is to replace what is tagged, unless
	// it is weaker; repair, if parts of the tagged evidence may be gone as well.
	refresh, repair bool
	warnings        []string
	clock           *outgoing.Clock        // the registry's
	own             *ownAnnouncement       // nil: the push has not announced itself
	recent          recentTags             // the repository's tags, if the push has listed them when it began
	unnoted         map[digest.Digest]bool // replaced indexes that the state does not take
	tagged          *artifact.Version      // what the push tagged last; nil once that is noted as replaced
	wrote           bool                   // the tag was moved, or may have been
	// fits is the checksum document that the version's evidence will hold, if it is
	// not the release's own; nil if there is none.
	fits *trust.Checksums
	read map[digest.Digest]*artifact.Evidence
	// original is what is copied; nil if the release comes from an origin.
	original *original
}

// Push stores a release. If it fails, the tag is as it was, and running it again
// completes it.
func (p *Pusher) Push(ctx context.Context, r *origin.Release) (*Result, error) {
	return p.push(ctx, r, false)
}

// push stores a release. With repair, it also replaces evidence in place, unless by
// weaker, and sends again what is gone of it.
func (p *Pusher) push(ctx context.Context, r *origin.Release, repair bool) (*Result, error) {
	// 1. What of the release is acceptable, and where it belongs.
	w, err := p.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	w.repair, w.refresh = repair, repair || p.o.RefreshEvidence
	after, status, err := w.run(mayPush(ctx, w.dest.Repository))
	if err != nil {
		return nil, err
	}
	return w.result(ctx, after, status), nil
}

// run stores an accepted release.
func (w *push) run(ctx context.Context) (*artifact.Version, Status, error) {
	ctx = outgoing.WithClock(ctx, w.clock)
	// 2. What is there already.
	if err := w.inspect(ctx); err != nil {
		return nil, "", err
	}
	missing, err := w.missing()
	if err != nil {
		return nil, "", err
	}
	if err := w.foresee(ctx, missing); err != nil {
		return nil, "", err
	}
	// 3. Layers and platform manifests of what is not.
	sent, err := w.sendPackages(ctx, missing)
	if err != nil {
		return nil, "", err
	}
	// 4. Evidence, index and tag, if they change.
	return w.publish(ctx, sent)
}

// mayPush lets even requests that read ask for a token to push with. To read
// alone, GHCR gives none for what is not there yet, and a first push would end
// before it began. It is one token for all requests of a push, too. Package auth keeps
// the scope from requests to other repositories.
func mayPush(ctx context.Context, r ociaddr.Repository) context.Context {
	ref := registry.Reference{Registry: string(r.Registry), Repository: r.Name}
	return auth.AppendRepositoryScope(ctx, ref, auth.ActionPull, auth.ActionPush)
}

func (p *Pusher) begin(ctx context.Context, r *origin.Release) (*push, error) {
	tag, err := ociaddr.VersionTag(r.Version())
	if err != nil {
		return nil, err
	}
	sums, err := p.accept(ctx, r)
	if err != nil {
		return nil, err
	}
	dest, err := p.o.Destination(ctx, r.Provider())
	if err != nil {
		return nil, err
	}
	return &push{Pusher: p, release: r, sums: sums, dest: dest, tag: tag, clock: outgoing.NewClock(p.o.Now), unnoted: map[digest.Digest]bool{}, uploaded: map[provider.Platform]bool{}, read: map[digest.Digest]*artifact.Evidence{}}, nil
}

// accept checks what a release claims, and that this covers its packages.
func (p *Pusher) accept(ctx context.Context, r *origin.Release) (*trust.Checksums, error) {
	sums, err := p.o.Policy(r.Provider()).Accept(ctx, r.Claims)
	if err != nil {
		return nil, err
	}
	for _, pkg := range r.Packages {
		if err := checkName(r, pkg); err != nil {
			return nil, err
		}
		if _, err := sums.Verifier(pkg.Platform, pkg.Filename); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Provider(), r.Version(), err)
		}
	}
	return sums, nil
}

// checkName refuses a package whose name says that it is of another version or for
// another platform: the signature covers its name and bytes, and nothing but the
// name ties these to what they are offered as.
func checkName(r *origin.Release, pkg origin.Package) error {
	if !provider.Misnamed(pkg.Filename, r.Version(), pkg.Platform) {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s %s for %s: %w: its origin offers %s", r.Provider(), r.Version(), pkg.Platform, ErrMisnamed, pkg.Filename),
		"the origin offers one package as another; nothing was stored. Tell whoever runs it")
}

// inspect reads what the tag names.
func (w *push) inspect(ctx context.Context) error {
	v, err := artifact.Read(ctx, w.dest.Store, w.release.Provider(), w.release.Version())
	switch {
	case err == nil:
		w.before = v
		return nil
	case errors.Is(err, errdef.ErrNotFound):
		w.recent.at = w.o.Now()
		tags, err := w.tags(ctx)
		if err != nil {
			return err
		}
		w.recent.tags = tags
		return w.checkOwner(ctx, w.release.Provider(), tags)
	case errors.Is(err, artifact.ErrForeign):
		return w.occupied(err, helpForeign)
	case isReplaceable(err):
		if w.o.Force {
			return nil
		}
		return w.occupied(err, "the tag is left as it was; --force replaces what it names")
	}
	return w.registryError("read "+string(w.tag)+" in", err)
}

func (w *push) occupied(err error, help string) error {
	return hint.Wrap(fmt.Errorf("%s:%s: %w: %w", w.dest.Repository, w.tag, ErrOccupied, err), "%s", help)
}

// ownerProbes is how many of a repository's versions are asked whose they are. More are
// asked where a policy forbids reading some, up to maxOwnerProbes.
const ownerProbes, maxOwnerProbes = 3, 20

// checkOwner refuses a repository whose newest versions say that they are another
// provider's: a template such as ${namespace}-${type} makes a-b/c and a/b-c meet. It warns
// if it knows no owner because a policy forbids reading these versions.
func (w *push) checkOwner(ctx context.Context, a provider.Address, tags []ociaddr.Tag) error {
	var versions []provider.Version
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			versions = append(versions, v)
		}
	}
	provider.SortVersions(versions)
	slices.Reverse(versions)
	var forbidden error
	told := 0
	for _, v := range versions[:min(len(versions), maxOwnerProbes)] {
		if told == ownerProbes {
			return nil
		}
		found, err := artifact.Read(ctx, w.dest.Store, a, v)
		if errors.Is(err, artifact.ErrForeign) {
			return w.occupied(fmt.Errorf("its tag %s: %w", v, err), helpForeign)
		}
		switch {
		case err == nil && !found.Provider.IsZero():
			return nil
		case refusals.Policy(err):
			forbidden = err
			continue
		case err != nil && !isUnusable(err):
			return w.registryError("read "+v.String()+" in", err)
		}
		told++
	}
	if forbidden != nil && told == 0 {
		w.warnings = append(w.warnings, fmt.Sprintf("%s: ocibridge could not check which provider this repository belongs to: %v", w.dest.Repository, forbidden))
	}
	return nil
}

// tags lists the repository's tags; none if there is no repository.
func (w *push) tags(ctx context.Context) ([]ociaddr.Tag, error) {
	tags, err := listTags(ctx, w.dest.Store)
	if err != nil {
		return nil, w.registryError("list tags of", err)
	}
	return tags, nil
}

func listTags(ctx context.Context, store artifact.TagLister) ([]ociaddr.Tag, error) {
	tags, err := artifact.ListTags(ctx, store)
	if isNotFound(err) && !errors.Is(err, artifact.ErrTagsBrokeOff) {
		return nil, nil
	}
	return tags, err
}

// missing returns the packages that have to be read: those that are not there,
// those of which only the bytes tell whether they are, and by force all. It fails
// on a conflict that is known without them.
func (w *push) missing() ([]origin.Package, error) {
	var out []origin.Package
	for _, pkg := range w.release.Packages {
		there := w.present(pkg.Platform)
		sum, known := w.sums.Sum(pkg.Filename)
		if there == nil || !known || !w.sums.KnownBySum(pkg.Filename) || w.o.Force {
			out = append(out, pkg)
			continue
		}
		d := digest.NewDigestFromBytes(digest.SHA256, sum[:])
		if there.Digest != d {
			return nil, w.conflict(*there, d)
		}
		w.event(pkg.Platform, StagePresent, 0, there.Size)
		w.shelve(there.Digest, w.dest.Repository)
	}
	return out, nil
}

// present returns the package that is tagged for a platform, nil for none.
func (w *push) present(p provider.Platform) *artifact.Package {
	if w.before == nil {
		return nil
	}
	return find(w.before.Packages, p)
}

// find returns the package for a platform, nil for none.
func find(packages []artifact.Package, p provider.Platform) *artifact.Package {
	for i := range packages {
		if packages[i].Platform == p {
			return &packages[i]
		}
	}
	return nil
}

// samePackages reports whether two lists, each with one package a platform, hold
// the same bytes for the same platforms.
func samePackages(a, b []artifact.Package) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p artifact.Package) bool {
		q := find(b, p.Platform)
		return q == nil || q.Digest != p.Digest
	})
}

// conflict is the error for a platform that is there with other bytes.
func (w *push) conflict(there artifact.Package, d digest.Digest) error {
	return hint.Wrap(fmt.Errorf("%s %s for %s: %w: %s:%s names the package %s, the release has %s",
		w.release.Provider(), w.release.Version(), there.Platform, ErrConflict, w.dest.Repository, w.tag, there.Digest, d),
		"the registry is left as it was; find out which of them is right. --force replaces the package, and lock files that know the old one will refuse the new one")
}

// sendPackages stores what is missing, several packages at once, and returns the
// ones that were not tagged.
func (w *push) sendPackages(ctx context.Context, missing []origin.Package) ([]artifact.Package, error) {
	type outcome struct {
		p    *artifact.Package
		sent bool
	}
	outcomes := make([]outcome, len(missing))
	g, ctx := errgroup.WithContext(ctx)
	for i, pkg := range missing {
		g.Go(func() error {
			select {
			case w.slots <- struct{}{}:
				defer func() { <-w.slots }()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var err error
			outcomes[i].p, outcomes[i].sent, err = w.sendPackage(ctx, pkg)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []artifact.Package
	for _, o := range outcomes {
		if o.p != nil {
			out = append(out, *o.p)
			w.uploaded[o.p.Platform] = o.sent
		}
	}
	return out, nil
}

// sendPackage stores one package's layer and manifest, and reports whether its
// bytes were sent; nil if it turns out to be tagged. Where the checksums say
// beforehand which bytes they will be, they are sent while they are read.
func (w *push) sendPackage(ctx context.Context, pkg origin.Package) (_ *artifact.Package, sent bool, err error) {
	s, err := w.open(ctx, pkg)
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	sum, known := w.sums.Sum(pkg.Filename)
	if !known || !w.sums.KnownBySum(pkg.Filename) || s.size <= 0 {
		if err := s.drain(); err != nil {
			return nil, false, err
		}
		sum = s.accepted().Sum()
	}
	layer := artifact.Package{Digest: digest.NewDigestFromBytes(digest.SHA256, sum[:]), Size: s.size}.Layer()
	if there := w.present(pkg.Platform); there != nil {
		switch {
		case w.o.Force: // also where it is the same: parts of it may have been deleted
		case there.Digest == layer.Digest:
			w.event(pkg.Platform, StagePresent, 0, layer.Size)
			return nil, false, nil
		default:
			return nil, false, w.conflict(*there, layer.Digest)
		}
	}
	if w.fits != nil {
		if err := w.fit(w.fits, artifact.Package{Platform: pkg.Platform, Filename: pkg.Filename, Digest: layer.Digest}); err != nil {
			return nil, false, err
		}
	}
	stage, err := w.sendLayer(ctx, pkg.Platform, layer, s)
	if err != nil {
		return nil, false, err
	}
	p, manifest, err := artifact.EncodePackage(s.accepted())
	if err == nil {
		p, manifest, err = w.platformManifest(ctx, p, manifest)
	}
	if err != nil {
		return nil, false, err
	}
	if err := w.sendBlob(ctx, "push config to", artifact.Config()); err != nil {
		return nil, false, err
	}
	if err := w.sendBlob(ctx, "push manifest of "+p.Platform.String()+" to", manifest); err != nil {
		return nil, false, err
	}
	w.event(p.Platform, stage, 0, p.Size)
	return &p, stage == StageDone, nil
}

// result describes a push that ended well.
func (w *push) result(ctx context.Context, after *artifact.Version, status Status) *Result {
	r := &Result{
		Provider: w.release.Provider(), Version: w.release.Version(),
		Repository: w.dest.Repository, Tag: w.tag, Digest: after.Index.Digest.String(), Status: status,
		Warnings: append(slices.Clone(w.release.Warnings), w.warnings...),
	}
	w.reportEvidence(ctx, r, after)
	if signer := w.sums.Signer(); signer.Expired {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the key %s or its signature has expired; clients accept it with a warning", signer.Fingerprint))
	}
	for _, pkg := range w.release.Packages {
		p := find(after.Packages, pkg.Platform)
		if name := provider.PackageFilename(r.Provider, r.Version, p.Platform); p.Filename != name && r.Verdict != artifact.SignedOtherName {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the package for %s is published as %s, not as %s: nothing says that it is for this version and platform", p.Platform, p.Filename, name))
		}
		was := w.present(pkg.Platform)
		rehashed := w.o.Force && was != nil && otherH1(*was, *p)
		r.Packages = append(r.Packages, PackageResult{
			Platform: p.Platform, Filename: p.Filename, Digest: p.Digest.String(), Size: p.Size, H1: p.H1,
			Sent: w.uploaded[p.Platform], H1Recorded: rehashed && !p.H1.IsZero(), H1Removed: rehashed && p.H1.IsZero(),
			Repaired: w.o.Force && was != nil && repaired(*was, *p),
		})
	}
	return r
}

func (w *push) event(p provider.Platform, stage Stage, n int, total int64) {
	w.o.OnEvent(Event{w.release.Provider(), w.release.Version(), p, stage, n, total})
}

func (w *push) registryError(op string, err error) error {
	if refusals.UnknownBlob(err) {
		err = hint.Wrap(err, "parts of the version are gone, perhaps by a clean-up job: --force sends them again")
	}
	return &RegistryError{op, w.dest.Repository, err}
}
