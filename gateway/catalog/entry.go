package catalog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// kind is what an entry is about.
type kind int

const (
	listing  kind = iota // the versions of a provider
	version              // what a version's tag names
	evidence             // what desc names, which never changes
	content              // likewise, as it is
)

// entry is one thing that is known, or asked for.
type entry struct {
	key     string
	kind    kind
	address provider.Address
	version provider.Version   // of kind version
	desc    ocispec.Descriptor // of kind evidence and content

	account func() Account        // asked for once
	load    sync.Once             // from disk
	state   atomic.Pointer[state] // nil: nothing is known
	busy    atomic.Bool           // the registry is being asked
	dropped atomic.Bool           // it is to be forgotten, on disk too
	trouble atomic.Int64          // when the registry last failed to answer, in Unix nanoseconds; 0: it answered since

	mu     sync.Mutex
	flight *flight

	keeping sync.Mutex
	kept    *Item     // what is on disk; nil: nothing is
	onDisk  time.Time // the time that is on disk for it

	ring       *ring // of the lru, which locks it, as what follows
	prev, next *entry
	cost       int64
}

// state is what the registry last said.
type state struct {
	item *Item
	err  error     // ErrAbsent, ErrNotServed or a refusal, made short by [kept]; nil: the answer is good
	at   time.Time // when it last said so
	part bool      // of all that there is: what an [Offerer] has beside it is not known
}

// Item is one answer. It does not change, apart from what is kept with it.
type Item struct {
	Address provider.Address
	// Version is that of a version, zero for a list of them.
	Version provider.Version
	// Versions are those of a provider, oldest first. They are not to be changed.
	Versions []provider.Version
	// Warnings are what the source of the offers wants the provider's users to read. They
	// are not to be changed.
	Warnings []string
	// Found is a version's content. It is not to be changed.
	Found *artifact.Version

	evidence *artifact.Evidence
	tagged   []provider.Version // Versions, with those that are denied
	etag     string             // of a list of tags; "": the registry gave none
	parts    []digest.Digest    // the content that a version was made of
	content  []byte
	offers   []Offer // beside tagged
	// completed is set if Found is more than stored, which the registry has: nil for
	// nothing.
	completed bool
	stored    *artifact.Version

	entry *entry
	kept  atomic.Pointer[any]
}

// Kept returns what [Catalog.Keep] has kept with the item, nil if nothing.
func (i *Item) Kept() any {
	if p := i.kept.Load(); p != nil {
		return *p
	}
	return nil
}

// flight is one question to the registry that any number of clients wait for.
type flight struct {
	done chan struct{}
	item *Item
	err  error
	lost bool // err is the registry's trouble
}

// get returns what is current, asks the registry for it, or lets the last good
// answer stand in where it is in trouble.
func (c *Catalog) get(ctx context.Context, e *entry) (*Item, error) {
	item, from, err := c.find(ctx, e)
	from.Add(1)
	return item, err
}

// find is get, and says which counter the answer is for.
func (c *Catalog) find(ctx context.Context, e *entry) (*Item, *atomic.Uint64, error) {
	n := c.opts.Counters
	if err := ctx.Err(); err != nil {
		return nil, &n.Failures, err
	}
	e.load.Do(func() { c.loadFromDisk(e) })
	now := time.Now()
	if _, ok := c.current(e, now); ok {
		s := e.state.Load()
		return s.item, &n.Hits, s.err
	}
	standIn := c.standIn(e, now)
	if standIn != nil {
		switch c.troubled(e, now) {
		case troubleNow:
			return standIn, &n.Stale, nil
		case troubleLately:
			c.refresh(e)
			return standIn, &n.Stale, nil
		}
	}
	return c.wait(ctx, e, standIn)
}

// wait waits for the registry: for long only if nothing can stand in for its
// answer.
func (c *Catalog) wait(ctx context.Context, e *entry, standIn *Item) (*Item, *atomic.Uint64, error) {
	n := c.opts.Counters
	f := c.ask(ctx, e)
	var enough <-chan time.Time
	if standIn != nil {
		t := time.NewTimer(patience)
		defer t.Stop()
		enough = t.C
	}
	select {
	case <-f.done:
	case <-enough:
		return standIn, &n.Stale, nil
	case <-ctx.Done():
		return nil, &n.Failures, ctx.Err()
	}
	switch {
	case f.lost && standIn != nil:
		return standIn, &n.Stale, nil
	case f.lost:
		return f.item, &n.Failures, f.err
	}
	return f.item, &n.Misses, f.err
}

// current returns what is known of an entry if the registry need not be asked.
// What is in use is refreshed in the last quarter of its time.
func (c *Catalog) current(e *entry, now time.Time) (*Item, bool) {
	s := e.state.Load()
	if s == nil {
		return nil, false
	}
	if s.err == nil && (e.kind == evidence || e.kind == content) {
		return s.item, true
	}
	if !c.fresh(s, now) || c.listedSince(e, s) {
		return nil, false
	}
	if ttl := c.opts.TagTTL; now.Sub(s.at) >= ttl-ttl/4 && !e.busy.Load() && c.troubled(e, now) != troubleNow {
		c.refresh(e)
	}
	return s.item, true
}

// fresh reports whether what the registry said is young enough, and all that there is.
// What was read from disk has the time of a clock that may have been put back since.
func (c *Catalog) fresh(s *state, now time.Time) bool {
	age := now.Sub(s.at)
	return !s.part && 0 <= age && age < c.opts.TagTTL
}

// standIn returns the last good answer if it may still be given.
func (c *Catalog) standIn(e *entry, now time.Time) *Item {
	s := e.state.Load()
	if s == nil || s.err != nil || now.Sub(s.at) >= c.opts.StaleIfError {
		return nil
	}
	return s.item
}

// refresh asks the registry about an entry, for nobody in particular, if not too
// many others are being refreshed.
func (c *Catalog) refresh(e *entry) {
	if e.busy.Load() {
		return
	}
	select {
	case c.slots <- struct{}{}:
		c.opts.Counters.Refreshes.Add(1)
		f := c.ask(c.ctx, e)
		if !c.task(func(context.Context) { <-f.done; <-c.slots }) {
			<-c.slots
		}
	default:
	}
}

var errClosed = errors.New("the gateway is shutting down")

// ask asks the registry about an entry for a request, unless that is under way. Where it is asked
// too much already, the flight ends with [ErrBusy] before it begins.
func (c *Catalog) ask(request context.Context, e *entry) *flight {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flight != nil {
		return e.flight
	}
	f := &flight{done: make(chan struct{})}
	select {
	case c.flights <- struct{}{}:
	default:
		f.err, f.lost = ErrBusy, true
		close(f.done)
		return f
	}
	e.flight = f
	e.busy.Store(true)
	if !c.task(func(ctx context.Context) { c.fly(telemetry.Follow(ctx, request), e, f) }) {
		e.flight, f.err, f.lost = nil, errClosed, true
		e.busy.Store(false)
		<-c.flights
		close(f.done)
	}
	return f
}

// fly asks, tells those who wait, and then keeps what was learnt.
func (c *Catalog) fly(ctx context.Context, e *entry, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	ctx, end := e.span(ctx)
	up := &upstream{c: c, address: e.address}
	before := e.state.Load()
	if c.disk != nil && !c.stillOnDisk(e, before) {
		before = nil // all is fetched, so that it is written again
	}
	item, err := c.fetch(ctx, e, up, before)
	now := time.Now()
	var after *state
	if up.trouble != nil {
		f.err, f.lost = up.trouble, true
		c.failed(ctx, e, up.trouble, now)
	} else {
		after = &state{item: item, err: kept(err), at: now}
		f.item, f.err = item, after.err
		c.learnt(e, up, before, after)
	}
	e.mu.Lock()
	e.flight = nil
	e.mu.Unlock()
	e.busy.Store(false)
	<-c.flights
	close(f.done)
	if after != nil && c.disk != nil {
		c.keepOnDisk(e, up, after)
	}
	end(f.err)
}

// learnt takes note of the registry's answer.
func (c *Catalog) learnt(e *entry, up *upstream, before, after *state) {
	if after.item.entry == nil { // else it is that of before, which others read
		after.item.entry = e
	}
	e.state.Store(after)
	e.trouble.Store(0)
	if !errors.Is(after.err, ErrNotServed) {
		c.watch.answered(e.account().Name, e.address, after.err == nil, e.kind == listing && after.err != nil)
	}
	if before == nil || before.item != after.item {
		c.cache.resize(e, after.size(), after.err == nil)
	}
	if c.disk == nil && after.item.Found != nil {
		c.keepContent(e.address, up, after.item.Found.Index.Digest)
	}
}

// failed takes note of the registry's trouble.
func (c *Catalog) failed(ctx context.Context, e *entry, err error, now time.Time) {
	level := slog.LevelWarn
	if c.troubled(e, now) != noTrouble {
		level = slog.LevelDebug // that was said, and not long ago
	}
	e.trouble.Store(now.UnixNano())
	if ofRegistry(err) {
		c.watch.failed(e.account().Name, now)
	}
	if c.standIn(e, now) != nil && c.ctx.Err() == nil {
		c.opts.Log.LogAttrs(ctx, level, "the registry is in trouble: its last good answer stands in",
			slog.String("of", e.key), slog.Duration("age", now.Sub(e.state.Load().at).Round(time.Second)), slog.Any("err", hint.Brief(err)))
	}
}

// kept returns the short form of a refusal, which the catalog keeps.
func kept(err error) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return err // it is short already
	}
	return artifact.Brief(err, ErrAbsent, ErrNotServed)
}

// size is roughly the memory that a state takes, in bytes.
func (s *state) size() int64 {
	if s.err == nil {
		return s.item.size()
	}
	// Each error that wraps another one repeats its text.
	return s.item.size() + errorOverhead + wrappings*int64(len(s.err.Error())+len(hint.Of(s.err)))
}

const (
	// errorOverhead is roughly the size of an error without its text, in bytes.
	errorOverhead = 256
	// wrappings is how often the text of an error is in memory, about.
	wrappings = 4
)

// versionSize is roughly the memory that a listed version takes, in bytes.
func versionSize(v provider.Version) int64 { return 72 + int64(len(v.String())) }

// size is about what an item takes in memory, in bytes.
func (i *Item) size() int64 {
	n := int64(len(i.content)) + 88*int64(len(i.parts)) + int64(len(i.etag))
	for _, w := range i.Warnings {
		n += 32 + int64(len(w))
	}
	for _, v := range i.tagged {
		n += versionSize(v)
	}
	if len(i.Versions) != len(i.tagged) {
		n += 72 * int64(len(i.Versions))
	}
	for _, o := range i.offers {
		n += 160 + int64(len(o.Version.String())) + sizeOf(o.Protocols)
		for _, p := range o.Platforms {
			n += 40 + int64(len(p.OS)+len(p.Arch))
		}
	}
	if e := i.evidence; e != nil {
		r := e.Record
		n += int64(len(e.SHA256SUMS)+len(e.Signature)+len(e.SigningKeys)+len(r.Origin)+len(r.Fingerprint)+len(r.Source)+len(r.PublishedAt)) + sizeOf(r.Protocols)
	}
	for _, v := range []*artifact.Version{i.Found, i.stored} {
		if v == nil {
			continue
		}
		n += 512 + sizeOf(v.Protocols) + int64(len(v.Index.MediaType)+len(v.Index.Digest))
		if e := v.Evidence; e != nil {
			n += 512 + int64(len(e.MediaType)+len(e.Digest))
			for key, value := range e.Annotations {
				n += int64(len(key) + len(value))
			}
		}
		n += 160 * int64(len(v.Missing))
		for _, p := range v.Packages {
			n += 400 + int64(len(p.Filename)+len(p.Digest)+len(p.Manifest.Digest)+len(p.Manifest.MediaType))
		}
	}
	return n
}

// sizeOf is roughly the memory that texts take, in bytes.
func sizeOf(texts []string) int64 {
	n := 16 * int64(len(texts))
	for _, t := range texts {
		n += int64(len(t))
	}
	return n
}
