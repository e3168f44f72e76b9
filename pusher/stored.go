package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Stored is a provider in a repository, to be pushed into another: a stored
// version is a release, whose claims are the evidence beside it. What is pushed of
// it is verified as if it came from its publisher.
type Stored struct {
	Provider   provider.Address
	Repository ociaddr.Repository
	Store      StoredStore
}

// StoredStore is what reading versions takes. oras-go's remote.Repository is one.
type StoredStore interface {
	artifact.ReferenceFetcher
	artifact.TagLister
	ReferrerLister
}

// ReferrerLister lists the manifests that have a subject, page by page: by the
// referrers API, or by the subject's fallback tag.
type ReferrerLister interface {
	Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, fn func(referrers []ocispec.Descriptor) error) error
}

// storedOrigin is the origin of packages that came without evidence: whoever wrote
// the repository.
const storedOrigin = "OCI repository"

// Versions lists the versions, oldest first; none if there is no repository.
func (s Stored) Versions(ctx context.Context) ([]provider.Version, error) {
	tags, err := listTags(ctx, s.Store)
	if err != nil {
		return nil, &RegistryError{"list tags of", s.Repository, err}
	}
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out = append(out, v)
		}
	}
	provider.SortVersions(out)
	return out, nil
}

// Release returns a version, with the platforms given, or with all of them if none
// is given. Errors wrap [origin.ErrVersionNotFound] or [origin.ErrPlatformNotFound]
// where that is the reason, and are *[RegistryError] where the repository failed.
//
// With a SHA256SUMS in its evidence, a version is as trustworthy as its signature;
// without, it has hashes that nobody signed.
func (s Stored) Release(ctx context.Context, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	r, _, err := s.release(ctx, v, want)
	return r, err
}

// find reads a version.
func (s Stored) find(ctx context.Context, v provider.Version) (*artifact.Version, error) {
	found, err := artifact.Read(ctx, s.Store, s.Provider, v)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return nil, hint.Wrap(fmt.Errorf("%s %s: %w in %s", s.Provider, v, origin.ErrVersionNotFound, s.Repository), "push it there, or name a version that is there")
	case isUnusable(err):
		return nil, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Provider, v, s.Repository, err), "nothing can be copied of it: push it again from its origin")
	case err != nil:
		return nil, s.failed(v, err)
	}
	return found, nil
}

// releaseOf returns a version as a release.
func (s Stored) releaseOf(ctx context.Context, found *artifact.Version, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	packages, err := s.choose(v, found.Packages, want)
	if err != nil {
		return nil, err
	}
	r := &origin.Release{Origin: storedOrigin, Protocols: found.Protocols, Claims: trust.Claims{Provider: s.Provider, Version: v}}
	if found.Evidence != nil {
		e, err := s.claim(ctx, r, found)
		if err == nil {
			err = s.checkNames(ctx, r, e, packages)
		}
		if err != nil {
			return nil, err
		}
	}
	// A version that was stored without some of its platforms is partial as well.
	r.Partial = len(packages) < len(found.Packages) || r.Claims.SHA256SUMS == nil || listsMore(r.Claims, found.Packages)
	for _, p := range packages {
		r.Packages = append(r.Packages, s.offer(r, p))
	}
	return r, nil
}

func (s Stored) failed(v provider.Version, err error) error {
	return &RegistryError{"read " + v.String() + " in", s.Repository, err}
}

// choose returns the packages wanted.
func (s Stored) choose(v provider.Version, have []artifact.Package, want []provider.Platform) ([]artifact.Package, error) {
	var names []provider.Platform
	for _, p := range have {
		names = append(names, p.Platform)
	}
	if len(names) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Provider, v, s.Repository, artifact.ErrNotProvider), "it has no package for a platform that clients run on")
	}
	for _, p := range want {
		if !slices.Contains(names, p) {
			return nil, hint.Wrap(fmt.Errorf("%s %s for %s: %w in %s", s.Provider, v, p, origin.ErrPlatformNotFound, s.Repository), "it is there for %s", joinPlatforms(names))
		}
	}
	if len(want) == 0 {
		return have, nil
	}
	return slices.DeleteFunc(slices.Clone(have), func(p artifact.Package) bool { return !slices.Contains(want, p.Platform) }), nil
}

func joinPlatforms(ps []provider.Platform) string {
	out := ""
	for i, p := range ps {
		if i > 0 {
			out += ", "
		}
		out += p.String()
	}
	return out
}

// claim takes a release's claims from the evidence.
func (s Stored) claim(ctx context.Context, r *origin.Release, found *artifact.Version) (*artifact.Evidence, error) {
	e, err := artifact.ReadEvidence(ctx, s.Store, *found.Evidence)
	switch {
	case isUnusable(err):
		return nil, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Provider, r.Version(), s.Repository, err), "push it again from its origin: --force replaces what is there")
	case err != nil:
		return nil, s.failed(r.Version(), err)
	}
	keys, err := trust.ParseSigningKeys(e.SigningKeys)
	if err != nil {
		return nil, fmt.Errorf("%s %s: evidence: %w: %w", s.Provider, r.Version(), trust.ErrSignature, err)
	}
	r.Claims.SHA256SUMS, r.Claims.Signature, r.Claims.SigningKeys, r.Claims.Keys = e.SHA256SUMS, e.Signature, e.SigningKeys, keys
	r.Origin, r.About = e.Record.Origin, e.Record.About
	if e.Record.Protocols != nil {
		r.Protocols = e.Record.Protocols
	}
	return e, nil
}

// checkNames refuses a version that is signed under another name: once copied, nothing
// but an annotation would say which package is for which platform.
func (s Stored) checkNames(ctx context.Context, r *origin.Release, e *artifact.Evidence, packages []artifact.Package) error {
	if r.Claims.SHA256SUMS == nil || len(r.Claims.Keys) == 0 {
		return nil
	}
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(ctx, trust.Claims{Provider: s.Provider, Version: r.Version(), SHA256SUMS: e.SHA256SUMS})
	if err != nil {
		return nil // the push says why
	}
	_, refused := artifact.Vouched(sums, packages)
	if !slices.ContainsFunc(refused, artifact.Refusal.OtherName) {
		return nil
	}
	verified, err := e.Verify(ctx, s.Provider, r.Version(), packages, trust.Policy{})
	if err != nil || verified.Standing() != artifact.SignedOtherName {
		return nil // likewise
	}
	i := slices.IndexFunc(verified.Refused, artifact.Refusal.OtherName)
	return hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Provider, r.Version(), s.Repository, verified.Refused[i].Err),
		"push it from its origin into the other place: ocibridge push takes it under the name that its origin gives")
}

// offer returns a package of the release. Where keys may have signed its checksum,
// it goes by the name that a package of this provider, version and platform is
// published under: an annotation could give it that of another provider's, which
// is signed as well.
func (s Stored) offer(r *origin.Release, p artifact.Package) origin.Package {
	standard := provider.PackageFilename(s.Provider, r.Version(), p.Platform)
	name := p.Filename
	if len(r.Claims.Keys) > 0 {
		name = standard
	}
	if r.Claims.SHA256SUMS == nil {
		if r.Claims.Hashes == nil {
			r.Claims.Hashes = map[string][]provider.Hash{}
		}
		if r.Claims.Hashes[name] != nil {
			name = standard // two packages of one name
		}
		r.Claims.Hashes[name] = []provider.Hash{p.ZipHash()}
	}
	return origin.Package{
		Platform: p.Platform, Filename: name,
		Open: func(ctx context.Context) (io.ReadCloser, int64, error) {
			body, err := s.Store.Fetch(ctx, p.Layer())
			if err != nil {
				return nil, 0, &RegistryError{"read " + p.Platform.String() + " in", s.Repository, err}
			}
			return body, p.Size, nil
		},
		Size:         func(context.Context) int64 { return p.Size },
		MismatchHint: "the package that is stored is not the one that its evidence is for, or was damaged: copy it from elsewhere, or push it again from its origin",
	}
}

var anyPackage = regexp.MustCompile(`^terraform-provider-.+_([a-z0-9]+_[a-z0-9]+)\.zip$`)

// listsMore reports whether the checksum document lists packages for platforms of
// which none is stored.
func listsMore(c trust.Claims, have []artifact.Package) bool {
	for _, field := range strings.Fields(string(c.SHA256SUMS)) {
		m := anyPackage.FindStringSubmatch(field)
		if m == nil {
			continue
		}
		p, err := provider.ParsePlatform(m[1])
		if err == nil && find(have, p) == nil {
			return true
		}
	}
	return false
}
