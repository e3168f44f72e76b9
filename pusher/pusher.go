// Package pusher stores releases in OCI repositories. It plans what is missing,
// verifies every package, and then stores it. A tag never names an incomplete version.
//
// If the accepted checksums determine a package's digest, a push sends the package while it
// reads it from the origin. It withholds the end of the package from the registry until all
// bytes are verified. A temporary file holds the bytes for the h1: hash, and for further
// attempts of the upload.
//
// Order of a push: layers and config, platform manifests, evidence, the index by digest, and
// the tag last. If the version is already tagged, a push compares its packages with those of
// the release. If the version has all of them, the push sends nothing. If it lacks platforms,
// the push stores the union. Different bytes for the same platform are a conflict.
//
// OCI tags have no compare-and-swap, so two pushes of different platforms could overwrite each
// other's index. A push of only some platforms therefore announces itself with a tag of its
// own ([artifact.Announcement]). It then writes the union of all announcements until the
// version's index has all of them. A push removes an announcement once no push needs it.
package pusher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
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
	// Remote returns the repository of a registry, for uploads and mounts. It returns nil
	// for a store that only grows, such as a bundle: packages are then pushed whole.
	Remote() *remote.Repository
	// Untag removes a tag, but keeps the manifest that the tag names. The error is
	// errdef.ErrUnsupported if the registry only deletes by digest.
	Untag(ctx context.Context, tag string) error
	// Delete deletes a manifest, and the tags that name it.
	Delete(ctx context.Context, target ocispec.Descriptor) error
	// ReferrerLister lists a manifest with a subject once it is pushed. A registry without
	// the referrers API lists it under the subject's fallback tag.
	ReferrerLister
}

// Destination is the repository of a provider.
type Destination struct {
	Repository ociaddr.Repository
	Store      Store
	// Sibling is the name of another repository of the same registry that probably has the
	// provider's packages, too; "": none is known. The registry mounts packages from Sibling,
	// so they need not be sent. The Pusher also knows the repositories in which it has found
	// or stored packages.
	Sibling string
}

// DefaultJobs is the number of packages that a [Pusher] stores at once by default.
const DefaultJobs = 4

// Options configure a [Pusher].
type Options struct {
	// Destination returns the repository of a provider.
	Destination func(context.Context, provider.Address) (Destination, error)
	// Policy returns the policy for a provider's releases. Nil: each release must be signed.
	Policy func(provider.Address) trust.Policy
	// Jobs is the maximum number of packages that all pushes of the Pusher together store
	// concurrently. 0: [DefaultJobs].
	Jobs int
	// Force replaces stored packages whose bytes differ, and tags that name something other
	// than a provider. It stores deleted parts of a version again. It computes the h1: hashes
	// of all packages, and corrects the index entries of packages and evidence.
	Force bool
	// RefreshEvidence replaces the stored evidence with the release's evidence, unless the
	// release's evidence is weaker.
	RefreshEvidence bool
	// WithoutReferrers makes [Pusher.Copy] omit referrers.
	WithoutReferrers bool
	// RetryPause is the pause before the first retry of an upload. Each further pause is
	// twice as long. 0: half a second.
	RetryPause time.Duration
	// StallTimeout is how long an upload waits for the registry to accept the next byte, or to
	// answer, before it fails. 0: five minutes.
	StallTimeout time.Duration
	// Now is the local clock. Nil: [time.Now].
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
	chunked     sync.Map // ociaddr.Registry -> true: the registry rejects a package in one request
	unmountable sync.Map // mountKey -> true: the registry has refused such a mount
	attached    sync.Map // ociaddr.Repository -> func: the tags that attachedTags has listed
	turns       sync.Map // ociaddr.Repository -> *semaphore.Weighted: see takeTurn
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

// Reasons for refusing a push before it tags anything.
var (
	// ErrConflict: the tag names another package for the same platform, or the evidence
	// does not list a package.
	ErrConflict = errors.New("conflict")
	// ErrOccupied: the tag names something that is not a provider, or the repository belongs
	// to another provider.
	ErrOccupied = errors.New("repository in use")
	// ErrImmutable: the registry does not move the tag, so a push cannot add platforms or
	// replace packages.
	ErrImmutable = errors.New("the tag cannot be moved")
	// ErrMisnamed: the file name of a package is that of another version or platform.
	ErrMisnamed = errors.New("another package")
	// ErrTruncated and ErrTooLong: the origin sent fewer or more bytes than it announced.
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
