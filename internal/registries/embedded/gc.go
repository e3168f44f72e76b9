package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
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

// GC first removes the versions that the retention selects. A failure to remove a version does not stop GC. Then GC deletes
// the content that no tag reaches, through indexes, manifests, and referrers. It also deletes interrupted uploads and the
// folders of repositories without tags. Readers can continue, also in other processes. GC waits a limited time for
// running writers. Writers that begin during that time or later wait for GC.
//
// If a tag reaches a manifest that is missing or damaged, or a file cannot be read, GC deletes nothing. A crash of GC leaves
// no tagged content damaged, and the next GC deletes the rest. freed is the content that GC has deleted. GC also
// returns it with an error.
func (r *Registry) GC(ctx context.Context, o GCOptions) (freed Garbage, err error) {
	freed.Repositories = []string{}
	err = r.withStorage(func(f *storageFolder, m *contentMarker) error {
		// The first search needs no lock. It reads the manifests, so that the second search, under the lock, reads only new
		// ones. The error of the first search is ignored: if a writer was the reason, the second search succeeds.
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

// Garbage returns which versions [Registry.GC] would remove and what it would delete. It takes no lock. Content that a
// running writer has not tagged yet counts as garbage.
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

// errUnusable means that a manifest is missing or damaged, or that the content is no manifest.
var errUnusable = errors.New("unusable manifest")

// gcManifest contains the digests in a manifest or an index.
type gcManifest struct {
	manifests []digest.Digest
	blobs     []digest.Digest
	subject   digest.Digest // "": none
}

// contentMarker finds the content that tags reach. It caches manifests, so that a second scan reads only those that are new.
type contentMarker struct {
	folder    *storageFolder
	manifests map[digest.Digest]gcManifest
}

// marks is the content that tags reach.
type marks struct {
	blobs     map[digest.Digest]bool            // in any repository, manifests included
	manifests map[string]map[digest.Digest]bool // by repository
	layers    map[string]map[digest.Digest]bool // by repository: the blobs that its manifests name
	order     map[string][]digest.Digest        // by repository: its marked manifests
}

func newMarks() *marks {
	return &marks{
		blobs: map[digest.Digest]bool{}, manifests: map[string]map[digest.Digest]bool{}, layers: map[string]map[digest.Digest]bool{}, order: map[string][]digest.Digest{},
	}
}

// mark returns what the tags in a scan reach: through indexes and manifests, and through the subjects of referrers. It
// fails if a tag reaches a manifest that cannot be read, because the content of that manifest is unknown.
func (m *contentMarker) mark(ctx context.Context, s *storageScan) (*marks, error) {
	out := newMarks()
	for _, repository := range slices.Sorted(maps.Keys(s.tags)) {
		for _, tag := range slices.Sorted(maps.Keys(s.tags[repository])) {
			if err := m.reachTag(ctx, s, out, repository, tag); err != nil {
				return nil, err
			}
		}
		if err := m.reachReferrers(ctx, s, out, repository); err != nil {
			return nil, fmt.Errorf("referrers in %s: %w", repository, err)
		}
	}
	return out, nil
}

// reachTag marks the manifest that a tag names, and its content.
func (m *contentMarker) reachTag(ctx context.Context, s *storageScan, out *marks, repository, tag string) error {
	err := m.reach(ctx, s, out, repository, s.tags[repository][tag])
	if err != nil {
		err = fmt.Errorf("%s:%s: %w", repository, tag, err)
	}
	if errors.Is(err, errUnusable) {
		err = m.folder.suggestRepair(err, repository, tag)
	}
	return err
}

// reach marks a manifest and its content.
func (m *contentMarker) reach(ctx context.Context, s *storageScan, out *marks, repository string, d digest.Digest) error {
	if out.manifests[repository][d] {
		return nil
	}
	manifest, err := m.read(ctx, s, d)
	if err != nil {
		return err
	}
	add(out.manifests, repository, d, true)
	out.order[repository] = append(out.order[repository], d)
	out.blobs[d] = true
	for _, b := range manifest.blobs {
		add(out.layers, repository, b, true)
		out.blobs[b] = true
	}
	for _, child := range manifest.manifests {
		if err := m.reach(ctx, s, out, repository, child); err != nil {
			return err
		}
	}
	return nil
}

// reachReferrers marks the referrers of the marked manifests of a repository, and their own referrers.
func (m *contentMarker) reachReferrers(ctx context.Context, s *storageScan, out *marks, repository string) error {
	referrers := map[digest.Digest][]digest.Digest{} // by subject
	for d := range s.revisions[repository] {
		manifest, err := m.read(ctx, s, d)
		if errors.Is(err, errUnusable) {
			continue // the referrers API does not list it either
		}
		if err != nil {
			return err
		}
		if manifest.subject != "" {
			referrers[manifest.subject] = append(referrers[manifest.subject], d)
		}
	}
	for i := 0; i < len(out.order[repository]); i++ { // reach adds to the list
		for _, d := range referrers[out.order[repository][i]] {
			if err := m.reach(ctx, s, out, repository, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns the digests in a manifest. The error wraps errUnusable if the registry has no valid manifest of this digest.
func (m *contentMarker) read(ctx context.Context, s *storageScan, d digest.Digest) (gcManifest, error) {
	if !s.blobs[d] {
		return gcManifest{}, fmt.Errorf("%w: %s is missing", errUnusable, d)
	}
	if known, ok := m.manifests[d]; ok {
		return known, nil
	}
	if ctx.Err() != nil {
		return gcManifest{}, context.Cause(ctx)
	}
	data, err := m.folder.read(blobPath(d), manifestLimits.Bytes)
	if errors.Is(err, fs.ErrNotExist) { // another garbage collection has deleted it
		return gcManifest{}, fmt.Errorf("%w: %s is missing", errUnusable, d)
	}
	if err != nil {
		return gcManifest{}, err
	}
	out, err := decodeReferences(d, data)
	if err == nil {
		m.manifests[d] = out
	}
	return out, err
}

func blobPath(d digest.Digest) string {
	return "blobs/" + string(d.Algorithm()) + "/" + d.Encoded()[:2] + "/" + d.Encoded() + "/data"
}

// decodeReferences returns the digests in a manifest, an index, or another document with the same fields. It ignores
// the media type, so that it also understands documents of other tools.
func decodeReferences(d digest.Digest, data []byte) (out gcManifest, err error) {
	type descriptor struct {
		Digest digest.Digest `json:"digest"`
	}
	var document struct {
		Config    *descriptor  `json:"config"`
		Layers    []descriptor `json:"layers"`
		Blobs     []descriptor `json:"blobs"`
		Manifests []descriptor `json:"manifests"`
		Subject   *descriptor  `json:"subject"`
	}
	if digest.FromBytes(data) != d {
		return out, fmt.Errorf("%w: %s is damaged", errUnusable, d)
	}
	if err := manifestLimits.Unmarshal(data, &document); err != nil {
		return out, fmt.Errorf("%w: %s: %w", errUnusable, d, err)
	}
	if document.Config != nil {
		document.Blobs = append(document.Blobs, *document.Config)
	}
	for _, b := range append(document.Blobs, document.Layers...) {
		out.blobs = append(out.blobs, b.Digest)
	}
	for _, c := range document.Manifests {
		out.manifests = append(out.manifests, c.Digest)
	}
	if document.Subject != nil {
		out.subject = document.Subject.Digest
	}
	return out, nil
}
