package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// Registry opens the repositories of providers.
type Registry interface {
	// Repository returns the repository of a provider, and a client for it.
	Repository(context.Context, subject.Address) (ociaddr.Repository, *remote.Repository, error)
	// ExplainFor adds a hint to the error of a registry that has refused a request for a provider. The hint says what to
	// do about the refusal.
	ExplainFor(subject.Address, error) error
}

// Options say which hashes to add.
type Options struct {
	Registry    Registry
	Policy      func(provider.Address) trust.Policy
	Platforms   []provider.Platform // the platforms whose hashes to add; empty for all platforms in the registry
	H1          H1
	SkipMissing bool // whether to leave an entry unchanged if the registry does not have its version
	Jobs        int  // the number of versions to read concurrently; at least 1
}

// H1 says where the h1: hashes come from.
type H1 string

const (
	Auto      H1 = "auto"      // None if a trust block pins keys, and Annotated otherwise
	Annotated H1 = "annotated" // from the registry's annotations, which are not signed
	Computed  H1 = "computed"  // from the packages, which are downloaded and verified
	None      H1 = "none"      // no h1: hashes are added
)

// writes reports whether h1: hashes are added under a policy.
func (h H1) writes(policy trust.Policy) bool {
	return h == Annotated || h == Computed || h == Auto && !policy.Pins()
}

// target is the version of a provider that an entry locks.
type target struct {
	provider provider.Address
	version  provider.Version
}

func (v target) String() string { return v.provider.String() + " " + v.version.String() }

// hashes returns the hashes of a package that a lock file may contain.
func (r *reading) hashes(p artifact.Package) []provider.Hash {
	if r.H1.writes(r.policy) && !p.H1.IsZero() {
		return []provider.Hash{p.ZipHash(), p.H1}
	}
	return []provider.Hash{p.ZipHash()}
}

// reading reads one version from the registry. Its fields are the results so far.
type reading struct {
	Options
	target
	store    *remote.Repository
	policy   trust.Policy
	verified *artifact.Verified // nil if the registry does not have the version
	// withheld are stored packages that are refused because they are signed under another name and a trust block pins
	// keys. Their hashes are known, but are not added.
	withheld []artifact.Package
	// leftOut are the platforms whose stored packages are withheld, or listed in no checksum document.
	leftOut []provider.Platform
	// contents contains the h1: hashes of packages that have no annotated h1: hash. hashContents computes these hashes.
	contents map[provider.Platform]provider.H1s
	missing  []string // the version or the packages that the registry does not have
	warnings []string
	document
}

// document holds the hashes and platforms that a checksum document lists. It is zero if there is no such document.
type document struct {
	listed    []provider.Hash     // the hashes of all zips
	platforms []provider.Platform // the platforms of all zips
}

// read reads from the registry the versions that the files name.
func (o Options) read(ctx context.Context, files []*lockfile.File) (found map[target]*reading, warnings []string, err error) {
	var all []*reading
	seen := map[target]bool{}
	for _, file := range files {
		for _, p := range file.Providers {
			if v := (target{p.Address, p.Version}); !seen[v] {
				seen[v] = true
				all = append(all, &reading{Options: o, target: v, policy: o.Policy(p.Address)})
			}
		}
	}
	g, gctx := panics.WithContext(ctx)
	g.SetLimit(o.Jobs)
	for _, r := range all {
		g.Go(func() error {
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			return r.read(gctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	found = map[target]*reading{}
	var missing []string
	for _, r := range all {
		warnings, missing = append(warnings, r.warnings...), append(missing, r.missing...)
		if r.verified != nil {
			found[r.target] = r
		}
	}
	if len(missing) > 0 {
		return nil, warnings, hint.New("not in the registry: "+strings.Join(missing, ", "), "%s", helpMissing(all))
	}
	return found, warnings, nil
}

// helpMissing returns the hint for missing versions and packages. --skip-missing does not affect the missing platforms of a
// stored version.
func helpMissing(all []*reading) string {
	lacks := func(version bool) bool {
		return slices.ContainsFunc(all, func(r *reading) bool { return len(r.missing) > 0 && (r.verified == nil) == version })
	}
	const versions = "push them with ocibridge push --lock-file, or leave their entries unchanged with --skip-missing"
	const platforms = "push them with ocibridge push --platform, or leave them out of --platform"
	switch {
	case !lacks(false):
		return versions
	case !lacks(true):
		return platforms
	}
	return "versions: " + versions + ". Platforms: " + platforms
}

// read opens the repository of the version, and reads and verifies the version. It adds hints to errors.
func (r *reading) read(ctx context.Context) error {
	_, store, err := r.Registry.Repository(ctx, r.provider)
	switch {
	case errors.Is(err, templates.ErrNotSelected), errors.Is(err, templates.ErrNoRepository):
		r.miss()
		return nil
	case err != nil:
		err = fmt.Errorf("%s: %w", r.target, err)
	default:
		r.store = store
		err = r.readStored(ctx)
	}
	if err != nil {
		return hint.Wrap(r.Registry.ExplainFor(r.provider, err), "ocibridge doctor %s examines its repository", r.provider)
	}
	return nil
}

func (r *reading) miss() {
	if !r.SkipMissing {
		r.missing = append(r.missing, r.String())
	}
}

// readStored reads and verifies the version.
func (r *reading) readStored(ctx context.Context) error {
	index, err := artifact.Read(ctx, r.store, r.provider, r.version)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		r.miss()
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", r.target, err)
	}
	if r.verified, err = r.verify(ctx, index); err != nil {
		return err
	}
	r.readChecksums()
	for _, want := range r.Platforms {
		if !slices.Contains(r.leftOut, want) && !slices.ContainsFunc(r.verified.Packages, func(p artifact.Package) bool { return p.Platform == want }) {
			r.missing = append(r.missing, fmt.Sprintf("%s for %s", r.target, want))
		}
	}
	switch {
	case len(r.missing) > 0:
	case r.H1 == Computed:
		return r.compute(ctx)
	case !r.H1.writes(r.policy) && r.H1 == Auto:
		r.warnings = append(r.warnings, fmt.Sprintf("%s: no h1: hashes are added, because a trust block pins its keys and nobody signed the registry's h1: hashes; --h1 annotated or computed adds them", r.target))
	}
	return nil
}

// verify verifies the version by its evidence. Without evidence, it accepts the version if the policy allows unsigned ones.
func (r *reading) verify(ctx context.Context, index *artifact.Version) (*artifact.Verified, error) {
	checked, err := artifact.Verify(ctx, r.store, r.provider, r.version, index, r.policy)
	nothing := errors.Is(err, artifact.ErrNothingToCheck)
	switch {
	case err != nil && (!nothing || r.policy.Pins()):
		return nil, err
	case nothing && r.policy.AllowUnsigned:
		return &artifact.Verified{Verdict: trust.ChecksumOnly, Packages: index.Packages}, nil
	case nothing:
		return nil, hint.Replace(err, "push it from its origin, where it is signed, or accept what the registry has with --allow-unsigned, or with allow_unsigned = true in a trust block for it")
	}
	if err := r.checkDowngrade(ctx, checked.Checksums); err != nil {
		return nil, err
	}
	for _, refused := range checked.Refused {
		switch {
		case errors.Is(refused.Err, trust.ErrChecksum):
			return nil, hint.Wrap(fmt.Errorf("%s: %w", r.target, refused.Err), "the registry's package is not the one that the publisher released: push it again from its origin, with --force")
		case refused.OtherName() && !r.policy.Pins():
			// The package is not withheld, because the signed document lists its digest, and clients compare nothing
			// else.
			r.warnings = append(r.warnings, fmt.Sprintf("%s: %v; clients install it, and its hashes are added", r.target, refused.Err))
			checked.Packages = append(checked.Packages, refused.Package)
			continue
		case refused.OtherName():
			r.withheld = append(r.withheld, refused.Package)
		}
		r.leftOut = append(r.leftOut, refused.Package.Platform)
		r.warnings = append(r.warnings, fmt.Sprintf("%s: %s is left out: %v", r.target, refused.Package.Platform, refused.Err))
	}
	provider.SortPlatforms(r.leftOut)
	slices.SortFunc(checked.Packages, func(a, b artifact.Package) int { return a.Platform.Compare(b.Platform) })
	return checked, nil
}

// checkDowngrade returns an error if the version was accepted without a key, as OpenTofu accepts versions, although a
// signed version is stored.
func (r *reading) checkDowngrade(ctx context.Context, sums *trust.Checksums) error {
	if !sums.AsClients() {
		return nil
	}
	signed, found, err := artifact.FindSignedIn(ctx, r.store, r.provider)
	switch {
	case err != nil:
		return fmt.Errorf("%s: cannot tell whether a signed version is stored: %w", r.target, err)
	case found:
		return sums.Downgrade(signed)
	}
	return nil
}

// readChecksums sets r.listed and r.platforms from the checksum document of the verified version.
func (r *reading) readChecksums() {
	if r.verified.Checksums == nil {
		return
	}
	for _, name := range r.verified.Checksums.Files() {
		sum, _ := r.verified.Checksums.Sum(name)
		r.listed = append(r.listed, provider.ZipHash(sum))
	}
	r.platforms = r.verified.Checksums.Platforms()
}

// compute downloads the packages, and replaces their annotated h1: hashes by computed ones.
func (r *reading) compute(ctx context.Context) error {
	for i, p := range r.verified.Packages {
		if len(r.Platforms) > 0 && !slices.Contains(r.Platforms, p.Platform) {
			continue
		}
		annotated := p.H1
		p.H1 = provider.Hash{} // otherwise Rehash would compare the hash, and return an error without the hint below
		content, err := artifact.Rehash(ctx, r.store, r.provider.Type(), p)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", r.target, p.Platform, err)
		}
		if !annotated.IsZero() && !content.H1s.Has(annotated) {
			return hint.New(fmt.Sprintf("%s for %s: the registry annotates its package with %s, but the computed hash is %q", r.target, p.Platform, annotated, content.H1s),
				"somebody has changed the annotations of the version in the registry: find out who can write there, and push it again with --force")
		}
		r.verified.Packages[i].H1 = content.H1s.Agreed()
	}
	return nil
}

// packages returns the stored packages that the checksum document lists under any name.
func (r *reading) packages() []artifact.Package {
	return append(slices.Clone(r.verified.Packages), r.withheld...)
}

// hashContents reads the packages that have no annotated h1: hash, and sets r.contents.
func (r *reading) hashContents(ctx context.Context) error {
	if r.contents != nil {
		return nil
	}
	contents := map[provider.Platform]provider.H1s{}
	for _, p := range r.packages() {
		if !p.H1.IsZero() {
			continue
		}
		content, err := artifact.Rehash(ctx, r.store, r.provider.Type(), p)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", r.target, p.Platform, err)
		}
		contents[p.Platform] = content.H1s
	}
	r.contents = contents
	return nil
}
