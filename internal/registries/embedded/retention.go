package embedded

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Retention limits what pull-through stores. It never selects versions that another writer has stored or completed, or that
// releases of ocibridge without retention have stored.
type Retention struct {
	// Unused is how long a version may be unused. 0: without limit. A use can be up to a day later than its record, see
	// [Registry.Used].
	Unused time.Duration
	// MaxSize is the maximum number of bytes that only versions of pull-through need. The versions that were used longest
	// ago are removed first. 0: without limit.
	MaxSize int64
}

// Reason says why a version has expired.
type Reason string

const (
	ReasonUnused  Reason = "unused"
	ReasonMaxSize Reason = "max_size"
)

// Expired is a version that a [Retention] selects for removal.
type Expired struct {
	Repository string
	Tag        ociaddr.Tag
	LastUsed   time.Time
	Reason     Reason
	Bytes      int64 // the number of bytes that the removal frees after the removals before it

	digest digest.Digest
}

// heldVersion is a version that belongs to pull-through.
type heldVersion struct {
	mark  pulledMark
	index digest.Digest
	blobs map[digest.Digest]bool // the blobs that only versions of pull-through need
}

// expired selects the versions to remove. The versions are in the order of their last use, oldest first.
func (o Retention) expired(now time.Time, versions []heldVersion, sizes map[digest.Digest]int64) (out []Expired) {
	users := map[digest.Digest]int{}
	var total int64
	for _, v := range versions {
		for d := range v.blobs {
			if users[d]++; users[d] == 1 {
				total += sizes[d]
			}
		}
	}
	for _, v := range versions {
		e := Expired{Repository: v.mark.repository, Tag: v.mark.tag, LastUsed: v.mark.lastUsed, digest: v.index}
		switch {
		case o.Unused > 0 && now.Sub(e.LastUsed) > o.Unused:
			e.Reason = ReasonUnused
		case o.MaxSize > 0 && total > o.MaxSize:
			e.Reason = ReasonMaxSize
		default:
			return out // the others were used later
		}
		for d := range v.blobs {
			if users[d]--; users[d] == 0 {
				e.Bytes += sizes[d]
			}
		}
		total -= e.Bytes
		out = append(out, e)
	}
	return out
}

// findExpired returns what a retention selects. If tidy is set, findExpired also removes marks without a version, and
// the caller must have locked out all writers.
func (r *Registry) findExpired(ctx context.Context, f *storageFolder, m *contentMarker, o Retention, now time.Time, tidy bool) ([]Expired, error) {
	root, err := r.marks()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s, err := f.scan(ctx)
	if err != nil {
		return nil, err
	}
	marks, err := listMarks(root, tidy, func(repository string, tag ociaddr.Tag) bool {
		_, ok := s.tags[repository][string(tag)]
		return ok
	})
	if err != nil || o == (Retention{}) {
		return nil, err
	}
	marks = slices.DeleteFunc(marks, func(p pulledMark) bool { return !p.belongs(s.tags[p.repository][string(p.tag)]) })
	versions, err := m.held(ctx, s, marks)
	if err != nil {
		return nil, err
	}
	sizes := map[digest.Digest]int64{}
	for _, file := range s.files {
		if file.kind == blobFile {
			sizes[file.digest] = file.size
		}
	}
	return o.expired(now, versions, sizes), nil
}

// held returns the versions with the given marks, each with the blobs that only such versions need.
func (m *contentMarker) held(ctx context.Context, s *storageScan, marked []pulledMark) (out []heldVersion, err error) {
	tags := map[string]map[ociaddr.Tag]bool{}
	for _, p := range marked {
		add(tags, p.repository, p.tag, true)
	}
	kept, err := m.mark(ctx, s.without(tags))
	if err != nil {
		return nil, err
	}
	for _, p := range marked {
		v := heldVersion{mark: p, index: s.tags[p.repository][string(p.tag)]}
		own := newMarks()
		if err := m.reachTag(ctx, s, own, p.repository, string(p.tag)); err != nil {
			return nil, err
		}
		v.blobs = own.blobs
		maps.DeleteFunc(v.blobs, func(d digest.Digest, _ bool) bool { return kept.blobs[d] })
		out = append(out, v)
	}
	return out, nil
}

// without returns a scan without the given tags of versions, and without their helper tags.
func (s *storageScan) without(versions map[string]map[ociaddr.Tag]bool) *storageScan {
	out := *s
	out.tags = map[string]map[string]digest.Digest{}
	for repository, tags := range s.tags {
		for name, d := range tags {
			tag := ociaddr.Tag(name)
			if v, ok := tag.PartOf(); ok {
				if of, err := ociaddr.VersionTag(v); err == nil {
					tag = of
				}
			}
			if !versions[repository][tag] {
				add(out.tags, repository, name, d)
			}
		}
	}
	return &out
}

// removeExpired removes the versions that a retention selects, unless a client has used them or a writer has kept them in
// the meantime. A failure does not stop the other removals.
func (r *Registry) removeExpired(ctx context.Context, expired []Expired, remove func(context.Context, Expired) error) error {
	if len(expired) == 0 {
		return nil
	}
	root, err := r.marks()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range expired {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.beforeFile("expire", e.Repository)
		isDue, failed := e.isDue(root)
		if failed == nil && isDue {
			failed = remove(ctx, e)
		}
		if failed != nil || !isDue {
			err = errors.Join(err, failed)
			continue
		}
		if failed = root.Remove(markName(e.Repository, e.Tag)); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// isDue reports whether an expired version still belongs to pull-through, and no client has used it since it was
// selected.
func (e Expired) isDue(root *os.Root) (bool, error) {
	m, err := readMark(root, markName(e.Repository, e.Tag))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && m.lastUsed.Equal(e.LastUsed) && m.belongs(e.digest), err
}
