package pusher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
)

const (
	// maxReferrers bounds the referrers of one version, at any depth.
	maxReferrers = 1000
	// maxReferrerDepth bounds referrers of referrers.
	maxReferrerDepth = 8
	// referrerLists is how many lists of referrers are read at once.
	referrerLists = 8
	// maxReferrerType bounds the media type and the artifact type of a referrer. The
	// media type of RFC 6838 has at most 127 + 1 + 127 characters.
	maxReferrerType = 255
	// maxReferrerWarnings bounds the warnings of one version's referrers.
	maxReferrerWarnings = 20
)

// errListRefused wraps a registry's refusal of the referrers API.
var errListRefused = errors.New("refuses to list referrers")

// subject is a manifest of the source that the destination has, too.
type subject struct {
	desc  ocispec.Descriptor
	depth int
}

// referrersCopy is the copy of a version's referrers.
type referrersCopy struct {
	*push
	carrier *carrier
	tags    map[ociaddr.Tag]struct{} // of the source
	seen    map[digest.Digest]bool
	next    []subject
	placed  int
	sent    int
	warned  int
	refused bool         // the source refuses to list referrers, and a warning says so
	listed  atomic.Int64 // entries of the source's lists
	skipped atomic.Int64 // of them, those that describe no manifest
}

// copyReferrers copies the referrers of a version's manifests, and their own referrers.
// It counts the referrers that are in place, and those of them that were sent.
func (w *push) copyReferrers(ctx context.Context, after *artifact.Version) (placed, sent int, err error) {
	c := &referrersCopy{push: w, carrier: w.original.carrier, seen: map[digest.Digest]bool{}}
	if c.tags, err = w.attachedTags(ctx, w.original.from); err != nil {
		return 0, 0, err
	}
	defer c.reportSkipped()
	// Lists of the first round are read at once: most are empty.
	c.next = c.subjects(after)
	for len(c.next) > 0 {
		round := c.next
		c.next = nil
		lists, err := c.list(ctx, round)
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
	return c.placed, c.sent, nil
}

// subjects returns the manifests of the version that source and destination share.
func (c *referrersCopy) subjects(after *artifact.Version) []subject {
	found := c.original.found
	var out []subject
	add := func(there, here ocispec.Descriptor) {
		if there.Digest == here.Digest && !c.seen[here.Digest] {
			c.seen[here.Digest] = true
			out = append(out, subject{desc: plain(here)})
		}
	}
	add(after.Index, found.Index)
	for _, p := range found.Packages {
		if q := find(after.Packages, p.Platform); q != nil {
			add(q.Manifest, p.Manifest)
		}
	}
	if found.Evidence != nil && after.Evidence != nil {
		add(*after.Evidence, *found.Evidence)
	}
	return out
}

// list returns the referrers of each subject in the source.
func (c *referrersCopy) list(ctx context.Context, subjects []subject) ([][]ocispec.Descriptor, error) {
	out := make([][]ocispec.Descriptor, len(subjects))
	refusals := make([]error, len(subjects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(referrerLists)
	for i, s := range subjects {
		g.Go(func() error {
			var err error
			out[i], err = c.listOf(ctx, c.original.from.Store, s.desc, &c.listed, &c.skipped)
			switch {
			case errors.Is(err, ErrTooMuchAttached):
				return err
			case errors.Is(err, errListRefused):
				refusals[i] = err
			case err != nil:
				return &RegistryError{"list referrers in", c.original.from.Repository, err}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, err := range refusals {
		if err != nil && !c.refused {
			c.refused = true
			c.warn("%s %v: those that no fallback tag lists are not copied", c.original.from.Repository, err)
		}
	}
	return out, nil
}

// refusesList reports whether a registry refuses the referrers API. Registries without
// the API answer so, too, where they should answer 404.
func refusesList(err error) bool {
	return refuses(status(err)) || status(err) == http.StatusUnauthorized || errors.Is(err, auth.ErrBasicCredentialNotFound)
}

// listOf returns the referrers of a manifest in a store. It adds up the entries, and
// skips those that describe no manifest. The error is errListRefused if the registry
// refuses the API and has no list under the fallback tag either.
func (c *referrersCopy) listOf(ctx context.Context, store StoredStore, s ocispec.Descriptor, listed, skipped *atomic.Int64) ([]ocispec.Descriptor, error) {
	var out []ocispec.Descriptor
	add := func(page []ocispec.Descriptor) error {
		if listed.Add(int64(len(page))) > maxReferrers {
			return c.carrier.tooMuch("lists of more than %d referrers", maxReferrers)
		}
		for _, desc := range page {
			if desc.Digest.Validate() != nil || max(len(desc.MediaType), len(desc.ArtifactType)) > maxReferrerType {
				skipped.Add(1)
				continue
			}
			// A text of its own does not keep the whole page in memory.
			out = append(out, ocispec.Descriptor{
				MediaType: strings.Clone(desc.MediaType), Digest: digest.Digest(strings.Clone(string(desc.Digest))), Size: desc.Size,
			})
		}
		return nil
	}
	err := store.Referrers(ctx, s, "", add)
	if refusesList(err) {
		err = listByTag(ctx, store, s, err, add)
	}
	if isNotFound(err) {
		return nil, nil
	}
	return out, err
}

// listByTag passes the list under a subject's fallback tag to add. oras-go asks for that
// tag only if the referrers API answers 404. Without such a list, the error is
// errListRefused with the API's refusal.
func listByTag(ctx context.Context, store artifact.ReferenceFetcher, s ocispec.Descriptor, refusal error, add func([]ocispec.Descriptor) error) error {
	desc, err := artifact.Resolve(ctx, store, string(ociaddr.ReferrersTag(s.Digest)))
	switch {
	case isNotFound(err), refuses(status(err)), err == nil && desc.MediaType != ocispec.MediaTypeImageIndex:
		return fmt.Errorf("%w (%w)", errListRefused, refusal)
	case err != nil:
		return err
	}
	data, err := artifact.FetchManifest(ctx, store, desc)
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := artifact.Unmarshal(data, &index); err != nil {
		return err
	}
	return add(index.Manifests)
}

// warn adds a warning, unless there are too many.
func (c *referrersCopy) warn(format string, args ...any) {
	c.warned++
	switch {
	case c.warned == maxReferrerWarnings:
		format, args = "more referrers of %s are not copied", []any{c.original.from.Repository}
	case c.warned > maxReferrerWarnings:
		return
	}
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

// reportSkipped warns of entries that describe no manifest.
func (c *referrersCopy) reportSkipped() {
	if n := c.skipped.Load(); n > 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("%s lists %d referrers without a digest, or with a type of more than %d bytes: they are not copied", c.original.from.Repository, n, maxReferrerType))
	}
}

// copyList copies the referrers of one subject.
func (c *referrersCopy) copyList(ctx context.Context, s subject, list []ocispec.Descriptor) error {
	var there map[digest.Digest]bool
	for _, desc := range list {
		if c.seen[desc.Digest] {
			continue
		}
		c.seen[desc.Digest] = true
		if there == nil {
			var err error
			if there, err = c.listedThere(ctx, s.desc); err != nil {
				return err
			}
		}
		ok := there[desc.Digest]
		if !ok {
			var err error
			if ok, err = c.copyReferrer(ctx, s, desc); err != nil {
				return err
			}
		}
		if !ok {
			continue
		}
		if err := c.place(s, desc); err != nil {
			return err
		}
	}
	return nil
}

// place counts a referrer that is in the destination, and has its own referrers copied
// next.
func (c *referrersCopy) place(s subject, desc ocispec.Descriptor) error {
	c.placed++
	switch {
	case c.placed > maxReferrers:
		return c.carrier.tooMuch("more than %d referrers", maxReferrers)
	case s.depth+1 > maxReferrerDepth:
		return c.carrier.tooMuch("referrers of referrers, more than %d deep", maxReferrerDepth)
	}
	c.next = append(c.next, subject{plain(desc), s.depth + 1})
	return nil
}

// listedThere returns the referrers of a subject that the destination lists.
func (c *referrersCopy) listedThere(ctx context.Context, s ocispec.Descriptor) (map[digest.Digest]bool, error) {
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

// copyReferrer copies one referrer, and reports whether the destination has it. It leaves
// out a manifest that names another subject, is gone or damaged, or is refused by the
// destination.
func (c *referrersCopy) copyReferrer(ctx context.Context, s subject, desc ocispec.Descriptor) (bool, error) {
	if !artifact.IsManifest(desc.MediaType) {
		c.warn("the referrer %s has the media type %.80q, and is not copied", desc.Digest, desc.MediaType)
		return false, nil
	}
	data, err := c.content(ctx, desc)
	if err == nil {
		var m manifestParts
		if err = artifact.Unmarshal(data, &m); err == nil && (m.Subject == nil || m.Subject.Digest != s.desc.Digest) {
			c.warn("%s is listed as a referrer of %s, but does not name it as its subject, and is not copied", desc.Digest, s.desc.Digest)
			return false, nil
		}
	}
	if err == nil {
		err = c.carrier.push(ctx, desc, data)
	}
	return c.copied(desc, err)
}

// content stores every part of a manifest of the source, and returns the manifest.
func (c *referrersCopy) content(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if _, err := c.carrier.take(desc); err != nil {
		return nil, err
	}
	data, err := c.carrier.fetch(ctx, desc)
	if err != nil {
		return nil, err
	}
	return data, c.carrier.content(ctx, desc, data)
}

// copied tells how the copy of a manifest ended.
func (c *referrersCopy) copied(desc ocispec.Descriptor, err error) (bool, error) {
	switch {
	case err == nil:
		c.sent++
		return true, nil
	case c.isRefusal(err):
		c.warn("%s refuses the referrer %s: %v", c.dest.Repository.Registry, desc.Digest, err)
	case isUnusable(err):
		c.warn("the referrer %s cannot be read in %s, and is not copied: %v", desc.Digest, c.original.from.Repository, err)
	default:
		return false, err
	}
	return false, nil
}

// copyTags copies what cosign attaches to a subject by tags that name it.
func (c *referrersCopy) copyTags(ctx context.Context, s subject) error {
	for _, tag := range ociaddr.CosignTags(s.desc.Digest) {
		if _, ok := c.tags[tag]; !ok {
			continue
		}
		desc, err := artifact.Resolve(ctx, c.original.from.Store, string(tag))
		if isUnusable(err) {
			continue // it was deleted since the tags were listed
		}
		if err != nil {
			return c.original.from.failed(c.release.Version(), err)
		}
		if !artifact.IsManifest(desc.MediaType) {
			c.warn("the tag %s names the media type %.80q, and is not copied", tag, desc.MediaType)
			continue
		}
		ok, err := c.copyTag(ctx, s, tag, desc)
		if err != nil {
			return err
		}
		if !ok || c.seen[desc.Digest] {
			continue
		}
		c.seen[desc.Digest] = true
		if err := c.place(s, desc); err != nil {
			return err
		}
	}
	return nil
}

// copyTag copies what one tag of a subject names, and reports whether the destination has
// it. It leaves out a manifest that names another subject.
func (c *referrersCopy) copyTag(ctx context.Context, s subject, tag ociaddr.Tag, desc ocispec.Descriptor) (bool, error) {
	there, err := artifact.Resolve(ctx, c.dest.Store, string(tag))
	switch {
	case err == nil && there.Digest == desc.Digest:
		return true, nil
	case err != nil && !isNotFound(err):
		return false, c.registryError("read "+string(tag)+" in", err)
	}
	replaces := err == nil
	data, err := c.content(ctx, desc)
	if err == nil {
		var m manifestParts
		if err = artifact.Unmarshal(data, &m); err == nil && m.Subject != nil && m.Subject.Digest != s.desc.Digest {
			c.warn("the tag %s names %s, which has another subject, and is not copied", tag, desc.Digest)
			return false, nil
		}
	}
	if err == nil && replaces {
		other, err := artifact.FetchManifest(ctx, c.dest.Store, there)
		if err != nil || !supersedes(data, other) {
			c.warn("%s:%s names something else than in %s, and is left as it is", c.dest.Repository, tag, c.original.from.Repository)
			return false, nil
		}
	}
	if err == nil {
		err = c.sendTag(ctx, "tag "+string(tag)+" in", plain(desc), data, string(tag))
	}
	return c.copied(desc, err)
}

// attachedTags are the tags of a repository that name a subject. They are listed once,
// unless that fails.
type attachedTags struct {
	once sync.Once
	tags map[ociaddr.Tag]struct{}
	err  error
}

func (p *Pusher) attachedTags(ctx context.Context, from Stored) (map[ociaddr.Tag]struct{}, error) {
	entry, _ := p.attached.LoadOrStore(from.Repository, &attachedTags{})
	a := entry.(*attachedTags)
	a.once.Do(func() {
		tags, err := listTags(ctx, from.Store)
		if err != nil {
			p.attached.CompareAndDelete(from.Repository, entry) // the next version asks again
			a.err = &RegistryError{"list tags of", from.Repository, err}
			return
		}
		a.tags = map[ociaddr.Tag]struct{}{}
		for _, t := range tags {
			if _, ok := t.Subject(); ok {
				a.tags[t] = struct{}{}
			}
		}
	})
	return a.tags, a.err
}
