package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
)

// DefaultGCWait is how long a garbage collection waits by default for the writers of the data
// folder.
const DefaultGCWait = time.Minute

// GC deletes the content that no tag reaches, through indexes, manifests, and referrers. It also
// deletes interrupted uploads and the folders of repositories without tags. Readers can continue,
// also in other processes. GC waits at most the given time for writers, and writers that begin in
// the meantime wait for GC. A wait of 0 means [DefaultGCWait].
//
// If a tag reaches a manifest that is missing or damaged, or a file cannot be read, GC deletes
// nothing. A crash of GC leaves no tagged content damaged, and the next GC deletes the rest. freed
// is what GC has deleted, even if it then fails.
func (r *Registry) GC(ctx context.Context, wait time.Duration) (freed Garbage, err error) {
	freed.Repositories = []string{}
	err = r.withStorage(func(f *storageFolder, m *contentMarker) error {
		// The first marks need no lock. They only read manifests, so that the second marks, under
		// the lock, have to read only the manifests that have been added. An error can be due to a
		// writer, and then does not happen again.
		_, _ = f.findGarbage(ctx, m)
		f.before("lock", lockFolder)
		unlock, err := r.lockAlone(ctx, cmp.Or(wait, DefaultGCWait))
		if err != nil {
			return err
		}
		defer unlock()
		plan, err := f.findGarbage(ctx, m)
		if err != nil {
			return err
		}
		freed, err = f.sweep(ctx, plan)
		return err
	})
	return freed, err
}

// Garbage returns what [Registry.GC] would delete, and changes nothing. It takes no lock. Content
// that a running writer has not tagged yet counts as garbage.
func (r *Registry) Garbage(ctx context.Context) (found Garbage, err error) {
	found.Repositories = []string{}
	err = r.withStorage(func(f *storageFolder, m *contentMarker) error {
		plan, err := f.findGarbage(ctx, m)
		if err == nil {
			found = plan.garbage
		}
		return err
	})
	return found, err
}

// withStorage calls do with the folder of distribution's storage format, unless nothing was ever
// stored.
func (r *Registry) withStorage(do func(*storageFolder, *contentMarker) error) error {
	if err := r.present(); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(content(r.dir), "docker", "registry", "v2"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer root.Close()
		f := &storageFolder{root, r.beforeFile}
		err = do(f, &contentMarker{f, map[digest.Digest]gcManifest{}})
	}
	if err != nil && !errors.Is(err, ErrBusy) {
		return fmt.Errorf("garbage collection of %s: %w", r.dir, err)
	}
	return err
}

// findGarbage scans the folder and returns the plan to delete what no tag reaches.
func (f *storageFolder) findGarbage(ctx context.Context, m *contentMarker) (*sweepPlan, error) {
	s, err := f.scan(ctx)
	if err != nil {
		return nil, err
	}
	reached, err := m.mark(ctx, s)
	if err != nil {
		return nil, err
	}
	return s.plan(reached, m.manifests), nil
}
