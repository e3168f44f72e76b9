package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// RemoveRequest names a version of a provider or a module to remove.
type RemoveRequest struct {
	Subject   subject.Address
	Version   provider.Version
	Platforms []provider.Platform // empty: the whole version
}

// Removal is the removal of one version, or of some platforms of one version of a provider.
type Removal struct {
	Subject    subject.Address    `json:"-"` // in JSON, the key is the word for its kind
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tags       []ociaddr.Tag      `json:"tags,omitempty"` // of a module's version, with and without a leading v
	// Digest is the digest of the index that the version's tag names. It is "" if an interrupted
	// removal has already removed the tag. For a module, it is the digest of the manifest that
	// clients get. The version's other tag can name another manifest.
	Digest    digest.Digest       `json:"digest,omitempty"`
	Platforms []provider.Platform `json:"platforms,omitzero"`      // of a provider
	Left      []provider.Platform `json:"platforms_left,omitzero"` // the platforms that a provider's version keeps
	Size      int64               `json:"size"`                    // the total size of the removed packages or zips in bytes
	// Freeable is the part of Size that no tag of the repository reaches after the removal.
	Freeable  int64      `json:"freeable"`
	Referrers []Referrer `json:"referrers"`

	found *artifact.Version   // what the tag names; nil if the tag is gone
	noted []*artifact.Version // earlier indexes of the version, without a tag
	zips  []*artifact.Version // the manifests that the tags of a module's version name
	state *repositoryState    // of a module
}

// MarshalJSON implements [json.Marshaler].
func (r Removal) MarshalJSON() ([]byte, error) {
	type others Removal
	return document.Join(subject.Member(r.Subject), others(r))
}

// Referrer is a manifest that is attached to a removed manifest.
type Referrer struct {
	Digest       digest.Digest `json:"digest"`
	ArtifactType string        `json:"artifact_type,omitempty"`
	Tag          ociaddr.Tag   `json:"tag,omitempty"` // set if cosign attached the manifest by its tag
	Subject      digest.Digest `json:"subject"`
	Approval     bool          `json:"approval,omitempty"` // it holds signatures, and is always removed with its subject

	desc ocispec.Descriptor
}

// RemovePlan says what a [Remover] will remove. The removals are in the order of the requests, except that removals
// of modules come last.
type RemovePlan struct {
	Removals []*Removal
	Warnings []string
	Failures []Failure

	states []*repositoryState
}

// Freeable returns the number of bytes that no tag of the repositories reaches after the
// removals.
func (p *RemovePlan) Freeable() (out int64) {
	for _, r := range p.Removals {
		out += r.Freeable
	}
	return out
}

// warnRefused warns that a repository refuses to list referrers, unless err is nil.
func (p *RemovePlan) warnRefused(repository ociaddr.Repository, err error) {
	if err != nil {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s %v: referrers that no fallback tag lists are not shown", repository, hint.OneLine(err.Error())))
	}
}

// RemoveOutcome says what a [Remover] removed.
type RemoveOutcome struct {
	Removed  []*Removal
	Warnings []string
	Failures []Failure
	Freeable int64 // see [RemovePlan.Freeable]
}

// Remover removes versions from repositories. A removal is the mirror image of a push. It
// removes the tag first, then the index, and then the manifests that no other tag names. It
// leaves blobs to the registry's garbage collection. An interrupted removal leaves a version
// whole or without a tag, and another removal of the version completes it.
type Remover struct {
	syncer    *Syncer
	referrers bool
}

// NewRemover returns a Remover. It uses the Destination, the Jobs and the Now of the options.
// If referrers is set, the Remover also removes the manifests that other tools attached to the
// removed manifests.
func NewRemover(o pusher.Options, referrers bool) *Remover {
	return &Remover{NewSyncer(Options{Push: o, Prune: true}), referrers}
}

// Plan finds out what to remove, and changes nothing. A failure of one version or repository is
// recorded in the plan, and does not affect other versions and repositories.
func (r *Remover) Plan(ctx context.Context, requests []RemoveRequest) (*RemovePlan, error) {
	plan := &RemovePlan{}
	var zips []RemoveRequest
	for i, first := range requests {
		a := first.Subject
		if !subject.TraitsOf(a).Packages {
			zips = append(zips, first)
			continue
		}
		if slices.ContainsFunc(requests[:i], func(q RemoveRequest) bool { return q.Subject == a }) {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(requests), func(q RemoveRequest) bool { return q.Subject != a })
		if err := r.planProvider(ctx, plan, a.(provider.Address), of); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			plan.Failures = append(plan.Failures, Failure{Subject: a, Err: err})
		}
	}
	return plan, r.planZips(ctx, plan, zips)
}

// planProvider plans the removals from the repository of one provider.
func (r *Remover) planProvider(ctx context.Context, plan *RemovePlan, a provider.Address, requests []RemoveRequest) error {
	state, err := r.syncer.repositoryState(ctx, a)
	if err != nil {
		return err
	}
	recorded, _, err := repo.ReadState(ctx, state.dest.Store, state.dest.Repository, state.subject)
	if err != nil {
		return err
	}
	state.cooldown = recorded.Cooldown || len(recorded.Seen) > 0
	var removals []*Removal
	for _, q := range requests {
		removal, err := r.planVersion(ctx, state, recorded.Replaced, q)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			plan.Failures = append(plan.Failures, Failure{Subject: a, Version: q.Version, Err: err})
			continue
		}
		removals = append(removals, removal)
	}
	if len(removals) == 0 {
		return nil
	}
	reached, err := r.reachedAfter(ctx, state, removals)
	if err != nil {
		return &repo.RegistryError{Op: "read tags of", Repository: state.dest.Repository, Err: err}
	}
	refused := make([]error, len(removals))
	g, gctx := panics.WithContext(ctx)
	g.SetLimit(r.syncer.o.Push.Jobs)
	for i, removal := range removals {
		g.Go(func() (err error) {
			refused[i], err = listReferrersOf(gctx, state, removal, reached)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	plan.warnRefused(state.dest.Repository, errors.Join(refused...))
	for _, removal := range removals {
		removal.Freeable = unreached(removal.packages(), reached)
	}
	plan.Removals, plan.states = append(plan.Removals, removals...), append(plan.states, state)
	return nil
}

// planVersion plans the removal of one version. replaced are the manifests that the
// repository's state notes.
func (r *Remover) planVersion(ctx context.Context, state *repositoryState, replaced []artifact.Replaced, q RemoveRequest) (*Removal, error) {
	found, err := r.read(ctx, state, q)
	if err != nil {
		return nil, err
	}
	out := &Removal{Subject: q.Subject, Version: q.Version, Repository: state.dest.Repository, found: found, Platforms: []provider.Platform{}, Left: []provider.Platform{}, Referrers: []Referrer{}}
	if out.noted, err = r.notedIndexes(ctx, state, replaced, found, q); err != nil {
		return nil, err
	}
	if found == nil && (len(out.noted) == 0 || len(q.Platforms) > 0) {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w in %s", q.Subject, q.Version, origin.ErrVersionNotFound, state.dest.Repository),
			"ocibridge list %s shows the versions that are stored; if a removal was interrupted, the registry's garbage collection frees what it has left", q.Subject)
	}
	if found != nil {
		out.Digest, out.Platforms = found.Index.Digest, append(out.Platforms, found.Platforms()...)
	} else {
		out.Platforms = append(out.Platforms, out.noted[0].Platforms()...)
	}
	if len(q.Platforms) > 0 {
		if err := out.keepOthers(q); err != nil {
			return nil, err
		}
		if err := r.checkApproved(ctx, state, found, q); err != nil {
			return nil, err
		}
	}
	for _, pkg := range out.packages() {
		out.Size += pkg.Size
	}
	return out, nil
}

// keepOthers restricts the removal of a version to the requested platforms. If a platform is
// only in an index without a tag, it is left over from an interrupted removal.
func (r *Removal) keepOthers(q RemoveRequest) error {
	stored := r.Platforms
	for _, v := range r.noted {
		stored = append(stored, v.Platforms()...)
	}
	if absent := without(q.Platforms, stored); len(absent) > 0 {
		return hint.Wrap(fmt.Errorf("%s %s for %s: %w in %s", q.Subject, q.Version, absent[0], origin.ErrPlatformNotFound, r.Repository), "it is there for %s", repo.JoinPlatforms(r.found.Packages))
	}
	r.Left = without(r.Platforms, q.Platforms)
	if r.Platforms = q.Platforms; len(r.Left) == 0 {
		return hint.New(fmt.Sprintf("%s %s: no platform would be left", q.Subject, q.Version), "leave out --platform to remove the whole version")
	}
	return nil
}

// read reads the version that a tag names. It returns nil if the tag does not exist.
func (r *Remover) read(ctx context.Context, state *repositoryState, q RemoveRequest) (*artifact.Version, error) {
	read := artifact.ReadTagged
	if len(q.Platforms) > 0 {
		read = repo.ReadComplete // the new index must have all other platforms
	}
	tag := repo.TagOf(q.Version)
	found, err := read(ctx, state.dest.Store, state.subject, q.Version, tag)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return nil, nil
	case errors.Is(err, artifact.ErrForeign):
		return nil, repo.Occupied(state.dest.Repository, tag, err, artifact.HelpForeign(err, state.subject))
	case repo.IsReplaceable(err):
		return nil, repo.Occupied(state.dest.Repository, tag, err, "delete the tag with the registry's own tools, or replace what it names by ocibridge push --force")
	case err != nil:
		return nil, &repo.RegistryError{Op: "read " + string(tag) + " in", Repository: state.dest.Repository, Err: err}
	}
	return found, nil
}

// notedIndexes reads the untagged indexes of a version, which the state of the repository
// notes. One of them is the version's last index if an earlier removal was interrupted.
func (r *Remover) notedIndexes(ctx context.Context, state *repositoryState, replaced []artifact.Replaced, found *artifact.Version, q RemoveRequest) (out []*artifact.Version, err error) {
	for _, noted := range replaced {
		if noted.Version != q.Version || found != nil && found.Index.Digest == noted.Manifest.Digest {
			continue
		}
		data, owned, err := artifact.IsOwned(ctx, state.dest.Store, noted, state.subject)
		if repo.IsGone(err) || err == nil && !owned {
			continue
		}
		var version *artifact.Version
		if err == nil {
			index := artifact.Blob{Descriptor: noted.Manifest, Data: data}
			version, err = artifact.ReadTagged(ctx, singleManifest{state.dest.Store, index}, state.subject, q.Version, repo.TagOf(q.Version))
		}
		switch {
		case err == nil:
			out = append(out, version)
		case !repo.IsUnusable(err):
			return nil, &repo.RegistryError{Op: "read " + noted.Manifest.Digest.String() + " in", Repository: state.dest.Repository, Err: err}
		}
	}
	return out, nil
}

// packages returns the packages that the removal removes.
func (r *Removal) packages() (out []artifact.Package) {
	for _, v := range r.versions() {
		for _, pkg := range v.Packages {
			counted := slices.ContainsFunc(out, func(p artifact.Package) bool { return p.Manifest.Digest == pkg.Manifest.Digest })
			if slices.Contains(r.Platforms, pkg.Platform) && !counted {
				out = append(out, pkg)
			}
		}
	}
	return out
}

// versions returns the tagged version and the versions without a tag.
func (r *Removal) versions() []*artifact.Version {
	if r.found == nil {
		return r.noted
	}
	return append([]*artifact.Version{r.found}, r.noted...)
}

// reachedAfter returns the digests of the manifests and layers that tags name after the
// removals, directly or through an index.
func (r *Remover) reachedAfter(ctx context.Context, state *repositoryState, removals []*Removal) (map[digest.Digest]bool, error) {
	p := &pruner{Syncer: r.syncer, state: state}
	reached, err := p.named(ctx, func(t ociaddr.Tag) bool {
		v, ok := t.Version()
		if !ok {
			v, ok = t.PartOf()
		}
		return ok && slices.ContainsFunc(removals, func(r *Removal) bool { return r.Version == v })
	})
	if err != nil {
		return nil, err
	}
	for _, removal := range removals {
		if len(removal.Left) == 0 {
			continue
		}
		if removal.found.Evidence != nil {
			reached[removal.found.Evidence.Digest] = true
		}
		if removal.found.Docs != nil {
			reached[removal.found.Docs.Digest] = true
		}
		for _, pkg := range removal.found.Packages {
			if slices.Contains(removal.Left, pkg.Platform) {
				reached[pkg.Manifest.Digest], reached[pkg.Digest] = true, true
			}
		}
	}
	return reached, nil
}
