package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// DefaultGCWait is how long a garbage collection waits by default for the writers of the data
// folder.
const DefaultGCWait = time.Minute

// GCOptions configure [Registry.GC].
type GCOptions struct {
	// Wait is the longest time to wait for writers; 0 means [DefaultGCWait].
	Wait      time.Duration
	Retention Retention
	// Remove removes a version that Retention selects. It must not call [Registry.Lock], because GC
	// has locked out all writers. It is not called if Retention is zero.
	Remove func(context.Context, Expired) error
}

// GC first removes the versions that the retention selects. A failure to remove a version does not
// stop GC. Then GC deletes the content that no tag reaches, through indexes, manifests, and
// referrers. It also deletes interrupted uploads and the folders of repositories without tags.
// Readers can continue, also in other processes. GC waits a limited time for writers, and writers
// that begin in the meantime wait for GC.
//
// If a tag reaches a manifest that is missing or damaged, or a file cannot be read, GC deletes
// nothing. A crash of GC leaves no tagged content damaged, and the next GC deletes the rest. freed
// is what GC has deleted, even if it then fails.
func (r *Registry) GC(ctx context.Context, o GCOptions) (freed Garbage, err error) {
	freed.Repositories = []string{}
	err = r.withStorage(func(f *storageFolder, m *contentMarker) error {
		// The first marks need no lock. They only read manifests, so that the second marks, under
		// the lock, have to read only the manifests that have been added. An error can be due to a
		// writer, and then does not happen again.
		_, _ = f.findGarbage(ctx, m)
		f.before("lock", lockFolder)
		unlock, err := r.lockAlone(ctx, cmp.Or(o.Wait, DefaultGCWait))
		if err != nil {
			return err
		}
		defer unlock()
		expired, err := r.findExpired(ctx, f, m, o.Retention, time.Now(), true)
		if err != nil {
			return err
		}
		failed := r.removeExpired(ctx, expired, o.Remove)
		plan, err := f.findGarbage(ctx, m)
		if err == nil {
			freed, err = f.sweep(ctx, plan)
		}
		return errors.Join(failed, err)
	})
	return freed, err
}

// Garbage returns which versions [Registry.GC] would remove and what it would delete, and changes
// nothing. It takes no lock. Content that a running writer has not tagged yet counts as garbage.
func (r *Registry) Garbage(ctx context.Context, o Retention) (found Garbage, expired []Expired, err error) {
	found.Repositories = []string{}
	err = r.withStorage(func(f *storageFolder, m *contentMarker) error {
		var err error
		if expired, err = r.findExpired(ctx, f, m, o, time.Now(), false); err != nil {
			return err
		}
		tags := map[string]map[ociaddr.Tag]bool{}
		for _, e := range expired {
			add(tags, e.Repository, e.Tag, true)
		}
		s, err := f.scan(ctx)
		if err != nil {
			return err
		}
		plan, err := f.planSweep(ctx, m, s.without(tags))
		if err == nil {
			found = plan.garbage
		}
		return err
	})
	return found, expired, err
}

// withStorage calls do with the folder of distribution's storage format, unless nothing was ever
// stored.
func (r *Registry) withStorage(do func(*storageFolder, *contentMarker) error) error {
	if err := r.present(); err != nil {
		return err
	}
	root, err := os.OpenRoot(storage(r.dir))
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
	return f.planSweep(ctx, m, s)
}

// planSweep returns the plan to delete what no tag of a scan reaches.
func (f *storageFolder) planSweep(ctx context.Context, m *contentMarker, s *storageScan) (*sweepPlan, error) {
	reached, err := m.mark(ctx, s)
	if err != nil {
		return nil, err
	}
	return s.plan(reached, m.manifests), nil
}
