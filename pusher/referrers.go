package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/panics"
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
	listed      atomic.Int64 // entries of the source's lists
	undescribed atomic.Int64 // entries that describe no manifest
}

// copyReferrers copies the referrers of the given manifests and, in turn, the referrers of these referrers.
// total is the number of referrers that the destination then has. sent is the number of referrers that this
// copy sent.
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
	defer func() {
		if n := c.undescribed.Load(); n > 0 {
			c.warn("%s lists %d referrers without a digest, or with a type of more than %d bytes: they are not copied", c.from.Repository, n, repo.MaxReferrerType)
		}
	}()
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

// attachedTags returns the tags of a repository that contain the digest of a subject. It lists them once for all
// versions.
func (p *Pusher) attachedTags(ctx context.Context, from Stored) ([]ociaddr.Tag, error) {
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

// subjects returns the version's manifests that are in the source and in the destination.
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
	if found.Docs != nil && after.Docs != nil {
		add(*after.Docs, *found.Docs)
	}
	return out
}

// list returns the referrers that the source lists for each subject.
func (c *referrersCopy) list(ctx context.Context, subjects []repo.Subject) ([][]ocispec.Descriptor, error) {
	out := make([][]ocispec.Descriptor, len(subjects))
	g, ctx := panics.WithContext(ctx)
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

// listOf returns the referrers of a manifest in a store. It counts the entries, and skips those that describe no
// manifest. It returns the same errors as [repo.ListReferrers].
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

// warnReferrer adds a warning about a referrer. The last warning only says that more referrers are not
// copied.
func (c *referrersCopy) warnReferrer(format string, args ...any) {
	c.warned++
	switch {
	case c.warned == maxReferrerWarnings:
		c.warn("more referrers of %s are not copied", c.from.Repository)
	case c.warned < maxReferrerWarnings:
		c.warn(format, args...)
	}
}

// copyList copies the listed referrers of one subject.
func (c *referrersCopy) copyList(ctx context.Context, s repo.Subject, list []ocispec.Descriptor) error {
	var there map[digest.Digest]bool
	for _, desc := range list {
		if c.seen[desc.Digest] {
			continue
		}
		c.seen[desc.Digest] = true
		var err error
		if there == nil {
			if there, err = c.destinationReferrers(ctx, s.Desc); err != nil {
				return err
			}
		}
		ok := there[desc.Digest]
		if !ok {
			ok, err = c.copyReferrer(ctx, s, desc)
		}
		if err == nil && ok {
			err = c.enqueue(s, desc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueue counts a referrer that the destination has. It queues the referrer for the next round, because it may have
// referrers, too.
func (c *referrersCopy) enqueue(s repo.Subject, desc ocispec.Descriptor) error {
	c.total++
	switch {
	case c.total > repo.MaxReferrers:
		return c.tooMuch("more than %d referrers", repo.MaxReferrers)
	case s.Depth+1 > repo.MaxReferrerDepth:
		return c.tooMuch("referrers of referrers, more than %d deep", repo.MaxReferrerDepth)
	}
	c.next = append(c.next, repo.Subject{Desc: repo.Plain(desc), Depth: s.Depth + 1})
	return nil
}

// destinationReferrers returns the digests of the referrers that the destination lists.
func (c *referrersCopy) destinationReferrers(ctx context.Context, s ocispec.Descriptor) (map[digest.Digest]bool, error) {
	list, err := c.listOf(ctx, c.Dest.Store, s, new(atomic.Int64), new(atomic.Int64))
	if err != nil && !errors.Is(err, repo.ErrListRefused) {
		return nil, c.Failed("list referrers in", err)
	}
	out := map[digest.Digest]bool{}
	for _, desc := range list {
		out[desc.Digest] = true
	}
	return out, nil
}

// copyReferrer copies one referrer, and reports whether the destination has it. It skips a manifest that has
// another subject, is missing or damaged, or is refused by the destination.
func (c *referrersCopy) copyReferrer(ctx context.Context, s repo.Subject, desc ocispec.Descriptor) (bool, error) {
	if !artifact.IsManifest(desc.MediaType) {
		c.warnReferrer("the referrer %s has the media type %.80q, and is not copied", desc.Digest, desc.MediaType)
		return false, nil
	}
	desc, data, of, err := c.read(ctx, desc)
	if err == nil && (of == nil || of.Digest != s.Desc.Digest) {
		c.warnReferrer("%s is listed as a referrer of %s, but does not name it as its subject, and is not copied", desc.Digest, s.Desc.Digest)
		return false, nil
	}
	if err == nil {
		err = c.storeParts(ctx, desc, data)
	}
	if err == nil {
		// If the registry lacks the referrers API, the store also lists the manifest under
		// its subject's fallback tag.
		if err = c.Put(ctx, artifact.Blob{Descriptor: repo.Plain(desc), Data: data}, ""); err != nil {
			err = c.Failed("push a referrer to", err)
		}
	}
	return c.isCopied(desc, err)
}

// read reads a manifest of the source. of is the manifest's subject, or nil if it has none. If the list gives the manifest a wrong size or
// type, the digest alone counts, and read returns the right descriptor: anybody who can push can write such a list, and must not
// keep versions from being copied.
func (c *referrersCopy) read(ctx context.Context, listed ocispec.Descriptor) (desc ocispec.Descriptor, data []byte, of *ocispec.Descriptor, err error) {
	desc = listed
	if _, err := c.admit(desc); err != nil {
		return desc, nil, nil, err
	}
	data, err = c.fetch(ctx, desc)
	if err != nil && !errors.As(err, new(*errcode.ErrorResponse)) && ctx.Err() == nil {
		found, again := artifact.Resolve(ctx, c.from.Store, string(listed.Digest))
		if again == nil && found.Digest == listed.Digest && (found.Size != listed.Size || found.MediaType != listed.MediaType) {
			if desc = found; !artifact.IsManifest(desc.MediaType) {
				return desc, nil, nil, fmt.Errorf("%w: %s has the media type %.80q", artifact.ErrDamaged, desc.Digest, desc.MediaType)
			}
			data, err = c.fetch(ctx, desc)
		}
	}
	if err != nil {
		return desc, nil, nil, err
	}
	var m manifestParts
	err = artifact.Unmarshal(data, &m)
	return desc, data, m.Subject, err
}

// isCopied reports whether a manifest was copied. err is the error of the copy. It warns if err concerns
// only this manifest, and returns any other error.
func (c *referrersCopy) isCopied(desc ocispec.Descriptor, err error) (bool, error) {
	switch {
	case err == nil:
		c.sent++
		return true, nil
	case c.IsRefusal(err):
		c.warnReferrer("%s refuses the referrer %s: %v", c.Dest.Repository.Registry, desc.Digest, err)
	case repo.IsUnusable(err):
		c.warnReferrer("the referrer %s cannot be read in %s, and is not copied: %v", desc.Digest, c.from.Repository, err)
	default:
		return false, err
	}
	return false, nil
}

// copyTags copies the manifests that cosign attaches to a subject under tags with the subject's digest.
func (c *referrersCopy) copyTags(ctx context.Context, s repo.Subject) error {
	for _, tag := range ociaddr.CosignTags(s.Desc.Digest) {
		if !slices.Contains(c.tags, tag) {
			continue
		}
		desc, err := artifact.Resolve(ctx, c.from.Store, string(tag))
		if repo.IsUnusable(err) {
			continue // the tag was deleted since the tags were listed
		}
		if err != nil {
			return c.from.failed(c.version, err)
		}
		if !artifact.IsManifest(desc.MediaType) {
			c.warnReferrer("the tag %s names the media type %.80q, and is not copied", tag, desc.MediaType)
			continue
		}
		ok, err := c.copyTag(ctx, s, tag, desc)
		if err == nil && ok && !c.seen[desc.Digest] {
			c.seen[desc.Digest] = true
			err = c.enqueue(s, desc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyTag copies the manifest under one of a subject's cosign tags, and reports whether the destination has it. It
// skips a manifest that has another subject, or does not supersede the manifest under the destination's tag.
func (c *referrersCopy) copyTag(ctx context.Context, s repo.Subject, tag ociaddr.Tag, desc ocispec.Descriptor) (bool, error) {
	there, err := artifact.Resolve(ctx, c.Dest.Store, string(tag))
	switch {
	case err == nil && there.Digest == desc.Digest:
		return true, nil
	case err != nil && !repo.IsNotFound(err):
		return false, c.Failed("read "+string(tag)+" in", err)
	}
	replaces := err == nil
	desc, data, of, err := c.read(ctx, desc)
	if err == nil && of != nil && of.Digest != s.Desc.Digest {
		c.warnReferrer("the tag %s names %s, which has another subject, and is not copied", tag, desc.Digest)
		return false, nil
	}
	if err == nil && replaces {
		other, err := artifact.FetchManifest(ctx, c.Dest.Store, there)
		if err != nil || !supersedes(data, other) {
			c.warnReferrer("%s:%s names something else than in %s, and is left as it is", c.Dest.Repository, tag, c.from.Repository)
			return false, nil
		}
	}
	if err == nil {
		err = c.storeParts(ctx, desc, data)
	}
	if err == nil {
		err = c.SendTag(ctx, "tag "+string(tag)+" in", artifact.Blob{Descriptor: repo.Plain(desc), Data: data}, string(tag), helpImmutable)
	}
	return c.isCopied(desc, err)
}
