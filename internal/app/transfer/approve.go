package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// ApprovalStatus says what an [Approver] did with a version.
type ApprovalStatus string

const (
	// Approved means that a signature was stored.
	Approved ApprovalStatus = "approved"
	// AlreadyApproved means that the version has a valid signature by the key.
	AlreadyApproved ApprovalStatus = "unchanged"
	// Revoked means that signatures were removed.
	Revoked ApprovalStatus = "revoked"
	// NothingToRevoke means that there is no signature to remove.
	NothingToRevoke ApprovalStatus = "not approved"
)

// ApprovedVersion is the result for one version.
type ApprovedVersion struct {
	Subject    subject.Address    `json:"-"` // in JSON, the key is the word for its kind
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tag        ociaddr.Tag        `json:"tag"`
	Digest     digest.Digest      `json:"digest"` // of the index, or of a module's manifest
	Status     ApprovalStatus     `json:"status"`
	// Key is the fingerprint of the key that has signed. It is "" after a revocation.
	Key string `json:"key,omitempty"`
	// Removed is the number of signatures that a revocation has removed. Left is the number of signatures that the version then has.
	Removed  int      `json:"removed,omitempty"`
	Left     int      `json:"left,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (r ApprovedVersion) MarshalJSON() ([]byte, error) {
	type others ApprovedVersion
	return document.Join(subject.Member(r.Subject), others(r))
}

// Approver stores and removes the signatures that approve versions. Several goroutines can use it.
type Approver struct {
	to      *registry.Repositories
	session *repo.Session
	key     *signing.Key // nil: it can only revoke
	dryRun  bool
}

// NewApprover returns an Approver. key may be nil if nothing is approved. If dryRun is set, it writes nothing.
func NewApprover(to *registry.Repositories, key *signing.Key, jobs int, dryRun bool) *Approver {
	return &Approver{to, pusher.New(pusher.Options{Jobs: jobs}).Session(), key, dryRun}
}

// Summarize updates the summaries of repositories, see [repo.Session.Summarize].
func (a *Approver) Summarize(ctx context.Context) error { return a.session.Summarize(ctx) }

// ErrChanged means that the tag of a version has moved since the version was verified.
var ErrChanged = errors.New("the version has changed since it was verified")

// Approve signs a version whose index or manifest, with the given digest, the caller has verified. The error wraps [ErrChanged] if
// the version's tag names something else by now.
func (a *Approver) Approve(ctx context.Context, of subject.Address, v provider.Version, verified digest.Digest) (*ApprovedVersion, error) {
	out, w, found, unlock, err := a.open(ctx, of, v, "approval of %s %s")
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = repo.MayPush(ctx, w.Dest.Repository)
	if found.Index.Digest != verified {
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w: the tag %s names %s, and %s was verified", of, v, ErrChanged, found.Tag, found.Index.Digest, verified), "run it again")
	}
	if err := artifact.NamesItself(found, of, v); err != nil {
		return nil, fmt.Errorf("%s %s is not approved: %w", of, v, err)
	}
	out.Key, out.Status = a.key.Public().Fingerprint(), AlreadyApproved
	var sigs []approval.Signature
	signed := false
	if a.dryRun {
		has := false
		if sigs, err = w.Signatures(ctx, found.Index); err == nil {
			has, err = repo.SignedBy(ctx, a.key, verified, sigs)
		}
		signed = !has
	} else if sigs, signed, err = w.Sign(ctx, found.Index, a.key); err == nil {
		a.note(w, of, v, found, sigs)
	}
	if err != nil {
		return nil, Explain(a.to, err)
	}
	if signed {
		out.Status = Approved
	}
	return out, nil
}

// Revoke removes the signatures of a version that are valid signatures by the given key, or if key is nil, those that meet a
// requirement of the policy. Without a key and without requirements, it removes all signatures.
func (a *Approver) Revoke(ctx context.Context, of subject.Address, v provider.Version, key *approval.PublicKey, policy *approval.Policy) (*ApprovedVersion, error) {
	out, w, found, unlock, err := a.open(ctx, of, v, "revocation of the approval of %s %s")
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = repo.MayPush(ctx, w.Dest.Repository)
	if key != nil {
		if policy, err = approval.NewPolicy(approval.Requirement{Name: "the key", Key: key}); err != nil {
			return nil, err
		}
	}
	warn := func(format string, args ...any) { out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...)) }
	left, removed, err := a.revoke(ctx, w, found.Index, policy, warn)
	if err != nil {
		return nil, Explain(a.to, err)
	}
	out.Status, out.Removed, out.Left = Revoked, removed, len(left)
	if removed == 0 {
		out.Status = NothingToRevoke
	}
	if !a.dryRun {
		a.note(w, of, v, found, left)
	}
	return out, nil
}

func (a *Approver) revoke(ctx context.Context, w repo.Writer, of ocispec.Descriptor, policy *approval.Policy, warn func(format string, args ...any)) (left []approval.Signature, removed int, err error) {
	sigs, err := w.Signatures(ctx, of)
	if err != nil {
		return nil, 0, err
	}
	chosen, err := repo.Approvals(ctx, policy, of.Digest, sigs)
	switch {
	case err != nil:
		return nil, 0, err
	case a.dryRun:
		return make([]approval.Signature, len(sigs)-len(chosen)), len(chosen), nil
	}
	return w.Revoke(ctx, of, chosen, warn)
}

// note notes a version and its signers for the summary.
func (a *Approver) note(w repo.Writer, of subject.Address, v provider.Version, found *artifact.Version, sigs []approval.Signature) {
	if !subject.TraitsOf(of).Packages {
		return // modules have no summary
	}
	a.session.NoteStored(of, w.Dest, v, found)
	a.session.NoteSignatures(of, w.Dest, v, found.Index.Digest, sigs)
}

// open opens the repository of a version for writing, and reads the version. doing describes the operation, for the registry's lock.
func (a *Approver) open(ctx context.Context, of subject.Address, v provider.Version, doing string) (out *ApprovedVersion, w repo.Writer, found *artifact.Version, unlock func(), err error) {
	dest, err := Destination(a.to)(ctx, of)
	if err != nil {
		return nil, w, nil, nil, err
	}
	if unlock, err = dest.LockFor(ctx, doing, of, v); err != nil {
		return nil, w, nil, nil, Explain(a.to, err)
	}
	w = a.session.Writer(dest)
	if found, err = readAny(ctx, dest, of, v); err != nil {
		unlock()
		return nil, w, nil, nil, Explain(a.to, err)
	}
	return &ApprovedVersion{Subject: of, Version: v, Repository: dest.Repository, Tag: found.Tag, Digest: found.Index.Digest}, w, found, unlock, nil
}

// readAny reads a version of a provider or a module.
func readAny(ctx context.Context, dest repo.Destination, of subject.Address, v provider.Version) (found *artifact.Version, err error) {
	if subject.TraitsOf(of).Packages {
		tag := repo.TagOf(v)
		if found, err = artifact.ReadTagged(ctx, dest.Store, of, v, tag); err == nil {
			found.Tag = tag
		}
	} else {
		found, err = artifact.ReadZip(ctx, dest.Store, of, v)
	}
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w in %s", of, v, origin.ErrVersionNotFound, dest.Repository), "%s %s shows the versions that are stored", subject.TraitsOf(of).List, of)
	case err != nil && !repo.IsUnusable(err):
		return nil, &repo.RegistryError{Op: "read " + v.String() + " in", Repository: dest.Repository, Err: err}
	}
	return found, err
}

// Release is a version of a provider or a module.
type Release struct {
	Subject subject.Address
	Version provider.Version
}

// StoredReleases returns the stored versions that the queries select: the newest one for each constraint or, if all is set, every one
// that matches. Each version is in the result once.
func StoredReleases(ctx context.Context, r *registry.Repositories, queries []query.Query[subject.Address], all bool) (out []Release, err error) {
	for _, q := range queries {
		versions := []provider.Version{q.Version}
		if q.Version.IsZero() {
			if versions, err = StoredVersions(ctx, r, q); err != nil {
				return nil, err
			}
			if !all {
				versions = versions[len(versions)-1:]
			}
		}
		for _, v := range versions {
			if release := (Release{q.Address, v}); !slices.Contains(out, release) {
				out = append(out, release)
			}
		}
	}
	return out, nil
}

// StoredFor returns the stored versions that init in dir gets, if a gateway offers only what is stored. It warns of everything that
// is not stored.
func StoredFor(ctx context.Context, dir string, r *registry.Repositories, jobs int, warn func(string)) (out []Release, err error) {
	needs, err := closure.Configuration(ctx, dir, storedModules{newClosurePackages(), r}, jobs)
	if err != nil {
		return nil, err
	}
	for _, m := range needs.Missing {
		warn("not stored: " + m.String())
	}
	var queries []query.Query[subject.Address]
	if needs.Lock != "" {
		locked, warnings, err := Locked([]string{needs.Lock})
		for _, text := range warnings {
			warn(text)
		}
		if err != nil {
			return nil, err
		}
		for _, l := range locked {
			queries = append(queries, query.Query[subject.Address]{Address: l.Address, Version: l.Version})
		}
	}
	for _, p := range needs.Providers {
		q := query.Query[subject.Address]{Address: p.Address}
		stored, err := StoredVersions(ctx, r, q)
		switch newest, none, ok := p.Newest(stored); {
		case errors.Is(err, origin.ErrVersionNotFound), errors.Is(err, origin.ErrProviderNotFound):
			warn(fmt.Sprintf("not stored: %s: %s: %v", p.By, p.Address, err))
		case err != nil:
			return nil, err
		case !ok:
			warn(fmt.Sprintf("not stored: %s: %s: no stored version matches %s", p.By, p.Address, none))
		default:
			q.Version = newest
			queries = append(queries, q)
		}
	}
	if out, err = StoredReleases(ctx, r, queries, false); err != nil {
		return nil, err
	}
	for _, m := range needs.Modules {
		out = append(out, Release{m.Module, m.Version})
	}
	if len(out) == 0 {
		return nil, hint.New(fmt.Sprintf("nothing that the configuration in %s needs is stored", dir), "ocibridge push --needed-by %s stores it", dir)
	}
	return out, nil
}

// storedModules are the modules in a registry. It implements [closure.Origin].
type storedModules struct {
	*closurePackages
	from *registry.Repositories
}

// Versions implements [closure.Origin].
func (s storedModules) Versions(ctx context.Context, a module.Address) (out []closure.Offer, err error) {
	if _, err := s.from.Templates.Repository(a); err != nil {
		return nil, fmt.Errorf("%w: %w", closure.ErrAbsent, err)
	}
	addr, store, err := s.from.Repository(ctx, a)
	if err != nil {
		return nil, err
	}
	versions, err := pusher.Stored{Subject: a, Repository: addr, Store: store}.Versions(ctx)
	if err == nil && len(versions) == 0 {
		err = fmt.Errorf("%w: %s has no version of it", closure.ErrAbsent, addr)
	}
	for _, v := range versions {
		out = append(out, closure.Offer{Version: v, Stored: true})
	}
	return out, err
}

// Package implements [closure.Origin].
func (s storedModules) Package(ctx context.Context, a module.Address, v provider.Version) (*closure.Package, error) {
	dest, err := Destination(s.from)(ctx, a)
	if err != nil {
		return nil, err
	}
	return s.stored(ctx, dest, a, v)
}
