// Package catalog knows which versions of a provider the registry has and what is
// in them, and asks the registry as seldom as it may.
//
// A list of tags, and what a tag names, is current for a short time and then
// revalidated; what a digest names never changes and is fetched once. What is in
// use is refreshed before it ends. However many clients ask for one thing, the
// registry is asked once, and a client that goes away takes nobody's answer with
// it. While the registry is in trouble, the last good answer stands in, for a
// time that counts across restarts where answers are kept on disk.
//
// Invariants:
//
//   - That something is absent is said only while the registry's own word for it
//     is current. Absence is never kept on disk and never stands in for an answer.
//   - Content is believed once its digest is right, and what is on disk is checked
//     again when it is read.
//   - Memory, disk and time are bounded, whatever the registry sends and whoever
//     asks: see [Options].
package catalog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// Store is what is needed of a repository. oras-go's remote.Repository is one.
type Store interface {
	artifact.ReferenceFetcher
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
}

var (
	// ErrNotServed means that a provider has no repository here: no template is
	// for it, or none could name one.
	ErrNotServed = errors.New("provider is not served here")
	// ErrAbsent means that the registry itself says that there is no such
	// repository or version.
	ErrAbsent = errors.New("not in the registry")
	// ErrDenied means that a rule says that a version is never served.
	ErrDenied = errors.New("denied by configuration")
	// ErrLost means that the registry lists a version, and does not have what its
	// tag names.
	ErrLost = errors.New("the registry lists the version, but does not have it")
	// ErrBusy means that the registry is being asked about too much already.
	ErrBusy = errors.New("too many questions wait for the registry's answer")
)

// Account is how a repository is spoken to: what two repositories with equal
// accounts do not share in trouble is theirs alone.
type Account struct {
	// Name is equal for repositories of one registry that are read with one
	// credential.
	Name string
	// DeniedMeansAbsent says that the registry answers "denied" for repositories
	// that are absent.
	DeniedMeansAbsent bool
}

// Deny is what is never served.
type Deny struct {
	Pattern  provider.Pattern
	Versions provider.VersionSet // zero: all
}

// Options configure a catalog.
type Options struct {
	// Repository returns the repository of a provider. An error that wraps
	// [ErrNotServed] says that the provider has none here. Nil: none has.
	Repository func(context.Context, provider.Address) (Store, error)
	// Account returns that of a provider's repository; nil: all have the zero one.
	Account func(provider.Address) Account
	// Place names that of a provider's repository: what is on disk for another one is
	// not believed. Nil: there is but one for each provider.
	Place func(provider.Address) string
	// Anew makes of a context one whose requests show what a repository's login may
	// read at this moment, whatever tokens were issued for it before. Nil: nothing
	// shows that, and "denied" never means absent.
	Anew func(context.Context) context.Context
	// Check, if any, decides about a version when its index is first seen. What it
	// returns takes the version's place; its error refuses the version. It is not
	// asked again about that digest while the version is in memory. The store is for
	// metadata, of 4 MiB at most; what of it was read is kept.
	Check func(context.Context, Store, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)
	// Offers reports whether the repository of a provider is an [Offerer]: what is on
	// disk is then not all that there is. Nil: none is.
	Offers func(provider.Address) bool
	// Deny are versions that are never served.
	Deny []Deny
	// TagTTL is how long a list of tags, and what a tag names, is current; 0 means
	// 30 s, less that it is asked for each time.
	TagTTL time.Duration
	// StaleIfError is how long after the registry last confirmed it an answer
	// stands in while the registry is in trouble; 0 means 24 h, less never.
	StaleIfError time.Duration
	// Timeout is how long the registry may take for one answer; 0 means 8 s, as
	// clients wait 10.
	Timeout time.Duration
	// Memory bounds what is kept in memory, in bytes; 0 means 12 MiB. What was not
	// used for longest goes first.
	Memory int64
	// Directory is the folder in which good answers are kept beyond the process's
	// end; "": they are not.
	Directory string
	// DirectorySize bounds that folder, in bytes; 0 means 512 MiB. It is kept
	// within a tenth more. What was not used for longest goes first.
	DirectorySize int64
	// Counters counts answers; nil: nobody does.
	Counters *telemetry.CatalogCounters
	// Log gets what is worth knowing when the registry is in trouble; nil: nobody.
	Log *slog.Logger
}

const (
	// backgroundRefreshes is how many answers are refreshed at once that nobody
	// waits for.
	backgroundRefreshes = 8
	// maxFlights is how many questions the registry is asked at once. Clients that
	// give up do not end theirs, so that without a bound one client could ask any
	// number of them of a registry that hangs.
	maxFlights = 512
	// patience is how long a client waits for the registry where the last good
	// answer could stand in.
	patience = 2 * time.Second
)

// Catalog answers questions about versions. It is safe for concurrent use.
type Catalog struct {
	opts  Options
	cache *lru
	disk  *disk // nil: nothing is kept beyond the process's end
	// refreshing is held by a refresh, and shared by what reads or writes the disk
	// for an entry: else what is forgotten might come back by way of the other.
	refreshing sync.RWMutex

	watch *watch
	slots chan struct{} // for refreshes that nobody waits for
	// flights has an element for each question that the registry is being asked.
	flights chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // closed, and additions to tasks
	closed bool
	tasks  sync.WaitGroup
}

// New returns a catalog. The folder of o.Directory is made if it is not there.
func New(o Options) (*Catalog, error) {
	o.TagTTL = cmp.Or(o.TagTTL, 30*time.Second)
	o.StaleIfError = cmp.Or(o.StaleIfError, 24*time.Hour)
	o.Timeout = cmp.Or(o.Timeout, 8*time.Second)
	o.Memory = cmp.Or(o.Memory, 12<<20)
	o.DirectorySize = cmp.Or(o.DirectorySize, 512<<20)
	if o.Counters == nil {
		o.Counters = &telemetry.CatalogCounters{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Repository == nil {
		o.Repository = func(context.Context, provider.Address) (Store, error) { return nil, ErrNotServed }
	}
	if o.Place == nil {
		o.Place = func(provider.Address) string { return "" }
	}
	if o.Account == nil {
		o.Account = func(provider.Address) Account { return Account{} }
	}
	c := &Catalog{
		opts: o, cache: newLRU(o.Memory), watch: newWatch(),
		slots: make(chan struct{}, backgroundRefreshes), flights: make(chan struct{}, maxFlights),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if o.Directory != "" {
		var err error
		if c.disk, err = openDisk(o.Directory, o.DirectorySize, o.Place, o.Log); err != nil {
			return nil, err
		}
		c.task(c.disk.sweep)
	}
	return c, nil
}

var _ io.Closer = (*Catalog)(nil)

// Close ends what goes on in the background, and returns when what was learnt is
// on disk. Whoever asks later gets an error.
func (c *Catalog) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.tasks.Wait()
	return nil
}

// task runs f, which Close waits for; false if the catalog is closed.
func (c *Catalog) task(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(func() { f(c.ctx) })
	return true
}

// Versions returns the versions of a provider: an item with Versions. It lacks
// those that are denied, and is empty where all are. [ErrAbsent] and
// [ErrNotServed] say that there is none; other errors, that nobody knows.
func (c *Catalog) Versions(ctx context.Context, a provider.Address) (*Item, error) {
	return c.get(ctx, c.entry(listingKey(a), func() *entry { return &entry{kind: listing, address: a} }))
}

// Version returns a version: an item with Found. Errors are as those of Versions;
// [ErrDenied] is one more. An item comes with ErrAbsent, too, to keep an answer
// with; see [Catalog.Keep].
func (c *Catalog) Version(ctx context.Context, a provider.Address, v provider.Version) (*Item, error) {
	if c.denied(a, v) {
		return nil, fmt.Errorf("%s %s: %w", a, v, ErrDenied)
	}
	return c.get(ctx, c.entry(versionKey(a, v), func() *entry { return &entry{kind: version, address: a, version: v} }))
}

// Newer asks for the tag of a version again. It returns the version if the tag names
// another index by now, and nil if it does not. Errors are those of [Catalog.Version].
func (c *Catalog) Newer(ctx context.Context, of *Item) (*Item, error) {
	item, _, err := c.wait(ctx, of.entry, nil)
	if err != nil || item.Found.Index.Digest == of.Found.Index.Digest {
		return nil, err
	}
	return item, nil
}

// Evidence returns the evidence of a version, which is not verified; nil if it has
// none. Errors are those of [artifact.ReadEvidence].
func (c *Catalog) Evidence(ctx context.Context, of *Item) (*artifact.Evidence, error) {
	desc := of.Found.Evidence
	if desc == nil {
		return nil, nil
	}
	a := of.Address
	item, err := c.get(ctx, c.entry(a.Path()+"/"+string(desc.Digest), func() *entry { return &entry{kind: evidence, address: a, desc: *desc} }))
	if err != nil {
		return nil, err
	}
	return item.evidence, nil
}

// Metadata returns what gets content of a provider's repository by its digest, of
// 4 MiB at most, from the cache if it is there.
func (c *Catalog) Metadata(a provider.Address) artifact.Fetcher { return metadata{c, a} }

type metadata struct {
	c *Catalog
	a provider.Address
}

// Fetch implements [artifact.Fetcher].
func (m metadata) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	// The entry lives long, and annotations have any length.
	desc = ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}
	item, err := m.c.get(ctx, m.c.entry(contentKey(m.a, desc.Digest), func() *entry { return &entry{kind: content, address: m.a, desc: desc} }))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(item.content)), nil
}

// Store returns the repository of a provider, for what the catalog does not know.
// Where there is no way to it now, its methods return the reason.
func (c *Catalog) Store(ctx context.Context, a provider.Address) Store {
	store, err := c.opts.Repository(ctx, a)
	if err != nil {
		return noStore{err}
	}
	return store
}

// Warm returns what is current in memory under the path of a network mirror's
// document (HOSTNAME/NAMESPACE/TYPE/index.json or VERSION.json), and whether
// there is such a thing: asking changes nothing but what goes first when memory
// is short, and what is refreshed early. Whoever asks says what time it is now.
func (c *Catalog) Warm(path string, now time.Time) (*Item, bool) {
	e := c.cache.get(path)
	if e == nil {
		return nil, false
	}
	i, ok := c.current(e, now)
	if ok && i.kept.Load() != nil {
		c.opts.Counters.Hits.Add(1) // else it is asked for again
	}
	return i, ok
}

// Keep keeps an answer of at most size bytes with the item that it was made of,
// for [Item.Kept].
func (c *Catalog) Keep(i *Item, answer any, size int) {
	if i.kept.CompareAndSwap(nil, &answer) {
		c.cache.grow(i.entry, int64(size))
	}
}

// Refresh forgets everything about a provider, in memory and on disk. It returns
// how many entries were in memory.
func (c *Catalog) Refresh(a provider.Address) int {
	if o, ok := c.Store(c.ctx, a).(Offerer); ok {
		o.Forget()
	}
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	if c.disk != nil {
		c.disk.drop(a)
	}
	return c.cache.drop(a)
}

// denied reports whether a version is never served.
func (c *Catalog) denied(a provider.Address, v provider.Version) bool {
	for _, d := range c.opts.Deny {
		if d.Pattern.Matches(a) && (d.Versions.String() == "" || d.Versions.Has(v)) {
			return true
		}
	}
	return false
}

// listingKey and versionKey are the paths of a mirror's documents, so that those
// of a request are found without reading them.
func listingKey(a provider.Address) string { return a.Path() + "/index.json" }

func versionKey(a provider.Address, v provider.Version) string {
	return a.Path() + "/" + v.String() + ".json"
}

// entry returns the entry of a key, made if there is none.
func (c *Catalog) entry(key string, make func() *entry) *entry {
	return c.cache.getOrAdd(key, func() *entry {
		e := make()
		e.key = key
		e.account = sync.OnceValue(func() Account { return c.opts.Account(e.address) })
		return e
	})
}
