package pusher

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

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

// enqueue counts a referrer that the destination has. It also queues the referrer, so that
// the next round copies the referrer's own referrers.
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

// destinationReferrers returns the digests of the referrers that the destination lists for a
// subject.
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

// copyReferrer copies one referrer, and reports whether the destination has it. It skips a
// manifest that names another subject, that is missing or damaged, or that the destination
// refuses.
func (c *referrersCopy) copyReferrer(ctx context.Context, s repo.Subject, desc ocispec.Descriptor) (bool, error) {
	if !artifact.IsManifest(desc.MediaType) {
		c.warnReferrer("the referrer %s has the media type %.80q, and is not copied", desc.Digest, desc.MediaType)
		return false, nil
	}
	data, of, err := c.read(ctx, desc)
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

// read returns a manifest of the source, and the subject that the manifest names. of is nil
// if the manifest names no subject.
func (c *referrersCopy) read(ctx context.Context, desc ocispec.Descriptor) (data []byte, of *ocispec.Descriptor, err error) {
	if _, err := c.admit(desc); err != nil {
		return nil, nil, err
	}
	if data, err = c.fetch(ctx, desc); err != nil {
		return nil, nil, err
	}
	var m manifestParts
	err = artifact.Unmarshal(data, &m)
	return data, m.Subject, err
}

// isCopied reports whether a manifest was copied. err is the error of copying the manifest.
// If err concerns only this manifest, isCopied warns. It returns any other error.
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

// copyTags copies the manifests that cosign attaches to a subject under tags derived from
// the subject's digest.
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

// copyTag copies the manifest that one of a subject's cosign tags names, and reports whether
// the destination has it. It skips a manifest that names another subject, or that does not
// supersede the manifest under the destination's tag.
func (c *referrersCopy) copyTag(ctx context.Context, s repo.Subject, tag ociaddr.Tag, desc ocispec.Descriptor) (bool, error) {
	there, err := artifact.Resolve(ctx, c.Dest.Store, string(tag))
	switch {
	case err == nil && there.Digest == desc.Digest:
		return true, nil
	case err != nil && !repo.IsNotFound(err):
		return false, c.Failed("read "+string(tag)+" in", err)
	}
	replaces := err == nil
	data, of, err := c.read(ctx, desc)
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
