package pull

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Budget enforces [Limits]. Two Pullers can use the same budget one after another, so that the second Puller continues to
// count the bytes of the day. It is safe for concurrent use.
type Budget struct {
	mu     sync.Mutex // guards the following
	limits Limits
	held   []*reservation // the reservations that have a slot
	queue  []*reservation // the reservations that wait for a slot, in the order of their turns
	turns  int            // the last turn that was assigned
	day    time.Time
	today  int64 // bytes downloaded on the current day, including reserved bytes
	spool  int64 // bytes on disk, including reserved bytes
	ahead  int64 // reserved bytes that are not written yet
}

// NewBudget returns an unused budget.
func NewBudget(l Limits) *Budget {
	b := &Budget{}
	b.Set(l)
	return b
}

// Set changes the limits. Reservations remain, even if they exceed the new limits.
func (l *Budget) Set(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = limits
	if limits.MaxConcurrent <= 0 {
		l.limits.MaxConcurrent = DefaultConcurrent
	}
	if limits.MaxSpool <= 0 {
		l.limits.MaxSpool = DefaultSpool
	}
	l.admit()
}

// Usage returns the current usage.
func (l *Budget) Usage() Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startDay()
	return Usage{Fetching: len(l.held), Today: l.today, Spool: l.spool, Limits: l.limits}
}

// startDay resets the bytes of the day if midnight UTC has passed.
func (l *Budget) startDay() {
	if day := time.Now().UTC().Truncate(24 * time.Hour); !day.Equal(l.day) {
		l.day, l.today = day, 0
	}
}

// demand describes a download that asks for a slot. The zero value describes a download with a waiting client, from an
// unknown host.
type demand struct {
	background bool            // no client waits for the download
	urgent     <-chan struct{} // closed once a client waits for the download; nil: never
	hosts      []string        // see claim.hosts
	// isRead reports whether a client reads the download. preempt cancels the download unless a client reads it, and
	// reports whether it has cancelled it. If preempt is nil, the download is never cancelled.
	isRead, preempt func() bool
}

// reservation is the slot and the room of one download. The room is the number of bytes that the download may write.
type reservation struct {
	budget   *Budget
	day      time.Time
	patience time.Duration // how much longer a client waits for a slot

	// Guarded by Budget.mu.
	demand
	slot
	room, written    int64
	unpacked         int64 // bytes on disk beside those in room
	fetched, dropped bool
}

// slot is a download's turn to have a connection to its origin.
type slot struct {
	turn      int           // the place in the queue; 0: the download has not waited yet
	got       chan struct{} // closed once the download has a slot
	since     time.Time     // when the download got its slot
	awaited   []string      // the busy host that cost the download its slot; nil once the package is open
	preempted bool
}

// claim returns the properties of the reservation that decide which downloads get a slot.
func (r *reservation) claim() claim {
	hosts := r.hosts
	// The download has waited until the awaited host could have another slot. That slot stays reserved until the download
	// requests the package from the host again, but only for preemptAfter, because the origin may redirect the download
	// to another host this time.
	if r.awaited != nil && time.Since(r.since) < preemptAfter {
		hosts = slices.Concat(hosts, r.awaited)
	}
	return claim{
		background: r.background, hosts: hosts,
		unread: r.preempt != nil && !r.preempted && !r.isRead(), bytes: r.written, age: time.Since(r.since),
	}
}

func claims(rs []*reservation) []claim {
	out := make([]claim, len(rs))
	for i, r := range rs {
		out[i] = r.claim()
	}
	return out
}

// reserve waits for a slot, and takes room for size bytes, or none if size is -1. A download with a client waits for at most
// slotPatience, and then fails with a *[catalog.BusyError]. A background download waits until ctx ends. The caller must
// call done when the download has ended, and drop when its file is removed.
func (l *Budget) reserve(ctx context.Context, size int64, by demand) (*reservation, error) {
	r := &reservation{budget: l, demand: by, patience: slotPatience}
	if err := l.fits(size); err != nil {
		return nil, err
	}
	if err := l.waitForSlot(ctx, r); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.startDay()
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

// fits returns an error that wraps a *[SizeError] if size exceeds max_size.
func (l *Budget) fits(size int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.limits.MaxSize; most > 0 && size > most {
		return hint.Wrap(&SizeError{size, most}, "max_size in the pull_through block says how large a package may be")
	}
	return nil
}

// waitForSlot waits for a slot until ctx ends or, for a download with a client, until the client's patience ends. A download
// that has lost its slot keeps its turn, ahead of downloads that came later.
func (l *Budget) waitForSlot(ctx context.Context, r *reservation) error {
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
	patience, tick := time.NewTimer(r.patience), time.NewTicker(preemptAfter)
	defer patience.Stop()
	defer tick.Stop()
	for {
		select {
		case <-r.got:
			return nil
		case <-tick.C:
			l.preemptFor(r)
		case <-patience.C:
			return l.giveUp(r, busy("max_concurrent", retrySlot))
		case <-ctx.Done():
			return l.giveUp(r, context.Cause(ctx))
		}
	}
}

// enqueue queues a download that waits for a slot. It is called with mu held.
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

// hurry gives a background download the rank of a download with a client.
func (l *Budget) hurry(r *reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.background = false
	l.admit()
}

// giveUp ends the wait of a download for a slot. It returns err, or nil if the download got a slot in the meantime.
func (l *Budget) giveUp(r *reservation, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.held, r) {
		return nil
	}
	l.queue = without(l.queue, r)
	return err
}

// preemptFor cancels one download, which [victim] chooses, so that the waiting download gets its slot. It cancels none if
// the clients of the waiting download have left.
func (l *Budget) preemptFor(waiting *reservation) {
	if waiting.isRead != nil && !waiting.isRead() {
		return
	}
	l.mu.Lock()
	l.admit() // the age of a claim may change what is admitted
	var slowest *reservation
	if i := victim(l.limits.MaxConcurrent, claims(l.held), waiting.claim()); i >= 0 {
		slowest = l.held[i]
	}
	l.mu.Unlock()
	// mu must not be held here, because preempt locks the Puller, and the locked Puller may use the budget.
	if slowest != nil && slowest.preempt() {
		l.mu.Lock()
		defer l.mu.Unlock()
		slowest.preempted = true
	}
}

// admit gives free slots to waiting downloads. It is called with mu held.
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

// leave frees the slot of a download, if it has one. It is called with mu held.
func (l *Budget) leave(r *reservation) {
	l.held = without(l.held, r)
	l.admit()
}

func without(rs []*reservation, r *reservation) []*reservation {
	return slices.DeleteFunc(rs, func(other *reservation) bool { return other == r })
}

// asks records the host from which the download now requests the package. If that host already has its share of the slots,
// the download loses its slot, unless keep is set. asks reports whether the download still has its slot.
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

// comesFrom records the host that sends the package, or nil for the registry.
func (r *reservation) comesFrom(hosts []string) {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	r.hosts, r.awaited = hosts, nil
	r.budget.admit()
}

// age returns how long the download has had its slot.
func (r *reservation) age() time.Duration {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return time.Since(r.since)
}

// extend takes room for n more bytes. It is called with mu held.
func (l *Budget) extend(r *reservation, n int64) error {
	l.startDay()
	if most := l.limits.MaxPerDay; most > 0 && n > most-l.today {
		return busy("max_per_day", time.Until(l.day.Add(24*time.Hour)))
	}
	if err := l.takeDisk(n); err != nil {
		return err
	}
	l.today, l.spool, l.ahead, r.room = l.today+n, l.spool+n, l.ahead+n, r.room+n
	return nil
}

// takeDisk returns an error if n more bytes do not fit on the disk. It is called with mu held.
func (l *Budget) takeDisk(n int64) error {
	if n > l.limits.MaxSpool-l.spool {
		return busy("max_spool", retryRoom)
	}
	if l.limits.Free != nil {
		// If Free returns an error, there is no check here, and a write may fail later.
		if free, err := l.limits.Free(); err == nil && free-l.ahead-n < keepFree {
			return busy("disk", retryRoom)
		}
	}
	return nil
}

// expect takes the room that a package of size bytes needs in addition to the room that it has.
func (r *reservation) expect(size int64) error {
	if err := r.budget.fits(size); err != nil {
		return err
	}
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return r.budget.extend(r, size-r.room)
}

// write counts n bytes before they are written. It returns an error if a limit does not allow them.
func (r *reservation) write(n int64) error {
	l := r.budget
	if err := l.fits(r.written + n); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if missing := r.written + n - r.room; missing > 0 {
		// The room grows in steps, unless a limit leaves less than a step.
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

// unpack counts n bytes on disk that were not received. It returns an error if a limit does not allow them.
func (r *reservation) unpack(n int64) error {
	l := r.budget
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.takeDisk(n); err != nil {
		return err
	}
	l.spool, r.unpacked = l.spool+n, r.unpacked+n
	return nil
}

// received returns the number of bytes that the download has written.
func (r *reservation) received() int64 {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	return r.written
}

// done frees the slot and the unused room. Further calls do nothing.
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
	if l.startDay(); r.day.Equal(l.day) {
		l.today -= left
	}
	l.leave(r)
}

// drop frees the room of a removed file. Further calls do nothing.
func (r *reservation) drop() {
	l := r.budget
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.dropped {
		r.dropped = true
		l.spool -= r.room + r.unpacked
	}
}
