// Package pull serves providers and modules that nobody has pushed. When a client first requests a version that the registry
// lacks, a [Puller] fetches the version from its origin, verifies it, serves it, and pushes it into the registry.
//
// A Puller is the origin of a catalog ([catalog.Origin]). The registry takes precedence over the origin. The Puller
// adds packages to a stored version, and never replaces a package that the registry has.
//
// A module's version is served only after it is stored, because its origin can change it later: the first client gets the
// same files as every later one. Lists, limits, cooldown and the memory of failures are the same for both kinds.
//
// Invariants:
//
//   - The metadata and packages of a version are served only after the version's SHA256SUMS was accepted under the
//     provider's trust policy. After that, packages are identified by digest. Only a push stores packages, and the push
//     verifies them again.
//   - A provider, module or version is reported as absent only if its origin says so. A failure of
//     an origin is an error that wraps [catalog.ErrSource].
//   - A package is downloaded once, into a temporary file. All clients and the push read that file while it is being
//     written. A client that leaves does not cancel a download that other clients or the push read.
//   - A stored version of a module is never requested from its origin again.
//   - Memory and disk are bounded: see [Limits].
package pull

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// Scope selects the providers, modules, versions and platforms that may be pulled through.
type Scope struct {
	// Selector selects providers and modules. Without include patterns, it selects all providers and no modules.
	Selector subject.Selector
	// Versions are the allowed versions. The zero value allows all versions.
	Versions provider.VersionSet
	// Platforms are the platforms whose packages are stored before a version is tagged. If Platforms is empty, the
	// packages of all platforms are stored.
	Platforms []provider.Platform
	// Cooldown is how long a version is held back after the Puller has first seen it at the origin. It does not apply
	// to versions that the origin offered at the first request for the provider.
	Cooldown time.Duration
}

// Selects reports whether a provider or a module may be pulled through.
func (s *Scope) Selects(a subject.Address) bool {
	return s.Selector.Selects(a) && s.Pulls(a.Kind())
}

// Pulls reports whether any providers, or any modules, may be pulled through.
func (s *Scope) Pulls(k subject.Kind) bool {
	if len(s.Selector.Include) == 0 {
		return k == subject.Provider
	}
	return slices.ContainsFunc(s.Selector.Include, func(p subject.Pattern) bool { return p.Kind() == k })
}

// Overlaps reports whether a provider or a module that matches the pattern may be pulled through.
func (s *Scope) Overlaps(p subject.Pattern) bool {
	return s.Pulls(p.Kind()) && (len(s.Selector.Include) == 0 ||
		slices.ContainsFunc(s.Selector.Include, func(include subject.Pattern) bool { return subject.Overlap(include, p) }))
}

// Options configure a [Puller].
type Options struct {
	Origin Origin
	// Modules is the origin of modules. If it is nil, no modules are pulled through.
	Modules ModuleOrigin
	// Policy returns the trust policy of a provider. If Policy is nil, the releases of every provider must be signed.
	Policy func(provider.Address) trust.Policy
	// UsualNames makes the Puller ignore packages whose signed names do not contain their version and platform, and not
	// request them. A gateway with verify = "required" does not serve them.
	UsualNames bool
	// Push stores a release in the registry. If it is nil, nothing is stored.
	Push func(context.Context, *origin.Release) (*pusher.Result, error)
	// CheckDowngrade is [pusher.Pusher.CheckDowngrade]. If it is nil, nothing is refused.
	CheckDowngrade func(context.Context, *trust.Checksums) error
	Scope          Scope
	// Names reports whether the configuration names a host. A host without a dot and a port is an origin only if it does: no
	// public registry has such a name, so what looks like a host is probably the first part of a module's address. If Names is
	// nil, the configuration names no host.
	Names  func(svchost.Hostname) bool
	Limits Limits
	// Budget enforces Limits after [Puller.Begin] has set them. If Budget is nil, the Puller creates its own budget.
	Budget *Budget
	// ListTTL is how long an origin's list is current; 0 means 5 min.
	ListTTL time.Duration
	// StaleIfError is how long the last list is served stale while the origin fails. 0 means
	// [catalog.DefaultStaleIfError], and a negative value means never.
	StaleIfError time.Duration
	// Directory is the folder for lists that survive a restart. If it is "", lists are not saved. [New] requires the
	// folder if there is a cooldown.
	Directory string
	// Spool is the folder for packages in flight; "" means the system's folder for temporary files.
	Spool string
	// Events is called with each event. It must be safe to call concurrently. It may be nil.
	Events func(Event)
	Log    *slog.Logger // may be nil
}

// Kind says what an [Event] reports.
type Kind string

const (
	Verified Kind = "verified" // the SHA256SUMS of a version was accepted or refused, or could not be fetched
	Fetched  Kind = "fetched"  // the download of a package or a module succeeded or failed
	Stored   Kind = "stored"   // a version was tagged in the registry, or could not be tagged
)

// Event is a result of the Puller's work.
type Event struct {
	Kind     Kind
	Subject  subject.Address
	Version  provider.Version
	Platform provider.Platform // only for Fetched packages
	// From is the origin, such as the host of its registry, or [FromRegistry] if the registry already had the package.
	From string
	// Verdict and Fingerprint say why the version was accepted. They are zero if the reason is not known.
	Verdict     trust.Verdict
	Fingerprint string
	Bytes       int64         // only for Fetched: the number of downloaded bytes
	Took        time.Duration // only for Fetched: of the download, without the wait for a slot
	Err         error         // nil if the work succeeded
}

const (
	// metadataTimeout is the maximum time for fetching a list, a release or a location from an origin. Clients stop
	// waiting before this time has passed. Their next request gets the answer from the cache.
	metadataTimeout = 30 * time.Second
	outageTTL       = 5 * time.Second  // how long the error of a failed metadata request is cached
	refusalTTL      = 30 * time.Second // how long the refusal of a version is cached
)

// Puller fetches providers and modules from their origins on request, serves them, and stores them. It is safe for concurrent use.
type Puller struct {
	o     Options
	limit *Budget

	lists    *fresh.Cache[subject.Address, *list]
	folder   listFolder
	releases *fresh.Cache[providerVersion, *release]
	moduleFetches
	logged *lru.Cache[[sha256.Size]byte, struct{}] // the hashes of the warnings that were logged

	life
	activity
}

// life ends the work of a Puller.
type life struct {
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	pushes  sync.WaitGroup  // the tasks that push
	retired context.Context // ends once another Puller replaces this Puller
	retire  context.CancelFunc
}

// activity records what a Puller does at the moment, and what has recently failed.
type activity struct {
	mu        sync.Mutex // guards the following
	closed    bool
	draining  bool // no new push may begin
	downloads map[packageKey]*download
	failed    map[packageKey]failure
	jobs      map[providerVersion]*job
	modules   int // the number of modules that are being fetched and stored
}

// providerVersion is a version of a provider.
type providerVersion struct {
	provider provider.Address
	version  provider.Version
}

func (s providerVersion) String() string { return s.provider.String() + " " + s.version.String() }

// New returns a Puller. The caller must close the Puller.
func New(o Options) (*Puller, error) {
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	o.ListTTL = cmp.Or(o.ListTTL, 5*time.Minute)
	o.StaleIfError = cmp.Or(o.StaleIfError, catalog.DefaultStaleIfError)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	if o.CheckDowngrade == nil {
		o.CheckDowngrade = func(context.Context, *trust.Checksums) error { return nil }
	}
	if o.Scope.Cooldown > 0 && o.Directory == "" {
		return nil, hint.New("a cooldown needs a place to keep since when versions are known", "let the gateway have its cache: name a folder that the user who runs this may write to, as directory in the cache block")
	}
	if err := sweepSpool(&o); err != nil {
		return nil, err
	}
	if o.Directory != "" {
		if err := privatefolder.Make(o.Directory, o.Log); err != nil {
			o.Log.Warn("what an origin offers cannot be kept on disk", "err", err)
		}
	}
	p := &Puller{
		o: o, limit: cmp.Or(o.Budget, NewBudget(o.Limits)),
		activity: activity{downloads: map[packageKey]*download{}, failed: map[packageKey]failure{}, jobs: map[providerVersion]*job{}},
	}
	p.folder.count(o.Directory, maxListFolder)
	p.lists, p.releases, p.moduleFetches = p.newLists(), p.newReleases(), p.newModuleFetches()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.retired, p.retire = context.WithCancel(context.Background())
	var err error
	p.logged, err = lru.New[[sha256.Size]byte, struct{}](maxLogged)
	return p, err
}

// Begin applies the limits of the Puller's options to its budget, which other Pullers may share.
func (p *Puller) Begin() { p.limit.Set(p.o.Limits) }

// Retire must be called when another Puller replaces this Puller. Fetches and pushes in flight continue. The retired
// Puller saves no more lists, and retries no failed push.
func (p *Puller) Retire() { p.retire() }

// Drain waits until all pushes have succeeded or failed, or until ctx ends. It must be called after the last request,
// because later requests start no push.
func (p *Puller) Drain(ctx context.Context) {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() { p.pushes.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Close cancels downloads and pushes in flight, and returns when they have ended. It leaves no incomplete version
// tagged in the registry.
func (p *Puller) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.lists.Close()
	p.releases.Close()
	p.moduleFetches.close()
	p.tasks.Wait()
	p.mu.Lock()
	downloads := slices.Collect(maps.Values(p.downloads))
	p.mu.Unlock()
	for _, d := range downloads {
		d.Retire()
	}
	return nil
}

// Usage returns how much of each limit is used.
func (p *Puller) Usage() Usage { return p.limit.Usage() }

// Pending returns the number of versions that are being stored or wait to be stored.
func (p *Puller) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.modules
	for _, j := range p.jobs {
		if j.retry.IsZero() {
			n++
		}
	}
	return n
}

// task runs f in the background, unless the Puller is closed. Close waits for f.
func (p *Puller) task(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.tasks.Go(func() {
			_ = panics.Catch(p.ctx, p.o.Log, func() error { f(p.ctx); return nil })
		})
	}
}
