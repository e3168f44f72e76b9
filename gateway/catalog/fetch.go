package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// maxVersions bounds how many versions a provider may have.
const maxVersions = 100_000

// fetch asks the registry about an entry. That it is in trouble is said by
// up.trouble alone; an error beside is its answer: [ErrAbsent], [ErrNotServed], or
// why what it has is refused. before is what it said last, nil if it was not
// asked. There is always an item, which is that of before where nothing changed.
func (c *Catalog) fetch(ctx context.Context, e *entry, up *upstream, before *state) (*Item, error) {
	item := &Item{Address: e.address, Version: e.version}
	var err error
	if up.store, err = c.opts.Repository(ctx, e.address); err != nil {
		if !errors.Is(err, ErrNotServed) {
			up.fail(err)
		}
		return item, err
	}
	switch e.kind {
	case listing:
		return c.fetchListing(ctx, e, up, before, item)
	case evidence:
		item.evidence, err = artifact.ReadEvidence(ctx, up, e.desc)
		return item, err
	case content:
		item.content, err = up.whole(ctx, e.desc)
		return item, err
	}
	return c.fetchVersion(ctx, e, up, before, item)
}

func (c *Catalog) fetchListing(ctx context.Context, e *entry, up *upstream, before *state, item *Item) (*Item, error) {
	etag := ""
	if before != nil && before.err == nil {
		etag = before.item.etag
	}
	versions, etag, err := listTags(ctx, up.store, etag)
	// Where the last good answer can stand in, nothing is taken for absent: that it
	// was seen is the better evidence.
	mayBeAbsent := c.mayMeanAbsent(e.account(), err) && c.standIn(e, now()) == nil
	if mayBeAbsent {
		// The token may be of a time at which the repository was not there.
		versions, etag, err = listTags(c.opts.Anew(ctx), up.store, "")
	}
	switch {
	case errors.Is(err, errUnchanged):
		versions, etag, err = before.item.tagged, before.item.etag, nil
	case err == nil, errors.Is(err, ErrAbsent):
	case mayBeAbsent && c.deniedIsAbsent(ctx, e.account(), e.address, err):
		err = fmt.Errorf("%w: the registry denies it, as it does what is absent: %v", ErrAbsent, err)
	default:
		up.fail(err)
		return item, err
	}
	c.list(item, versions, etag)
	if err = c.offers(ctx, up, item, err); err != nil {
		return item, err
	}
	if before != nil && before.err == nil && before.item.lists(item) {
		return before.item, nil
	}
	return item, nil
}

// lists reports whether a list of versions says the same as another.
func (i *Item) lists(other *Item) bool {
	return i.etag == other.etag && slices.Equal(i.tagged, other.tagged) && slices.Equal(i.Warnings, other.Warnings) &&
		slices.EqualFunc(i.offers, other.offers, func(a, b Offer) bool {
			return a.Version == b.Version && a.Signed == b.Signed && slices.Equal(a.Protocols, b.Protocols) && slices.Equal(a.Platforms, b.Platforms)
		})
}

// list makes an item of what is tagged.
func (c *Catalog) list(item *Item, tagged []provider.Version, etag string) {
	item.tagged, item.etag, item.Versions = tagged, etag, unite(tagged, item.offers)
	denied := func(v provider.Version) bool { return c.denied(item.Address, v) }
	if slices.ContainsFunc(item.Versions, denied) {
		item.Versions = slices.DeleteFunc(slices.Clone(item.Versions), denied)
	}
}

// errUnchanged means that a list of tags is still the one with a given ETag.
var errUnchanged = errors.New("not modified")

// listTags lists the versions in a repository, oldest first, with the list's ETag;
// [ErrAbsent] if the registry says that there is none, errUnchanged if the list is
// still the one with the ETag given, unless that is "". Other errors are trouble.
func listTags(ctx context.Context, store Store, etag string) ([]provider.Version, string, error) {
	cond := &condition{ifNoneMatch: etag}
	counted := &pageCounter{TagLister: store, cond: cond}
	tags, err := artifact.ListTags(context.WithValue(ctx, conditionKey{}, cond), counted)
	var out []provider.Version
	for _, t := range tags {
		if v, ok := t.Version(); ok {
			out = append(out, v)
		}
	}
	switch {
	case etag != "" && counted.pages == 0 && cond.unchanged:
		return nil, etag, errUnchanged
	case errors.Is(err, artifact.ErrTagsBrokeOff):
		return nil, "", err // a later page that is missing is trouble, and no absence
	case noRepository(err):
		return nil, "", fmt.Errorf("%w: %v", ErrAbsent, err)
	case err != nil:
		return nil, "", err
	case len(out) == 0:
		return nil, "", ErrAbsent
	case len(out) > maxVersions:
		return nil, "", fmt.Errorf("more than %d versions", maxVersions)
	}
	provider.SortVersions(out)
	if counted.pages > 1 || counted.tags%pageUnit == 0 {
		return out, "", nil // the first page's ETag says nothing of others, now or later
	}
	return slices.Clip(out), cond.etag, nil
}

// pageUnit divides the size of every registry's pages, as of 10, 50, 100 and 1000
// tags: a list of another length is no full page, which stays as it is when a
// second one comes after it.
const pageUnit = 5

// errNoTags means that an answer is no list of tags, not even an empty one.
var errNoTags = errors.New("the registry answers the question for its tags with something else")

// pageCounter counts the pages of a list, and refuses what is none: oras-go makes
// an empty list of any JSON object.
type pageCounter struct {
	artifact.TagLister
	cond  *condition
	pages int
	tags  int
}

// Tags implements [artifact.TagLister].
func (p *pageCounter) Tags(ctx context.Context, last string, fn func([]string) error) error {
	return p.TagLister.Tags(ctx, last, func(page []string) error {
		if page == nil && !p.cond.nullTags {
			return errNoTags
		}
		p.pages++
		p.tags += len(page)
		return fn(page)
	})
}

func (c *Catalog) fetchVersion(ctx context.Context, e *entry, up *upstream, before *state, item *Item) (*Item, error) {
	if last := indexOf(before); last != "" && !before.part {
		same, err := resolvesTo(ctx, up.store, e.version, last)
		switch {
		case err != nil:
			up.fail(err)
			return item, err
		case same:
			return before.item, before.err
		}
	}
	found, err := c.readVersion(ctx, e, up, item)
	switch {
	case err != nil:
		return item, err
	case found.Index.Digest == indexOf(before), before.sameAs(found):
		return before.item, before.err
	}
	item.Found = found
	if len(found.Missing) > 0 {
		c.opts.Log.LogAttrs(ctx, slog.LevelWarn, "the registry lacks manifests that an index names: the other platforms are served",
			slog.String("provider", e.address.String()), slog.String("version", e.version.String()), slog.Any("missing", found.Missing))
	}
	if c.opts.Check != nil {
		item.Found, err = c.opts.Check(ctx, up, e.address, e.version, found)
		switch {
		case errors.Is(err, artifact.ErrMissing):
			up.fail(err)
			return item, err
		case err != nil:
			refused := &refusal{found.Index.Digest, artifact.Brief(err)}
			if len(found.Missing) > 0 {
				refused.index = "" // the platforms that are missing now may be accepted later
			}
			item.Found, err = nil, refused
		}
	}
	if c.disk != nil {
		item.parts = up.parts
	}
	return item, err
}

// readVersion reads a version, with what the store offers beyond it.
func (c *Catalog) readVersion(ctx context.Context, e *entry, up *upstream, item *Item) (*artifact.Version, error) {
	found, err := artifact.ReadAvailable(ctx, up, e.address, e.version)
	if errors.Is(err, errdef.ErrNotFound) && up.trouble == nil {
		absent := c.confirmAbsent(ctx, e, up, err)
		if !errors.Is(absent, ErrLost) {
			return c.complete(ctx, up, item, nil, absent)
		}
		// It may have been tagged between the two questions.
		up.trouble = nil
		if found, err = artifact.ReadAvailable(ctx, up, e.address, e.version); errors.Is(err, errdef.ErrNotFound) && up.trouble == nil {
			up.fail(absent)
		}
	}
	switch {
	case up.trouble != nil && e.account().DeniedMeansAbsent && saysDenied(up.trouble) && c.standIn(e, now()) == nil:
		denial := up.trouble
		up.trouble = nil
		return c.complete(ctx, up, item, nil, c.confirmAbsent(ctx, e, up, denial)) // the list decides
	case up.trouble != nil:
		return nil, up.trouble
	case errors.Is(err, artifact.ErrMissing):
		up.fail(err) // what the index names may arrive, as in a replica
		return nil, err
	case err != nil:
		return nil, err
	case len(found.Missing) > 0 && c.hasWhole(e):
		err := found.Missing[0].Err()
		up.fail(err) // likewise: the last good answer has all platforms until then
		return nil, err
	}
	return c.complete(ctx, up, item, found, nil)
}

// hasWhole reports whether an answer without missing packages can stand in.
func (c *Catalog) hasWhole(e *entry) bool {
	item := c.standIn(e, now())
	return item != nil && len(item.Found.Missing) == 0
}

// sameAs reports whether a good answer is a version's index with the same packages
// missing.
func (s *state) sameAs(found *artifact.Version) bool {
	return s != nil && s.err == nil && s.item.Found.Index.Digest == found.Index.Digest && slices.Equal(s.item.Found.Missing, found.Missing)
}

// refusal is what Check said of an index, which it says for good.
type refusal struct {
	index digest.Digest
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// indexOf returns the index that was decided about for good; "" for none. Other reasons
// to refuse a version may pass while its index stays the same, and missing manifests may
// arrive.
func indexOf(s *state) digest.Digest {
	if s == nil {
		return ""
	}
	var refused *refusal
	switch {
	case s.err == nil && len(s.item.Found.Missing) > 0:
		return ""
	case s.err == nil:
		return s.item.Found.Index.Digest
	case errors.As(s.err, &refused):
		return refused.index
	}
	return ""
}

// resolver says what a tag names. oras-go's remote.Repository is one.
type resolver interface {
	Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error)
}

// resolvesTo asks whether a version's tag still names an index. Not all registries
// answer HEAD well, so that it is for GET to say what else there is: an error is
// that of a registry that does not answer at all.
func resolvesTo(ctx context.Context, store Store, v provider.Version, index digest.Digest) (bool, error) {
	r, ok := store.(resolver)
	if !ok {
		return false, nil
	}
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return false, nil
	}
	desc, err := r.Resolve(ctx, string(tag))
	var answer *errcode.ErrorResponse
	if err != nil && (ctx.Err() != nil || isNetwork(err) && !errors.As(err, &answer)) {
		return false, err
	}
	return err == nil && desc.Digest == index, nil
}

// confirmAbsent returns [ErrAbsent] if the list of tags, too, says that the registry
// does not have a version, or fails up. oras-go drops the body of a 404 to a manifest, which
// alone tells a registry's from that of a proxy before it; and a version that
// index.json lists must not pass for absent.
func (c *Catalog) confirmAbsent(ctx context.Context, e *entry, up *upstream, missing error) error {
	list := c.entry(listingKey(e.address), func() *entry { return &entry{kind: listing, address: e.address} })
	if s := list.state.Load(); s != nil && c.fresh(s, now()) && !isTagged(s, e.version) {
		return fmt.Errorf("%w: %v", ErrAbsent, missing)
	}
	f := c.ask(ctx, list)
	select {
	case <-f.done:
	case <-ctx.Done():
		up.fail(ctx.Err())
		return ctx.Err()
	}
	switch {
	case f.lost:
		up.fail(f.err)
	case isTagged(&state{item: f.item, err: f.err}, e.version):
		up.fail(fmt.Errorf("%w: %v", ErrLost, missing))
	case errors.Is(f.err, ErrNotServed):
		return f.err
	default:
		return fmt.Errorf("%w: %v", ErrAbsent, missing)
	}
	return up.trouble
}

// listedSince reports whether a version that was absent is in the list of tags that
// is known now: no two answers of one time must tell clients both.
func (c *Catalog) listedSince(e *entry, s *state) bool {
	if e.kind != version || !errors.Is(s.err, ErrAbsent) {
		return false
	}
	list := c.cache.get(listingKey(e.address))
	if list == nil {
		return false
	}
	known := list.state.Load()
	return known != nil && has(known, e.version)
}

// has reports whether a list of versions has one.
func has(s *state, v provider.Version) bool {
	return s.err == nil && slices.Contains(s.item.Versions, v)
}

// isTagged reports whether the registry has a version by a list.
func isTagged(s *state, v provider.Version) bool {
	return s.err == nil && slices.Contains(s.item.tagged, v)
}
