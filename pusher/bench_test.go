package pusher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

const host = "registry.acme.example"

var widget = provider.MustParseAddress(host + "/acme/widget")

// bench is an origin with one signed release, and a real registry that records its
// requests.
type bench struct {
	t        *testing.T
	signer   *pgp.Signer
	release  *release.Release
	origin   *origin.Origin
	client   *realorigin.Registry
	registry *loopback.Registry
	repo     *remote.Repository
	options  pusher.Options
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, signer: pgp.For(t, "Acme")}
	b.release = b.build("1.0.0", "content")
	b.origin = origin.New(origin.Options{}, b.release)
	b.client = origin.Client(host, b.serveOrigin())
	b.newRegistry()
	b.options = pusher.Options{RetryPause: time.Millisecond, Destination: func(context.Context, provider.Address) (pusher.Destination, error) {
		return destination(registry.Repository{Repository: b.repo}), nil
	}}
	return b
}

// serveOrigin starts a server for the origin, and returns its URL.
func (b *bench) serveOrigin() string {
	server := httptest.NewServer(b.origin)
	b.t.Cleanup(server.Close)
	return server.URL
}

// newRegistry replaces the registry of the bench with an empty registry.
func (b *bench) newRegistry() {
	b.registry = loopback.For(b.t)
	b.repo = b.registry.Repository("acme/widget")
}

func (b *bench) build(version, content string) *release.Release {
	spec := release.Spec{Host: host, Namespace: "acme", Type: "widget", Version: version, Signer: b.signer}
	for _, p := range []string{"linux_amd64", "darwin_arm64", "windows_amd64"} {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(content + " for " + p)}})
	}
	return release.For(b.t, spec)
}

// get fetches the version of b.release from the origin.
func (b *bench) get(platforms ...string) (*realorigin.Release, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	listing, err := b.client.Versions(b.t.Context(), widget)
	if err != nil {
		return nil, err
	}
	return b.client.Release(b.t.Context(), widget, listing, provider.MustParseVersion(b.release.Version), want)
}

func (b *bench) push(platforms ...string) (*pusher.Result, error) {
	r, err := b.get(platforms...)
	if err != nil {
		return nil, err
	}
	return pusher.New(b.options).Push(b.t.Context(), r)
}

func (b *bench) mustPush(platforms ...string) *pusher.Result {
	b.t.Helper()
	r, err := b.push(platforms...)
	if err != nil {
		b.t.Fatalf("push: %v", err)
	}
	return r
}

// tagged returns the version that the tag names, or nil if the tag is absent.
func (b *bench) tagged() *artifact.Version {
	b.t.Helper()
	v, err := artifact.Read(b.t.Context(), b.repo, widget, provider.MustParseVersion("1.0.0"))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) taggedPlatforms() string {
	b.t.Helper()
	var out []string
	if v := b.tagged(); v != nil {
		for _, p := range v.Packages {
			out = append(out, p.Platform.String())
		}
	}
	return strings.Join(out, " ")
}

const allPlatforms = "darwin_arm64 linux_amd64 windows_amd64"

// refuseEvidence makes the registry refuse manifests of evidence, like a registry with an
// allow list of media types.
func (b *bench) refuseEvidence() {
	b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), `"artifactType":"`+artifact.TypeEvidence+`","config"`) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_INVALID","message":"unknown media type"}]}`)
		return true
	})
}

// pushManifest stores any manifest under a tag.
func (b *bench) pushManifest(mediaType string, data []byte, tag string) ocispec.Descriptor {
	b.t.Helper()
	desc := content.NewDescriptorFromBytes(mediaType, data)
	if err := b.repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.t.Fatal(err)
	}
	return desc
}

// annotationH1 is the key of the annotation that holds the h1: hash in an index entry.
const annotationH1 = "io.github.ocibridge.h1"

// reindex changes the version's index, and moves the version's tag to the changed index.
func (b *bench) reindex(change func(*ocispec.Index)) {
	b.t.Helper()
	data, err := content.FetchAll(b.t.Context(), b.repo, b.tagged().Index)
	if err != nil {
		b.t.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		b.t.Fatal(err)
	}
	change(&index)
	if data, err = json.Marshal(index); err != nil {
		b.t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data)
	if err := b.repo.PushReference(b.t.Context(), desc, bytes.NewReader(data), "1.0.0"); err != nil {
		b.t.Fatal(err)
	}
}

// withoutAnnotations stores a copy of a platform's manifest. The copy lacks the annotations
// of the manifest and of its layer. withoutAnnotations returns an index entry for the copy.
func (b *bench) withoutAnnotations(entry ocispec.Descriptor) ocispec.Descriptor {
	b.t.Helper()
	data, err := content.FetchAll(b.t.Context(), b.repo, entry)
	if err != nil {
		b.t.Fatal(err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		b.t.Fatal(err)
	}
	m.Annotations, m.Layers[0].Annotations = nil, nil
	if data, err = json.Marshal(m); err != nil {
		b.t.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := b.repo.Push(b.t.Context(), desc, bytes.NewReader(data)); err != nil {
		b.t.Fatal(err)
	}
	desc.ArtifactType, desc.Platform = entry.ArtifactType, entry.Platform
	return desc
}

var one = provider.MustParseVersion("1.0.0")

// source returns the bench's registry as the source of a copy. It then gives the bench an
// empty registry.
func (b *bench) source() (pusher.Stored, *recorder.Recorder) {
	from := pusher.Stored{Provider: widget, Repository: ociaddr.Repository{Registry: "source.test", Name: "acme/widget"}, Store: b.repo}
	registry := b.registry
	b.newRegistry()
	return from, registry.Recorder
}

// copy pushes a version of the source to the bench's registry. It copies no referrers.
func (b *bench) copy(from pusher.Stored, platforms ...string) (*pusher.Result, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	r, err := from.Release(b.t.Context(), one, want)
	if err != nil {
		return nil, err
	}
	return pusher.New(b.options).Push(b.t.Context(), r)
}

// leftTags counts the announcement tags in the repository.
func (b *bench) leftTags() int {
	b.t.Helper()
	n := 0
	if err := b.repo.Tags(b.t.Context(), "", func(tags []string) error {
		for _, t := range tags {
			if _, ok := ociaddr.Tag(t).PartOf(); ok {
				n++
			}
		}
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// announcements counts the announcements that pushes have written since the registry was
// new.
func (b *bench) announcements() int {
	return b.registry.Count(recorder.Method(http.MethodPut), recorder.PathContains("/manifests/ocibridge-part."))
}

// destination returns the repository of the bench with a store.
func destination(store pusher.Store) pusher.Destination {
	return pusher.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: store}
}
