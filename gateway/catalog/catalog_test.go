package catalog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/provider"
)

var (
	widget = provider.MustParseAddress("registry.acme.example/acme/widget")
	gadget = provider.MustParseAddress("registry.acme.example/acme/gadget")
	v100   = provider.MustParseVersion("1.0.0")
	v110   = provider.MustParseVersion("1.1.0")
	linux  = provider.MustParsePlatform("linux_amd64")
)

// fake is a registry in memory, because requests over a network do not run in virtual time. It counts its requests,
// and can be made to fail.
type fake struct {
	mu    sync.Mutex
	tags  map[provider.Address]map[string]artifact.Blob
	blobs map[digest.Digest][]byte
	asked map[string]int // the number of requests by kind: list, get, head or blob
	fail  func(ctx context.Context, a provider.Address, what string) error
}

func newFake() *fake {
	return &fake{tags: map[provider.Address]map[string]artifact.Blob{}, blobs: map[digest.Digest][]byte{}, asked: map[string]int{}}
}

func (f *fake) repository(_ context.Context, a subject.Address) (catalog.Store, error) {
	return fakeStore{f, a.(provider.Address)}, nil
}

// down makes every request fail with err from now on, or succeed if err is nil.
func (f *fake) down(err error) {
	f.failing(func(context.Context, provider.Address, string) error { return err })
}

func (f *fake) failing(fail func(ctx context.Context, a provider.Address, what string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// requests returns the number of requests of each kind since requests was last called.
func (f *fake) requests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, what := range slices.Sorted(maps.Keys(f.asked)) {
		out = append(out, fmt.Sprintf("%d %s", f.asked[what], what))
	}
	clear(f.asked)
	return fmt.Sprint(out)
}

func (f *fake) ask(ctx context.Context, a provider.Address, what string) error {
	f.mu.Lock()
	f.asked[what]++
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		if err := fail(ctx, a, what); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *fake) tag(a provider.Address, v provider.Version, blob artifact.Blob) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tags[a] == nil {
		f.tags[a] = map[string]artifact.Blob{}
	}
	f.tags[a][v.String()] = blob
}

// publish stores a version whose package has the given content.
func (f *fake) publish(t testing.TB, a provider.Address, v provider.Version, content string) artifact.Version {
	t.Helper()
	pkg, sums := accepted.Package(t, a, v, linux, release.AsZip([]byte(content)))
	p, _, err := artifact.EncodePackage(pkg)
	if err != nil {
		t.Fatal(err)
	}
	manifest, blobs, err := artifact.EncodeEvidence(artifact.NewEvidence(sums, "test", []string{"5.0"}, provider.About{}))
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	for _, b := range append(blobs, manifest) {
		f.blobs[b.Descriptor.Digest] = b.Data
	}
	f.mu.Unlock()
	out := artifact.Version{Owner: a, Version: v, Packages: []artifact.Package{p}, Evidence: &manifest.Descriptor}
	index, err := artifact.EncodeIndex(out)
	if err != nil {
		t.Fatal(err)
	}
	f.tag(a, v, index)
	return out
}

// publishBare stores an index that references one manifest, but has no annotations that describe the manifest. It
// returns the manifest, which it does not store.
func (f *fake) publishBare(t testing.TB, a provider.Address, v provider.Version, content string) artifact.Blob {
	t.Helper()
	pkg, _ := accepted.Package(t, a, v, linux, release.AsZip([]byte(content)))
	p, manifest, err := artifact.EncodePackage(pkg)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := artifact.EncodeIndex(artifact.Version{Owner: a, Version: v, Packages: []artifact.Package{p}})
	if err != nil {
		t.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(blob.Data, &index); err != nil {
		t.Fatal(err)
	}
	index.Manifests[0].Annotations = nil
	if blob.Data, err = json.Marshal(index); err != nil {
		t.Fatal(err)
	}
	blob.Descriptor.Digest, blob.Descriptor.Size = digest.FromBytes(blob.Data), int64(len(blob.Data))
	f.tag(a, v, blob)
	return manifest
}

type fakeStore struct {
	f *fake
	a provider.Address
}

func (s fakeStore) Tags(ctx context.Context, _ string, fn func([]string) error) error {
	if err := s.f.ask(ctx, s.a, "list"); err != nil {
		return err
	}
	s.f.mu.Lock()
	tags := slices.Collect(maps.Keys(s.f.tags[s.a]))
	s.f.mu.Unlock()
	if tags == nil {
		return answered(http.StatusNotFound, "NAME_UNKNOWN")
	}
	return fn(tags)
}

func (s fakeStore) Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error) {
	return s.named(ctx, tag, "head")
}

func (s fakeStore) Exists(context.Context, ocispec.Descriptor) (bool, error) { return true, nil }

func (s fakeStore) Blobs() registry.BlobStore { return nil }

func (s fakeStore) named(ctx context.Context, tag, what string) (ocispec.Descriptor, error) {
	if err := s.f.ask(ctx, s.a, what); err != nil {
		return ocispec.Descriptor{}, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	blob, ok := s.f.tags[s.a][tag]
	if !ok {
		return ocispec.Descriptor{}, errdef.ErrNotFound
	}
	s.f.blobs[blob.Descriptor.Digest] = blob.Data
	return blob.Descriptor, nil
}

func (s fakeStore) FetchReference(ctx context.Context, tag string) (ocispec.Descriptor, io.ReadCloser, error) {
	desc, err := s.named(ctx, tag, "get")
	if err != nil {
		return desc, nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return desc, io.NopCloser(bytes.NewReader(s.f.blobs[desc.Digest])), nil
}

func (s fakeStore) Fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if err := s.f.ask(ctx, s.a, "blob"); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	data, ok := s.f.blobs[desc.Digest]
	if !ok {
		return nil, errdef.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// answered returns the error that oras-go returns for a registry's response with the given status and error code.
func answered(status int, code string) error {
	return &errcode.ErrorResponse{Method: http.MethodGet, URL: &url.URL{Path: "/v2/x/tags/list"}, StatusCode: status, Errors: errcode.Errors{{Code: code}}}
}

// unreachable is the error of a request to a registry that is down.
var unreachable = &url.Error{Op: "Get", URL: "http://registry/v2/", Err: errors.New("connection refused")}

// hangs waits until the context ends.
func hangs(ctx context.Context, _ provider.Address, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// opened is a catalog together with the view through which tests read it.
type opened struct {
	*catalog.Catalog
	catalog.View
}

func open(t testing.TB, o catalog.Options) opened {
	t.Helper()
	c, err := catalog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return opened{c, c.Union()}
}

// bench is a catalog and its registry. The registry has version 1.0.0 of widget.
type bench struct {
	*fake
	opened
	t *testing.T
}

func newBench(t *testing.T, change func(*catalog.Options)) *bench {
	t.Helper()
	b := &bench{fake: newFake(), t: t}
	b.publish(t, widget, v100, "one")
	o := catalog.Options{Repository: b.repository}
	if change != nil {
		change(&o)
	}
	b.opened = open(t, o)
	return b
}

// want gets widget's versions and version 1.0.0. It checks the answers and the requests that the registry has
// received.
func (b *bench) want(versions string, found bool, requests string) {
	b.t.Helper()
	item, err := b.Versions(b.t.Context(), widget)
	switch {
	case versions == "":
		if err == nil {
			b.t.Errorf("versions %v", item.Versions)
		}
	case err != nil:
		b.t.Errorf("versions: %v", err)
	case fmt.Sprint(item.Versions) != versions:
		b.t.Errorf("versions %v, want %s", item.Versions, versions)
	}
	if item, err := b.Version(b.t.Context(), widget, v100); (err == nil) != found || found && len(item.Found.Packages) != 1 {
		b.t.Errorf("version: %+v, %v", item, err)
	}
	if got := b.requests(); got != requests {
		b.t.Errorf("requests to the registry: %s, want %s", got, requests)
	}
}

// evidence gets the evidence of widget 1.0.0.
func (b *bench) evidence() (*artifact.Evidence, error) {
	item, err := b.Version(b.t.Context(), widget, v100)
	if err != nil {
		return nil, err
	}
	return b.Evidence(b.t.Context(), item)
}

// pass advances the virtual time.
func pass(d time.Duration) { time.Sleep(d) }

// TestTaggedBetweenTwoQuestions shows that, if a version is tagged between the request for its manifest and the
// request for the list of tags, the version is found.
func TestTaggedBetweenTwoQuestions(t *testing.T) {
	f := newFake()
	f.publish(t, widget, v100, "content")
	gets := 0
	f.failing(func(_ context.Context, _ provider.Address, what string) error {
		if what != "get" {
			return nil
		}
		if gets++; gets == 1 {
			return fmt.Errorf("%s: %w", v100, errdef.ErrNotFound)
		}
		return nil
	})
	c := open(t, catalog.Options{Repository: f.repository})
	if item, err := c.Version(t.Context(), widget, v100); err != nil || item.Found == nil {
		t.Errorf("%+v, %v", item, err)
	}
	if gets != 2 {
		t.Errorf("asked %d times", gets)
	}
}
