package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// maxVersions is the maximum number of versions of a provider or module.
const maxVersions = 100_000

// ask implements [fresh.Options].Fetch. It asks the registry, or the union of the registry
// and the origin. An error means that the registry or the origin failed, and did not answer.
func (c *Catalog) ask(ctx context.Context, q question, last *answer) (answer, error) {
	if q.union && (q.kind == listing || q.kind == version) {
		return c.join(ctx, q, last)
	}
	ctx, end := q.span(ctx)
	up := &upstream{c: c, question: q, last: last, before: last}
	if c.disk != nil && !c.isSaved(last) {
		up.before = nil // all content is fetched again, and then saved
	}
	item, err := c.fetch(ctx, up)
	if up.failure != nil {
		end(up.failure)
		return answer{}, up.failure
	}
	err = shorten(err)
	end(err)
	if !errors.Is(err, ErrNotServed) {
		c.watch.answered(q.account().Name, q.subject, err == nil, q.kind == listing && err != nil)
	}
	a := c.newAnswer(item, err)
	if c.disk != nil && !q.union {
		a.Save = func(latest *answer) { c.save(up, item, err, latest) }
	} else if c.disk == nil && item.Found != nil {
		c.cacheContent(up, item.Found.Index.Digest)
	}
	return a, nil
}

// fetch asks the registry. It records a failure of the registry in up. Any other error is part of the
// answer: [ErrAbsent], [ErrNotServed], or the reason why the version is refused. fetch always returns an
// item. If nothing has changed, it is the item of the last answer.
func (c *Catalog) fetch(ctx context.Context, up *upstream) (*Item, error) {
	item := newItem(up.question)
	var err error
	if up.store, err = c.opts.Repository(ctx, up.subject); err != nil {
		if !errors.Is(err, ErrNotServed) {
			up.fail(err)
		}
		return item, err
	}
	switch up.kind {
	case listing:
		return c.fetchListing(ctx, up, item)
	case evidence:
		item.evidence, err = artifact.ReadEvidence(ctx, up, up.desc)
		return item, err
	case content:
		item.content, err = up.whole(ctx, up.desc)
		return item, err
	case summary:
		return c.fetchSummary(ctx, up, item)
	case approvals:
		return c.fetchApproval(ctx, up, item)
	}
	return c.fetchVersion(ctx, up, item)
}

func (c *Catalog) fetchListing(ctx context.Context, up *upstream, item *Item) (*Item, error) {
	before, account := up.before, up.account()
	etag := ""
	if before != nil && before.Err == nil {
		etag = before.Value.tags.etag
	}
	tags, err := listTags(ctx, up.store, up.subject, etag)
	// A stale answer shows that the repository existed, so that a denial does not mean its absence.
	mayBeAbsent := c.mayMeanAbsent(account, err) && up.last.Stale(time.Now()) == nil
	if mayBeAbsent {
		// The token may have been issued before the repository was created.
		tags, err = listTags(c.opts.FreshToken(ctx), up.store, up.subject, "")
	}
	switch {
	case errors.Is(err, errUnchanged):
		tags, err = before.Value.tags, nil
	case err == nil, errors.Is(err, ErrAbsent):
	case mayBeAbsent && c.deniedIsAbsent(ctx, account, up.subject, err):
		err = fmt.Errorf("%w: the registry denies it, as it does what is absent: %v", ErrAbsent, err)
	default:
		return item, up.fail(err)
	}
	var omitted []withheld
	if err == nil {
		omitted, _ = c.judge(ctx, up, tags)
		item.added = up.added(tags)
	}
	if c.list(item, tags, omitted); err != nil {
		return item, err
	}
	if before != nil && before.Err == nil && before.Value.lists(item) {
		return before.Value, nil
	}
	return item, nil
}

// added returns when the registry's list of versions last gained a version, as far as the catalog has seen: now, if the previous
// answer lacks one of the versions in tags. A first answer has nothing to be compared with.
func (up *upstream) added(tags tagList) time.Time {
	last := up.last
	switch {
	case last == nil || last.Err != nil && !errors.Is(last.Err, ErrAbsent):
		return time.Time{}
	case gains(last.Value.tags.versions, tags.versions):
		return time.Now().Round(0) // later, the clock on the wall decides whether this is in the future
	}
	return last.Value.added
}

// gains reports whether the sorted list after has a version that the sorted list before lacks.
func gains(before, after []provider.Version) bool {
	n := 0
	for _, v := range after {
		for n < len(before) && before[n].Compare(v) < 0 {
			n++
		}
		if n == len(before) || before[n] != v {
			return true
		}
	}
	return false
}

// lists reports whether two lists of versions are equal.
func (i *Item) lists(other *Item) bool {
	return i.tags.etag == other.tags.etag && slices.Equal(i.tags.versions, other.tags.versions) && slices.Equal(i.tags.leadingV, other.tags.leadingV) &&
		slices.Equal(i.Warnings, other.Warnings) && slices.Equal(i.withheld, other.withheld) &&
		slices.EqualFunc(i.offers, other.offers, func(a, b Offer) bool {
			return a.Version == b.Version && a.Signed == b.Signed && slices.Equal(a.Protocols, b.Protocols) && slices.Equal(a.Platforms, b.Platforms)
		})
}

// list sets the tags of an item, and the versions that it lists for clients. It leaves out the denied versions, and those that
// are withheld.
func (c *Catalog) list(item *Item, tags tagList, omitted []withheld) {
	item.tags, item.withheld, item.Versions = tags, omitted, merge(tags.versions, item.offers)
	denied := func(v provider.Version) bool {
		_, omit := slices.BinarySearchFunc(omitted, v, func(w withheld, v provider.Version) int { return w.version.Compare(v) })
		return omit || c.Denied(item.about.subject, v) != nil
	}
	if slices.ContainsFunc(item.Versions, denied) {
		item.Versions = slices.DeleteFunc(slices.Clone(item.Versions), denied)
	}
}

// errUnchanged means that a list of tags still has the given ETag.
var errUnchanged = errors.New("not modified")

// listTags returns the versions in a repository, and the list's ETag. The error wraps [ErrAbsent] if the
// registry has no versions. If etag is not "", and the list still has that ETag, the error is
// errUnchanged. Any other error means that the registry failed.
func listTags(ctx context.Context, store Store, of subject.Address, etag string) (tagList, error) {
	cond := &condition{ifNoneMatch: etag}
	counted := &pageCounter{TagLister: store, cond: cond}
	tags, err := artifact.ListTags(context.WithValue(ctx, conditionKey{}, cond), counted)
	out := versionsIn(tags, of)
	switch {
	case etag != "" && counted.pages == 0 && cond.unchanged:
		return tagList{}, errUnchanged
	case errors.Is(err, artifact.ErrTagsBrokeOff):
		return tagList{}, err // a missing later page is a failure, and does not mean absence
	case noRepository(err):
		return tagList{}, fmt.Errorf("%w: %v", ErrAbsent, err)
	case err != nil:
		return tagList{}, err
	case len(out.versions) == 0:
		return tagList{}, ErrAbsent
	case len(out.versions) > maxVersions:
		return tagList{}, fmt.Errorf("more than %d versions", maxVersions)
	}
	provider.SortVersions(out.versions)
	provider.SortVersions(out.leadingV)
	if counted.pages > 1 || counted.tags%pageUnit == 0 {
		return out, nil // the ETag covers the first page only
	}
	out.versions, out.etag = slices.Clip(out.versions), cond.etag
	return out, nil
}

// pageUnit is a common divisor of all registries' page sizes, such as 10, 50, 100 and 1000 tags. A list
// whose length is a multiple of it may fill its last page. The ETag of a full page does not show whether
// that page is still the last one.
const pageUnit = 5

// errNoTags means that a response contains no list of tags, not even an empty list.
var errNoTags = errors.New("the registry answers the question for its tags with something else")

// pageCounter counts the pages and tags of a list. It returns an error for a response that is
// not a list, because oras-go parses any JSON object as an empty list.
type pageCounter struct {
	artifact.TagLister
	cond  *condition
	pages int
	tags  int
}

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

func (c *Catalog) fetchVersion(ctx context.Context, up *upstream, item *Item) (*Item, error) {
	before := up.before
	tag, err := c.currentTag(ctx, up)
	if err != nil {
		return item, up.fail(err)
	}
	if last := indexOf(before); last != "" && (!subject.TraitsOf(up.subject).LeadingV || tag == tagOf(before)) {
		same, err := resolvesTo(ctx, up.store, tag, last)
		switch {
		case err != nil:
			return item, up.fail(err)
		case same:
			return before.Value, before.Err
		}
	}
	found, err := c.readVersion(ctx, up, tag)
	switch {
	case err != nil:
		return item, err
	case found.Tag != tagOf(before): // another tag names it
	case found.Index.Digest == indexOf(before), isSame(before, found):
		return before.Value, before.Err
	}
	item.Found, item.read = found, found
	c.nameApproval(item)
	if len(found.Missing) > 0 {
		c.opts.Log.LogAttrs(ctx, slog.LevelWarn, "the registry lacks manifests that an index names: the other platforms are served",
			slog.String("provider", up.provider().String()), slog.String("version", up.version.String()), slog.Any("missing", found.Missing))
	}
	if err = c.check(ctx, up, item); err == nil || up.failure == nil {
		item.parts = up.parts
	}
	return item, err
}

// check calls [Options].Check to decide about a version.
func (c *Catalog) check(ctx context.Context, up *upstream, item *Item) error {
	if c.opts.Check == nil || !subject.TraitsOf(up.subject).Packages {
		return nil
	}
	found := item.read
	checked, err := c.opts.Check(ctx, up, up.provider(), up.version, found)
	item.Found = checked
	switch {
	case errors.Is(err, artifact.ErrMissing):
		return up.fail(err)
	case err != nil:
		refused := &refusal{found.Index.Digest, artifact.Brief(err)}
		if len(found.Missing) > 0 {
			refused.index = "" // the missing platforms may be accepted later
		}
		item.Found = nil
		return refused
	}
	return nil
}

// readVersion reads a version from the registry. If the registry fails, readVersion records the failure
// in up, and returns it. Any other error is part of the answer.
func (c *Catalog) readVersion(ctx context.Context, up *upstream, tag ociaddr.Tag) (*artifact.Version, error) {
	found, err := artifact.ReadTagged(ctx, up, up.subject, up.version, tag)
	if errors.Is(err, errdef.ErrNotFound) && up.failure == nil {
		absent := c.confirmAbsent(ctx, up, err)
		if !errors.Is(absent, ErrLost) {
			return nil, absent
		}
		// The version may have been tagged between the request for its tag and the request
		// for the list, or the list may name another tag of a module's version.
		up.failure = nil
		if found, err = artifact.ReadTagged(ctx, up, up.subject, up.version, c.tag(up.question)); errors.Is(err, errdef.ErrNotFound) && up.failure == nil {
			up.fail(absent)
		}
	}
	stale := up.last.Stale(time.Now())
	switch {
	case up.failure != nil && up.account().DeniedMeansAbsent && saysDenied(up.failure) && stale == nil:
		denial := up.failure
		up.failure = nil
		return nil, c.confirmAbsent(ctx, up, denial) // the list of tags decides whether the version is absent
	case up.failure != nil:
		return nil, up.failure
	case errors.Is(err, artifact.ErrMissing):
		return nil, up.fail(err) // the missing manifests may still arrive, for example in a replica
	case err != nil:
		return nil, err
	case len(found.Missing) > 0 && stale != nil && len(stale.Value.Found.Missing) == 0:
		return nil, up.fail(found.Missing[0].Err()) // until they arrive, the stale answer, which has all platforms, is served
	}
	return found, nil
}

// isSame reports whether the last answer has the index of found, and lacks the same packages.
func isSame(a *answer, found *artifact.Version) bool {
	return a != nil && a.Err == nil && a.Value.Found.Index.Digest == found.Index.Digest && slices.Equal(a.Value.Found.Missing, found.Missing)
}

// refusal is the error of a version that [Options].Check has refused.
type refusal struct {
	index digest.Digest // the refused index, or "" if the decision may change
	error
}

func (r *refusal) Unwrap() error { return r.error }

// indexOf returns the digest of an answer's index if the decision about it is final, or else "". The
// decision is not final if the version may be accepted later, or if missing manifests may still arrive.
func indexOf(a *answer) digest.Digest {
	switch {
	case a == nil, a.Err == nil && len(a.Value.Found.Missing) > 0:
		return ""
	case a.Err == nil:
		return a.Value.Found.Index.Digest
	}
	if refused, ok := errors.AsType[*refusal](a.Err); ok {
		return refused.index
	}
	return ""
}

// resolvesTo sends a HEAD request to find out whether a tag still names the given manifest. It
// returns an error only if the registry does not respond. Some registries respond to HEAD requests
// incorrectly, so any other failure counts as a different manifest, and the caller's GET decides.
func resolvesTo(ctx context.Context, store Store, tag ociaddr.Tag, manifest digest.Digest) (bool, error) {
	desc, err := store.Resolve(ctx, string(tag))
	if err != nil && (ctx.Err() != nil || isNetwork(err) && !errors.As(err, new(*errcode.ErrorResponse))) {
		return false, err
	}
	return err == nil && desc.Digest == manifest, nil
}

// confirmAbsent returns [ErrAbsent] if the list of tags also lacks the version. Otherwise it
// records a failure in up. A 404 for the manifest does not prove that the version is absent: it may
// come from a proxy, whose body oras-go drops. Besides, a listed version must not be reported as absent.
func (c *Catalog) confirmAbsent(ctx context.Context, up *upstream, missing error) error {
	list := c.cache.Last(c.Registry().question(listing, up.subject))
	if !list.Current(time.Now()) || isTagged(list, up.version) {
		var err error
		if list, err = c.cache.Ask(ctx, c.Registry().question(listing, up.subject)); err != nil {
			up.fail(err)
			return up.failure
		}
	}
	switch {
	case isTagged(list, up.version):
		up.fail(fmt.Errorf("%w: %v", ErrLost, missing))
		return up.failure
	case errors.Is(list.Err, ErrNotServed):
		return list.Err
	}
	return fmt.Errorf("%w: %v", ErrAbsent, missing)
}

// isListedSince implements [fresh.Options].Superseded. It reports whether an answer says that a
// version is absent, although the cached list now has it. The list takes precedence, so that clients
// do not get contradictory answers.
func (c *Catalog) isListedSince(q question, a *answer) bool {
	if q.kind != version || !errors.Is(a.Err, ErrAbsent) {
		return false
	}
	list := c.cache.Last(View{c, q.union}.question(listing, q.subject))
	return list != nil && list.Err == nil && slices.Contains(list.Value.Versions, q.version)
}

// isTagged reports whether a list of tags contains the tag of a version.
func isTagged(list *answer, v provider.Version) bool {
	return list.Err == nil && slices.Contains(list.Value.tags.versions, v)
}
