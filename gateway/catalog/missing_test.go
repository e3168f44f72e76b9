package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

// publishPartly stores an index of the kind that other tools create. The index names linux_amd64, and n platforms whose
// manifests are not stored. It returns the missing manifests.
func (f *fake) publishPartly(t testing.TB, a provider.Address, v provider.Version, n int) []artifact.Blob {
	t.Helper()
	first := f.publishBare(t, a, v, "partly")
	tagged := f.tags[a][v.String()]
	var index ocispec.Index
	if err := json.Unmarshal(tagged.Data, &index); err != nil {
		t.Fatal(err)
	}
	var missing []artifact.Blob
	data := first.Data
	for i := range n {
		data = append(data[:len(data):len(data)], '\n') // the same manifest with another digest
		entry := index.Manifests[0]
		entry.Digest, entry.Size = digest.FromBytes(data), int64(len(data))
		entry.Platform = &ocispec.Platform{OS: fmt.Sprintf("os%d", i), Architecture: "amd64"}
		index.Manifests = append(index.Manifests, entry)
		missing = append(missing, artifact.Blob{Descriptor: entry, Data: data})
	}
	var err error
	if tagged.Data, err = json.Marshal(index); err != nil {
		t.Fatal(err)
	}
	tagged.Descriptor.Digest, tagged.Descriptor.Size = digest.FromBytes(tagged.Data), int64(len(tagged.Data))
	f.tag(a, v, tagged)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blobs[first.Descriptor.Digest] = first.Data
	return missing
}

// wantPackages gets widget 1.1.0. It checks the number of packages, the number of missing manifests, and the requests
// that the registry has received.
func (b *bench) wantPackages(whole, missing int, requests string) *catalog.Item {
	b.t.Helper()
	item, err := b.Version(b.t.Context(), widget, v110)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(item.Found.Packages) != whole || len(item.Found.Missing) != missing {
		b.t.Errorf("%d packages and %d missing, want %d and %d", len(item.Found.Packages), len(item.Found.Missing), whole, missing)
	}
	if got := b.requests(); got != requests {
		b.t.Errorf("the registry is asked for %s, want %s", got, requests)
	}
	return item
}

// TestMissingManifestArrives shows that, each time the catalog revalidates a tag, it requests only the missing
// manifests again.
func TestMissingManifestArrives(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		missing := b.publishPartly(b.t, widget, v110, 1)[0]
		before := b.wantPackages(1, 1, "[2 blob 1 get]")
		b.wantPackages(1, 1, "[]")
		pass(time.Minute)
		if b.wantPackages(1, 1, "[1 blob 1 get]") != before {
			b.t.Error("the unchanged version is another item, so its cached document is lost")
		}
		b.blobs[missing.Descriptor.Digest] = missing.Data
		pass(time.Minute)
		b.wantPackages(2, 0, "[1 blob 1 get]")
		pass(time.Minute)
		b.wantPackages(2, 0, "[1 head]")
	})
}

// TestMissingManifestAfterRestart shows that, if the registry is down after a restart, the packages whose manifests are
// on disk are served.
func TestMissingManifestAfterRestart(t *testing.T) {
	onDisk(t, t.TempDir(), nil, func(k *kept) {
		missing := k.publishPartly(k.t, widget, v110, 1)[0]
		k.wantPackages(1, 1, "[2 blob 1 get]")
		synctest.Wait()
		k.down(unreachable)
		pass(time.Hour)
		k.restart()
		k.wantPackages(1, 1, "[1 get]")
		k.down(nil)
		k.blobs[missing.Descriptor.Digest] = missing.Data
		pass(time.Minute)
		k.wantPackages(2, 0, "[1 blob 1 get]")
		synctest.Wait()
		k.restart()
		k.wantPackages(2, 0, "[]")
	})
}

// TestMissingManifestOfANewIndex shows that, while manifests of a new index are missing, the last good answer is served
// stale.
func TestMissingManifestOfANewIndex(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.publish(b.t, widget, v110, "whole")
		whole := b.wantPackages(1, 0, "[1 get]")
		missing := b.publishPartly(b.t, widget, v110, 1)[0]
		pass(time.Minute)
		if b.wantPackages(1, 0, "[2 blob 1 get 1 head]") != whole {
			b.t.Error("another answer is served stale")
		}
		b.blobs[missing.Descriptor.Digest] = missing.Data
		pass(time.Minute)
		b.wantPackages(2, 0, "[2 blob 1 get 1 head]")
	})
}

// TestManyMissingManifests shows that the number of requests for the missing manifests of one version is limited.
func TestManyMissingManifests(t *testing.T) {
	inTime(t, nil, func(b *bench) {
		b.publishPartly(b.t, widget, v110, 32)
		b.wantPackages(1, 32, "[33 blob 1 get]")
		b.publishPartly(b.t, widget, v100, 4000)
		var asked atomic.Int32
		b.failing(func(ctx context.Context, _ provider.Address, _ string) error {
			if ctx.Err() == nil { // a request is sent only if the context has not ended
				asked.Add(1)
			}
			return nil
		})
		if item, err := b.Version(b.t.Context(), widget, v100); !errors.Is(err, artifact.ErrMissing) {
			b.t.Errorf("%+v, %v", item, err)
		}
		synctest.Wait()
		if n := asked.Load(); n > 50 {
			b.t.Errorf("%d requests to the registry", n)
		}
	})
}

// TestRefusedWhileManifestsAreMissing shows that, if an index is refused while manifests are missing, it is checked
// again once they have arrived.
func TestRefusedWhileManifestsAreMissing(t *testing.T) {
	refuse := func(_ context.Context, _ artifact.Fetcher, _ provider.Address, _ provider.Version, found *artifact.Version) (*artifact.Version, error) {
		if len(found.Missing) > 0 {
			return nil, errors.New("nothing that is whole is vouched for")
		}
		return found, nil
	}
	inTime(t, func(o *catalog.Options) { o.Check = refuse }, func(b *bench) {
		missing := b.publishPartly(b.t, widget, v110, 1)[0]
		if item, err := b.Version(b.t.Context(), widget, v110); err == nil {
			b.t.Errorf("%+v", item.Found)
		}
		b.blobs[missing.Descriptor.Digest] = missing.Data
		pass(time.Minute)
		if item, err := b.Version(b.t.Context(), widget, v110); err != nil || len(item.Found.Packages) != 2 {
			b.t.Errorf("%+v, %v", item, err)
		}
	})
}
