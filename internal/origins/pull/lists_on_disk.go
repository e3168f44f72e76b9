package pull

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// listFile is the JSON of a list on disk. The file begins with a line that holds the SHA-256
// of the JSON in hexadecimal.
type listFile struct {
	Subject   string          `json:"provider"` // the path of a provider or a module, with its prefix
	Confirmed time.Time       `json:"confirmed"`
	Versions  []catalog.Offer `json:"versions"`
	Warnings  []string        `json:"warnings,omitempty"`
	// Seen has the value of list.seen. It includes all versions that the origin lists, even if the scope excludes
	// them.
	Seen map[provider.Version]time.Time `json:"seen,omitempty"`
	// Spellings has the value of list.spellings.
	Spellings map[provider.Version][]string `json:"spellings,omitempty"`
}

func (p *Puller) listPath(a subject.Address) string {
	sum := sha256.Sum256([]byte(pathOf(a)))
	name := hex.EncodeToString(sum[:16])
	return filepath.Join(p.o.Directory, name[:2], name[2:])
}

// keepList saves a list on disk.
func (p *Puller) keepList(a subject.Address, l *list) {
	if p.o.Directory == "" || p.retired.Err() != nil {
		return // the next Puller has other settings, and saves its own lists
	}
	if err := p.writeList(a, l); err != nil {
		p.o.Log.Warn("what an origin offers cannot be kept on disk", subject.Attr(a), "err", err)
	}
}

// listLockPatience is how long a list waits for other processes that write lists.
const listLockPatience = 2 * time.Second

// writeList writes a list while no other process writes one, because it merges the list with the
// file that another process may have written.
func (p *Puller) writeList(a subject.Address, l *list) error {
	if err := os.MkdirAll(p.o.Directory, 0o700); err != nil {
		return err
	}
	lock, err := privatefolder.Lock(filepath.Join(p.o.Directory, "lock"), listLockPatience)
	if err != nil {
		return err
	}
	defer lock.Close()
	path, seen := p.listPath(a), p.seenByAll(a, l.seen)
	if len(l.offers) == 0 && seen == nil {
		// A withdrawn provider must not be served stale after a restart.
		if err := p.folder.replace(path, 0); err != nil {
			return err
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	body, err := json.Marshal(listFile{pathOf(a), l.at, l.offers, l.warnings, seen, l.spellings})
	if err != nil {
		return err
	}
	body = append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...)
	if err := p.folder.replace(path, int64(len(body))); err != nil {
		return err
	}
	return privatefolder.Write(path, body)
}

// seenByAll returns the earliest times at which processes that share the folder have seen each version appear. The
// parameter seen has the times of this process, or is nil if this process has no cooldown.
func (p *Puller) seenByAll(a subject.Address, seen map[provider.Version]time.Time) map[provider.Version]time.Time {
	before, err := p.readList(a)
	if err != nil || before.seen == nil {
		return seen
	}
	if seen == nil {
		return before.seen // another process with a cooldown needs it
	}
	out := maps.Clone(seen)
	for v, at := range out {
		// A zero time says only that the process did not see the version appear.
		if other := before.seen[v]; !other.IsZero() && (at.IsZero() || other.Before(at)) {
			out[v] = other
		}
	}
	return out
}

// loadList implements [fresh.Options].Load for lists. It returns the saved list of a provider, which is served only
// while the origin fails. If the list's file cannot be read, loadList returns an empty list, because the file shows
// that the provider is not new.
func (p *Puller) loadList(a subject.Address) (listAnswer, bool) {
	if p.o.Directory == "" {
		return listAnswer{}, false
	}
	l, err := p.readList(a)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !p.folder.isFull():
		return listAnswer{}, false
	case errors.Is(err, fs.ErrNotExist):
		l = &list{seen: map[provider.Version]time.Time{}} // there may have been no room for the list on disk
	case err != nil:
		p.o.Log.Warn("what an origin offered cannot be read from disk", subject.Attr(a), "err", err)
		l = &list{seen: map[provider.Version]time.Time{}} // the cooldown of each version starts again
	}
	if l.at.After(time.Now()) {
		l.at = time.Time{} // the clock was wrong when the list was written
	}
	l.weigh()
	answer := p.newListAnswer(l)
	answer.TTL = 0
	return answer, true
}

var errDamaged = errors.New("the file is damaged")

func (p *Puller) readList(a subject.Address) (*list, error) {
	f, err := os.Open(p.listPath(a))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxListFile))
	if err != nil {
		return nil, err
	}
	sum, body, _ := bytes.Cut(data, []byte("\n"))
	var in listFile
	isEmpty := func(o catalog.Offer) bool {
		return o.Version.IsZero() || slices.Contains(o.Platforms, provider.Platform{})
	}
	if string(sum) != fmt.Sprintf("%x", sha256.Sum256(body)) || json.Unmarshal(body, &in) != nil || in.Subject != pathOf(a) ||
		slices.ContainsFunc(in.Versions, isEmpty) {
		return nil, errDamaged
	}
	// Another release of ocibridge may have written the versions in another order.
	slices.SortFunc(in.Versions, func(a, b catalog.Offer) int { return a.Version.Compare(b.Version) })
	// The file may have been written under other settings, so the current scope and cooldown are applied to its
	// versions.
	out := &list{at: in.Confirmed, warnings: in.Warnings, seen: in.Seen, spellings: in.Spellings}
	out.offers = slices.DeleteFunc(in.Versions, func(o catalog.Offer) bool { return !p.allows(o.Version, out) })
	for i := range out.offers {
		out.offers[i].Signed = p.signed(a)
	}
	return out, nil
}

const (
	// maxListFile is the maximum size in bytes of a list on disk. A thousand versions for twenty platforms take half a MiB.
	maxListFile = 4 << 20
	// maxListFolder is the maximum size in bytes of all lists on disk. Clients that control an origin can request any
	// number of providers from that origin.
	maxListFolder = 256 << 20
)

// listFolder counts the bytes of the lists on disk. Lists are never removed to make room, because they hold the times
// when versions were first seen. If lists were removed, a flood of requests could reset the cooldown.
type listFolder struct {
	max int64 // bytes

	mu    sync.Mutex // guards the following
	bytes int64
	full  bool // a list might not have been saved for lack of room
}

// errFull means that there is no room for a list in the folder of lists.
var errFull = errors.New("there is no room for it")

// count adds up the sizes of the files in a folder, and limits the folder to max bytes. It ignores files that it cannot
// read.
func (f *listFolder) count(dir string, max int64) {
	if f.max = max; dir == "" {
		return
	}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			f.bytes += info.Size()
		}
		return nil
	})
	f.full = f.bytes > f.max-maxListFile // an earlier process might not have found room for a list
}

// replace reserves room for a file of size bytes that replaces the file at path. Its error wraps errFull.
func (f *listFolder) replace(path string, size int64) error {
	before := int64(0)
	if info, err := os.Stat(path); err == nil {
		before = info.Size()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	tooLarge, noRoom := size > maxListFile, f.bytes+size-before > f.max
	if size > before && (tooLarge || noRoom) {
		f.full = f.full || noRoom
		return hint.Wrap(fmt.Errorf("%d bytes of %d are taken, and this list has %d: %w", f.bytes, f.max, size, errFull),
			"let include in the pull_through block name fewer providers, and remove the folder origins beside the cache")
	}
	f.bytes += size - before
	return nil
}

// isFull reports whether a list might not have been saved for lack of room.
func (f *listFolder) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}
