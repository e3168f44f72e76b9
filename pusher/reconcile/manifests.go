package reconcile

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const (
	// maxCachedFiles is the maximum number of cached manifests. A typical manifest has 5
	// KiB.
	maxCachedFiles = 20_000
	// maxCachedBytes is the maximum size of a cached manifest in bytes. Together with
	// maxCachedFiles, it limits the folder to 1.3 GB.
	maxCachedBytes = 64 << 10
)

// manifestCache is a folder that caches manifests in files named by digest. Several syncs and
// processes can share the folder. The cache ignores errors of the file system. A manifest
// that cannot be written is not cached. A file that does not match its digest is a cache
// miss.
type manifestCache struct{ folder string }

// openManifestCache opens the cache in a folder, or returns nil if folder is "". The folder
// is created when the first manifest is cached. If the folder has too many files,
// openManifestCache removes the least recently used files.
func openManifestCache(folder string) *manifestCache {
	if folder == "" {
		return nil
	}
	c := &manifestCache{folder}
	privatefolder.Trim(folder, maxCachedFiles)
	return c
}

// get returns a cached manifest. It returns false on a cache miss.
func (c *manifestCache) get(desc ocispec.Descriptor) ([]byte, bool) {
	name, ok := c.filename(desc)
	if !ok {
		return nil, false
	}
	f, _, err := files.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	data, err := orascontent.ReadAll(f, desc)
	if err != nil {
		return nil, false
	}
	_ = os.Chtimes(name, time.Time{}, time.Now()) // if this fails, the file is evicted earlier
	return data, true
}

// put caches a manifest.
func (c *manifestCache) put(desc ocispec.Descriptor, data []byte) {
	if name, ok := c.filename(desc); ok {
		_ = privatefolder.Write(name, data) // if this fails, the next sync reads the manifest from the registry
	}
}

// filename returns the name of a manifest's file. It returns false for a manifest that is
// not cached, because it is larger than maxCachedBytes or has no valid SHA-256 digest.
func (c *manifestCache) filename(desc ocispec.Descriptor) (string, bool) {
	if desc.Digest.Validate() != nil || desc.Digest.Algorithm() != digest.SHA256 || desc.Size > maxCachedBytes {
		return "", false
	}
	return filepath.Join(c.folder, desc.Digest.Encoded()), true
}

// cachedStore reads manifests through the cache. It resolves a tag by HEAD, and fetches the
// manifest only on a cache miss. Without a cache it only passes on requests to the store.
type cachedStore struct {
	repo.Store
	cache *manifestCache // nil: no cache

	// missed is set by the first cache miss. More misses are then likely, so cachedStore
	// fetches all further tags without a HEAD. Nil: cachedStore always sends the HEAD.
	missed *atomic.Bool
}

// FetchReference implements [artifact.ReferenceFetcher].
func (c cachedStore) FetchReference(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	if c.cache == nil {
		return c.Store.FetchReference(ctx, reference)
	}
	if c.missed != nil && c.missed.Load() {
		return c.fetchAndCache(ctx, reference)
	}
	desc, err := c.Resolve(ctx, reference)
	if err != nil || desc.Size <= 0 || desc.Size > artifact.MaxManifestBytes {
		// Some registries omit necessary headers from their response to a HEAD. If the
		// manifest really does not exist, the GET returns 404 as well.
		return c.Store.FetchReference(ctx, reference)
	}
	body, err := c.Fetch(ctx, desc)
	if repo.IsGone(err) { // the tag has moved since, and a prune has deleted the manifest
		return c.Store.FetchReference(ctx, reference)
	}
	return desc, body, err
}

// fetchAndCache fetches a manifest by its tag. It caches the manifest if size and digest
// are right.
func (c cachedStore) fetchAndCache(ctx context.Context, reference string) (ocispec.Descriptor, io.ReadCloser, error) {
	desc, body, err := c.Store.FetchReference(ctx, reference)
	if err != nil {
		return desc, nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, artifact.MaxManifestBytes+1))
	if err != nil {
		return desc, nil, err
	}
	if int64(len(data)) == desc.Size && digest.FromBytes(data) == desc.Digest {
		c.cache.put(desc, data)
	}
	return desc, io.NopCloser(bytes.NewReader(data)), nil
}

// Fetch implements [artifact.Fetcher].
func (c cachedStore) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if c.cache == nil || desc.Size > artifact.MaxManifestBytes || !artifact.IsManifest(desc.MediaType) {
		return c.Store.Fetch(ctx, desc)
	}
	data, ok := c.cache.get(desc)
	if !ok {
		if c.missed != nil {
			c.missed.Store(true)
		}
		var err error
		if data, err = artifact.FetchManifest(ctx, c.Store, desc); err != nil {
			return nil, err
		}
		c.cache.put(desc, data)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// fillCache wraps a function that returns destinations. The stores of the destinations then
// cache every manifest that is pushed under a tag, because the next sync reads that manifest.
func fillCache(destination func(context.Context, subject.Address) (repo.Destination, error), cache *manifestCache) func(context.Context, subject.Address) (repo.Destination, error) {
	return func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		dest, err := destination(ctx, a)
		if err == nil {
			dest.Store = cacheFiller{dest.Store, cache}
		}
		return dest, err
	}
}

type cacheFiller struct {
	repo.Store
	cache *manifestCache
}

// PushReference implements [repo.Store].
func (c cacheFiller) PushReference(ctx context.Context, desc ocispec.Descriptor, content io.Reader, reference string) error {
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if err := c.Store.PushReference(ctx, desc, bytes.NewReader(data), reference); err != nil {
		return err
	}
	c.cache.put(desc, data)
	return nil
}
