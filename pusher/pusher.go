// Package pusher puts releases into OCI repositories: it plans what is missing,
// verifies every package before it is stored, and keeps the order in which a tag
// never names an incomplete version.
//
// Where the checksums that were accepted give a package's digest, it is sent while
// it is read from its origin, and the registry gets the last of it only when all
// of it was verified. It is kept meanwhile in a temporary file, for the hash of
// what is in it, and for an upload that has to be begun anew.
//
// Order of a push: layers and config, platform manifests, evidence, the index by
// digest, and the tag last. What is tagged already is compared by its packages:
// the same or more is left alone, and nothing is sent; fewer platforms are
// completed to the union; a platform with other bytes is a conflict.
//
// OCI tags have no compare-and-swap, so two pushes that each add platforms could
// overwrite each other's index. A push of only some of a release's platforms
// therefore announces itself by a tag of its own ([artifact.Announcement]). It then writes
// the union of all announcements, until the version's index lacks none of them. An
// announcement is removed when no push needs it any more.
package pusher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Store is what a push needs of a repository.
type Store interface {
	artifact.ReferenceFetcher
	Exists(ctx context.Context, target ocispec.Descriptor) (bool, error)
	Push(ctx context.Context, expected ocispec.Descriptor, content io.Reader) error
	PushReference(ctx context.Context, expected ocispec.Descriptor, content io.Reader, reference string) error
	artifact.TagLister
	// Resolve returns the descriptor of the manifest that a tag names. It sends a HEAD.
	Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error)
	// Remote returns the repository of a registry, for uploads and mounts. It is nil for a
	// store that only grows, such as a bundle: packages are then pushed whole.
	Remote() *remote.Repository
	// Untag removes a tag, and leaves what it names. It is errdef.ErrUnsupported where
	// manifests are deleted by digest alone.
	Untag(ctx context.Context, tag string) error
	// Delete removes a manifest, and the tags that name it.
	Delete(ctx context.Context, target ocispec.Descriptor) error
	// A store without the referrers API lists a manifest that has a subject, once it is
	// pushed, under the subject's fallback tag.
	ReferrerLister
}

// Destination is the repository that a provider belongs to.
type Destination struct {
	Repository ociaddr.Repository
	Store      Store
	// Sibling names a repository of the same registry that is likely to hold the
	// provider's packages, too; "" for none that is known. What is there is
	// mounted from it, not sent. What this Pusher itself found or stored in other
	// repositories of the registry is known anyway.
	Sibling string
}

// Options configure a [Pusher].
type Options struct {
	// Destination finds the repository of a provider.
	Destination func(context.Context, provider.Address) (Destination, error)
	// Policy says what is accepted of a provider; nil: signed releases of each.
	Policy func(provider.Address) trust.Policy
	// Jobs is how many packages, of all pushes of the Pusher together, are under
	// way at once; 0 is 4.
	Jobs int
	// Force replaces packages that are there with other bytes, and tags that
	// name something else than a provider. It sends again the parts of a version in place
	// that were deleted. It computes the h1: hashes of all packages, and corrects index
	// entries of packages and evidence.
	Force bool
	// RefreshEvidence replaces the evidence in place by that of the release, unless
	// it is weaker.
	RefreshEvidence bool
	// WithoutReferrers has [Pusher.Copy] leave out referrers.
	WithoutReferrers bool
	// RetryPause is how long a package waits before it is sent once more, the
	// first time; each further pause is twice as long. 0 is half a second.
	RetryPause time.Duration
	// StallTimeout is how long the registry may take no byte of a package, or
	// leave a sent one unanswered; 0 is five minutes.
	StallTimeout time.Duration
	// Now is the local time; nil is [time.Now].
	Now func() time.Time
	// OnEvent is told of progress, from several goroutines at once; nil: nobody.
	OnEvent func(Event)
}

// Pusher pushes releases. It may push several at once.
type Pusher struct {
	o     Options
	slots chan struct{} // taken by each package under way
	shelf shelf
	// attached has the tags of repositories that are copied from.
	attached sync.Map // ociaddr.Repository -> *attachedTags
	// removable says of repositories whether announcements can be removed.
	removable sync.Map // ociaddr.Repository -> bool
	// noted has the replaced indexes that states have: ociaddr.Repository + "@" + digest.
	noted sync.Map
	// chunked has the registries that do not take a package in one request.
	chunked sync.Map
	// unmountable has pairs of repositories between which a registry has refused a mount: see
	// mountKey.
	unmountable sync.Map
	// turns has who writes the state of a repository.
	turns sync.Map // ociaddr.Repository -> *semaphore.Weighted
}

// New returns a Pusher.
func New(o Options) *Pusher {
	if o.Jobs <= 0 {
		o.Jobs = 4
	}
	if o.RetryPause <= 0 {
		o.RetryPause = 500 * time.Millisecond
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = 5 * time.Minute
	}
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return &Pusher{o: o, slots: make(chan struct{}, o.Jobs), shelf: shelf{holds: map[digest.Digest][]ociaddr.Repository{}}}
}

// Stage is how far a package has come.
type Stage string

// The stages of a package, in order. StageFetch and StageSend overlap where the package is
// sent while it is read. An event of fewer than 0 bytes takes back the bytes of an upload
// that failed. Each package ends in one of the other stages.
const (
	StageFetch   Stage = "fetch"   // read from its origin and hashed
	StageSend    Stage = "send"    // sent to the registry
	StageDone    Stage = "done"    // stored by sending it; not yet tagged
	StageMounted Stage = "mounted" // stored by a mount from another repository; not yet tagged
	StageFound   Stage = "found"   // found in the repository; not yet tagged, or sent by force
	StagePresent Stage = "present" // in place under the version's tag, or in the mirror folder
)

// Event is progress of one package. A stage starts with an event of 0 bytes.
type Event struct {
	Provider provider.Address
	Version  provider.Version
	Platform provider.Platform
	Stage    Stage
	Bytes    int   // since the last event of this stage
	Total    int64 // of this stage, -1 if not known
}

// Status says what a push did.
type Status string

const (
	// Pushed: the version was not there.
	Pushed Status = "pushed"
	// Completed: platforms, evidence where there was none, or by Copy referrers, were added.
	Completed Status = "completed"
	// Replaced: packages that were there were replaced, by force.
	Replaced Status = "replaced"
	// Refreshed: the packages were in place, and their evidence was replaced.
	Refreshed Status = "refreshed"
	// Rehashed: the packages were in place, and by force their index now has the h1: hashes
	// that were computed: it lacked some, or gave others.
	Rehashed Status = "rehashed"
	// Repaired: the packages and the evidence were in place, and by force the index entries
	// of some were corrected: their size, their file name, or their manifest.
	Repaired Status = "repaired"
	// Unchanged: everything was in place. Nothing was sent, unless by force.
	Unchanged Status = "unchanged"
)

// Result is what a push did, and what is in place after it.
type Result struct {
	Provider   provider.Address   `json:"provider"`
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tag        ociaddr.Tag        `json:"tag"`
	Digest     string             `json:"digest,omitempty"` // of the index
	Status     Status             `json:"status"`
	// Verdict is what the stored evidence proves of the version, and Fingerprint the
	// key that signed it: trust.Signed, trust.ChecksumOnly, artifact.SignedOtherName,
	// or artifact.NoEvidence. A mirror folder, which has no place for evidence, has
	// those of the release.
	Verdict     trust.Verdict `json:"verdict"`
	Fingerprint string        `json:"fingerprint,omitempty"`
	// Pinned is set if the policy names that key, Expired if the key or its
	// signature is past its time.
	Pinned  bool `json:"key_pinned,omitempty"`
	Expired bool `json:"key_expired,omitempty"`
	// EvidenceKept is set if the stored evidence is an earlier push's.
	EvidenceKept bool            `json:"evidence_kept,omitempty"`
	Packages     []PackageResult `json:"packages"`
	// Referrers is how many referrers of the source are in place, at any depth, and
	// ReferrersSent how many of them were sent. Only a copy counts them.
	Referrers     int      `json:"referrers,omitempty"`
	ReferrersSent int      `json:"referrers_sent,omitempty"`
	Warnings      []string `json:"warnings,omitempty"`
}

// PackageResult is one of the packages pushed.
type PackageResult struct {
	Platform provider.Platform `json:"platform"`
	Filename string            `json:"filename"`
	Digest   string            `json:"digest"`
	Size     int64             `json:"size"`
	H1       provider.Hash     `json:"h1"`
	Sent     bool              `json:"sent"` // whether its bytes were sent: StageDone, and no other
	// H1Recorded is set if a forced push computed H1, which the index lacked or gave
	// otherwise.
	H1Recorded bool `json:"h1_recorded,omitempty"`
	// H1Removed is set if the index gave an h1: hash of a zip for which clients compute
	// different ones, and a forced push removed it.
	H1Removed bool `json:"h1_removed,omitempty"`
	// Repaired is set if a forced push corrected the size, the file name or the manifest in
	// the package's index entry.
	Repaired bool `json:"repaired,omitempty"`
}

// helpForeign is the hint for a repository of another provider.
const helpForeign = "let the template give each provider a repository of its own"

// Reasons for which a push is refused before anything is tagged.
var (
	// ErrConflict: the tag names another package for the same platform.
	ErrConflict = errors.New("conflict")
	// ErrOccupied: the tag names something that is no provider, or the
	// repository is another provider's.
	ErrOccupied = errors.New("repository in use")
	// ErrImmutable: the registry does not let a tag name anything else than what it
	// names, so that platforms cannot be added, or packages replaced.
	ErrImmutable = errors.New("the tag cannot be moved")
	// ErrMisnamed: the origin offers one package as another.
	ErrMisnamed = errors.New("another package")
	// ErrTruncated and ErrTooLong: the origin sent another number of bytes than
	// it announced.
	ErrTruncated = errors.New("truncated")
	ErrTooLong   = errors.New("too long")
)

// RegistryError is a failure of the registry's side.
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
