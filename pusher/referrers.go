package pusher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const (
	// referrerLists is the maximum number of lists of referrers that are read concurrently.
	referrerLists = 8
	// maxReferrerWarnings is the maximum number of warnings about one version's referrers.
	maxReferrerWarnings = 20
)

// referrersCopy copies the referrers of a version.
type referrersCopy struct {
	*carrier
	warn        func(format string, args ...any)
	tags        []ociaddr.Tag // the source's tags that contain the digest of a subject
	seen        map[digest.Digest]bool
	next        []repo.Subject
	total       int // referrers that the destination has
	sent        int // number of referrers that were sent
	warned      int
	listRefused sync.Once    // for the warning that the source refuses to list referrers
	listed      atomic.Int64 // number of entries in the source's lists
	undescribed atomic.Int64 // number of entries that describe no manifest
}

// copyReferrers copies the referrers of the given manifests, and their own referrers. total
// is the number of referrers that the destination has afterwards, and sent is the
// number of referrers that this copy sent.
func (c *carrier) copyReferrers(ctx context.Context, of []ocispec.Descriptor, warn func(format string, args ...any)) (total, sent int, err error) {
	r := &referrersCopy{carrier: c, warn: warn, seen: map[digest.Digest]bool{}}
	for _, desc := range of {
		if !r.seen[desc.Digest] {
			r.seen[desc.Digest] = true
			r.next = append(r.next, repo.Subject{Desc: repo.Plain(desc)})
		}
	}
	return r.run(ctx)
}

func (c *referrersCopy) run(ctx context.Context) (total, sent int, err error) {
	if c.tags, err = c.attachedTags(ctx, c.from); err != nil {
		return 0, 0, err
	}
	defer c.warnUndescribed()
	for len(c.next) > 0 {
		round := c.next
		c.next = nil
		lists, err := c.list(ctx, round) // concurrently, because most lists are empty
		if err != nil {
			return 0, 0, err
		}
		for i, s := range round {
			if err := c.copyList(ctx, s, lists[i]); err != nil {
				return 0, 0, err
			}
			if err := c.copyTags(ctx, s); err != nil {
				return 0, 0, err
			}
		}
	}
	return c.total, c.sent, nil
}

// attachedTags returns those tags of a repository that contain the digest of a subject. It
// lists the tags once for all versions. If that fails, the next version lists them again.
func (p *Pusher) attachedTags(ctx context.Context, from source) ([]ociaddr.Tag, error) {
	list, _ := p.attached.LoadOrStore(from.Repository, sync.OnceValues(func() ([]ociaddr.Tag, error) {
		tags, err := artifact.ListAnyTags(ctx, from.Store)
		if err != nil {
			p.attached.Delete(from.Repository) // the next version lists them again
			return nil, &repo.RegistryError{Op: "list tags of", Repository: from.Repository, Err: err}
		}
		return slices.DeleteFunc(tags, func(t ociaddr.Tag) bool { _, ok := t.Subject(); return !ok }), nil
	}))
	return list.(func() ([]ociaddr.Tag, error))()
}

// subjects returns those manifests of the version that are the same in the source and in the
// destination.
func (w *push) subjects(after *artifact.Version) []ocispec.Descriptor {
	found := w.original.version
	var out []ocispec.Descriptor
	add := func(there, here ocispec.Descriptor) {
		if there.Digest == here.Digest {
			out = append(out, here)
		}
	}
	add(after.Index, found.Index)
	for _, p := range found.Packages {
		if q := repo.Find(after.Packages, p.Platform); q != nil {
			add(q.Manifest, p.Manifest)
		}
	}
	if found.Evidence != nil && after.Evidence != nil {
		add(*after.Evidence, *found.Evidence)
	}
	return out
}

// list returns the referrers that the source lists for each subject.
func (c *referrersCopy) list(ctx context.Context, subjects []repo.Subject) ([][]ocispec.Descriptor, error) {
	out := make([][]ocispec.Descriptor, len(subjects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(referrerLists)
	for i, s := range subjects {
		g.Go(func() error {
			var err error
			out[i], err = c.listOf(ctx, c.from.Store, s.Desc, &c.listed, &c.undescribed)
			switch {
			case errors.Is(err, repo.ErrTooMuchAttached):
				return err
			case errors.Is(err, repo.ErrListRefused):
				c.listRefused.Do(func() {
					c.warnReferrer("%s %v: those that no fallback tag lists are not copied", c.from.Repository, err)
				})
			case err != nil:
				return &repo.RegistryError{Op: "list referrers in", Repository: c.from.Repository, Err: err}
			}
			return nil
		})
	}
	return out, g.Wait()
}

// listOf returns the referrers of a manifest in a store. It counts the entries, and skips
// entries that describe no manifest. The error wraps ErrListRefused if the registry refuses
// the API and has no list under the fallback tag.
func (c *referrersCopy) listOf(ctx context.Context, store repo.Reader, s ocispec.Descriptor, listed, undescribed *atomic.Int64) ([]ocispec.Descriptor, error) {
	var out []ocispec.Descriptor
	add := func(page []ocispec.Descriptor) error {
		if listed.Add(int64(len(page))) > repo.MaxReferrers {
			return c.tooMuch("lists of more than %d referrers", repo.MaxReferrers)
		}
		for _, desc := range page {
			if desc.Digest.Validate() != nil || max(len(desc.MediaType), len(desc.ArtifactType)) > repo.MaxReferrerType {
				undescribed.Add(1)
				continue
			}
			// Without clones, the strings would keep the whole page in memory.
			out = append(out, ocispec.Descriptor{
				MediaType: strings.Clone(desc.MediaType), Digest: digest.Digest(strings.Clone(string(desc.Digest))), Size: desc.Size,
			})
		}
		return nil
	}
	err := repo.ListReferrers(ctx, store, s, add)
	return out, err
}

// warnReferrer adds a warning about a referrer. The last of maxReferrerWarnings warnings only
// says that more referrers are not copied.
func (c *referrersCopy) warnReferrer(format string, args ...any) {
	c.warned++
	switch {
	case c.warned == maxReferrerWarnings:
		c.warn("more referrers of %s are not copied", c.from.Repository)
	case c.warned < maxReferrerWarnings:
		c.warn(format, args...)
	}
}

// warnUndescribed warns of list entries that describe no manifest.
func (c *referrersCopy) warnUndescribed() {
	if n := c.undescribed.Load(); n > 0 {
		c.warn("%s lists %d referrers without a digest, or with a type of more than %d bytes: they are not copied", c.from.Repository, n, repo.MaxReferrerType)
	}
}
