package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// Offer is a version that the origin of a provider or a module offers, whether or not the registry has it.
type Offer struct {
	Version   provider.Version    `json:"version"`
	Protocols []string            `json:"protocols,omitempty"` // nil if not known
	Platforms []provider.Platform `json:"platforms,omitempty"` // nil if not known
	// Signed means that the trust policy requires a signature wherever clients require one. In that case, lists
	// contain the version before its signature is verified.
	Signed bool `json:"-"`
}

// Origin supplies versions and packages that the registry lacks.
type Origin interface {
	// Selects reports whether the origin is asked about a provider or a module.
	Selects(subject.Address) bool
	// Offers returns the versions that the origin offers, oldest first, or none if it does not
	// know the provider or the module. Warnings are the origin's warnings to the provider's users.
	// An error means that the origin failed. The error wraps [ErrSource]. Callers must not change
	// the slices.
	Offers(context.Context, subject.Address) (offers []Offer, warnings []string, err error)
	// Complete adds the origin's packages to a version. The argument stored is the version in the registry, or nil
	// if the registry says that it lacks the version. The result is nil if the origin lacks the version, too. The
	// result is stored itself if the origin adds nothing, or does not respond before ctx ends. A version with
	// packages of the origin has no index. The size of a package of the origin may be [artifact.UnknownSize]. An
	// error that wraps [ErrSource] means that the origin failed. Any other error refuses the version.
	//
	// The stored version of a module is always complete. A version of a module that only the origin has is announced:
	// its zip has no digest.
	Complete(ctx context.Context, a subject.Address, v provider.Version, stored *artifact.Version) (*artifact.Version, error)
	// Store stores a version of a module that the registry lacks. It returns once the version is stored. The errors are
	// those of Complete. Also, an error that wraps [ErrAbsent] means that the origin lacks the version.
	Store(context.Context, module.Address, provider.Version) error
	// Blob returns a blob of the evidence that the origin has added to a version. The result
	// is false if the origin does not have the blob in memory.
	Blob(provider.Address, digest.Digest) ([]byte, bool)
	// Package returns a package of a version. Stored is the same package in the registry,
	// which may lack the package.
	Package(a provider.Address, v provider.Version, p artifact.Package, stored Stored) Blob
	// Forget drops everything that the origin has cached about a provider or a module.
	Forget(subject.Address)
}

// Blob is one package, in the registry or at its origin.
type Blob interface {
	// Exists reports whether the package can be opened. It returns true if this is unknown.
	Exists(context.Context) (bool, error)
	// Size returns the size of the package in bytes. It is called if the version does not
	// state the size, and waits until the size is known. Begin means that the caller is about
	// to open the package.
	Size(ctx context.Context, begin bool) (int64, error)
	// Open opens the package, which has size bytes. The body begins at the byte start of the
	// package. Start equals offset, or it is 0 if the source cannot skip the bytes before
	// offset.
	Open(ctx context.Context, size, offset int64) (body io.ReadCloser, start int64, err error)
	// Redirect returns the URL to which the registry redirects clients, or "" if there is none.
	Redirect(context.Context) (string, error)
	// Requested is called when a client gets the package from a cache and the version does not
	// state the package's size.
	Requested()
}

// Stored is a package in the registry.
type Stored struct {
	Store    Store
	Layer    ocispec.Descriptor
	redirect func(context.Context) (string, error)
}

// Exists implements [Blob].
func (s Stored) Exists(ctx context.Context) (bool, error) { return s.Store.Exists(ctx, s.Layer) }

// Size implements [Blob].
func (s Stored) Size(context.Context, bool) (int64, error) { return s.Layer.Size, nil }

// Open implements [Blob].
func (s Stored) Open(ctx context.Context, size, offset int64) (io.ReadCloser, int64, error) {
	s.Layer.Size = size
	body, err := s.Store.Fetch(ctx, s.Layer)
	if seeker, ok := body.(io.Seeker); ok && offset > 0 {
		if _, err := seeker.Seek(offset, io.SeekStart); err == nil {
			return body, offset, nil
		}
		// A registry that announces ranges may refuse them. The body is then still at its start.
	}
	return body, 0, err
}

// Redirect implements [Blob].
func (s Stored) Redirect(ctx context.Context) (string, error) { return s.redirect(ctx) }

// Requested implements [Blob].
func (Stored) Requested() {}

// unavailable is a package whose repository cannot be opened. Exists, Size and Open return err.
type unavailable struct {
	Stored
	err error
}

func (u unavailable) Exists(context.Context) (bool, error) { return false, u.err }

func (u unavailable) Size(context.Context, bool) (int64, error) { return 0, u.err }

func (u unavailable) Open(context.Context, int64, int64) (io.ReadCloser, int64, error) {
	return nil, 0, u.err
}

// ErrSource means that an origin, rather than the registry, failed.
var ErrSource = errors.New("the origin is unavailable")

// BusyError means that a limit on downloads from origins is reached. A retry can succeed once
// RetryAfter has passed.
type BusyError struct {
	// Limit is the name of an argument of the pull_through block, or "disk" if too little disk
	// space is free.
	Limit      string
	RetryAfter time.Duration
}

func (e *BusyError) Error() string {
	switch e.Limit {
	case "disk":
		return "too little disk is free for what is fetched from origins"
	case "max_per_day":
		return "max_per_day is reached: no more is fetched from origins until midnight UTC"
	}
	return fmt.Sprintf("%s is reached: too much is being fetched from origins", e.Limit)
}

// originTimeout is how long the catalog waits for the origin if the registry has a version or list.
// It is shorter than the gateway's limit of 8 s, so that clients get the registry's answer.
const originTimeout = 5 * time.Second

// join answers a question about the union of the registry and the origin. Packages of the
// registry take precedence. A version is absent only if both the registry and the origin say
// that it is absent. If the registry fails, the union fails, too, unless the registry's answer
// can be served stale.
func (c *Catalog) join(ctx context.Context, q question, last *answer) (answer, error) {
	reg, err := c.cache.GetFor(ctx, c.ofRegistry(q))
	if err != nil {
		return answer{}, err
	}
	if !c.opts.Origin.Selects(q.subject) || reg.Err != nil && !errors.Is(reg.Err, ErrAbsent) && reg.Value.read == nil {
		return *reg, nil
	}
	within := ctx
	if reg.Err == nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, originTimeout)
		defer cancel()
	}
	if q.kind == listing {
		return c.joinLists(within, q, reg, last)
	}
	found, err := c.opts.Origin.Complete(within, q.subject, q.version, reg.Value.read)
	switch {
	case err != nil && (errors.Is(err, ErrSource) || ctx.Err() != nil):
		if reg.Err == nil && last.Stale(time.Now()) == nil {
			return *reg, nil
		}
		return answer{}, err // a stale answer may have more platforms
	case err != nil:
		return c.joined(reg, newItem(q), shorten(Named(q.subject, q.version, err))), nil
	case found == reg.Value.read:
		return *reg, nil
	}
	return c.joinVersions(ctx, q, reg, found, last)
}

// joined returns an answer of the union. Its age is the age of the registry's answer.
func (c *Catalog) joined(reg *answer, item *Item, err error) answer {
	a := c.newAnswer(item, err)
	a.At = reg.At
	return a
}

// joinLists adds the origin's versions to a list of tags.
func (c *Catalog) joinLists(ctx context.Context, q question, reg, last *answer) (answer, error) {
	offers, warnings, err := c.opts.Origin.Offers(ctx, q.subject)
	switch {
	case err != nil && reg.Err == nil:
		c.opts.Log.Debug("only what the registry has is listed", string(q.subject.Kind()), q.subject.String(), "err", hint.Brief(err))
		return *reg, nil
	case err != nil:
		return answer{}, err
	case len(offers) == 0 && len(warnings) == 0:
		return *reg, nil
	}
	item := newItem(q)
	item.Warnings, item.offers = warnings, offers
	c.list(item, reg.Value.tags, c.withholdOffers(ctx, item, reg.Value.tags, reg.Value.withheld))
	if len(item.Versions) == 0 {
		err = reg.Err
	}
	if last != nil && last.Err == nil && err == nil && last.Value.lists(item) {
		item = last.Value
	}
	return c.joined(reg, item, err), nil
}

// joinVersions returns the answer with a version that the origin has completed.
func (c *Catalog) joinVersions(ctx context.Context, q question, reg *answer, found *artifact.Version, last *answer) (answer, error) {
	if last != nil && last.Value.about.union && last.Value.read != nil && last.Value.read.Same(found) {
		return c.joined(reg, last.Value, last.Err), nil
	}
	item := newItem(q)
	item.Found, item.read, item.stored = found, found, reg.Value.read
	up := &upstream{c: c, question: q, last: last}
	var err error
	if up.store, err = c.opts.Repository(ctx, q.subject); err != nil {
		return answer{}, err
	}
	err = c.check(ctx, up, item)
	if up.failure != nil {
		return answer{}, up.failure
	}
	return c.joined(reg, item, err), nil
}

// merge returns the versions that are tagged or offered, oldest first.
func merge(tagged []provider.Version, offers []Offer) []provider.Version {
	if len(offers) == 0 {
		return tagged
	}
	out := slices.Clone(tagged)
	for _, o := range offers {
		out = append(out, o.Version)
	}
	provider.SortVersions(out)
	return slices.Compact(out)
}

// Offer returns the origin's offer of a version that the registry lacks, if there is one.
func (i *Item) Offer(v provider.Version) (Offer, bool) {
	n, ok := i.offerOf(v)
	if _, tagged := slices.BinarySearchFunc(i.tags.versions, v, provider.Version.Compare); tagged || !ok {
		return Offer{}, false
	}
	return i.offers[n], true
}

// offerOf returns the position of a version in i.offers.
func (i *Item) offerOf(v provider.Version) (n int, ok bool) {
	return slices.BinarySearchFunc(i.offers, v, func(o Offer, v provider.Version) int { return o.Version.Compare(v) })
}

// Stored returns the version without the origin's packages, or nil if the registry lacks it.
func (i *Item) Stored() *artifact.Version {
	if i.about.union {
		return i.stored
	}
	return i.Found
}

// Named puts the provider or the module, and the version, in front of the text of err, unless the text already begins
// with them.
func Named(a subject.Address, v provider.Version, err error) error {
	name := fmt.Sprintf("%s %s: ", a, v)
	if strings.HasPrefix(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s%w", name, err)
}

// Announced reports whether only the origin has a module's version. Its zip has no digest, no size and no hash before
// [Catalog.StoreModule] has stored the version.
func (i *Item) Announced() bool {
	return i.about.union && i.stored == nil && i.Found != nil && !subject.TraitsOf(i.about.subject).Packages && i.Found.Zip().Digest == ""
}

// StoreModule makes the origin store an announced version of a module, and returns the stored version. If another writer
// stores the version meanwhile, the version in the registry takes precedence. The gateway vouches only for what its own origin
// stores, so a stored version is returned only if it is approved. The errors are those of [View.ModuleVersion].
func (c *Catalog) StoreModule(ctx context.Context, a module.Address, v provider.Version) (*Item, error) {
	// 1. Another gateway may have stored it since the last answer.
	if err := c.Denied(a, v); err != nil {
		return nil, err
	}
	reg, err := c.askRegistry(ctx, a, v)
	if err != nil || reg.Err == nil {
		return c.allowed(ctx, a, v, reg, err)
	}
	if !errors.Is(reg.Err, ErrAbsent) {
		return nil, c.unapprovable(ctx, a, v, reg.Err)
	}
	// 2. Store it.
	failed := c.opts.Origin.Store(ctx, a, v)
	if failed != nil && ctx.Err() != nil {
		return nil, failed
	}
	// 3. Read it. Later answers of the union have it, too.
	reg, err = c.askRegistry(ctx, a, v)
	if failed == nil && err == nil && errors.Is(reg.Err, ErrAbsent) {
		reg, err = c.askRegistry(ctx, a, v) // the first question may have joined one that began before the version was stored
	}
	switch {
	case failed != nil && (err != nil || reg.Err != nil):
		return nil, fmt.Errorf("store the module %w", Named(a, v, failed))
	case err == nil && errors.Is(reg.Err, ErrAbsent):
		return nil, Named(a, v, errStoredUnseen)
	}
	if err == nil && reg.Err == nil {
		_, err = c.cache.Ask(ctx, c.Union().versionOf(a, v))
	}
	return c.allowed(ctx, a, v, reg, err)
}

// errStoredUnseen does not wrap [ErrAbsent], because clients do not repeat a request after a 404.
var errStoredUnseen = errors.New("it was stored, but the registry does not show it yet")

// askRegistry asks the registry for a version, and for the list of tags, because the version can have a tag with a leading v.
func (c *Catalog) askRegistry(ctx context.Context, a subject.Address, v provider.Version) (*answer, error) {
	if _, err := c.cache.Ask(ctx, c.Registry().question(listing, a)); err != nil {
		return nil, err
	}
	return c.cache.Ask(ctx, c.Registry().versionOf(a, v))
}

// allowed returns the item of an answer about a version if its manifest may be served. The errors are those of [Catalog.allow] and of
// [Catalog.unapprovable].
func (c *Catalog) allowed(ctx context.Context, of subject.Address, v provider.Version, a *answer, err error) (*Item, error) {
	if err == nil {
		err = a.Err
	}
	if err != nil {
		return nil, c.unapprovable(ctx, of, v, err)
	}
	if err := c.allow(ctx, a.Value); err != nil {
		return nil, err
	}
	return a.Value, nil
}
