package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// errListRefused means that the registry refuses the referrers API, and has no list of
// referrers under the fallback tag.
var errListRefused = errors.New("refuses to list referrers")

// ReferrerLister lists the referrers of a manifest. It calls fn with each page of the list.
// It uses the referrers API, or the subject's fallback tag.
type ReferrerLister interface {
	Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, fn func(referrers []ocispec.Descriptor) error) error
}

// listReferrers lists the referrers of a manifest. It calls add with each page of the list.
// If the registry refuses the referrers API, listReferrers reads the list under the fallback
// tag itself, because oras-go reads that tag only if the API returns 404. If the fallback tag
// names no such list, the error wraps errListRefused and the API's refusal.
//
// It leaves out the manifests that the subject itself names. Some tools give an index the
// fallback tag as its own name, as "cosign copy" of cosign 3 does. Such an index is then read
// as the list of its own referrers.
func listReferrers(ctx context.Context, store StoredStore, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) error {
	var named map[digest.Digest]bool
	return listAll(ctx, store, s, func(page []ocispec.Descriptor) (err error) {
		if named == nil && len(page) > 0 {
			if named, err = namedBy(ctx, store, s); err != nil {
				return err
			}
		}
		return add(slices.DeleteFunc(page, func(desc ocispec.Descriptor) bool { return named[desc.Digest] }))
	})
}

// namedBy returns the digests of the manifests that an index names. The result is empty, and
// not nil, if the manifest is no index or is gone.
func namedBy(ctx context.Context, store StoredStore, s ocispec.Descriptor) (map[digest.Digest]bool, error) {
	out := map[digest.Digest]bool{}
	if s.MediaType != ocispec.MediaTypeImageIndex {
		return out, nil
	}
	list, err := readIndex(ctx, store, s)
	if err != nil && !isUnusable(err) {
		return nil, err
	}
	for _, desc := range list {
		out[desc.Digest] = true
	}
	return out, nil
}

// readIndex returns the manifests that an index names.
func readIndex(ctx context.Context, store StoredStore, s ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	data, err := artifact.FetchManifest(ctx, store, s)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	err = artifact.Unmarshal(data, &index)
	return index.Manifests, err
}

// listAll implements [listReferrers]. Its list can contain manifests that the subject names.
func listAll(ctx context.Context, store StoredStore, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) error {
	refusal := store.Referrers(ctx, s, "", add)
	switch {
	case isNotFound(refusal):
		return nil
	case !refusesReferrers(refusal):
		return refusal
	}
	desc, err := artifact.Resolve(ctx, store, string(ociaddr.ReferrersTag(s.Digest)))
	switch {
	case isNotFound(err), refusesContent(err), err == nil && desc.MediaType != ocispec.MediaTypeImageIndex:
		return fmt.Errorf("%w (%w)", errListRefused, refusal)
	case err != nil:
		return err
	}
	list, err := readIndex(ctx, store, desc)
	if err != nil {
		return err
	}
	return add(list)
}

// copyList copies the listed referrers of one subject.
func (c *referrersCopy) copyList(ctx context.Context, s subject, list []ocispec.Descriptor) error {
	var there map[digest.Digest]bool
	for _, desc := range list {
		if c.seen[desc.Digest] {
			continue
		}
		c.seen[desc.Digest] = true
		var err error
		if there == nil {
			if there, err = c.destinationReferrers(ctx, s.desc); err != nil {
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
func (c *referrersCopy) enqueue(s subject, desc ocispec.Descriptor) error {
	c.total++
	switch {
	case c.total > maxReferrers:
		return c.tooMuch("more than %d referrers", maxReferrers)
	case s.depth+1 > maxReferrerDepth:
		return c.tooMuch("referrers of referrers, more than %d deep", maxReferrerDepth)
	}
	c.next = append(c.next, subject{plain(desc), s.depth + 1})
	return nil
}

// destinationReferrers returns the digests of the referrers that the destination lists for a
// subject.
func (c *referrersCopy) destinationReferrers(ctx context.Context, s ocispec.Descriptor) (map[digest.Digest]bool, error) {
	list, err := c.listOf(ctx, c.dest.Store, s, new(atomic.Int64), new(atomic.Int64))
	if err != nil && !errors.Is(err, errListRefused) {
		return nil, c.registryError("list referrers in", err)
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
func (c *referrersCopy) copyReferrer(ctx context.Context, s subject, desc ocispec.Descriptor) (bool, error) {
	if !artifact.IsManifest(desc.MediaType) {
		c.warnReferrer("the referrer %s has the media type %.80q, and is not copied", desc.Digest, desc.MediaType)
		return false, nil
	}
	data, of, err := c.read(ctx, desc)
	if err == nil && (of == nil || of.Digest != s.desc.Digest) {
		c.warnReferrer("%s is listed as a referrer of %s, but does not name it as its subject, and is not copied", desc.Digest, s.desc.Digest)
		return false, nil
	}
	if err == nil {
		err = c.storeParts(ctx, desc, data)
	}
	if err == nil {
		// If the registry lacks the referrers API, the store also lists the manifest under
		// its subject's fallback tag.
		if err = c.put(ctx, artifact.Blob{Descriptor: plain(desc), Data: data}, ""); err != nil {
			err = c.registryError("push a referrer to", err)
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
	case c.isRefusal(err):
		c.warnReferrer("%s refuses the referrer %s: %v", c.dest.Repository.Registry, desc.Digest, err)
	case isUnusable(err):
		c.warnReferrer("the referrer %s cannot be read in %s, and is not copied: %v", desc.Digest, c.from.Repository, err)
	default:
		return false, err
	}
	return false, nil
}

// copyTags copies the manifests that cosign attaches to a subject under tags derived from
// the subject's digest.
func (c *referrersCopy) copyTags(ctx context.Context, s subject) error {
	for _, tag := range ociaddr.CosignTags(s.desc.Digest) {
		if !slices.Contains(c.tags, tag) {
			continue
		}
		desc, err := artifact.Resolve(ctx, c.from.Store, string(tag))
		if isUnusable(err) {
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
func (c *referrersCopy) copyTag(ctx context.Context, s subject, tag ociaddr.Tag, desc ocispec.Descriptor) (bool, error) {
	there, err := artifact.Resolve(ctx, c.dest.Store, string(tag))
	switch {
	case err == nil && there.Digest == desc.Digest:
		return true, nil
	case err != nil && !isNotFound(err):
		return false, c.registryError("read "+string(tag)+" in", err)
	}
	replaces := err == nil
	data, of, err := c.read(ctx, desc)
	if err == nil && of != nil && of.Digest != s.desc.Digest {
		c.warnReferrer("the tag %s names %s, which has another subject, and is not copied", tag, desc.Digest)
		return false, nil
	}
	if err == nil && replaces {
		other, err := artifact.FetchManifest(ctx, c.dest.Store, there)
		if err != nil || !supersedes(data, other) {
			c.warnReferrer("%s:%s names something else than in %s, and is left as it is", c.dest.Repository, tag, c.from.Repository)
			return false, nil
		}
	}
	if err == nil {
		err = c.storeParts(ctx, desc, data)
	}
	if err == nil {
		err = c.sendTag(ctx, "tag "+string(tag)+" in", artifact.Blob{Descriptor: plain(desc), Data: data}, string(tag), helpImmutable)
	}
	return c.isCopied(desc, err)
}
