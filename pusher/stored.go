package pusher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// Stored is a repository of a provider or a module from which versions are copied. It offers each version of a
// provider as a release whose claims come from the stored evidence. A push verifies such a release like one
// from the publisher.
type Stored struct {
	Subject    subject.Address
	Repository ociaddr.Repository
	Store      repo.Reader
}

// Versions lists the versions, oldest first. It lists none if the repository does not exist.
func (s Stored) Versions(ctx context.Context) ([]provider.Version, error) {
	tags, err := artifact.ListAnyTags(ctx, s.Store)
	if err != nil {
		return nil, &repo.RegistryError{Op: "list tags of", Repository: s.Repository, Err: err}
	}
	return slices.SortedFunc(maps.Keys(ociaddr.TagsOf(s.Subject, tags)), provider.Version.Compare), nil
}

// provider returns the subject, which must be a provider.
func (s Stored) provider() provider.Address { return s.Subject.(provider.Address) }

// Release returns a version with the wanted platforms, or with all if want is empty. The error wraps
// [origin.ErrVersionNotFound] or [origin.ErrPlatformNotFound] if the version or a wanted platform is not stored,
// and is a *[RegistryError] if the registry failed. The release is as trustworthy as the signature of the
// SHA256SUMS in the evidence. Without a signature, the release only has unsigned hashes.
func (s Stored) Release(ctx context.Context, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	r, _, err := s.release(ctx, v, want)
	return r, err
}

// release returns a version as a release, together with the stored version.
func (s Stored) release(ctx context.Context, v provider.Version, want []provider.Platform) (*origin.Release, *artifact.Version, error) {
	found, err := s.find(ctx, v)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.releaseOf(ctx, found, v, want)
	if repo.IsGone(err) { // a push might have replaced the index, and a prune might have deleted the old index
		if again, findErr := s.find(ctx, v); findErr == nil && again.Index.Digest != found.Index.Digest {
			found = again
			r, err = s.releaseOf(ctx, found, v, want)
		}
	}
	return r, found, err
}

// find reads a version.
func (s Stored) find(ctx context.Context, v provider.Version) (*artifact.Version, error) {
	found, err := artifact.ReadAvailable(ctx, s.Store, s.provider(), v)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return nil, s.absent(v)
	case repo.IsUnusable(err):
		return nil, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Subject, v, s.Repository, err), "this version cannot be copied: push it again from its origin")
	case err != nil:
		return nil, s.failed(v, err)
	}
	return found, nil
}

// releaseOf returns a stored version as a release.
func (s Stored) releaseOf(ctx context.Context, found *artifact.Version, v provider.Version, want []provider.Platform) (*origin.Release, error) {
	packages, err := s.choose(v, found, want)
	if err != nil {
		return nil, err
	}
	r := &origin.Release{Origin: "OCI repository", Protocols: found.Protocols, Claims: trust.Claims{Provider: s.provider(), Version: v}}
	for _, m := range found.Missing {
		if len(want) == 0 || slices.Contains(want, m.Platform) {
			r.Lost = append(r.Lost, m.Platform)
			r.Warnings = append(r.Warnings, fmt.Sprintf("the package for %s is left out: %s lacks its manifest %s", m.Platform, s.Repository, m.Manifest))
		}
	}
	if found.Evidence != nil {
		if err := s.claim(ctx, r, found); err != nil {
			return nil, err
		}
	}
	// A version is also partial if its SHA256SUMS lists platforms that are not stored.
	r.Partial = len(packages) < len(found.Packages) || len(found.Missing) > 0 || r.Claims.SHA256SUMS == nil || listsMore(r.Claims, func(p provider.Platform) bool { return repo.Find(found.Packages, p) != nil })
	names := signedNames(ctx, r.Claims, packages)
	for _, p := range packages {
		r.Packages = append(r.Packages, s.offer(r, p, names))
	}
	return r, nil
}

func (s Stored) absent(v provider.Version) error {
	return hint.Wrap(fmt.Errorf("%s %s: %w in %s", s.Subject, v, origin.ErrVersionNotFound, s.Repository), "push it there, or name a version that is there")
}

func (s Stored) failed(v provider.Version, err error) error {
	return &repo.RegistryError{Op: "read " + v.String() + " in", Repository: s.Repository, Err: err}
}

const helpLost = "push the version again from its origin, with --force, or copy it from a registry that has it whole"

// LostError returns the error of a copy that left out platforms of the version, or nil if it left out none.
func (r *Result) LostError() error {
	if len(r.Lost) == 0 {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s %s is not copied for %s: %w", r.Subject, r.Version, repo.JoinNames(r.Lost), artifact.ErrMissing), helpLost)
}

// choose returns the packages for the wanted platforms, or all packages if want is empty. It leaves out packages whose
// manifests are missing, unless no package is left.
func (s Stored) choose(v provider.Version, found *artifact.Version, want []provider.Platform) ([]artifact.Package, error) {
	if len(found.Packages) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Subject, v, s.Repository, artifact.ErrNotProvider), "it has no package for a platform that clients run on")
	}
	missing := 0
	for _, p := range want {
		if m, ok := found.MissingFor(p); ok {
			if missing++; missing == len(want) {
				return nil, hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Subject, v, s.Repository, m.Err()), helpLost)
			}
			continue
		}
		if repo.Find(found.Packages, p) == nil {
			return nil, hint.Wrap(fmt.Errorf("%s %s for %s: %w in %s", s.Subject, v, p, origin.ErrPlatformNotFound, s.Repository), "it is there for %s", repo.JoinPlatforms(found.Packages))
		}
	}
	if len(want) == 0 {
		return found.Packages, nil
	}
	return slices.DeleteFunc(slices.Clone(found.Packages), func(p artifact.Package) bool { return !slices.Contains(want, p.Platform) }), nil
}

// claim reads the evidence of a version, and copies its claims into the release r.
func (s Stored) claim(ctx context.Context, r *origin.Release, found *artifact.Version) error {
	e, err := artifact.ReadEvidence(ctx, s.Store, *found.Evidence)
	switch {
	case repo.IsUnusable(err):
		return hint.Wrap(fmt.Errorf("%s %s in %s: %w", s.Subject, r.Version(), s.Repository, err), "push it again from its origin: --force replaces what is there")
	case err != nil:
		return s.failed(r.Version(), err)
	}
	keys, err := trust.ParseSigningKeys(e.SigningKeys)
	if err != nil {
		return fmt.Errorf("%s %s: evidence: %w: %w", s.Subject, r.Version(), trust.ErrSignature, err)
	}
	r.Claims.SHA256SUMS, r.Claims.Signature, r.Claims.SigningKeys, r.Claims.Keys = e.SHA256SUMS, e.Signature, e.SigningKeys, keys
	r.Origin, r.About = e.Record.Origin, e.Record.About
	r.Claims.FromRegistry = e.Record.Origin == s.Subject.Hostname()
	if e.Record.Protocols != nil {
		r.Protocols = e.Record.Protocols
	}
	return nil
}

// signedNames maps platforms to the names under which the claims' checksum document lists their packages. These
// need not be the published names. It returns nil if there are no signing keys. It also returns nil if the
// document cannot be parsed, because the push then fails with the reason. The push also verifies the signature.
func signedNames(ctx context.Context, c trust.Claims, packages []artifact.Package) map[provider.Platform]string {
	if c.SHA256SUMS == nil || len(c.Keys) == 0 {
		return nil
	}
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(ctx, trust.Claims{Provider: c.Provider, Version: c.Version, SHA256SUMS: c.SHA256SUMS})
	if err != nil {
		return nil
	}
	out := map[provider.Platform]string{}
	vouched, refused := artifact.Vouched(sums, packages)
	for _, p := range vouched {
		out[p.Platform] = p.Filename
	}
	for _, r := range refused {
		var other *artifact.OtherNameError
		if errors.As(r.Err, &other) {
			out[r.Package.Platform] = other.Listed
		}
	}
	return out
}

// offer returns a package of the release. If the claims have signing keys, the package gets its name in names, or
// else the standard name. With signing keys, offer ignores the file name in the stored annotation, because it
// could name another provider's package that is also validly signed.
func (s Stored) offer(r *origin.Release, p artifact.Package, names map[provider.Platform]string) origin.Package {
	standard := provider.PackageFilename(s.provider(), r.Version(), p.Platform)
	name := p.Filename
	if len(r.Claims.Keys) > 0 {
		name = cmp.Or(names[p.Platform], standard)
	}
	if r.Claims.SHA256SUMS == nil {
		if r.Claims.Hashes == nil {
			r.Claims.Hashes = map[string][]provider.Hash{}
		}
		if r.Claims.Hashes[name] != nil {
			name = standard // two packages have the same stored file name
		}
		r.Claims.Hashes[name] = []provider.Hash{p.ZipHash()}
	}
	return origin.Package{
		Platform: p.Platform, Filename: name,
		Open: func(ctx context.Context) (io.ReadCloser, int64, error) {
			body, err := s.Store.Fetch(ctx, p.Layer())
			if err != nil {
				return nil, 0, &repo.RegistryError{Op: "read " + p.Platform.String() + " in", Repository: s.Repository, Err: err}
			}
			return body, p.Size, nil
		},
		Size:         func(context.Context) int64 { return p.Size },
		MismatchHint: "the stored package is not the one that its evidence lists, or it is damaged: copy it from elsewhere, or push it again from its origin",
	}
}

var anyPackage = regexp.MustCompile(`^terraform-provider-.+_([a-z0-9]+_[a-z0-9]+)\.zip$`)

// listsMore reports whether SHA256SUMS lists a package for a platform for which known returns false.
func listsMore(c trust.Claims, known func(provider.Platform) bool) bool {
	for _, field := range strings.Fields(string(c.SHA256SUMS)) {
		p, named := provider.NamedPlatform(field, c.Provider, c.Version)
		if m := anyPackage.FindStringSubmatch(field); !named && m != nil {
			var err error
			p, err = provider.ParsePlatform(m[1])
			named = err == nil
		}
		if named && !known(p) {
			return true
		}
	}
	return false
}
