package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// disk keeps good answers in a folder: one below it for each provider, with a
// record of its list of tags, one of what each version's tag names, and content by
// its digest. All is written beside and renamed, and checked when it is read, so
// that what a crash has spoilt is as good as not there.
//
//	ab/cdef0123.../list          record
//	               3.2.4         record
//	               sha256-89...  content
//
// The time of a file is when it was last of use.
type disk struct {
	dir    string
	limit  int64 // bytes
	place  func(provider.Address) string
	log    *slog.Logger
	bytes  atomic.Int64 // about, once swept
	sweeps sync.Mutex
	warned atomic.Bool
}

// record is what is kept of an answer. It stands in a file after its SHA-256 in
// hexadecimal and a line end.
type record struct {
	Provider  string             `json:"provider"`
	Version   string             `json:"version,omitempty"`
	Confirmed time.Time          `json:"confirmed"` // by the registry
	Index     ocispec.Descriptor `json:"index,omitzero"`
	ETag      string             `json:"etag,omitempty"`
	Versions  []string           `json:"versions,omitempty"`
}

const (
	listName      = "list"
	contentPrefix = "sha256-"
	temporary     = ".tmp-"
	// maxRecord bounds what is read of a record.
	maxRecord = 16 << 20
)

func openDisk(dir string, limit int64, place func(provider.Address) string, log *slog.Logger) (*disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, hint.Wrap(fmt.Errorf("catalog cache: %w", err), "the folder of the gateway's cache must be writable for the user that serve runs as")
	}
	return &disk{dir: dir, limit: limit, place: place, log: log}, nil
}

// folder returns that of a provider in its repository.
func (d *disk) folder(a provider.Address) string {
	name := a.Path()
	if place := d.place(a); place != "" {
		name += "\n" + place
	}
	sum := sha256.Sum256([]byte(name))
	name = hex.EncodeToString(sum[:16])
	return filepath.Join(d.dir, name[:2], name[2:])
}

func contentName(dgst digest.Digest) (string, bool) {
	if dgst.Validate() != nil || dgst.Algorithm() != digest.SHA256 {
		return "", false
	}
	return contentPrefix + dgst.Encoded(), true
}

// content returns what a digest names, if it is there and right.
func (d *disk) content(a provider.Address, dgst digest.Digest) ([]byte, bool) {
	name, ok := contentName(dgst)
	if !ok {
		return nil, false
	}
	data, ok := d.read(filepath.Join(d.folder(a), name), artifact.MaxManifestBytes)
	return data, ok && digest.FromBytes(data) == dgst
}

// read returns a whole file that is not larger than limit.
func (d *disk) read(name string, limit int64) ([]byte, bool) {
	f, err := os.Open(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.warn(err)
		}
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil || int64(len(data)) > limit {
		return nil, false
	}
	// Only what goes first when space is short depends on it.
	_ = os.Chtimes(name, time.Time{}, time.Now())
	return data, true
}

// record reads a record, if there is one and it is whole.
func (d *disk) record(a provider.Address, name string) (r record, ok bool) {
	data, ok := d.read(filepath.Join(d.folder(a), name), maxRecord)
	if !ok {
		return r, false
	}
	sum, body, _ := bytes.Cut(data, []byte("\n"))
	if string(sum) != fmt.Sprintf("%x", sha256.Sum256(body)) || json.Unmarshal(body, &r) != nil || r.Provider != a.Path() {
		return r, false
	}
	return r, true
}

func (d *disk) putRecord(a provider.Address, name string, r record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return d.put(a, name, append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...))
}

// put writes a file whole or not at all.
func (d *disk) put(a provider.Address, name string, data []byte) error {
	dir := d.folder(a)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	d.bytes.Add(int64(len(data)) + fileOverhead)
	return nil
}

// drop forgets a provider.
func (d *disk) drop(a provider.Address) {
	if err := os.RemoveAll(d.folder(a)); err != nil {
		d.warn(err)
	}
}

// warn logs once what is wrong with the folder: the catalog goes on without.
func (d *disk) warn(err error) {
	if !d.warned.Swap(true) {
		d.log.Warn("the catalog cannot be kept on disk as it should; it goes on in memory", "err", err)
	}
}

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
	// What can be had beside the registry is for who offers it to remember.
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
	if s.item.Found != nil {
		r.Index = s.item.Found.Index
		if s.item.completed {
			r.Index = s.item.stored.Index
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
	c.cache.resize(e, s.item.size(), true)
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
	found, err := artifact.Read(c.ctx, keptIndex{up, r.Index}, e.address, e.version)
	if err == nil && c.opts.Check != nil {
		found, err = c.opts.Check(c.ctx, keptIndex{up, r.Index}, e.address, e.version, found)
	}
	item.Found, item.parts = found, up.parts
	return s, err
}

// keptIndex reads a version out of what is on disk alone.
type keptIndex struct {
	*upstream
	index ocispec.Descriptor
}

// FetchReference implements [artifact.ReferenceFetcher].
func (k keptIndex) FetchReference(ctx context.Context, _ string) (ocispec.Descriptor, io.ReadCloser, error) {
	body, err := k.Fetch(ctx, k.index)
	return k.index, body, err
}

// fileOverhead is what a file takes on disk beside its content, about.
const fileOverhead = 2 << 10

// sweep cleans the folder, unless that is under way.
func (d *disk) sweep(ctx context.Context) {
	if d.sweeps.TryLock() {
		defer d.sweeps.Unlock()
		d.clean(ctx)
	}
}

// clean counts what is on disk, and removes what was not used for longest where
// that is too much. It holds neither names nor times of files in memory, of which
// there may be many: it counts by the hour first.
func (d *disk) clean(ctx context.Context) {
	total, byHour := int64(0), map[int64]int64{}
	d.walk(ctx, func(_ string, size, hour int64) {
		total += size
		byHour[hour] += size
	})
	d.bytes.Store(total)
	if total <= d.limit || ctx.Err() != nil {
		return
	}
	oldest := time.Now().Unix() / 3600
	for hour := range byHour {
		oldest = min(oldest, hour)
	}
	var going int64
	last := oldest
	for ; total-going > d.limit-d.limit/10 && last <= time.Now().Unix()/3600; last++ {
		going += byHour[last]
	}
	d.walk(ctx, func(name string, size, hour int64) {
		if hour < last && d.bytes.Load() > d.limit-d.limit/10 && os.Remove(name) == nil {
			d.bytes.Add(-size)
		}
	})
}

// walk calls f for each file, with its size on disk and the hour of its last use.
func (d *disk) walk(ctx context.Context, f func(name string, size, hour int64)) {
	err := filepath.WalkDir(d.dir, func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || entry.IsDir() {
			return nil // it may have gone meanwhile
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if age := time.Since(info.ModTime()); strings.HasPrefix(entry.Name(), temporary) && age > time.Hour {
			_ = os.Remove(name) // of a process that did not end well
			return nil
		}
		f(name, info.Size()+fileOverhead, info.ModTime().Unix()/3600)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		d.warn(err)
	}
}
