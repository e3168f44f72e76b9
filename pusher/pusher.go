// Package pusher stores releases in OCI repositories. It plans which packages are missing,
// and verifies every package before it stores the package. A tag never names an incomplete
// version.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// If the accepted checksums determine a package's digest, a push uploads the package while it
// downloads the package from the origin. It withholds the last byte of the package from the
// registry until all bytes are verified. A temporary file holds the bytes, because the push
// computes the h1: hash from them and may have to retry the upload.
//
// A push first stores layers and the config, then platform manifests, evidence and the index by
// digest. It writes the tag last. If the version is already tagged, a push compares the
// version's packages with the release's packages. If the version has all packages of the
// release, the push sends no package. If the version lacks platforms, the push stores the union
// of the version's packages and the release's packages. Different bytes for the same platform
// are a conflict.
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
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// DefaultJobs is the maximum number of packages that a [Pusher] stores concurrently by default.
const DefaultJobs = 4

// Options configure a [Pusher].
type Options struct {
	// Destination returns the repository of a provider or a module. [Pusher.PushZip] does not call it.
	Destination func(context.Context, subject.Address) (repo.Destination, error)
	// Policy returns the policy for a provider's releases. Nil: each release must be signed.
	Policy func(provider.Address) trust.Policy
	// Jobs is the maximum number of packages that the Pusher stores concurrently. 0: [DefaultJobs].
	Jobs int
	// Force replaces stored packages that differ, and tags that name something other than a provider.
	// It stores deleted parts of a version again, computes all h1: hashes, and corrects index entries.
	Force bool
	// RefreshEvidence replaces the stored evidence, unless the release's evidence is weaker.
	RefreshEvidence bool
	// Sign approves what a push has verified: the push signs the index, or the manifest of a module, before a tag names it. A
	// copy approves only what replaces an approved version. Nil: nothing is approved.
	Sign *signing.Key
	// Approvals returns the requirements for the versions of a provider or a module. A push does not change a version that has
	// an approval, if the approval would be lost. Nil, or without requirements: every signature counts as an approval.
	Approvals func(subject.Address) *approval.Policy
	// WithoutReferrers makes [Pusher.Copy] omit referrers.
	WithoutReferrers bool
	// Omits returns the packages of a source's version that [Pusher.Copy] may leave out, because they
	// are elsewhere. Copy stores their manifests, but neither reads nor verifies them. Nil: none.
	Omits func(ctx context.Context, a provider.Address, v provider.Version, found *artifact.Version) ([]artifact.Package, error)
	// RetryPause is the pause before the first retry. Each further pause is twice as long. 0: 0.5 s.
	RetryPause time.Duration
	// StallTimeout is the time after which an upload fails if the registry neither accepts a byte nor
	// responds. 0: five minutes.
	StallTimeout time.Duration
	// Now returns the local time. Nil: [time.Now].
	Now func() time.Time
	// OnEvent receives events about the progress of packages, concurrently. Nil: none are reported.
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
	unsigned    sync.Map // ociaddr.Repository -> time.Time: when a search last found no signed version

	session *repo.Session
}

// New returns a Pusher.
func New(o Options) *Pusher {
	o = o.WithDefaults()
	return &Pusher{o: o, slots: semaphore.NewWeighted(int64(o.Jobs)), session: repo.NewSession(o.RetryPause, o.Jobs)}
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	o.Jobs = cmp.Or(o.Jobs, DefaultJobs)
	o.RetryPause = cmp.Or(o.RetryPause, 500*time.Millisecond)
	o.StallTimeout = cmp.Or(o.StallTimeout, 5*time.Minute)
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	if o.Approvals == nil {
		o.Approvals = func(subject.Address) *approval.Policy { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return o
}

// Session returns the session in which the Pusher writes.
func (p *Pusher) Session() *repo.Session { return p.session }

// Report passes an event to [Options.OnEvent]. Events of stages before a push come from the caller of the push.
func (p *Pusher) Report(e Event) { p.o.OnEvent(e) }

// Summarize updates the summaries of repositories with the versions that Push and Copy have found or stored. Call
// it once, at the end of a run. See [repo.Session.Summarize].
func (p *Pusher) Summarize(ctx context.Context) error { return p.session.Summarize(ctx) }

// Reasons why a push is refused before it moves the version's tag.
var (
	// ErrConflict means that the tag names another package for the platform, or that the evidence does
	// not list a package.
	ErrConflict = errors.New("conflict")
	// ErrMoved means that the origin of a module names another commit for a stored version. It wraps
	// ErrConflict.
	ErrMoved = fmt.Errorf("%w: the origin has changed the version", ErrConflict)
	// ErrMisnamed means that the file name of a package belongs to another version or platform, or
	// that the checksums list other bytes under its published name.
	ErrMisnamed = errors.New("another package")
	// ErrTruncated means that the origin sent fewer bytes than it announced. ErrTooLong means that
	// it sent more bytes than it announced, or more than a package may have.
	ErrTruncated = errors.New("truncated")
	ErrTooLong   = errors.New("too long")
)
