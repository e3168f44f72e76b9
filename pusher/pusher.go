// Package pusher stores releases in OCI repositories. It plans which packages are missing,
// and verifies every package before it stores the package. A tag never names an incomplete
// version.
//
// If the accepted checksums determine a package's digest, a push uploads the package while it
// downloads the package from the origin. It withholds the last byte of the package from the
// registry until all bytes are verified. A temporary file holds the bytes, because the push
// computes the h1: hash from them and may have to retry the upload.
//
// A push first stores layers and the config, then platform manifests, evidence and the index
// by digest. It writes the tag last. If the version is already tagged, a push compares the
// version's packages with the release's packages. If the version has all packages of the
// release, the push sends no package. If the version lacks platforms, the push stores the
// union of both. Different bytes for the same platform are a conflict.
//
// OCI tags have no compare-and-swap, so two pushes of different platforms could overwrite
// each other's index. A push of only some platforms therefore announces itself with a tag of
// its own ([artifact.Announcement]). It then writes the union of the index and all announced
// packages, until the version's index contains the union. A push removes an announcement once
// no push needs the announcement any more.
package pusher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Store is a repository to which pushes and syncs write.
type Store interface {
	artifact.ReferenceFetcher
	Exists(ctx context.Context, target ocispec.Descriptor) (bool, error)
	Push(ctx context.Context, expected ocispec.Descriptor, content io.Reader) error
	PushReference(ctx context.Context, expected ocispec.Descriptor, content io.Reader, reference string) error
	artifact.TagLister
	// Resolve returns the descriptor of the manifest that a tag names. It sends a HEAD.
	Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error)
	// Remote returns the registry's repository, which uploads and mounts need. It returns nil
	// for a store that only grows, such as a bundle. Packages are then stored with Push.
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

// Destination is the repository of a provider.
type Destination struct {
	Repository ociaddr.Repository
	Store      Store
	// Sibling is the name of another repository in the same registry. That repository
	// probably has the provider's packages, too. The registry mounts packages from Sibling,
	// so the push need not send these packages. "": no such repository is known. A Pusher
	// also mounts packages from repositories in which it has found or stored them.
	Sibling string
	// Lock protects content without a tag from a garbage collection. It is called before the
	// first request of an operation that writes, and unlock is called after the last one. doing
	// names the operation to people. Nil: the registry protects new content itself.
	Lock func(ctx context.Context, doing string) (unlock func(), err error)
	// Mark records who stores a version, for the registry's retention. It is called before the
	// version's tag moves from one index to another, and with two equal digests if everything is in
	// place. before is "" if the tag did not exist. If Mark fails, the tag stays as it was. Nil: the
	// registry has no retention.
	Mark func(tag ociaddr.Tag, before, after digest.Digest) error
}

// mark calls Mark, unless it is nil.
func (d Destination) mark(tag ociaddr.Tag, before, after digest.Digest) error {
	if d.Mark == nil {
		return nil
	}
	if err := d.Mark(tag, before, after); err != nil {
		return &RegistryError{"mark " + string(tag) + " in", d.Repository, err}
	}
	return nil
}

// lock calls Lock, unless it is nil.
func (d Destination) lock(ctx context.Context, format string, args ...any) (unlock func(), err error) {
	if d.Lock == nil {
		return func() {}, nil
	}
	unlock, err = d.Lock(ctx, fmt.Sprintf(format, args...))
	if err != nil {
		return nil, &RegistryError{"lock", d.Repository, err}
	}
	return unlock, nil
}

// DefaultJobs is the maximum number of packages that a [Pusher] stores concurrently by
// default.
const DefaultJobs = 4

// Options configure a [Pusher].
type Options struct {
	// Destination returns the repository of a provider.
	Destination func(context.Context, provider.Address) (Destination, error)
	// ModuleDestination returns the repository of a module. Only a [Remover] calls it.
	ModuleDestination func(context.Context, module.Address) (Destination, error)
	// Policy returns the policy for a provider's releases. Nil: each release must be signed.
	Policy func(provider.Address) trust.Policy
	// Jobs is the maximum number of packages that all pushes of the Pusher together store
	// concurrently. 0: [DefaultJobs].
	Jobs int
	// Force replaces stored packages whose bytes differ from the release's packages. It also
	// replaces tags that name something other than a provider. It stores deleted parts of a
	// version again. It computes the h1: hashes of all packages, and corrects the index
	// entries of packages and evidence.
	Force bool
	// RefreshEvidence replaces the stored evidence with the release's evidence, unless the
	// release's evidence is weaker.
	RefreshEvidence bool
	// WithoutReferrers makes [Pusher.Copy] omit referrers.
	WithoutReferrers bool
	// Omits returns those packages of a source's version that [Pusher.Copy] may leave out of
	// the destination, because they are elsewhere. Copy stores the manifests of these
	// packages. It neither reads nor verifies the packages. Nil: no package is left out.
	Omits func(ctx context.Context, a provider.Address, v provider.Version, found *artifact.Version) ([]artifact.Package, error)
	// RetryPause is the pause before the first retry of an upload. Each further pause is
	// twice as long. 0: half a second.
	RetryPause time.Duration
	// StallTimeout is the maximum time that an upload waits for the registry to accept the
	// next byte or to respond. The upload then fails. 0: five minutes.
	StallTimeout time.Duration
	// Now returns the local time. Nil: [time.Now].
	Now func() time.Time
	// OnEvent receives events about the progress of packages. Several goroutines call it
	// concurrently. Nil: no progress is reported.
	OnEvent func(Event)
}

// Pusher pushes releases. It can push several releases concurrently.
type Pusher struct {
	o     Options
	slots *semaphore.Weighted // one for each package that is being stored

	// What earlier requests have shown about repositories and registries:
	locations   sync.Map // location -> string: the first repository that is known to have the package
	removable   sync.Map // ociaddr.Repository -> bool: whether announcements can be removed
	chunked     sync.Map // ociaddr.Registry -> true: the registry rejects requests with a whole package
	unmountable sync.Map // mountKey -> true: the registry has refused to mount between these repositories
	attached    sync.Map // ociaddr.Repository -> func: returns the tags that attachedTags has listed
	turns       sync.Map // ociaddr.Repository -> *semaphore.Weighted: see takeTurn
	unsigned    sync.Map // ociaddr.Repository -> time.Time: when no stored version was signed

	summaries pendingSummaries
}

// New returns a Pusher.
func New(o Options) *Pusher {
	o.Jobs = cmp.Or(o.Jobs, DefaultJobs)
	o.RetryPause = cmp.Or(o.RetryPause, 500*time.Millisecond)
	o.StallTimeout = cmp.Or(o.StallTimeout, 5*time.Minute)
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return &Pusher{o: o, slots: semaphore.NewWeighted(int64(o.Jobs))}
}

// helpForeign is the hint for a repository of another provider.
const helpForeign = "let the template give each provider a repository of its own"

// Reasons why a push is refused before it moves the version's tag.
var (
	// ErrConflict means that the tag names another package for the same platform, or that the
	// evidence does not list a package.
	ErrConflict = errors.New("conflict")
	// ErrOccupied means that the tag names something that is not a provider, or that the
	// repository belongs to another provider.
	ErrOccupied = errors.New("repository in use")
	// ErrImmutable means that the registry does not move the tag. A push then cannot add
	// platforms or replace packages.
	ErrImmutable = errors.New("the tag cannot be moved")
	// ErrMisnamed means that the file name of a package belongs to another version or
	// platform. It also means that the checksums list other bytes under the package's
	// published name.
	ErrMisnamed = errors.New("another package")
	// ErrTruncated means that the origin sent fewer bytes than it announced. ErrTooLong means
	// that the origin sent more bytes than it announced, or more bytes than a package may
	// have.
	ErrTruncated = errors.New("truncated")
	ErrTooLong   = errors.New("too long")
)

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
