package pullthrough

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// Limits bound what is fetched from origins. They are those of one process:
// gateways side by side each have their own.
type Limits struct {
	// MaxConcurrent is how many packages are fetched at once; 0 means 8. Downloads that
	// no client waits for take half of them at most, and those from one host all but
	// two.
	MaxConcurrent int
	// MaxPerDay is how many bytes of packages are fetched in a day, which begins at
	// midnight UTC; 0 means that there is no bound.
	MaxPerDay int64
	// MaxSize is how many bytes one package may have; 0 means that there is no bound.
	MaxSize int64
	// MaxSpool is how many bytes packages may take on disk while they are under
	// way; 0 means 8 GiB.
	MaxSpool int64
	// Free returns how many bytes are free where they are kept meanwhile; nil: that
	// is not looked at. A fetch that would leave less than 256 MiB does not begin.
	Free func() (int64, error)
}

const (
	defaultConcurrent = 8
	defaultSpool      = 8 << 30
	// keepFree is how much of a disk is left to others.
	keepFree = 256 << 20
	// spoolStep is by how much the room of a package grows whose size the origin
	// does not say.
	spoolStep = 8 << 20
	// placePatience is how long a client waits for one of the places before it is
	// told to come back.
	placePatience = 30 * time.Second
	// retryPlace and retryRoom are when to come back where places and disk are
	// taken: packages are under way for seconds.
	retryPlace, retryRoom = 10 * time.Second, 30 * time.Second
)

// BusyError is the answer where a limit is reached: the same may succeed after
// RetryAfter.
type BusyError struct {
	// Limit is the argument of the pull_through block, or "disk" for what is free.
	Limit      string
	RetryAfter time.Duration
}

// Error implements error.
func (e *BusyError) Error() string {
	switch e.Limit {
	case "disk":
		return "too little disk is free for what is fetched from origins"
	case "max_per_day":
		return "max_per_day is reached: no more is fetched from origins until midnight UTC"
	}
	return fmt.Sprintf("%s is reached: too much is being fetched from origins", e.Limit)
}

// busy returns a [BusyError], with what to do about it.
func busy(limit string, after time.Duration) error {
	if limit == "disk" {
		return hint.Wrap(&BusyError{limit, after}, "make room where packages under way are kept, beside the cache or the embedded registry")
	}
	if limit == "max_concurrent" {
		return hint.Wrap(&BusyError{limit, after}, "max_concurrent in the pull_through block bounds it, for all clients together; one host has all but two of it")
	}
	return hint.Wrap(&BusyError{limit, after}, "%s in the pull_through block bounds it, for all clients together", limit)
}

// SizeError is the answer for a package that is larger than it may be.
type SizeError struct{ Size, Max int64 }

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the package has %d bytes or more, and max_size allows %d", e.Size, e.Max)
}

// Usage is what is taken of [Limits].
type Usage struct {
	Fetching int   // packages
	Today    int64 // bytes, since midnight UTC
	Spool    int64 // bytes
	Limits   Limits
}

// Budget keeps [Limits]. It may outlive a [Puller], for the next one to go on with
// what is taken: what was fetched today, above all. It is safe for concurrent use.
type Budget struct {
	mu     sync.Mutex // guards the following
	limits Limits
	held   []*reservation // that have a place
	queue  []*reservation // that wait for one, in the order of their turns
	turns  int            // how many have waited for one
	day    time.Time
	today  int64 // bytes of that day, with what is reserved
	spool  int64 // bytes, with what is reserved
	ahead  int64 // of those, what is reserved and not written
}

// NewBudget returns one of which nothing is taken.
func NewBudget(l Limits) *Budget {
	b := &Budget{}
	b.Set(l)
	return b
}

// Set changes the limits. What is taken stays so, even if it is more.
func (l *Budget) Set(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = limits
	if limits.MaxConcurrent <= 0 {
		l.limits.MaxConcurrent = defaultConcurrent
	}
	if limits.MaxSpool <= 0 {
		l.limits.MaxSpool = defaultSpool
	}
	l.admit()
}

// Usage returns what is taken at this moment.
func (l *Budget) Usage() Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn()
	return Usage{Fetching: len(l.held), Today: l.today, Spool: l.spool, Limits: l.limits}
}

// turn begins a new day where one has begun.
func (l *Budget) turn() {
	if day := time.Now().UTC().Truncate(24 * time.Hour); !day.Equal(l.day) {
		l.day, l.today = day, 0
	}
}

// party is a download that wants a place. The zero value is one that a client waits
// for, from a host that is not known.
type party struct {
	background bool            // no client waits for it
	urgent     <-chan struct{} // closed once a client waits for it; nil: never
	hosts      []string        // see claim
	// isRead reports whether a client reads the download, and yield ends it unless one
	// does. Without yield, it is not ended.
	isRead func() bool
	yield  func() bool
}

// reservation is the place and the room of one package.
type reservation struct {
	budget   *Budget
	day      time.Time
	patience time.Duration // how much longer a client waits for a place

	// Below Budget.mu.
	party
	turn          int           // its position among those that wait for a place; 0: it has not waited
	got           chan struct{} // closed once it has a place
	since         time.Time     // when it got its place
	awaited       []string      // the host whose share it waited for, until its package is opened
	yields        bool          // it was ended for a client
	room, written int64
	fetched       bool
	dropped       bool
}

// claim describes it for the rules of sharing.
func (r *reservation) claim() claim {
	hosts := r.hosts
	// The place that it waited for stays reserved until it asks that host again. Its
	// origin may never redirect it there again, so that ends after a while.
	if r.awaited != nil && time.Since(r.since) < yieldAfter {
		hosts = slices.Concat(hosts, r.awaited)
	}
	return claim{
		background: r.background, hosts: hosts,
		unread: r.yield != nil && !r.yields && !r.isRead(), bytes: r.written, age: time.Since(r.since),
	}
}

func claims(rs []*reservation) []claim {
	out := make([]claim, len(rs))
	for i, r := range rs {
		out[i] = r.claim()
	}
	return out
}

// reserve takes a place for a fetch, and room for size bytes, if that is known
// (else -1). A client waits a while for a place, and then gets a *[BusyError];
// what nobody waits for (background) waits until ctx ends. The caller calls done
// when the origin has sent all, or has failed, and drop when the file is gone.
func (l *Budget) reserve(ctx context.Context, size int64, by party) (*reservation, error) {
	r := &reservation{budget: l, party: by, patience: placePatience}
	if err := l.fits(size); err != nil {
		return nil, err
	}
	if err := l.waitForPlace(ctx, r); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.turn()
	r.day = l.day
	err := l.extend(r, max(size, 0))
	l.mu.Unlock()
	if err != nil {
		r.done()
		r.drop()
		return nil, err
	}
	return r, nil
}

// fits refuses a package that is too large however little is under way.
func (l *Budget) fits(size int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.limits.MaxSize; most > 0 && size > most {
		return hint.Wrap(&SizeError{size, most}, "max_size in the pull_through block says how large a package may be")
	}
	return nil
}

// waitForPlace waits for a place: a background download for as long as it takes, and one
// that a client waits for until the client's patience ends. A download that has lost its
// place waits before those that came after it.
func (l *Budget) waitForPlace(ctx context.Context, r *reservation) error {
	l.mu.Lock()
	r.got = make(chan struct{})
	l.enqueue(r)
	l.admit()
	background := r.background
	l.mu.Unlock()
	if background {
		select {
		case <-r.got:
			return nil
		case <-ctx.Done():
			return l.giveUp(r, context.Cause(ctx))
		case <-r.urgent:
			l.hurry(r)
		}
	}
	start := time.Now()
	defer func() { r.patience -= time.Since(start) }()
	patience, tick := time.NewTimer(r.patience), time.NewTicker(yieldAfter)
	defer patience.Stop()
	defer tick.Stop()
	for {
		select {
		case <-r.got:
			return nil
		case <-tick.C:
			l.freePlace(r)
		case <-patience.C:
			return l.giveUp(r, busy("max_concurrent", retryPlace))
		case <-ctx.Done():
			return l.giveUp(r, context.Cause(ctx))
		}
	}
}

// enqueue queues a download that waits for a place. It is called with mu held.
func (l *Budget) enqueue(r *reservation) {
	if r.turn == 0 {
		l.turns++
		r.turn = l.turns
	}
	i := slices.IndexFunc(l.queue, func(other *reservation) bool { return other.turn > r.turn })
	if i < 0 {
		i = len(l.queue)
	}
	l.queue = slices.Insert(l.queue, i, r)
}

// hurry makes a background download one that a client waits for.
func (l *Budget) hurry(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.background = false
	l.admit()
}

// giveUp ends a wait for a place. It returns err, or nil where the download got its
// place in the meantime.
func (l *Budget) giveUp(r *reservation, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.held, r) {
		return nil
	}
	l.queue = without(l.queue, r)
	return err
}

// freePlace ends a download that is in a waiting client's way, as [toEnd] says. A
// download whose clients have left waits without that.
func (l *Budget) freePlace(waiting *reservation) {
	if waiting.isRead != nil && !waiting.isRead() {
		return
	}
	l.mu.Lock()
	l.admit() // claims change with time
	var ends *reservation
	if i := toEnd(l.limits.MaxConcurrent, claims(l.held), waiting.claim()); i >= 0 {
		ends = l.held[i]
	}
	l.mu.Unlock()
	if ends != nil && ends.yield() { // which locks others that lock this
		l.mu.Lock()
		defer l.mu.Unlock()
		ends.yields = true
	}
}

// admit gives places to those who wait. It is called with mu held.
func (l *Budget) admit() {
	for {
		i := next(l.limits.MaxConcurrent, claims(l.held), claims(l.queue))
		if i < 0 {
			return
		}
		r := l.queue[i]
		l.queue = without(l.queue, r)
		l.held = append(l.held, r)
		r.since = time.Now()
		close(r.got)
	}
}

// leave takes the place of a download away, if it has one. It is called with mu held.
func (l *Budget) leave(r *reservation) {
	l.held = without(l.held, r)
	l.admit()
}

func without(rs []*reservation, r *reservation) []*reservation {
	return slices.DeleteFunc(rs, func(other *reservation) bool { return other == r })
}

// asks has the download count for the host that it asks now, in place of the host
// before. A host that has its share takes the place away, unless the download keeps it.
// asks reports whether the download has its place.
func (r *reservation) asks(hosts []string, keep bool) bool {
	l := r.budget
	l.mu.Lock()
	defer l.mu.Unlock()
	others := without(slices.Clone(l.held), r)
	if !keep && !admitsHost(l.limits.MaxConcurrent, claims(others), hosts) {
		r.hosts, r.awaited = hosts, hosts
		l.leave(r)
		return false
	}
	r.hosts = hosts
	l.admit()
	return true
}

// comesFrom notes the one host whose answer has begun.
func (r *reservation) comesFrom(hosts []string) {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	r.hosts, r.awaited = hosts, nil
	r.budget.admit()
}

// age is how long the download has its place.
func (r *reservation) age() time.Duration {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return time.Since(r.since)
}

// extend takes room for n more bytes. It is called with mu held.
func (l *Budget) extend(r *reservation, n int64) error {
	l.turn()
	if most := l.limits.MaxPerDay; most > 0 && n > most-l.today {
		return busy("max_per_day", time.Until(l.day.Add(24*time.Hour)))
	}
	if n > l.limits.MaxSpool-l.spool {
		return busy("max_spool", retryRoom)
	}
	if l.limits.Free != nil {
		// Where nobody knows what is free, writing will tell.
		if free, err := l.limits.Free(); err == nil && free-l.ahead-n < keepFree {
			return busy("disk", retryRoom)
		}
	}
	l.today, l.spool, l.ahead, r.room = l.today+n, l.spool+n, l.ahead+n, r.room+n
	return nil
}

// write counts n bytes that are about to be written. Its error is a limit that is
// reached, and then they must not be.
func (r *reservation) write(n int64) error {
	l := r.budget
	if err := l.fits(r.written + n); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if missing := r.written + n - r.room; missing > 0 {
		// In steps, unless no whole step is left.
		if err := l.extend(r, max(missing, spoolStep)); err != nil {
			if err := l.extend(r, missing); err != nil {
				return err
			}
		}
	}
	r.written += n
	l.ahead -= n
	return nil
}

// done gives back the place, and the room that was not needed. Further calls do
// nothing.
func (r *reservation) done() {
	l := r.budget
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.fetched {
		return
	}
	r.fetched = true
	left := r.room - r.written
	l.ahead -= left
	if !r.dropped {
		l.spool, r.room = l.spool-left, r.written
	}
	if l.turn(); r.day.Equal(l.day) {
		l.today -= left
	}
	l.leave(r)
}

// drop gives back the room of a file that is gone. Further calls do nothing.
func (r *reservation) drop() {
	l := r.budget
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.dropped {
		r.dropped = true
		l.spool -= r.room
	}
}
