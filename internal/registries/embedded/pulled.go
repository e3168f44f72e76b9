package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// The folder pulledFolder has one mark for each version that pull-through has stored, in the file REPOSITORY/TAG. Each line
// of a mark is the digest of an index that pull-through has stored under the tag. A version belongs to pull-through while
// its tag names one of these indexes. The time of the file is when a client last used the version. Other writers replace
// the mark with keptLine.
//
// A version without a mark is kept. A version whose mark another writer has replaced is kept, too, even if pull-through
// marks the version at the same time.
const (
	pulledFolder = "pulled"
	keptLine     = "kept"
	// maxMark is the maximum size in bytes of a mark. A version with a larger one is kept.
	maxMark = 64 << 10
)

// MarkPulled records that pull-through is about to move a tag from the index before to the index after. before is "" if the
// tag does not exist. MarkPulled does nothing if before does not belong to pull-through.
func (r *Registry) MarkPulled(repository string, tag ociaddr.Tag, before, after digest.Digest) error {
	if before == after {
		return nil
	}
	root, err := r.marks()
	if err != nil {
		return err
	}
	defer root.Close()
	name := markName(repository, tag)
	if before == "" {
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		err := writeMark(root, name, os.O_CREATE|os.O_EXCL, after)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	m, err := readMark(root, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && before != "" && !m.has(before) {
		return nil
	}
	if err != nil || slices.Contains(m.lines, keptLine) || m.has(after) {
		return err
	}
	// If another writer replaces the file now, the line goes to the old file.
	return writeMark(root, name, os.O_APPEND, after)
}

// MarkKept records that [Retention] must not remove a version, because push, sync or copy stores the version, or has
// found that it is already stored.
func (r *Registry) MarkKept(repository string, tag ociaddr.Tag) error {
	root, err := r.marks()
	if err != nil {
		return err
	}
	defer root.Close()
	name := markName(repository, tag)
	if m, err := readMark(root, name); err == nil && slices.Contains(m.lines, keptLine) {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return files.Replace(root, name, strings.NewReader(keptLine+"\n"), nil)
}

// marks opens the folder with the marks.
func (r *Registry) marks() (*os.Root, error) {
	if err := r.present(); err != nil {
		return nil, err
	}
	return os.OpenRoot(filepath.Join(r.dir, pulledFolder))
}

func markName(repository string, tag ociaddr.Tag) string { return path.Join(repository, string(tag)) }

// writeMark writes a digest to a mark. The flags say how to open the mark's file.
func writeMark(root *os.Root, name string, flags int, d digest.Digest) error {
	f, err := root.OpenFile(name, os.O_WRONLY|flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, d)
	return errors.Join(err, f.Close())
}

// pulledMark is the content of a mark.
type pulledMark struct {
	repository string
	tag        ociaddr.Tag
	lines      []string
	lastUsed   time.Time
}

func (m pulledMark) has(d digest.Digest) bool { return slices.Contains(m.lines, string(d)) }

// belongs reports whether the version belongs to pull-through while its tag names d.
func (m pulledMark) belongs(d digest.Digest) bool {
	return m.has(d) && !slices.Contains(m.lines, keptLine)
}

func readMark(root *os.Root, name string) (pulledMark, error) {
	m := pulledMark{repository: path.Dir(name), tag: ociaddr.Tag(path.Base(name))}
	f, _, err := files.OpenRegular(root, name)
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return m, err
	}
	m.lastUsed = info.ModTime()
	text, err := io.ReadAll(io.LimitReader(f, maxMark+1))
	if err != nil || len(text) > maxMark {
		return m, err
	}
	m.lines = strings.Fields(string(text))
	return m, nil
}

// LastUsed returns a time at which a client used a version that pull-through has stored. Later uses may not be recorded yet,
// see [Registry.Used]. It returns the zero time for all other versions, and if the time cannot be read.
func (r *Registry) LastUsed(repository string, tag ociaddr.Tag) time.Time {
	root, err := r.marks()
	if err != nil {
		return time.Time{}
	}
	defer root.Close()
	m, err := readMark(root, markName(repository, tag))
	if err != nil || len(m.lines) == 0 || slices.Contains(m.lines, keptLine) {
		return time.Time{}
	}
	return m.lastUsed
}

// listMarks returns all marks. Marks of the least recently used versions come first. If tidy is set, listMarks removes
// the marks of tags for which exists returns false. It also removes the files that a crashed writer has left. The
// caller must then have locked out all writers.
func listMarks(root *os.Root, tidy bool, exists func(repository string, tag ociaddr.Tag) bool) (out []pulledMark, err error) {
	var dirs []string
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir():
			dirs = append(dirs, name)
			return nil
		}
		m, err := readMark(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && exists(m.repository, m.tag) {
			out = append(out, m)
		} else if err == nil && tidy {
			err = root.Remove(name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("marks of pull-through: %w", err)
	}
	if tidy {
		for _, dir := range slices.Backward(dirs[1:]) {
			_ = root.Remove(dir) // it fails if there is a mark in it
		}
	}
	slices.SortStableFunc(out, func(a, b pulledMark) int { return a.lastUsed.Compare(b.lastUsed) })
	return out, nil
}

const (
	// useInterval is the minimum time between two records of the use of a version.
	useInterval = 24 * time.Hour
	// maxUses is the maximum number of versions whose last record is remembered.
	maxUses = 8192
	// maxWaitingUses is the maximum number of uses that wait to be recorded. A further use is dropped: the next request
	// for the version records it.
	maxWaitingUses = 256
	// maxUsedPath is the maximum length of a path that is remembered.
	maxUsedPath = 512
)

// use is the use of a version. key identifies the version in this process.
type use struct {
	key     any
	version func() (repository string, tag ociaddr.Tag, err error)
}

// Used records that a client uses a version, for [Retention]. It returns at once. At most once a day for each key, it
// calls the function version in the background, and sets the time of the version's mark, if there is one.
func (r *Registry) Used(key any, version func() (repository string, tag ociaddr.Tag, err error)) {
	if last, ok := r.used.Get(key); ok && time.Since(last) < useInterval {
		return
	}
	select {
	case r.uses <- use{key, version}:
		r.used.Add(key, time.Now())
	default:
	}
}

// recordUses records uses until ctx ends. It then records the uses that still wait.
func (r *Registry) recordUses(ctx context.Context) {
	defer close(r.usesEnded)
	for {
		select {
		case u := <-r.uses:
			if err := r.recordUse(u); err != nil {
				r.log.Warn("the use of a version cannot be recorded: retention may remove the version too early", "err", err)
			}
		case <-ctx.Done():
			if len(r.uses) == 0 {
				return
			}
		}
	}
}

func (r *Registry) recordUse(u use) error {
	repository, tag, err := u.version()
	if err != nil {
		return err
	}
	name := filepath.FromSlash(markName(repository, tag))
	if !filepath.IsLocal(name) {
		return nil
	}
	root, err := r.marks()
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(name)
	now := time.Now()
	if err == nil && info.Mode().IsRegular() {
		if now.Sub(info.ModTime()) < useInterval {
			r.used.Add(u.key, info.ModTime())
			return nil
		}
		err = root.Chtimes(name, now, now)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// noteUse calls [Registry.Used] if a request reads the manifest of a tag.
func (r *Registry) noteUse(req *http.Request) {
	if len(req.URL.Path) > maxUsedPath || req.Method != http.MethodGet {
		return
	}
	path := strings.Clone(req.URL.Path) // otherwise the key would keep the request with its query in memory
	rest, ok := strings.CutPrefix(path, "/v2/")
	repository, reference, isManifest := strings.Cut(rest, "/manifests/")
	if !ok || !isManifest {
		return
	}
	tag, err := ociaddr.ParseTag(reference)
	if err != nil {
		return // a digest
	}
	r.Used(path, func() (string, ociaddr.Tag, error) { return repository, tag, nil })
}
