// Package pull serves providers that nobody pushed: a version that the registry
// lacks is fetched from its origin when a client first requests it, verified, served, and
// pushed into the registry.
//
// A [Puller] is the origin of a catalog ([catalog.Origin]). The registry wins: the origin
// completes a version, and never changes it.
//
// Invariants:
//
//   - Nothing is served before the SHA256SUMS that lists it was accepted under the
//     provider's trust policy. Only a push stores packages, and it verifies them again.
//     After that, packages are identified by digest.
//   - A provider or version is called absent only on the origin's own word. A failure of an
//     origin is an error that wraps [catalog.ErrSource].
//   - A package is downloaded once for all clients and the push, into a temporary file
//     without a name that all of them read meanwhile. A client that leaves ends no download
//     that others read.
//   - Memory and disk are bounded: see [Limits].
package pull

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/fresh"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/privatefolder"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// Scope says what may be pulled through.
type Scope struct {
	Selector provider.Selector
	// Versions are those that may be; zero: all.
	Versions provider.VersionSet
	// Platforms are stored before a version is tagged; none: all that there are.
	Platforms []provider.Platform
	// Cooldown is how long ago a version must have been seen first, unless its origin
	// offered it when the provider was first asked for.
	Cooldown time.Duration
}

// Options configure a [Puller].
type Options struct {
	Origin Origin
	// Policy says what is accepted of a provider; nil: signed releases of each.
	Policy func(provider.Address) trust.Policy
	// Push stores a release in the registry; nil: nothing is stored.
	Push   func(context.Context, *origin.Release) (*pusher.Result, error)
	Scope  Scope
	Limits Limits
	// Budget is what keeps the limits, once [Puller.Begin] has told it them; nil: one
	// for this Puller alone.
	Budget *Budget
	// ListTTL is how long what an origin offers is current; 0 means 5 min.
	ListTTL time.Duration
	// StaleIfError is how long the last list stands in while the origin is in
	// trouble; 0 means 24 h, less never.
	StaleIfError time.Duration
	// Directory is the folder in which lists are kept beyond the process's end; "":
	// they are not. A cooldown needs it.
	Directory string
	// Spool is the folder for packages under way; "" is that for temporary files.
	Spool string
	// Events is told what came of things, from several goroutines at once; nil:
	// nobody is.
	Events func(Event)
	Log    *slog.Logger // nil: nobody reads it
}

// Kind says what an [Event] is about.
type Kind string

const (
	// Verified: the SHA256SUMS of a version was accepted.
	Verified Kind = "verified"
	// Fetched: a package was downloaded, or that failed.
	Fetched Kind = "fetched"
	// Stored: a version was tagged in the registry, or that failed.
	Stored Kind = "stored"
)

// Event is what came of something.
type Event struct {
	Kind     Kind
	Provider provider.Address
	Version  provider.Version
	Platform provider.Platform // of Fetched
	// From is the origin, such as the host of its registry, or [FromRegistry] for a
	// package that turned out to be stored already.
	From string
	// Verdict and Fingerprint say on what grounds the version was accepted.
	Verdict     trust.Verdict
	Fingerprint string
	Bytes       int64 // of Fetched
	// Took is how long a package was being fetched, without the wait for its turn.
	Took time.Duration
	Err  error // nil: it went well
}

const (
	// metadataTimeout is how long an origin may take for what clients wait for. They
	// wait less; who asks again finds it.
	metadataTimeout = 30 * time.Second
	// outageTTL is how long an origin that has failed is not asked again.
	outageTTL = 5 * time.Second
	// refusalTTL is how long a refused version is not asked for again.
	refusalTTL = 30 * time.Second
)

// Puller pulls providers through. It is safe for concurrent use.
type Puller struct {
	o     Options
	limit *Budget

	lists    *fresh.Cache[provider.Address, *list]
	folder   listFolder
	releases *fresh.Cache[subject, *release]

	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	pushes  sync.WaitGroup // of those
	retired chan struct{}  // closed once another one takes its place

	mu        sync.Mutex // guards the following
	closed    bool
	draining  bool // nothing begins to be stored any more
	downloads map[packageKey]*download
	failed    map[packageKey]failure
	jobs      map[subject]*job
}

// subject is a version of a provider.
type subject struct {
	provider provider.Address
	version  provider.Version
}

func (s subject) String() string { return s.provider.String() + " " + s.version.String() }

// New returns a Puller. The caller closes it.
func New(o Options) (*Puller, error) {
	if o.Policy == nil {
		o.Policy = func(provider.Address) trust.Policy { return trust.Policy{} }
	}
	if o.ListTTL == 0 {
		o.ListTTL = 5 * time.Minute
	}
	if o.StaleIfError == 0 {
		o.StaleIfError = 24 * time.Hour
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Scope.Cooldown > 0 && o.Directory == "" {
		return nil, hint.New("a cooldown needs a place to keep since when versions are known", "add a cache block to the gateway block")
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
		o: o, limit: o.Budget, retired: make(chan struct{}),
		downloads: map[packageKey]*download{}, failed: map[packageKey]failure{}, jobs: map[subject]*job{},
	}
	p.folder.count(o.Directory)
	p.lists, p.releases = p.newLists(), p.newReleases()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if p.limit == nil {
		p.limit = NewBudget(o.Limits)
	}
	return p, nil
}

// Begin has the limits of its options count from now on, for whoever uses its budget.
func (p *Puller) Begin() { p.limit.Set(p.o.Limits) }

// Retire is for when another Puller takes its place, with other settings perhaps.
// What is being fetched and stored goes on, and nothing is kept on disk any more
// of what origins offer, nor tried again. It is called once.
func (p *Puller) Retire() { close(p.retired) }

// isRetired reports whether another Puller has taken its place.
func (p *Puller) isRetired() bool {
	select {
	case <-p.retired:
		return true
	default:
		return false
	}
}

// Drain waits until what is being stored is, or has failed, but no longer than until
// ctx ends. Nothing more may be asked for by then.
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

// Close ends downloads and pushes under way, and returns when they have ended. What
// they left in the registry is complete, or not tagged.
func (p *Puller) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.lists.Close()
	p.releases.Close()
	p.tasks.Wait()
	p.mu.Lock()
	downloads := slices.Collect(maps.Values(p.downloads))
	p.mu.Unlock()
	for _, d := range downloads {
		d.Retire()
	}
	return nil
}

// Usage returns what is taken of the limits.
func (p *Puller) Usage() Usage { return p.limit.Usage() }

// Pending returns how many versions are being stored, or wait for that.
func (p *Puller) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, j := range p.jobs {
		if j.retry.IsZero() {
			n++
		}
	}
	return n
}

// task runs f, which Close waits for, unless the Puller is closed.
func (p *Puller) task(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.tasks.Go(func() { f(p.ctx) })
	}
}
