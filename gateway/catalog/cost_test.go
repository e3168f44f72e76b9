package catalog_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// hostile returns the index of a version for linux_amd64 with additional members.
func hostile(t *testing.T, members map[string]any, entries ...any) artifact.Blob {
	t.Helper()
	index := map[string]any{
		"mediaType": ocispec.MediaTypeImageIndex, "artifactType": artifact.TypeProvider,
		"manifests": append(entries, map[string]any{
			"mediaType": ocispec.MediaTypeImageManifest, "artifactType": artifact.TypeTarget, "digest": digest.FromString("manifest"), "size": 1,
			"platform": map[string]string{"os": "linux", "architecture": "amd64"},
			"annotations": map[string]string{
				"io.github.ocibridge.layer.digest": digest.FromString("layer").String(), "io.github.ocibridge.layer.size": "1",
				"io.github.ocibridge.filename": "terraform-provider-widget_1.0.0_linux_amd64.zip",
			},
		}),
	}
	for key, value := range members {
		index[key] = value
	}
	data, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	// encoding/json replaces invalid UTF-8, but an attacker does not.
	data = bytes.ReplaceAll(data, []byte(`\ufffd`), []byte{0xff})
	return blobOf(ocispec.MediaTypeImageIndex, data)
}

func blobOf(mediaType string, data []byte) artifact.Blob {
	return artifact.Blob{Descriptor: ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, Data: data}
}

// TestCostOfVersions shows that the cost of reading an index of almost 4 MiB is limited. It also shows that the memory
// of five versions with an index of that size is limited.
func TestCostOfVersions(t *testing.T) {
	testkit.LeaveToAll(t)
	const size = artifact.MaxManifestBytes - 3000
	evidence := func(mediaType string) any {
		return map[string]any{"mediaType": mediaType, "artifactType": artifact.TypeEvidence, "digest": digest.FromString("evidence"), "size": 1}
	}
	for name, tc := range map[string]struct {
		index    artifact.Blob
		accepted bool
	}{
		"artifact type":            {hostile(t, map[string]any{"artifactType": strings.Repeat("\x7f", size)}), false},
		"artifact type, no UTF-8":  {hostile(t, map[string]any{"artifactType": strings.Repeat("\xff", size)}), false},
		"protocols":                {hostile(t, map[string]any{"annotations": map[string]string{"io.github.ocibridge.protocols": strings.Repeat("5,", size/2)}}), true},
		"media type of evidence":   {hostile(t, nil, evidence(strings.Repeat("x", size))), false},
		"annotation of other tool": {hostile(t, map[string]any{"annotations": map[string]string{"com.example.notes": strings.Repeat("x", size)}}), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			var versions []provider.Version
			for i := range 6 {
				v := provider.MustParseVersion(fmt.Sprintf("1.%d.0", i))
				f.tag(widget, v, tc.index)
				versions = append(versions, v)
			}
			c := open(t, catalog.Options{Repository: f.repository})
			ask := func(v provider.Version) error {
				_, err := c.Version(t.Context(), widget, v)
				if err != nil && (len(err.Error()) > 2<<10 || !errors.Is(err, artifact.ErrNotProvider)) {
					t.Errorf("an error of %d bytes: %.200v", len(err.Error()), err)
				}
				return err
			}
			cost.Check(t, len(tc.index.Data), !tc.accepted, func() error { return ask(versions[0]) })
			// The buffers of the decoder are free at this point, so only the content of the five versions is measured.
			before := c.Size().Bytes
			content := int64(0)
			cost.Kept(t, 256<<10, func() any {
				for _, v := range versions[1:] {
					ask(v)
				}
				content = c.Size().Bytes - before
				return c
			})
			if content > 128<<10 {
				t.Errorf("the catalog counts %d bytes", content)
			}
		})
	}
}

// checkBelieved measures how much the memory of the process grows while fill runs. It fails the test if the memory
// grows by much more than the catalog counts, or if the catalog counts fewer than the given minimum of bytes.
func checkBelieved(t *testing.T, c opened, least int64, fill func()) {
	t.Helper()
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	fill()
	took, believed := heap()-before, c.Size().Bytes
	t.Logf("the catalog takes %d bytes, and counts %d", took, believed)
	if believed < least || took > believed*5/4 {
		t.Errorf("the catalog takes %d bytes, and counts %d", took, believed)
	}
	runtime.KeepAlive(c)
}

// TestRefusalsAreCounted shows that the memory of cached refusals is counted, however long their reasons are.
func TestRefusalsAreCounted(t *testing.T) {
	testkit.LeaveToAll(t)
	for name, words := range map[string]int{"long": 64 << 10, "just short enough": 1500} {
		for where, by := range map[string]func(*catalog.Options, func() error){
			"by Check": func(o *catalog.Options, refusal func() error) {
				o.Check = func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
					return nil, refusal()
				}
			},
			"by an origin": func(o *catalog.Options, refusal func() error) {
				o.Origin = refusing(refusal)
			},
		} {
			t.Run(name+", "+where, func(t *testing.T) {
				f := newFake()
				index := hostile(t, nil)
				var versions []provider.Version
				for i := range 200 {
					v := provider.MustParseVersion(fmt.Sprintf("1.%d.0", i))
					f.tag(widget, v, index)
					versions = append(versions, v)
				}
				o := catalog.Options{Repository: f.repository, Memory: 32 << 20}
				by(&o, func() error {
					return fmt.Errorf("read: %w", fmt.Errorf("%w: %s", trust.ErrSignature, strings.Repeat("x", words)))
				})
				c := open(t, o)
				checkBelieved(t, c, 200<<10, func() {
					for _, v := range versions {
						for range 2 { // the second request gets the cached refusal
							_, err := c.Version(t.Context(), widget, v)
							if !errors.Is(err, trust.ErrSignature) || len(err.Error()) > 3<<10 {
								t.Fatalf("an error of %d bytes: %.200v", len(err.Error()), err)
							}
						}
					}
				})
			})
		}
	}
}

// refusing is an origin that refuses each version with another error.
type refusing func() error

func (refusing) Selects(subject.Address) bool { return true }

func (refusing) Offers(context.Context, subject.Address) ([]catalog.Offer, []string, error) {
	return nil, nil, nil
}

func (r refusing) Complete(context.Context, subject.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
	return nil, r()
}

func (refusing) Blob(provider.Address, digest.Digest) ([]byte, bool) { return nil, false }

func (refusing) Package(provider.Address, provider.Version, artifact.Package, catalog.Stored) catalog.Blob {
	return nil
}

func (refusing) Forget(subject.Address) {}

func (refusing) Store(context.Context, module.Address, provider.Version) error { return nil }

// made is a store that creates each response anew, so that a response takes no memory before it is requested.
type made struct {
	fakeStore
	*offering
	tags     func() []string
	offers   func() []catalog.Offer
	warnings func() []string // nil means no warnings
}

func (m *made) Tags(_ context.Context, _ string, fn func([]string) error) error { return fn(m.tags()) }

func (m *made) Offers(context.Context, subject.Address) ([]catalog.Offer, []string, error) {
	var warnings []string
	if m.warnings != nil {
		warnings = m.warnings()
	}
	return m.offers(), warnings, nil
}

// TestListsAreCounted shows that the memory of lists is counted, even if their versions have long names or their
// offers have many protocols.
func TestListsAreCounted(t *testing.T) {
	testkit.LeaveToAll(t)
	name := func(i int) string { return fmt.Sprintf("1.0.%d-%s", i, strings.Repeat("x", 100)) }
	for what, m := range map[string]*made{
		"tags": {tags: func() (out []string) {
			for i := range 20_000 {
				out = append(out, name(i))
			}
			return out
		}},
		"offers": {tags: func() []string { return []string{"1.0.0"} }, offers: func() (out []catalog.Offer) {
			for i := range 5_000 {
				o := catalog.Offer{Version: provider.MustParseVersion(name(i))}
				for j := range 16 {
					o.Protocols = append(o.Protocols, fmt.Sprintf("%d.%d", 1000+i, 1000+j))
				}
				for j := range 8 {
					o.Platforms = append(o.Platforms, provider.MustParsePlatform(fmt.Sprintf("linux_%s%d", strings.Repeat("x", 25), j)))
				}
				out = append(out, o)
			}
			return out
		}},
		"warnings": {tags: func() []string { return []string{"1.0.0"} }, warnings: func() (out []string) {
			for i := range 2_000 {
				out = append(out, strings.Repeat("x", 500)+fmt.Sprint(i))
			}
			return out
		}},
	} {
		t.Run(what, func(t *testing.T) {
			if m.offers == nil {
				m.offers = func() []catalog.Offer { return nil }
			}
			c := open(t, catalog.Options{Memory: 64 << 20, Origin: m, Repository: func(context.Context, subject.Address) (catalog.Store, error) { return m, nil }})
			checkBelieved(t, c, 1<<20, func() {
				if _, err := c.Versions(t.Context(), widget); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestEvidenceIsCounted shows that the memory of evidence with the largest valid records is counted.
func TestEvidenceIsCounted(t *testing.T) {
	testkit.LeaveToAll(t)
	f := newFake()
	c := open(t, catalog.Options{Repository: f.repository, Memory: 64 << 20})
	var items []*catalog.Item
	for i := range 50 {
		manifest, blobs, err := artifact.EncodeEvidence(artifact.Evidence{Record: artifact.Record{
			Verdict: trust.ChecksumOnly, Origin: strings.Repeat("o", 30<<10) + fmt.Sprint(i), Fingerprint: strings.Repeat("f", 30<<10), Protocols: []string{"5.0"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range append(blobs, manifest) {
			f.blobs[b.Descriptor.Digest] = b.Data
		}
		items = append(items, &catalog.Item{Address: widget, Found: &artifact.Version{Evidence: &manifest.Descriptor}})
	}
	checkBelieved(t, c, 1<<20, func() {
		for _, item := range items {
			if _, err := c.Evidence(t.Context(), item); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestVersionOfManyManifests shows that a version is refused if the total size of its manifests exceeds the total size
// for any real version. The reason for the limit is that all manifests are in memory at the same time.
func TestVersionOfManyManifests(t *testing.T) {
	testkit.LeaveToAll(t)
	layer := map[string]any{"mediaType": "archive/zip", "digest": digest.FromString("layer"), "size": 1}
	for n, accepted := range map[int]bool{6: true, 20: false} {
		f := newFake()
		var entries []any
		for i := range n {
			data, err := json.Marshal(map[string]any{
				"mediaType": ocispec.MediaTypeImageManifest, "artifactType": artifact.TypeTarget, "layers": []any{layer},
				"annotations": map[string]string{"n": fmt.Sprint(i, strings.Repeat("x", 3<<20))},
			})
			if err != nil {
				t.Fatal(err)
			}
			manifest := blobOf(ocispec.MediaTypeImageManifest, data)
			f.blobs[manifest.Descriptor.Digest] = data
			entries = append(entries, map[string]any{
				"mediaType": ocispec.MediaTypeImageManifest, "artifactType": artifact.TypeTarget, "digest": manifest.Descriptor.Digest, "size": len(data),
				"platform": map[string]string{"os": "linux", "architecture": fmt.Sprint("x", i)},
			})
		}
		f.tag(widget, v100, hostile(t, nil, entries...))
		var asked atomic.Int32
		f.failing(func(ctx context.Context, _ provider.Address, what string) error {
			if what == "blob" && ctx.Err() == nil {
				asked.Add(1)
			}
			return ctx.Err()
		})
		c := open(t, catalog.Options{Repository: f.repository, Timeout: time.Minute})
		_, err := c.Version(t.Context(), widget, v100)
		if (err == nil) != accepted || err != nil && !errors.Is(err, artifact.ErrTooLarge) {
			t.Errorf("%d manifests: %v", n, err)
		}
		if !accepted && int(asked.Load()) == n {
			t.Errorf("all %d manifests are requested", n)
		}
	}
}

// TestDescriptorsAreNotKept shows that, after content is read, the annotations of its descriptor do not stay in
// memory, even if they are 1 MiB long.
func TestDescriptorsAreNotKept(t *testing.T) {
	testkit.LeaveToAll(t)
	f := newFake()
	c := open(t, catalog.Options{Repository: f.repository})
	cost.Kept(t, 1<<20, func() any {
		for i := range 10 {
			blob := blobOf("text/plain", fmt.Append(nil, i))
			f.blobs[blob.Descriptor.Digest] = blob.Data
			blob.Descriptor.Annotations = map[string]string{"n": fmt.Sprint(i, strings.Repeat("x", 1<<20))}
			body, err := c.Metadata(widget).Fetch(t.Context(), blob.Descriptor)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(body); err != nil || string(data) != fmt.Sprint(i) {
				t.Errorf("read %q, %v", data, err)
			}
		}
		return c
	})
}

// TestCostOfRecords shows that, if a record on disk has millions of versions, it is rejected at little cost.
func TestCostOfRecords(t *testing.T) {
	testkit.LeaveToAll(t)
	f := newFake()
	f.publish(t, widget, v100, "one")
	c := open(t, catalog.Options{Repository: f.repository, Directory: t.TempDir()})
	body := cost.Filled(16<<20-100, `{"provider":"registry.acme.example/acme/widget","confirmed":"2999-01-01T00:00:00Z","versions":[`, `""`, `]}`)
	file := catalog.RecordFile(c.Catalog, widget, "list")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...), 0o600); err != nil {
		t.Fatal(err)
	}
	cost.Check(t, len(body), false, func() error {
		item, err := c.Versions(t.Context(), widget)
		if err == nil && fmt.Sprint(item.Versions) != "[1.0.0]" {
			t.Errorf("%d versions", len(item.Versions))
		}
		return err
	})
}
