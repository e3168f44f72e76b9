package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/lockfile"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// maxHashedBytes bounds a package that is downloaded to be hashed. The largest
// public ones have some 200 MiB.
const maxHashedBytes = 4 << 30

// lockedVersion is what an entry of a lock file names.
type lockedVersion struct {
	provider provider.Address
	version  provider.Version
}

func (v lockedVersion) String() string { return v.provider.String() + " " + v.version.String() }

// lockedRelease is what the registry has of it, verified.
type lockedRelease struct {
	lockfile.Release
	verdict     trust.Verdict
	fingerprint string
	pinned      bool
	writeH1     bool // whether h1: hashes may go into lock files
}

// lockReader reads the versions that lock files name.
type lockReader struct {
	back        *backend
	plan        *lockPlan
	h1          string
	jobs        int
	skipMissing bool

	warnings []string
}

// reading is one version on its way.
type reading struct {
	lockedVersion
	release  *lockedRelease
	missing  []string // what the registry lacks
	warnings []string
}

// read returns the versions that are in the registry. What is not there is told
// all at once.
func (r *lockReader) read(ctx context.Context, files []*lockfile.File) (map[lockedVersion]*lockedRelease, error) {
	var all []*reading
	seen := map[lockedVersion]bool{}
	for _, file := range files {
		for _, p := range file.Providers {
			if v := (lockedVersion{p.Address, p.Version}); !seen[v] {
				seen[v] = true
				all = append(all, &reading{lockedVersion: v})
			}
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.jobs)
	for _, v := range all {
		g.Go(func() error {
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			return r.readOne(gctx, v)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := map[lockedVersion]*lockedRelease{}
	var missing []string
	for _, v := range all {
		r.warnings = append(r.warnings, v.warnings...)
		missing = append(missing, v.missing...)
		if v.release != nil {
			found[v.lockedVersion] = v.release
		}
	}
	if len(missing) > 0 {
		return nil, hint.New("not in the registry: "+strings.Join(missing, ", "),
			"push them, for which ocibridge push has --lock-file; --skip-missing leaves entries as they are whose version is not there")
	}
	return found, nil
}

// readOne reads and verifies one version.
func (r *lockReader) readOne(ctx context.Context, v *reading) error {
	repo, err := r.repository(ctx, v)
	if err != nil || repo == nil {
		return err
	}
	index, err := artifact.Read(ctx, repo.Repository, v.provider, v.version)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		r.miss(v)
		return nil
	case err != nil:
		return repo.explain(fmt.Errorf("%s: %w", v, err))
	}
	checked, err := r.verify(ctx, repo, v, index)
	if err != nil {
		return repo.explain(err)
	}
	v.release = &lockedRelease{
		Release: released(checked, v.provider, v.version),
		verdict: checked.Verdict, fingerprint: checked.Signer.Fingerprint, pinned: checked.Pinned,
		writeH1: r.h1 == h1Annotated || r.h1 == h1Computed || r.h1 == h1Auto && !r.plan.policy(v.provider).Pins(),
	}
	for _, want := range r.plan.platforms {
		if !slices.ContainsFunc(v.release.Packages, func(p lockfile.Package) bool { return p.Platform == want }) {
			v.missing = append(v.missing, fmt.Sprintf("%s for %s", v, want))
		}
	}
	switch {
	case len(v.missing) > 0:
		return nil
	case r.h1 == h1Computed:
		return repo.explain(r.compute(ctx, repo, v, checked.Packages))
	case !v.release.writeH1 && r.h1 == h1Auto:
		v.warnings = append(v.warnings, fmt.Sprintf("%s: no h1: hashes are added, because a trust block pins its keys and nobody signed the registry's h1: hashes; --h1 says otherwise", v))
	}
	return nil
}

func (r *lockReader) miss(v *reading) {
	if !r.skipMissing {
		v.missing = append(v.missing, v.String())
	}
}

// lockedRepository is the repository of a provider, which explains its refusals.
type lockedRepository struct {
	*remote.Repository
	explain func(error) error
}

// repository returns the repository of a version, nil if the templates give its
// provider none.
func (r *lockReader) repository(ctx context.Context, v *reading) (*lockedRepository, error) {
	addr, repo, err := r.back.repository(ctx, v.provider)
	if notServed(err) {
		r.miss(v)
		return nil, nil
	}
	explain := func(err error) error {
		if err == nil {
			return nil
		}
		return hint.Wrap(r.back.explain(err, addr), "ocibridge doctor %s examines its repository", v.provider)
	}
	if err != nil {
		return nil, explain(fmt.Errorf("%s: %w", v, err))
	}
	return &lockedRepository{repo, explain}, nil
}

// verify checks a version against its evidence. Where the policy does without a
// signature and there is nothing to check, what the registry has is taken.
func (r *lockReader) verify(ctx context.Context, repo *lockedRepository, v *reading, index *artifact.Version) (*artifact.Verified, error) {
	policy := r.plan.policy(v.provider)
	checked, err := artifact.Verify(ctx, repo, v.provider, v.version, index, policy)
	switch {
	case errors.Is(err, artifact.ErrNothingToCheck) && policy.Pins(), err != nil && !errors.Is(err, artifact.ErrNothingToCheck):
		return nil, err
	case err != nil && policy.AllowUnsigned:
		return &artifact.Verified{Verdict: trust.ChecksumOnly, Packages: index.Packages}, nil
	case err != nil:
		return nil, hint.Replace(err, "push it from its origin, where it is signed, or accept what the registry has with --allow-unsigned, or with allow_unsigned = true in a trust block for it")
	}
	for _, refused := range checked.Refused {
		if errors.Is(refused.Err, trust.ErrChecksum) {
			return nil, hint.Wrap(fmt.Errorf("%s: %w", v, refused.Err), "what the registry has is not what its publisher released: push it again from its origin, with --force")
		}
		v.warnings = append(v.warnings, fmt.Sprintf("%s: %s is left out: %v", v, refused.Package.Platform, refused.Err))
	}
	return checked, nil
}

// released is what is certain of a version that was verified.
func released(checked *artifact.Verified, a provider.Address, v provider.Version) lockfile.Release {
	var out lockfile.Release
	for _, p := range checked.Packages {
		out.Packages = append(out.Packages, lockfile.Package{Platform: p.Platform, Zip: p.ZipHash(), H1: p.H1})
	}
	if checked.Checksums == nil {
		return out
	}
	for _, name := range checked.Checksums.Files() {
		sum, _ := checked.Checksums.Sum(name)
		out.Listed = append(out.Listed, provider.ZipHash(sum))
		rest, ok := strings.CutPrefix(strings.TrimSuffix(name, ".zip"), fmt.Sprintf("terraform-provider-%s_%s_", a.Type(), v))
		if p, err := provider.ParsePlatform(rest); ok && err == nil && name == provider.PackageFilename(a, v, p) {
			out.Platforms = append(out.Platforms, p)
		}
	}
	return out
}

// compute puts h1: hashes of the packages themselves in the place of annotations.
func (r *lockReader) compute(ctx context.Context, repo *lockedRepository, v *reading, packages []artifact.Package) error {
	for i, p := range packages {
		if len(r.plan.platforms) > 0 && !slices.Contains(r.plan.platforms, p.Platform) {
			continue
		}
		h1, err := hashPackage(ctx, repo, p)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", v, p.Platform, err)
		}
		if !p.H1.IsZero() && p.H1 != h1 {
			return hint.New(fmt.Sprintf("%s for %s: the registry says %s of its package, but computed is %q", v, p.Platform, p.H1, h1),
				"somebody has changed the annotations of the version in the registry: find out who can write there, and push it again with --force")
		}
		v.release.Packages[i].H1 = h1
	}
	return nil
}

// hashPackage downloads a package, verifies it by its digest, and returns its h1:
// hash; none where clients would not agree on it.
func hashPackage(ctx context.Context, repo artifact.Fetcher, p artifact.Package) (provider.Hash, error) {
	if p.Size > maxHashedBytes {
		return provider.Hash{}, fmt.Errorf("it has %d bytes, more than any package", p.Size)
	}
	body, err := repo.Fetch(ctx, p.Layer())
	if err != nil {
		return provider.Hash{}, err
	}
	defer body.Close()
	file, err := os.CreateTemp("", "ocibridge-*.zip")
	if err != nil {
		return provider.Hash{}, hint.Wrap(fmt.Errorf("temporary file: %w", err), "TMPDIR names another folder for temporary files")
	}
	defer os.Remove(file.Name())
	defer file.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(body, p.Size+1))
	if err != nil {
		return provider.Hash{}, err
	}
	if d := digest.NewDigest(digest.SHA256, sum); n != p.Size || d != p.Digest {
		return provider.Hash{}, fmt.Errorf("%w: %s with %d bytes, got %s with %d", artifact.ErrDamaged, p.Digest, p.Size, d, n)
	}
	h1, err := provider.H1(ctx, file, n)
	if errors.Is(err, provider.ErrNoH1) {
		return provider.Hash{}, nil
	}
	return h1, err
}
