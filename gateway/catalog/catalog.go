// Package catalog lists the versions of providers and modules, and reads their content from the
// registry, with as few requests as possible.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// Lists of tags, and the indexes that tags name, are current for a short time and are then
// revalidated. The content of a digest never changes and is fetched once. Answers in use are
// refreshed before they expire. Concurrent requests for the same answer share one fetch, which
// continues when a client leaves. While the registry fails, the last good answer is served
// stale. If answers are kept on disk, a restart does not reset their age.
//
// Invariants:
//
//   - A version, provider or module is reported as absent only while the registry's own answer is
//     current. Absence is never kept on disk and never served stale.
//   - Content is used only if its digest is right. The digest of content on disk is checked
//     again whenever the content is read.
//   - Memory, disk and time are bounded, whatever the registry sends and clients request.
//     [Options] has the bounds.
package catalog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/base/telemetry"
	"github.com/ocibridge/ocibridge/provider"
)

// Store is a repository. oras-go's remote.Repository implements it.
type Store interface {
	artifact.ReferenceFetcher
	Tags(ctx context.Context, last string, fn func(tags []string) error) error
	// Exists reports whether the repository has a manifest or blob.
	Exists(context.Context, ocispec.Descriptor) (bool, error)
	// Resolve returns the descriptor of a tag or digest.
	Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error)
	// Blobs returns the repository's blobs.
	Blobs() registry.BlobStore
}

var (
	// ErrNotServed means that no template names a repository for a provider or module.
	ErrNotServed = errors.New("not served here")
	// ErrAbsent means that the registry itself has answered that it lacks a repository or version.
	ErrAbsent = errors.New("not in the registry")
	// ErrDenied means that the configuration denies a version.
	ErrDenied = errors.New("denied by configuration")
	// ErrLost means that the registry lists a version, but lacks the index that its tag names.
	ErrLost = errors.New("the registry lists the version, but does not have it")
	// ErrBusy means that too many requests to the registry are in flight.
	ErrBusy = fresh.ErrBusy
)

// Account describes how the gateway accesses the repository of a provider or module. If the registry
// is down for one repository, it counts as down for all repositories whose accounts have the same
// name.
type Account struct {
	// Repository is the name of the repository. Answers on disk about another repository are ignored.
	Repository string
	// Name is the same for all repositories of a registry that are read with the same credential.
	Name string
	// DeniedMeansAbsent means that the registry answers "denied" for absent repositories.
	DeniedMeansAbsent bool
}

// Deny is a rule for versions that are never served.
type Deny struct {
	Pattern  subject.Pattern     // never nil
	Versions provider.VersionSet // the zero value means all versions
	// Digest, if not "", is the digest of the manifest that the rule denies under every tag. Versions is then zero.
	Digest digest.Digest
	Reason string // the text that clients and users see, or ""
}

// denies reports whether the rule denies a version whose tag names the given manifest. The digest is "" if it is unknown.
func (d *Deny) denies(a subject.Address, v provider.Version, manifest digest.Digest) bool {
	switch {
	case !d.Pattern.Covers(a):
		return false
	case d.Digest != "":
		return d.Digest == manifest
	}
	return d.Versions.String() == "" || d.Versions.Has(v)
}

// FindDeny returns a rule that denies a version of a provider or a module, if there is one. It
// prefers a rule with a reason. The digest of the manifest that the version's tag names is "" if it is unknown.
func FindDeny(rules []Deny, a subject.Address, v provider.Version, manifest digest.Digest) (rule Deny, ok bool) {
	for _, d := range rules {
		if !d.denies(a, v, manifest) {
			continue
		}
		if d.Reason != "" {
			return d, true
		}
		rule, ok = d, true
	}
	return rule, ok
}

// Denial says which versions of a provider or module a rule denies or deprecates, and why.
type Denial struct {
	Versions []provider.Version // oldest first, never empty
	Reason   string             // never ""
}

// Denials returns the denials that clients see for a listed provider or module, in the order of the
// rules that have a reason. A version is in at most one denial. A rule may name one version of one
// provider or module. Denials returns that version even if it is not in i.All, because it may have
// been removed.
func (c *Catalog) Denials(i *Item) (out []Denial) {
	named := map[provider.Version]bool{}
	for _, d := range c.opts.Deny {
		if d.Reason == "" || d.Digest != "" || !d.Pattern.Covers(i.about.subject) {
			continue
		}
		versions := slices.Clone(i.All())
		if !d.Versions.IsZero() {
			versions = d.Versions.Matches(versions)
		}
		exact, err := provider.ParseVersion(d.Versions.String())
		namesOne := d.Pattern.Parts() == len(d.Pattern.Values()) // the rule is for this subject alone
		if err == nil && namesOne && !slices.Contains(versions, exact) {
			versions = append(versions, exact)
		}
		versions = slices.DeleteFunc(versions, func(v provider.Version) bool { return named[v] })
		if len(versions) == 0 {
			continue
		}
		for _, v := range versions {
			named[v] = true
		}
		out = append(out, Denial{versions, d.Reason})
	}
	for _, w := range i.withheld {
		if w.reason == "" || named[w.version] {
			continue
		}
		n := slices.IndexFunc(out, func(d Denial) bool { return d.Reason == w.reason })
		if n < 0 {
			n, out = len(out), append(out, Denial{Reason: w.reason})
		}
		out[n].Versions = append(out[n].Versions, w.version)
	}
	for _, d := range out {
		provider.SortVersions(d.Versions)
	}
	return out
}

// DeniedError means that a version of a provider or a module is not served: a rule denies the version, or the version is not
// approved. It wraps [ErrDenied].
type DeniedError struct {
	Subject subject.Address
	Version provider.Version
	Reason  string // "" if the rule has none
	// Approval says which approvals the version lacks. It is nil if a rule denies the version.
	Approval *approval.NotApproved

	notStored bool // the error also wraps ErrNotStored
}

func (e *DeniedError) Error() string {
	if e.Approval != nil {
		return fmt.Sprintf("%s %s: %v", e.Subject, e.Version, e.Approval)
	}
	return withReason(fmt.Sprintf("%s %s: %v", e.Subject, e.Version, ErrDenied), e.Reason)
}

// Unwrap returns [ErrDenied], and also e.Approval if the version is not approved.
func (e *DeniedError) Unwrap() []error {
	switch {
	case e.notStored:
		return []error{ErrDenied, e.Approval, ErrNotStored}
	case e.Approval != nil:
		return []error{ErrDenied, e.Approval}
	}
	return []error{ErrDenied}
}

// Said returns the text that clients get.
func (e *DeniedError) Said() string { return withReason("this version is denied here", e.Reason) }

func withReason(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// The defaults of [Options].
const (
	DefaultTagTTL       = 30 * time.Second
	DefaultStaleIfError = 24 * time.Hour
)

// Options configure a catalog.
type Options struct {
	// Repository returns the repository of a provider or a module, or an error that wraps
	// [ErrNotServed] if there is none. nil means that there are no repositories.
	Repository func(context.Context, subject.Address) (Store, error)
	// Account returns the account of the repository. nil means the zero [Account] for all.
	Account func(subject.Address) Account
	// FreshToken returns a context whose requests use new tokens. The registry's response to
	// such a request shows what the login is allowed to read now. nil means that "denied" never
	// means absent.
	FreshToken func(context.Context) context.Context
	// Check, if not nil, is called when the index of a version is first read. It returns the
	// version to be served, or an error that refuses the version. The catalog does not call
	// Check again for the same index while the version is in memory. The fetcher reads and
	// caches metadata of at most 4 MiB.
	Check func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error)
	// Redirect returns the URL to which the registry redirects requests for a package, or "" if the
	// registry sends the package itself. nil means that clients are not redirected.
	Redirect func(context.Context, subject.Address, ocispec.Descriptor) (string, error)
	// Origin, if not nil, supplies the versions and packages that the registry lacks.
	Origin Origin
	// Deny lists versions that are never served.
	Deny []Deny
	// Deprecate lists versions that are served, with a warning. Each rule has a reason.
	Deprecate []Deny
	// Approvals decide which versions are approved. If nil, no version needs an approval.
	Approvals Approvals
	// TagTTL is how long a list of tags, and the index that a tag names, is current. 0 means
	// [DefaultTagTTL]; a negative TTL means that every request asks the registry.
	TagTTL time.Duration
	// StaleIfError is how long an answer can be served stale while the registry fails. The
	// time starts when the registry last confirmed the answer. 0 means [DefaultStaleIfError];
	// negative means never.
	StaleIfError time.Duration
	// Timeout is how long the registry may take for one answer; 0 means 8 s, because clients
	// wait for 10 s.
	Timeout   time.Duration
	Memory    int64  // the maximum size in bytes of the cache in memory; 0 means 12 MiB
	Directory string // the folder for answers that survive a restart; "" means none
	// DirectorySize is the maximum size in bytes of Directory; 0 means 512 MiB. The folder can
	// exceed this size by a tenth. The least recently used files are removed first.
	DirectorySize int64
	Counters      *fresh.Counters // counts the answers; may be nil
	Log           *slog.Logger    // receives the registry's failures; may be nil
}

// maxFlights is the maximum number of fetches from the registry in flight.
const maxFlights = 512

// Catalog caches the registry's answers about providers, modules and versions. It is safe for
// concurrent use.
type Catalog struct {
	opts  Options
	cache *fresh.Cache[question, *Item]
	disk  *disk // nil: answers do not survive a restart
	watch *watch

	ctx    context.Context // for sweeps of the disk
	cancel context.CancelFunc
	sweeps sync.WaitGroup

	learning background                   // look-ups of signatures for lists
	resolved *lru.Cache[string, resolved] // see judgement.ask
}

// New returns a catalog. It creates the folder o.Directory if it does not exist.
func New(o Options) (*Catalog, error) {
	o.TagTTL = cmp.Or(o.TagTTL, DefaultTagTTL)
	o.StaleIfError = cmp.Or(o.StaleIfError, DefaultStaleIfError)
	o.Timeout = cmp.Or(o.Timeout, 8*time.Second)
	o.Memory = cmp.Or(o.Memory, 12<<20)
	o.DirectorySize = cmp.Or(o.DirectorySize, 512<<20)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Counters = cmp.Or(o.Counters, &fresh.Counters{})
	if o.Repository == nil {
		o.Repository = func(context.Context, subject.Address) (Store, error) { return nil, ErrNotServed }
	}
	if o.Redirect == nil {
		o.Redirect = func(context.Context, subject.Address, ocispec.Descriptor) (string, error) { return "", nil }
	}
	if o.Account == nil {
		o.Account = func(subject.Address) Account { return Account{} }
	}
	c := &Catalog{opts: o, watch: &watch{accounts: map[string]*observed{}}, learning: newBackground(o.Log)}
	c.resolved, _ = lru.New[string, resolved](maxResolved) // fails only for a negative size
	c.ctx, c.cancel = context.WithCancel(context.Background())
	flights := maxFlights
	if o.Origin != nil {
		flights *= 2 // a fetch of the union waits for a fetch from the registry
	}
	if o.Approvals != nil {
		flights *= 2 // a fetch of a list waits for fetches of signatures
	}
	c.cache = fresh.New(fresh.Options[question, *Item]{
		Key: question.name, Fetch: c.ask, Load: c.load, Size: sizeOf,
		Superseded: c.isListedSince, Failed: c.failed, Follow: telemetry.Follow, Log: o.Log,
		LastFailure: func(q question) time.Time { return c.watch.lastFailure(q.account().Name) },
		Timeout:     o.Timeout, Early: true, MaxBytes: o.Memory, MaxFlights: flights, Counters: o.Counters,
	})
	if o.Directory != "" {
		var err error
		if c.disk, err = openDisk(o.Directory, o.DirectorySize, o.Account, o.Log); err != nil {
			return nil, err
		}
		c.sweep()
	}
	return c, nil
}

var _ io.Closer = (*Catalog)(nil)

// Close cancels the requests in flight, and returns once all earlier answers are saved. Later
// requests fail.
func (c *Catalog) Close() error {
	c.learning.close()
	err := c.cache.Close()
	c.cancel()
	c.sweeps.Wait()
	return err
}

// sweep shrinks the folder on disk to its maximum size, in the background.
func (c *Catalog) sweep() { c.sweeps.Go(func() { c.disk.sweep(c.ctx) }) }

// View gives access to a catalog: to the registry alone, or to the union of the registry and the
// origin. Both views share the registry's answers.
type View struct {
	c     *Catalog
	union bool
}

// Registry returns the view of the registry alone.
func (c *Catalog) Registry() View { return View{c, false} }

// Union returns the view of the registry and the origin, if there is one.
func (c *Catalog) Union() View { return View{c, c.opts.Origin != nil} }

// get returns the answer to a question. If it returns an item and an error, such as
// [ErrAbsent], the error is part of the answer. An error without an item means that the
// registry or the origin failed.
func (v View) get(ctx context.Context, q question) (*Item, error) {
	a, err := v.c.cache.Get(ctx, q)
	if err != nil {
		return nil, err
	}
	return a.Value, a.Err
}

// Versions returns an item whose Versions field lists the versions of a provider or a module. The list
// omits denied versions, even if no version remains. [ErrAbsent] and [ErrNotServed] mean that the
// provider or the module does not exist here. Any other error means that the versions are unknown.
func (v View) Versions(ctx context.Context, a subject.Address) (*Item, error) {
	return v.get(ctx, v.question(listing, a))
}

// Version returns an item whose Found field is the content of a version. It returns the errors
// of [View.Versions], and [ErrDenied] for a denied version and for a version that is not approved. It returns an item even
// with [ErrAbsent], so that [Catalog.CacheDocument] can cache a document about the absence.
func (v View) Version(ctx context.Context, a subject.Address, of provider.Version) (*Item, error) {
	if err := v.c.Denied(a, of); err != nil {
		return nil, err
	}
	if v.c.policy(a).Enforces() {
		return v.approved(ctx, a, of)
	}
	item, err := v.Examine(ctx, a, of)
	if err == nil {
		if err = v.c.deniedManifest(item); err != nil {
			return nil, err
		}
		v.c.observe(item)
	}
	return item, err
}

// Examine is like [View.Version], but also returns a version that is denied or not approved, and must not be served.
func (v View) Examine(ctx context.Context, a subject.Address, of provider.Version) (*Item, error) {
	return v.get(ctx, v.versionOf(a, of))
}

// Newer requests a version from the registry and the origin again. It returns the new item, or nil
// if the index, the evidence and the packages are the same. The errors are those of [View.Version],
// also if the new item is not approved.
func (v View) Newer(ctx context.Context, of *Item) (*Item, error) {
	q := v.versionOf(of.Address, of.Version)
	a, err := v.c.cache.Ask(ctx, v.c.ofRegistry(q))
	if err == nil && q.union {
		a, err = v.c.cache.Ask(ctx, q)
	}
	switch {
	case err != nil:
		return nil, err
	case a.Err != nil:
		return nil, v.c.unapprovable(ctx, of.Address, of.Version, a.Err)
	case a.Value.Found.Same(of.Found):
		return nil, nil
	}
	if err := v.c.allow(ctx, a.Value); err != nil {
		return nil, err
	}
	return a.Value, nil
}

// Evidence returns the unverified evidence of a version, or nil if it has none. The errors are
// those of [artifact.ReadEvidence].
func (v View) Evidence(ctx context.Context, of *Item) (*artifact.Evidence, error) {
	if of.Found.Evidence == nil {
		return nil, nil
	}
	item, err := v.get(ctx, v.contentOf(evidence, of.Address, *of.Found.Evidence))
	if err != nil {
		return nil, err
	}
	return item.evidence, nil
}

// Metadata returns a fetcher of content of at most 4 MiB, from the cache or a provider's repository.
func (v View) Metadata(a provider.Address) artifact.Fetcher {
	return orascontent.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		item, err := v.get(ctx, v.contentOf(content, a, desc))
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(item.content)), nil
	})
}

// Package returns a package of a version. If the provider's repository cannot be opened,
// Exists, Size and Open of the [Blob] return the error.
func (v View) Package(ctx context.Context, a provider.Address, of provider.Version, p artifact.Package) Blob {
	blob := v.c.StoredPackage(ctx, a, p)
	if stored, ok := blob.(Stored); ok && v.union && v.c.opts.Origin.Selects(a) {
		return v.c.opts.Origin.Package(a, of, p, stored)
	}
	return blob
}

// StoredPackage is like [View.Package], for a package in the registry or for the zip of a module.
func (c *Catalog) StoredPackage(ctx context.Context, a subject.Address, p artifact.Package) Blob {
	store, err := c.opts.Repository(ctx, a)
	stored := Stored{store, p.Layer(), func(ctx context.Context) (string, error) { return c.opts.Redirect(ctx, a, p.Layer()) }}
	if err != nil {
		return unavailable{stored, err}
	}
	return stored
}

// Warm returns the current item in memory, if there is one, for the path of a network mirror's
// document: HOSTNAME/NAMESPACE/TYPE/index.json or VERSION.json. It never waits. It marks the item as
// used, and can start a refresh in the background.
func (v View) Warm(path string, now time.Time) (*Item, bool) {
	a := v.c.cache.Current(v.c.prefix(v.union)+path, now)
	if v.union && v.c.opts.Approvals != nil && (a == nil || a.Value.Document(MirrorDocument) == nil) {
		if reg := v.c.cache.Current(v.c.prefix(false)+path, now); reg != nil && reg.Value.about.kind == version && v.c.registryAlone(reg.Value.about.subject) {
			a = reg
		}
	}
	if a == nil || !subject.TraitsOf(a.Value.about.subject).Origins || !v.c.isApproved(a.Value, now) {
		return nil, false
	}
	if a.Value.Document(MirrorDocument) != nil {
		v.c.opts.Counters.Hits.Add(1) // if there is no document, the caller uses another method, which counts the hit
	}
	return a.Value, true
}

// CacheDocument caches a document with the item that the document was made from, for
// [Item.Document]. size is the maximum size of the document in bytes.
func (c *Catalog) CacheDocument(i *Item, kind Document, value any, size int) {
	i.documents[kind].Store(&cachedDocument{value, int64(size)})
	c.cache.Resize(i.about)
}

// Refresh drops all cached answers about a provider or a module, in memory and on disk. It returns
// how many were in memory.
func (c *Catalog) Refresh(of subject.Address) int {
	if c.opts.Origin != nil {
		c.opts.Origin.Forget(of)
	}
	return c.cache.Drop(func(q question) bool { return q.subject == of }, func() {
		if c.disk != nil {
			c.disk.drop(of)
		}
	})
}

// Denied returns a *[DeniedError] if a rule in Options.Deny denies a version by its number, and nil otherwise. It ignores the
// rules that name a digest, and approvals.
func (c *Catalog) Denied(a subject.Address, v provider.Version) error {
	return c.deniedAs(a, v, "")
}

// Deprecated returns the reason of a rule in Options.Deprecate that deprecates a version, or "" if there is none.
func (c *Catalog) Deprecated(a subject.Address, v provider.Version) (reason string) {
	rule, _ := FindDeny(c.opts.Deprecate, a, v, "")
	return rule.Reason
}

// Deprecations groups the served versions of a provider or a module that rules deprecate by their reasons.
func (c *Catalog) Deprecations(i *Item) (out []Denial) {
	for _, v := range i.Versions {
		reason := c.Deprecated(i.about.subject, v)
		at := slices.IndexFunc(out, func(d Denial) bool { return d.Reason == reason })
		switch {
		case reason == "":
			continue
		case at < 0:
			at, out = len(out), append(out, Denial{Reason: reason})
		}
		out[at].Versions = append(out[at].Versions, v)
	}
	return out
}

// DeniedVersions returns the versions of a provider that rules in Options.Deny deny or that are not approved, oldest first,
// or nil if the versions are unknown.
func (v View) DeniedVersions(ctx context.Context, a provider.Address) []provider.Version {
	if !v.c.policy(a).Enforces() && !slices.ContainsFunc(v.c.opts.Deny, func(d Deny) bool { return d.Pattern.Covers(a) }) {
		return nil
	}
	item, _ := v.Versions(ctx, a)
	if item == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(item.All()), func(of provider.Version) bool { return slices.Contains(item.Versions, of) })
}

// Confirmed returns when the registry last confirmed the list of versions, or the zero time if the
// list is not in memory.
func (v View) Confirmed(of subject.Address) time.Time {
	if last := v.c.cache.Last(v.question(listing, of)); last != nil {
		return last.At
	}
	return time.Time{}
}

// staleMargin is how much older than Options.TagTTL a list of versions can be that was current when a page was begun.
const staleMargin = 3 * time.Second

// Standing says how old the list of versions of a provider or a module is, and whether it is served because the registry cannot
// answer. Callers have just called [View.Versions].
type Standing struct {
	// Confirmed is when the registry last confirmed the list. It is zero if the list is not in memory.
	Confirmed time.Time
	// Failed means that the registry has failed since then, and has not answered since.
	Failed bool
	// Late means that the list has expired, because the registry has not answered in time.
	Late bool
}

// Standing returns the standing of a list of versions.
func (v View) Standing(of subject.Address) Standing {
	s := Standing{Confirmed: v.Confirmed(of)}
	s.Failed = v.c.watch.lastFailure(v.c.opts.Account(of).Name).After(s.Confirmed)
	s.Late = !s.Confirmed.IsZero() && time.Since(s.Confirmed) > max(v.c.opts.TagTTL, 0)+staleMargin
	return s
}

// All returns the versions of a provider or module that are tagged or that the origin offers, oldest
// first. It includes denied versions. Callers must not change the slice.
func (i *Item) All() []provider.Version { return merge(i.tags.versions, i.offers) }

// Known returns the providers and modules whose versions are in memory, in no particular order.
func (c *Catalog) Known() []subject.Address {
	var out []subject.Address
	for _, a := range c.cache.Good() {
		if a.Value.IsListing() {
			out = append(out, a.Value.about.subject)
		}
	}
	return out
}

// Added returns the results of [Item.Added] that are not zero, of the lists of versions in memory.
func (c *Catalog) Added() map[subject.Address]time.Time {
	out := map[subject.Address]time.Time{}
	for _, a := range c.cache.Good() {
		if at := a.Value.Added(); !at.IsZero() {
			out[a.Value.about.subject] = at
		}
	}
	return out
}

// Saved returns the providers and modules whose versions are on disk and could be served if the registry failed now, in no particular
// order. It returns at most limit of them, and only those that it finds before ctx ends.
func (c *Catalog) Saved(ctx context.Context, limit int) []subject.Address {
	if c.disk == nil {
		return nil
	}
	return c.disk.listed(ctx, time.Now().Add(-c.opts.StaleIfError), limit)
}

// Size is the number of a [Catalog]'s answers in memory, and roughly their memory in bytes.
type Size struct {
	Entries int
	Bytes   int64
}

// Size returns the current size.
func (c *Catalog) Size() (s Size) {
	s.Entries, s.Bytes = c.cache.Size()
	return s
}

// CanServeStale reports whether at least one answer could be served if the registry failed now.
func (c *Catalog) CanServeStale() bool {
	now := time.Now()
	if c.disk != nil && c.disk.hasRecord(now.Add(-c.opts.StaleIfError)) {
		return true
	}
	return slices.ContainsFunc(c.cache.Good(), func(a *answer) bool {
		return (a.Value.about.kind == listing || a.Value.about.kind == version) && a.Stale(now) != nil
	})
}

// Subject returns the provider or the module that the item is about.
func (i *Item) Subject() subject.Address { return i.about.subject }

// IsListing reports whether an item is a list of versions.
func (i *Item) IsListing() bool { return i.about.kind == listing }
