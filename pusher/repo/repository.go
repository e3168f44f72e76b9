// Package repo sends, reads and deletes the manifests and tags of one repository, for pushes,
// syncs and removals.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// It owns what pushes, syncs and removals share:
//
//   - the state of a repository, with the ages, the replaced indexes and the summary of its
//     versions ([Writer.UpdateState]),
//   - the announcements of pushes ([Announced]), because OCI tags have no compare-and-swap,
//   - the check that a repository belongs to a provider ([Writer.CheckOwner]),
//   - the meaning of the registry's refusals ([IsHeld], [CannotDelete]).
//
// It decides nothing about a version: neither which packages a version gets, nor which versions
// are removed.
package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Store is a repository to which pushes and syncs write.
type Store interface {
	artifact.ReferenceFetcher
	Exists(ctx context.Context, target ocispec.Descriptor) (bool, error)
	Push(ctx context.Context, expected ocispec.Descriptor, content io.Reader) error
	PushReference(ctx context.Context, expected ocispec.Descriptor, content io.Reader, reference string) error
	artifact.TagLister
	// Resolve returns the descriptor of the manifest that a tag names. It sends a HEAD request.
	Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error)
	// Remote returns the registry's repository, which uploads and mounts need. It returns nil
	// for a store that only grows, such as a bundle. Callers store packages in such a store
	// with Push.
	Remote() *remote.Repository
	// Untag removes a tag, but keeps the manifest that the tag names. The error is
	// errdef.ErrUnsupported if the registry deletes only by digest.
	Untag(ctx context.Context, tag string) error
	// Delete deletes a manifest, and the tags that name it.
	Delete(ctx context.Context, target ocispec.Descriptor) error
	// ReferrerLister lists the referrers of a manifest, including manifests that were just
	// pushed. If the registry lacks the referrers API, the Store keeps the list under the
	// subject's fallback tag.
	ReferrerLister
}

// Destination is the repository of a provider or a module.
type Destination struct {
	Repository ociaddr.Repository
	Store      Store
	// Sibling is the name of another repository in the same registry. That repository
	// probably has the same packages. The registry mounts packages from Sibling, so the
	// push need not send these packages. "": no such repository is known. A Pusher also
	// mounts packages from repositories in which it has found or stored them.
	Sibling string
	// Lock protects content without a tag from a garbage collection. A writer calls it before
	// the first request of an operation that writes, and calls unlock after the last request.
	// doing describes the operation in messages. Nil: the registry protects new content itself.
	Lock func(ctx context.Context, doing string) (unlock func(), err error)
	// Mark records who stores a version, for the registry's retention. It is called before the
	// version's tag moves from one index to another. It is also called with two equal digests if
	// everything is in place. before is "" if the tag did not exist. If Mark fails, the tag stays as
	// it was. Nil: the registry has no retention.
	Mark func(tag ociaddr.Tag, before, after digest.Digest) error
	// FallbackTags makes [Writer.Attach] list referrers under fallback tags even if the registry lists referrers by
	// itself. The garbage collection of distribution deletes referrers that no tag names.
	FallbackTags bool
}

// MarkTag calls Mark, unless it is nil.
func (d Destination) MarkTag(tag ociaddr.Tag, before, after digest.Digest) error {
	if d.Mark == nil {
		return nil
	}
	if err := d.Mark(tag, before, after); err != nil {
		return &RegistryError{"mark " + string(tag) + " in", d.Repository, err}
	}
	return nil
}

// LockFor calls Lock, unless it is nil.
func (d Destination) LockFor(ctx context.Context, format string, args ...any) (unlock func(), err error) {
	if d.Lock == nil {
		return func() {}, nil
	}
	unlock, err = d.Lock(ctx, fmt.Sprintf(format, args...))
	if err != nil {
		return nil, &RegistryError{"lock", d.Repository, err}
	}
	return unlock, nil
}

// MayPush returns a context whose requests all use one token that allows pulling and pushing. GHCR issues no token
// for pulling alone if a repository does not exist yet: the first push would fail before it begins. Package auth
// restricts the scope to requests for the repository.
func MayPush(ctx context.Context, r ociaddr.Repository) context.Context {
	ref := registry.Reference{Registry: string(r.Registry), Repository: r.Name}
	return auth.AppendRepositoryScope(ctx, ref, auth.ActionPull, auth.ActionPush)
}

// RegistryError is a failure of the registry.
type RegistryError struct {
	Op         string // such as "push linux_amd64 to"
	Repository ociaddr.Repository
	Err        error
}

func (e *RegistryError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Op, e.Repository, e.Err)
}

// Unwrap returns the cause.
func (e *RegistryError) Unwrap() error { return e.Err }

// Reasons why a write is refused.
var (
	// ErrOccupied means that the tag names something that is not a provider or module, or that
	// the repository belongs to another provider or module.
	ErrOccupied = errors.New("repository in use")
	// ErrImmutable means that the registry does not move the tag. A push then cannot add
	// platforms or replace packages.
	ErrImmutable = errors.New("the tag cannot be moved")
)

func Occupied(r ociaddr.Repository, tag ociaddr.Tag, err error, help string) error {
	return hint.Wrap(fmt.Errorf("%s:%s: %w: %w", r, tag, ErrOccupied, err), "%s", help)
}

// TagOf returns the tag of a stored version.
func TagOf(v provider.Version) ociaddr.Tag {
	tag, _ := ociaddr.VersionTag(v) // VersionTag cannot fail for a version that has a tag
	return tag
}

// Plain returns a descriptor without annotations and other optional fields.
func Plain(desc ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
}

// Reader reads versions and their referrers. oras-go's remote.Repository implements it.
type Reader interface {
	artifact.ReferenceFetcher
	artifact.TagLister
	ReferrerLister
}

// Find returns the package for a platform, or nil if there is none.
func Find(packages []artifact.Package, p provider.Platform) *artifact.Package {
	for i := range packages {
		if packages[i].Platform == p {
			return &packages[i]
		}
	}
	return nil
}

// HasPackage reports whether a list has a package with the same platform and the same digest.
func HasPackage(packages []artifact.Package, p artifact.Package) bool {
	q := Find(packages, p.Platform)
	return q != nil && q.Digest == p.Digest
}

func JoinPlatforms(packages []artifact.Package) string {
	return JoinNames((&artifact.Version{Packages: packages}).Platforms())
}

func JoinNames(platforms []provider.Platform) string {
	var names []string
	for _, p := range platforms {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// ReadVersion reads a version of a repository. The error wraps [ErrOccupied] if the tag names
// something other than a version of the provider or module. Any other error is a *[RegistryError].
func ReadVersion(ctx context.Context, store artifact.ReferenceFetcher, r ociaddr.Repository, a subject.Address, v provider.Version, tag ociaddr.Tag) (*artifact.Version, error) {
	found, err := ReadComplete(ctx, store, a, v, tag)
	if err == nil {
		return found, nil
	}
	switch {
	case errors.Is(err, artifact.ErrForeign):
		return nil, Occupied(r, tag, err, artifact.HelpForeign(err, a))
	case IsReplaceable(err):
		return nil, Occupied(r, tag, err, "the tag is left as it was; "+subject.TraitsOf(a).Replace+" replaces what it names")
	}
	return nil, &RegistryError{"read " + string(tag) + " in", r, err}
}

// ownerProbes is the number of versions that ProbeOwner reads. It tries up to maxOwnerProbes if some are invalid,
// or if a policy of the registry forbids reading them.
const ownerProbes, maxOwnerProbes = 3, 20

// CheckOwner refuses a repository whose newest versions name another provider or module. Two providers share
// a repository if, for example, the template is ${namespace}-${type} and the providers are a-b/c and a/b-c. tag is
// the tag that the caller is about to write. CheckOwner warns if it can read none of these versions because a
// policy of the registry forbids it.
func (w Writer) CheckOwner(ctx context.Context, tag ociaddr.Tag, a subject.Address, tags []ociaddr.Tag, warn func(format string, args ...any)) error {
	tagged := ociaddr.TagsOf(a, tags)
	versions := slices.Collect(maps.Keys(tagged))
	provider.SortVersions(versions)
	forbidden, err := w.ProbeOwner(ctx, tag, versions, a, func(v provider.Version) (bool, error) {
		found, err := ReadComplete(ctx, w.Dest.Store, a, v, tagged[v])
		return err == nil && found.Owner != nil, err
	})
	if forbidden != nil {
		warn("%s: ocibridge could not check which %s this repository belongs to: %v", w.Dest.Repository, a.Kind(), forbidden)
	}
	return err
}

// ReadComplete is like [artifact.ReadTagged], but a provider's index must be complete.
func ReadComplete(ctx context.Context, store artifact.ReferenceFetcher, of subject.Address, v provider.Version, tag ociaddr.Tag) (*artifact.Version, error) {
	if a, ok := of.(provider.Address); ok {
		return artifact.Read(ctx, store, a, v)
	}
	return artifact.ReadTagged(ctx, store, of, v, tag)
}

// ProbeOwner reads the newest of the given versions of a with the function read, which also reports whether a version names
// its owner. It returns [ErrOccupied] if a version's tag names content of another provider, module or version. tag is the tag
// that the caller is about to write. forbidden is not nil if ProbeOwner could read none of the versions because a policy of
// the registry forbids it.
func (w *Writer) ProbeOwner(ctx context.Context, tag ociaddr.Tag, versions []provider.Version, a subject.Address, read func(provider.Version) (named bool, err error)) (forbidden, err error) {
	slices.Reverse(versions)
	probes, invalid := 0, false
	for _, v := range versions[:min(len(versions), maxOwnerProbes)] {
		if probes == ownerProbes {
			return nil, nil
		}
		named, err := read(v)
		if errors.Is(err, artifact.ErrForeign) {
			return nil, Occupied(w.Dest.Repository, tag, fmt.Errorf("its tag %s: %w", TagOf(v), err), artifact.HelpForeign(err, a))
		}
		switch {
		case named:
			return nil, nil
		case refusals.Policy(err):
			forbidden = err
			continue
		case artifact.IsInvalid(err):
			invalid = true
			continue
		case err != nil && !IsUnusable(err):
			return nil, w.Failed("read "+string(TagOf(v))+" in", err)
		}
		probes++
	}
	if probes > 0 || invalid {
		forbidden = nil
	}
	return forbidden, nil
}

// IsRefusal reports whether err means that the destination does not accept the content.
func (w *Writer) IsRefusal(err error) bool {
	var registry *RegistryError
	return errors.As(err, &registry) && registry.Repository == w.Dest.Repository && (RefusesContent(err) || errors.Is(err, artifact.ErrTooLarge))
}

// Tags lists the repository's tags. It returns no tags if the repository does not exist.
func (w Writer) Tags(ctx context.Context) ([]ociaddr.Tag, error) {
	tags, err := artifact.ListAnyTags(ctx, w.Dest.Store)
	if err != nil {
		return nil, w.Failed("list tags of", err)
	}
	return tags, nil
}
