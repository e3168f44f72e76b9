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
	"github.com/ocibridge/ocibridge/provider"
)

// recordName is the file of an entry's record, "" for none.
func (e *entry) recordName() string {
	switch e.kind {
	case listing:
		return listName
	case version:
		return e.version.String()
	}
	return ""
}

// keepOnDisk makes the disk say what the registry said, unless something else has
// overtaken that. What has not changed is written again only so often that its time is
// nearly right.
func (c *Catalog) keepOnDisk(e *entry, up *upstream, s *state) {
	c.refreshing.RLock()
	defer c.refreshing.RUnlock()
	e.keeping.Lock()
	defer e.keeping.Unlock()
	// A later answer that changed nothing brought no content, and leaves it to this one.
	if now := e.state.Load(); now == nil || now.item != s.item || now.err != s.err || e.dropped.Load() {
		return
	}
	name := e.recordName()
	// Pull-through keeps its offers on disk itself.
	absent := s.item.completed && s.item.stored == nil || s.err == nil && e.kind == listing && len(s.item.tagged) == 0
	if s.err != nil || absent {
		if name != "" && !errors.Is(s.err, ErrNotServed) {
			// What is gone must not stand in after a restart.
			if err := os.Remove(filepath.Join(c.disk.folder(e.address), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				c.disk.warn(err)
			}
			e.kept = nil
		}
		return
	}
	if e.kept == s.item && !c.renewed(e, s.at) {
		return
	}
	switch err := c.write(e, name, up, s); {
	case errors.Is(err, errNotKept):
		return
	case err != nil:
		c.disk.warn(err)
		return
	}
	e.kept, e.onDisk = s.item, s.at
	if c.disk.bytes.Load() > c.disk.limit+c.disk.limit/10 {
		c.task(c.disk.sweep)
	}
}

// renewed reports whether a record is to be written again for its time alone.
func (c *Catalog) renewed(e *entry, now time.Time) bool {
	return now.Sub(e.onDisk) >= c.opts.StaleIfError/24
}

// stillOnDisk reports whether the last answer is on disk, if it was written: the
// folder may be emptied, as by another gateway that shares it. When the record is
// to be renewed, all that it needs is looked at, and counts as of use again.
func (c *Catalog) stillOnDisk(e *entry, last *state) bool {
	e.keeping.Lock()
	defer e.keeping.Unlock()
	if last == nil || last.err != nil || e.kept != last.item {
		return true
	}
	name := e.recordName()
	if name == "" {
		return true
	}
	dir := c.disk.folder(e.address)
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		return false
	}
	if !c.renewed(e, time.Now()) {
		return true
	}
	for _, part := range last.item.parts {
		if file, ok := contentName(part); ok && os.Chtimes(filepath.Join(dir, file), time.Time{}, time.Now()) != nil {
			return false
		}
	}
	return true
}

// write writes content first and last the record that needs it; errNotKept if some
// of that is neither at hand nor on disk, since who has it has yet to write it.
func (c *Catalog) write(e *entry, name string, up *upstream, s *state) error {
	for dgst, data := range up.read {
		file, ok := contentName(dgst)
		if !ok {
			continue
		}
		if err := c.disk.put(e.address, file, data); err != nil {
			return err
		}
	}
	if name == "" {
		return nil
	}
	for _, part := range s.item.parts {
		if _, ok := up.read[part]; ok {
			continue
		}
		if file, ok := contentName(part); ok {
			if _, err := os.Stat(filepath.Join(c.disk.folder(e.address), file)); err != nil {
				return errNotKept
			}
		}
	}
	r := record{Provider: e.address.Path(), Version: e.version.String(), Confirmed: s.at, ETag: s.item.etag}
	if stored := s.item.Stored(); stored != nil {
		r.Index = stored.Index
		for _, m := range stored.Missing {
			r.Missing = append(r.Missing, m.Manifest)
		}
	}
	for _, v := range s.item.tagged {
		r.Versions = append(r.Versions, v.String())
	}
	return c.disk.putRecord(e.address, name, r)
}

// loadFromDisk gives an entry what is on disk for it, if that is whole and of any
// use.
func (c *Catalog) loadFromDisk(e *entry) {
	if c.disk == nil || e.state.Load() != nil {
		return
	}
	c.refreshing.RLock()
	defer c.refreshing.RUnlock()
	s, err := c.loadState(e)
	if err != nil {
		return
	}
	s.item.entry = e
	if s.at.After(time.Now()) {
		s.at = time.Now().Add(-c.opts.TagTTL) // by a clock that was wrong
	}
	s.part = (e.kind == listing || e.kind == version) && c.opts.Offers != nil && c.opts.Offers(e.address)
	e.kept, e.onDisk = s.item, s.at
	e.state.Store(s)
	c.cache.resize(e, s.size(), true)
}

var errNotKept = errors.New("not on disk")

func (c *Catalog) loadState(e *entry) (*state, error) {
	item := &Item{Address: e.address, Version: e.version}
	up := &upstream{c: c, address: e.address}
	var err error
	switch e.kind {
	case evidence:
		item.evidence, err = artifact.ReadEvidence(c.ctx, up, e.desc)
		return &state{item: item, at: time.Now()}, err
	case content:
		item.content, err = up.whole(c.ctx, e.desc)
		return &state{item: item, at: time.Now()}, err
	}
	r, ok := c.disk.record(e.address, e.recordName())
	if !ok || r.Version != e.version.String() || time.Since(r.Confirmed) >= c.opts.StaleIfError {
		return nil, errNotKept
	}
	s := &state{item: item, at: r.Confirmed}
	if e.kind == listing {
		tagged := make([]provider.Version, len(r.Versions))
		for i, text := range r.Versions {
			var err error
			if tagged[i], err = provider.ParseVersion(text); err != nil {
				return nil, err
			}
		}
		c.list(item, tagged, r.ETag)
		return s, nil
	}
	kept := keptIndex{up, r.Index, r.Missing}
	found, err := artifact.ReadAvailable(c.ctx, kept, e.address, e.version)
	if err == nil && c.opts.Check != nil {
		found, err = c.opts.Check(c.ctx, kept, e.address, e.version, found)
	}
	item.Found, item.parts = found, up.parts
	return s, err
}

// keptIndex reads a version out of what is on disk alone.
type keptIndex struct {
	*upstream
	index   ocispec.Descriptor
	missing []digest.Digest // what the registry lacked
}

// Fetch implements [artifact.Fetcher].
func (k keptIndex) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := k.upstream.Fetch(ctx, desc)
	if errors.Is(err, errOffline) && slices.Contains(k.missing, desc.Digest) {
		return nil, errdef.ErrNotFound
	}
	return body, err
}

// FetchReference implements [artifact.ReferenceFetcher].
func (k keptIndex) FetchReference(ctx context.Context, _ string) (ocispec.Descriptor, io.ReadCloser, error) {
	body, err := k.Fetch(ctx, k.index)
	return k.index, body, err
}
