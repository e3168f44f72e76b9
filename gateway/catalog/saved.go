package catalog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// recordName is the file name of an answer's record, or "" if the answer has no record.
func (q question) recordName() string {
	switch q.kind {
	case listing:
		return listName
	case version:
		return q.version.String()
	case summary:
		return summaryName
	case approvals:
		return q.version.String() + approvalSuffix
	}
	return ""
}

// save writes an answer of the registry to disk, unless a later answer differs. In that case,
// the fetch of the later answer saves the later answer. If an answer is unchanged, save writes
// it again only when the time in its record is outdated.
func (c *Catalog) save(up *upstream, item *Item, err error, latest *answer) {
	if latest == nil || latest.Value != item || latest.Err != err {
		return
	}
	name := up.recordName()
	if err != nil {
		if name != "" && !errors.Is(err, ErrNotServed) {
			// A deleted version must not be served stale after a restart.
			if err := os.Remove(filepath.Join(c.disk.folder(up.subject), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				c.disk.warn(err)
			}
		}
		return
	}
	if item.savedAt.Load() != 0 && !c.isOutdated(item, latest.At) {
		return
	}
	switch err := c.write(up, item, latest.At); {
	case errors.Is(err, errNotSaved):
		return
	case err != nil:
		c.disk.warn(err)
		return
	}
	item.savedAt.Store(latest.At.UnixNano())
	if c.disk.isOver() {
		c.sweep()
	}
}

// isOutdated reports whether the time in an item's record is so old that it must be written again.
func (c *Catalog) isOutdated(i *Item, now time.Time) bool {
	return now.Sub(time.Unix(0, i.savedAt.Load())) >= c.opts.StaleIfError/24
}

// isSaved reports whether an answer that was saved is still on disk. Another gateway that shares
// the folder may have removed the files of the answer. If the record is outdated, isSaved also
// checks the content, and marks the content as used.
func (c *Catalog) isSaved(last *answer) bool {
	if last == nil || last.Err != nil || last.Value.savedAt.Load() == 0 {
		return true
	}
	item := last.Value
	name := item.about.recordName()
	if name == "" {
		return true
	}
	dir := c.disk.folder(item.about.subject)
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		return false
	}
	if !c.isOutdated(item, time.Now()) {
		return true
	}
	for _, part := range item.parts {
		if file, ok := contentName(part); ok && os.Chtimes(filepath.Join(dir, file), time.Time{}, time.Now()) != nil {
			return false
		}
	}
	return true
}

// write writes the content that this fetch has read, and then the record that names it. It returns
// errNotSaved if the record also names content from another fetch that is not yet on disk.
func (c *Catalog) write(up *upstream, item *Item, at time.Time) error {
	for dgst, data := range up.read {
		if file, ok := contentName(dgst); ok {
			if err := c.disk.put(up.subject, file, data); err != nil {
				return err
			}
		}
	}
	name := up.recordName()
	if name == "" {
		return nil
	}
	for _, part := range item.parts {
		_, written := up.read[part]
		if file, ok := contentName(part); ok && !written {
			if _, err := os.Stat(filepath.Join(c.disk.folder(up.subject), file)); err != nil {
				return errNotSaved
			}
		}
	}
	r := newRecord(item, at)
	if up.kind == approvals {
		var fits bool
		if r.Signatures, fits = savedSignatures(up.signatures); !fits {
			return errNotSaved
		}
		r.Policy, r.Approved = c.policy(up.subject).ID(), item.verdict.Err() == nil
	}
	return c.disk.putRecord(up.subject, name, r)
}

// newRecord returns the record of an item. at is when the registry last confirmed the item.
func newRecord(item *Item, at time.Time) record {
	r := record{Provider: pathOf(item.about.subject), Version: item.Version, Confirmed: at, ETag: item.tags.etag, Versions: item.tags.versions, LeadingV: item.tags.leadingV, Added: item.added}
	if found := item.Found; found != nil {
		r.Index = found.Index
		r.Tag = found.Tag
		for _, m := range found.Missing {
			r.Missing = append(r.Missing, m.Manifest)
		}
	}
	switch item.about.kind {
	case summary:
		r.Index = item.state
	case approvals:
		r.Version, r.Index = item.about.version, item.about.desc
	}
	return r
}

// load implements [fresh.Options].Load. It returns the answer to a question from disk, or false if
// the answer is not on disk, is damaged, or is too old to be served.
func (c *Catalog) load(q question) (answer, bool) {
	if c.disk == nil || q.union {
		return answer{}, false // the origin saves its own answers
	}
	item, at, err := c.read(&upstream{c: c, question: q})
	if err != nil {
		return answer{}, false
	}
	a := c.newAnswer(item, nil)
	if a.At = at; at.After(time.Now()) {
		a.At = time.Now().Add(-c.opts.TagTTL) // the clock was wrong when the record was written
	}
	if item.undecided {
		a.TTL = 0 // the list is served only while the registry fails
	}
	item.savedAt.Store(a.At.UnixNano())
	return a, true
}

var errNotSaved = errors.New("not on disk")

// read reads an item from disk. The time at is when the registry last confirmed the item.
func (c *Catalog) read(up *upstream) (item *Item, at time.Time, err error) {
	item = newItem(up.question)
	switch up.kind {
	case evidence:
		item.evidence, err = artifact.ReadEvidence(c.ctx, up, up.desc)
		return item, time.Now(), err
	case content:
		item.content, err = up.whole(c.ctx, up.desc)
		return item, time.Now(), err
	}
	touch(filepath.Join(c.disk.folder(up.subject), up.recordName()))
	r, ok := c.savedRecord(up.question)
	if !ok {
		return nil, at, errNotSaved
	}
	switch up.kind {
	case listing:
		tags := tagList{r.Versions, r.LeadingV, r.ETag}
		omitted, complete := c.judge(c.ctx, up, tags)
		item.undecided, item.added = !complete, r.Added
		c.list(item, tags, omitted)
		return item, r.Confirmed, nil
	case approvals:
		if r.Index.Digest != up.desc.Digest {
			return nil, at, errNotSaved // the tag has named another manifest since
		}
		item.verdict, err = c.approvalIn(up, r)
		return item, r.Confirmed, err
	}
	saved := savedIndex{up, r.Index, r.Missing}
	if up.kind == summary {
		item.summary, item.state, err = artifact.ReadSummary(c.ctx, saved, up.provider())
		item.parts = up.parts
		return item, r.Confirmed, err
	}
	item.Found, err = artifact.ReadTagged(c.ctx, saved, up.subject, up.version, r.Tag)
	item.read = item.Found
	if err == nil {
		c.nameApproval(item)
	}
	if err == nil && c.opts.Check != nil && subject.TraitsOf(up.subject).Packages {
		item.Found, err = c.opts.Check(c.ctx, saved, up.provider(), up.version, item.Found)
	}
	item.parts = up.parts
	return item, r.Confirmed, err
}

// savedRecord returns the record of the answer to a question, or false if there is none that can be served while the registry fails.
func (c *Catalog) savedRecord(q question) (record, bool) {
	r, ok := c.disk.record(filepath.Join(c.disk.folder(q.subject), q.recordName()))
	return r, ok && r.Provider == pathOf(q.subject) && r.Version == q.version && time.Since(r.Confirmed) < c.opts.StaleIfError
}

// savedIndex reads a version or a state from disk, and never from the registry.
type savedIndex struct {
	*upstream
	index   ocispec.Descriptor
	missing []digest.Digest // the manifests that the registry lacked
}

func (s savedIndex) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := s.upstream.Fetch(ctx, desc)
	if errors.Is(err, errOffline) && slices.Contains(s.missing, desc.Digest) {
		return nil, errdef.ErrNotFound
	}
	return body, err
}

func (s savedIndex) FetchReference(ctx context.Context, _ string) (ocispec.Descriptor, io.ReadCloser, error) {
	body, err := s.Fetch(ctx, s.index)
	return s.index, body, err
}
