package embedded

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/ociaddr"
)

const (
	// useInterval is the minimum time between two records of the use of a version.
	useInterval = 24 * time.Hour
	// maxUses is the number of versions whose last record is remembered.
	maxUses = 8192
	// maxWaitingUses is the number of uses that wait to be recorded. Further uses are dropped, and
	// recorded at the next request.
	maxWaitingUses = 256
	// maxUsedPath is the maximum length of a path that is remembered.
	maxUsedPath = 512
)

// use is the use of a version. key identifies the version in this process.
type use struct {
	key     any
	version func() (repository string, tag ociaddr.Tag, err error)
}

// Used records that a client uses a version, for [Retention]. It returns at once. At most once a
// day and for each key, it calls version in the background, and sets the time of the version's
// mark. It does nothing for versions without a mark.
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

// recordUses records uses until ctx ends, and then those that wait.
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
	rest, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	repository, reference, isManifest := strings.Cut(rest, "/manifests/")
	if !ok || !isManifest || len(req.URL.Path) > maxUsedPath || req.Method != http.MethodGet {
		return
	}
	tag, err := ociaddr.ParseTag(reference)
	if err != nil {
		return // a digest
	}
	r.Used(req.URL.Path, func() (string, ociaddr.Tag, error) { return repository, tag, nil })
}
