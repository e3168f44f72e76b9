package catalog_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

// TestMemoryIsAsBelieved shows that the catalog counts about as much memory as many versions for many platforms take.
func TestMemoryIsAsBelieved(t *testing.T) {
	f := newFake()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const limit = 8 << 20
	c := open(t, catalog.Options{Repository: f.repository, Memory: limit})
	var versions []provider.Version
	for i := range 2000 {
		v := provider.MustParseVersion(fmt.Sprintf("1.0.%d", i))
		f.publishAll(t, gadget, v)
		versions = append(versions, v)
	}
	for _, v := range versions { // the fake registry allocates its own answers first
		if _, _, err := (fakeStore{f, gadget}).FetchReference(t.Context(), v.String()); err != nil {
			t.Fatal(err)
		}
	}
	before := heap()
	for _, v := range versions {
		item, err := c.Version(t.Context(), gadget, v)
		if err != nil {
			t.Fatal(err)
		}
		c.CacheDocument(item, catalog.MirrorDocument, make([]byte, 3000), 3000)
	}
	took, believed := heap()-before, c.Size().Bytes
	t.Logf("the catalog takes %d bytes, and counts %d", took, believed)
	if believed < limit/2 || took > believed*5/4 {
		t.Errorf("the catalog takes %d bytes, and counts %d of at most %d", took, believed, int64(limit))
	}
	runtime.KeepAlive(c)
}

// publishAll stores a version for many platforms.
func (f *fake) publishAll(t *testing.T, a provider.Address, v provider.Version) {
	t.Helper()
	out := artifact.Version{Owner: a, Version: v, Protocols: []string{"5.0"}}
	for _, name := range []string{"darwin_amd64", "darwin_arm64", "freebsd_386", "freebsd_amd64", "linux_386", "linux_amd64", "linux_arm", "linux_arm64", "windows_386", "windows_amd64"} {
		p := provider.MustParsePlatform(name)
		sum := digest.FromString(name + v.String())
		h1, err := provider.ParseHash("h1:" + strings.Repeat("A", 43) + "=")
		if err != nil {
			t.Fatal(err)
		}
		out.Packages = append(out.Packages, artifact.Package{
			Platform: p, Filename: provider.PackageFilename(a, v, p), Digest: sum, Size: 1 << 20, H1: h1,
			Manifest: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: sum, Size: 500},
		})
	}
	index, err := artifact.EncodeIndex(out)
	if err != nil {
		t.Fatal(err)
	}
	f.tag(a, v, index)
}

// TestMemoryIsBounded shows that, if the catalog reads more versions than fit in memory, it evicts the first version.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 256 << 10
	inTime(t, func(o *catalog.Options) { o.Memory = limit }, func(b *bench) {
		for i := range 1000 {
			v := provider.MustParseVersion(fmt.Sprintf("1.0.%d", i))
			b.publish(b.t, gadget, v, "x")
			if _, err := b.Version(b.t.Context(), gadget, v); err != nil {
				b.t.Fatal(err)
			}
			if n := b.Size().Bytes; n > limit {
				b.t.Fatalf("%d bytes after %d versions", n, i)
			}
		}
		b.requests()
		last, first := provider.MustParseVersion("1.0.999"), provider.MustParseVersion("1.0.0")
		if _, err := b.Version(b.t.Context(), gadget, last); err != nil || b.requests() != "[]" {
			b.t.Error("the last version was evicted")
		}
		if _, err := b.Version(b.t.Context(), gadget, first); err != nil || b.requests() != "[1 get]" {
			b.t.Error("the first version was not evicted")
		}
	})
}

// TestWhatDoesNotExistTakesLittle shows that requests for absent versions do not evict the last good answers.
func TestWhatDoesNotExistTakesLittle(t *testing.T) {
	const limit = 256 << 10
	inTime(t, func(o *catalog.Options) { o.Memory = limit }, func(b *bench) {
		b.want("[1.0.0]", true, "[1 get 1 list]")
		for i := range 2000 {
			a := provider.MustParseAddress(fmt.Sprintf("registry.acme.example/acme/x%d", i))
			if _, err := b.Versions(b.t.Context(), a); !errors.Is(err, catalog.ErrAbsent) {
				b.t.Fatal(err)
			}
			absent, err := b.Version(b.t.Context(), widget, provider.MustParseVersion(fmt.Sprintf("9.9.%d", i)))
			if !errors.Is(err, catalog.ErrAbsent) {
				b.t.Fatal(err)
			}
			b.CacheDocument(absent, catalog.MirrorDocument, "absent", 100)
			if n := b.Size().Bytes; n > limit {
				b.t.Fatalf("%d bytes after %d questions", n, 2*i)
			}
		}
		b.down(unreachable)
		pass(time.Minute)
		if item, err := b.Versions(b.t.Context(), widget); err != nil || len(item.Versions) != 1 {
			b.t.Errorf("versions: %v", err)
		}
		if item, err := b.Version(b.t.Context(), widget, v100); err != nil || item.Found == nil {
			b.t.Errorf("version: %v", err)
		}
	})
}
