// Package pushbench has an origin and a registry, between which tests push, sync and remove one provider.
package pushbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

const Host = "registry.acme.example"

var Widget = provider.MustParseAddress(Host + "/acme/widget")

// Bench is an origin with one signed release, and a real registry that records its
// requests.
type Bench struct {
	T        *testing.T
	Signer   *pgp.Signer
	Release  *release.Release
	Origin   *origin.Origin
	Client   *realorigin.Registry
	Registry *loopback.Registry
	Repo     *remote.Repository
	Options  pusher.Options
}

func New(t *testing.T) *Bench {
	b := &Bench{T: t, Signer: pgp.For(t, "Acme")}
	b.Release = b.Build("1.0.0", "content")
	b.Origin = origin.New(origin.Options{}, b.Release)
	b.Client = origin.Client(Host, b.ServeOrigin())
	b.NewRegistry()
	b.Options = pusher.Options{RetryPause: time.Millisecond, Destination: func(context.Context, subject.Address) (repo.Destination, error) {
		return Destination(registry.Repository{Repository: b.Repo}), nil
	}}
	return b
}

// ServeOrigin starts a server for the origin, and returns its URL.
func (b *Bench) ServeOrigin() string {
	server := httptest.NewServer(b.Origin)
	b.T.Cleanup(server.Close)
	return server.URL
}

// NewRegistry replaces the registry of the bench with an empty registry.
func (b *Bench) NewRegistry() {
	b.Registry = loopback.For(b.T)
	b.Repo = b.Registry.Repository("acme/widget")
}

func (b *Bench) Build(version, content string) *release.Release {
	spec := release.Spec{Host: Host, Namespace: "acme", Type: "widget", Version: version, Signer: b.Signer}
	for _, p := range []string{"linux_amd64", "darwin_arm64", "windows_amd64"} {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-widget_v" + version: []byte(content + " for " + p)}})
	}
	return release.For(b.T, spec)
}

// Get fetches the version of b.release from the origin.
func (b *Bench) Get(platforms ...string) (*realorigin.Release, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	listing, err := b.Client.Versions(b.T.Context(), Widget)
	if err != nil {
		return nil, err
	}
	return b.Client.Release(b.T.Context(), Widget, listing, provider.MustParseVersion(b.Release.Version), want)
}

func (b *Bench) Push(platforms ...string) (*pusher.Result, error) {
	r, err := b.Get(platforms...)
	if err != nil {
		return nil, err
	}
	return pusher.New(b.Options).Push(b.T.Context(), r)
}

func (b *Bench) MustPush(platforms ...string) *pusher.Result {
	b.T.Helper()
	r, err := b.Push(platforms...)
	if err != nil {
		b.T.Fatalf("push: %v", err)
	}
	return r
}

// Tagged returns the version that the tag names, or nil if the tag is absent.
func (b *Bench) Tagged() *artifact.Version {
	b.T.Helper()
	v, err := artifact.Read(b.T.Context(), b.Repo, Widget, provider.MustParseVersion("1.0.0"))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.T.Fatal(err)
	}
	return v
}

func (b *Bench) TaggedPlatforms() string {
	b.T.Helper()
	var out []string
	if v := b.Tagged(); v != nil {
		for _, p := range v.Packages {
			out = append(out, p.Platform.String())
		}
	}
	return strings.Join(out, " ")
}

const AllPlatforms = "darwin_arm64 linux_amd64 windows_amd64"

// RefuseEvidence makes the registry refuse manifests of evidence, like a registry with an
// allow list of media types.
func (b *Bench) RefuseEvidence() {
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.T.Error(err)
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

// PushManifest stores any manifest under a tag.
func (b *Bench) PushManifest(mediaType string, data []byte, tag string) ocispec.Descriptor {
	b.T.Helper()
	desc := content.NewDescriptorFromBytes(mediaType, data)
	if err := b.Repo.PushReference(b.T.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.T.Fatal(err)
	}
	return desc
}

// AnnotationH1 is the key of the annotation that holds the h1: hash in an index entry.
const AnnotationH1 = "io.github.ocibridge.h1"

// Reindex changes the version's index, and moves the version's tag to the changed index.
func (b *Bench) Reindex(change func(*ocispec.Index)) {
	b.T.Helper()
	data, err := content.FetchAll(b.T.Context(), b.Repo, b.Tagged().Index)
	if err != nil {
		b.T.Fatal(err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		b.T.Fatal(err)
	}
	change(&index)
	if data, err = json.Marshal(index); err != nil {
		b.T.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data)
	if err := b.Repo.PushReference(b.T.Context(), desc, bytes.NewReader(data), "1.0.0"); err != nil {
		b.T.Fatal(err)
	}
}

// WithoutAnnotations stores a copy of a platform's manifest. The copy lacks the annotations
// of the manifest and of its layer. WithoutAnnotations returns an index entry for the copy.
func (b *Bench) WithoutAnnotations(entry ocispec.Descriptor) ocispec.Descriptor {
	b.T.Helper()
	data, err := content.FetchAll(b.T.Context(), b.Repo, entry)
	if err != nil {
		b.T.Fatal(err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		b.T.Fatal(err)
	}
	m.Annotations, m.Layers[0].Annotations = nil, nil
	if data, err = json.Marshal(m); err != nil {
		b.T.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	if err := b.Repo.Push(b.T.Context(), desc, bytes.NewReader(data)); err != nil {
		b.T.Fatal(err)
	}
	desc.ArtifactType, desc.Platform = entry.ArtifactType, entry.Platform
	return desc
}

var One = provider.MustParseVersion("1.0.0")

// Source returns the bench's registry as the source of a copy. It then gives the bench an
// empty registry.
func (b *Bench) Source() (pusher.Stored, *recorder.Recorder) {
	from := pusher.Stored{Subject: Widget, Repository: ociaddr.Repository{Registry: "source.test", Name: "acme/widget"}, Store: b.Repo}
	registry := b.Registry
	b.NewRegistry()
	return from, registry.Recorder
}

// Copy pushes a version of the source to the bench's registry. It copies no referrers.
func (b *Bench) Copy(from pusher.Stored, platforms ...string) (*pusher.Result, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	r, err := from.Release(b.T.Context(), One, want)
	if err != nil {
		return nil, err
	}
	return pusher.New(b.Options).Push(b.T.Context(), r)
}

// LeftTags counts the announcement tags in the repository.
func (b *Bench) LeftTags() int {
	b.T.Helper()
	n := 0
	if err := b.Repo.Tags(b.T.Context(), "", func(tags []string) error {
		for _, t := range tags {
			if _, ok := ociaddr.Tag(t).PartOf(); ok {
				n++
			}
		}
		return nil
	}); err != nil {
		b.T.Fatal(err)
	}
	return n
}

// Announcements counts the announcements that pushes have written since the registry was
// new.
func (b *Bench) Announcements() int {
	return b.Registry.Count(recorder.Method(http.MethodPut), recorder.PathContains("/manifests/ocibridge-part."))
}

// Destination returns the repository of the bench with a store.
func Destination(store repo.Store) repo.Destination {
	return repo.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: store}
}

func AllowUnsigned(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} }

// AttachTo pushes a referrer of a manifest.
func (b *Bench) AttachTo(subject ocispec.Descriptor, what string) ocispec.Descriptor {
	b.T.Helper()
	config := artifact.Config()
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/x." + what,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{config.Descriptor},
		Subject: &ocispec.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
	})
	if err != nil {
		b.T.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, manifest)
	for _, blob := range []artifact.Blob{config, {Descriptor: desc, Data: manifest}} {
		if err := b.Repo.Push(b.T.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			b.T.Fatal(err)
		}
	}
	return desc
}

func WithoutLine(text, part string) (out []string) {
	for l := range strings.SplitSeq(text, "\n") {
		if !strings.Contains(l, part) {
			out = append(out, l)
		}
	}
	return out
}

// Immutable makes the registry refuse to move tags. pushed lists the tags that exist already.
func (b *Bench) Immutable(status int, answer string, pushed ...string) {
	tags := map[string]bool{}
	for _, tag := range pushed {
		tags[tag] = true
	}
	b.Registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		tag := path.Base(r.URL.Path)
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") || strings.HasPrefix(tag, "sha256:") {
			return false
		}
		if !tags[tag] {
			tags[tag] = true
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, answer)
		return true
	})
}

// Refusals are the responses of registries to a request that would move an immutable tag.
var Refusals = map[string]struct {
	Status int
	Answer string
	Words  string
}{
	"harbor": {http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"Failed to process request due to 'widget:1.0.0' configured as immutable."}]}`, "configured as immutable"},
	"ecr":    {http.StatusBadRequest, `{"errors":[{"code":"TAG_INVALID","message":"The image tag '1.0.0' already exists in the 'widget' repository and cannot be overwritten because the tag is immutable."}]}`, "cannot be overwritten"},
	"acr":    {http.StatusMethodNotAllowed, `{"errors":[{"code":"UNSUPPORTED","message":"The operation is disallowed on this registry, repository or image."}]}`, "disallowed"},
	"hub":    {http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"Immutable tag cannot be updated"}]}`, "Immutable tag"},
}

func (b *Bench) ModuleDestination() repo.Destination {
	return repo.Destination{Repository: ociaddr.Repository{Registry: "registry.test", Name: "acme/widget"}, Store: registry.Repository{Repository: b.Repo}}
}

// MustPushModule pushes a module, and checks the status, and that a plan has the same result.
func (b *Bench) MustPushModule(pkg Module, want pusher.Status) *pusher.Result {
	b.T.Helper()
	planned, err := pusher.New(b.Options).PlanZip(b.T.Context(), b.ModuleDestination(), pkg.Stored(), pkg.Open)
	if err != nil {
		b.T.Fatal(err)
	}
	r, err := b.PushModule(pkg)
	if err != nil {
		b.T.Fatal(err)
	}
	if r.Status != want || planned.Status != want || planned.Tag != r.Tag || planned.Digest != r.Digest {
		b.T.Errorf("%+v, planned %+v, want %s", r, planned, want)
	}
	return r
}

// stored returns the stored version of the module.
func (b *Bench) StoredModule(v string) *artifact.Version {
	b.T.Helper()
	m, err := artifact.ReadZip(b.T.Context(), b.Repo, VPC, provider.MustParseVersion(v))
	if err != nil {
		b.T.Fatal(err)
	}
	return m
}

// Module is a packed version of a module.
type Module struct {
	artifact.Package
	Address  module.Address
	Version  provider.Version
	Revision string
	Source   artifact.Provenance
	Open     func() io.ReadCloser
}

// Stored returns the version to push.
func (m Module) Stored() *artifact.Version {
	return &artifact.Version{Owner: m.Address, Version: m.Version, Packages: []artifact.Package{m.Package}, Revision: m.Revision, Provenance: m.Source}
}

// ModulePackage packs a module with one file.
func ModulePackage(t *testing.T, version, content string) Module {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	z, err := modulezip.Pack(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Close() })
	return Module{
		Package: artifact.Package{Digest: z.Digest, Size: z.Size, H1: z.H1}, Address: VPC, Version: provider.MustParseVersion(version), Open: z.Open,
	}
}

var VPC = module.MustParseAddress(Host + "/platform/vpc/aws")

// CopyWith copies a stored version with its referrers.
func (b *Bench) CopyWith(from pusher.Stored, platforms ...string) (*pusher.Result, error) {
	var want []provider.Platform
	for _, p := range platforms {
		want = append(want, provider.MustParsePlatform(p))
	}
	return pusher.New(b.Options).Copy(b.T.Context(), from, One, want)
}

// Store pushes a manifest with one layer. The manifest has a subject unless subject is "". If tag is "", the manifest
// gets no tag.
func (b *Bench) Store(repo *remote.Repository, text string, subject digest.Digest, tag string) ocispec.Descriptor {
	b.T.Helper()
	layer := content.NewDescriptorFromBytes("text/plain", []byte(text))
	m := map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "artifactType": AttachedType,
		"config": ocispec.DescriptorEmptyJSON, "layers": []ocispec.Descriptor{layer},
	}
	if subject != "" {
		m["subject"] = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: subject, Size: 1}
	}
	data, err := json.Marshal(m)
	if err != nil {
		b.T.Fatal(err)
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	for d, bytes_ := range map[*ocispec.Descriptor][]byte{&layer: []byte(text), {MediaType: ocispec.DescriptorEmptyJSON.MediaType, Digest: ocispec.DescriptorEmptyJSON.Digest, Size: 2}: []byte("{}")} {
		if err := repo.Push(b.T.Context(), *d, bytes.NewReader(bytes_)); err != nil {
			b.T.Fatal(err)
		}
	}
	if tag == "" {
		tag = desc.Digest.String()
	}
	if err := repo.PushReference(b.T.Context(), desc, bytes.NewReader(data), tag); err != nil {
		b.T.Fatal(err)
	}
	return desc
}

// WithoutAPI makes a registry return 404 for the referrers API, like a registry without that API.
func WithoutAPI(r *recorder.Recorder) {
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/referrers/") {
			return false
		}
		http.NotFound(w, req)
		return true
	})
}

// State returns the state of the repository, or nil if it has no state.
func (b *Bench) State() *artifact.State {
	b.T.Helper()
	s, _, err := artifact.ReadState(b.T.Context(), b.Repo, Widget)
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		b.T.Fatal(err)
	}
	return s
}

// Current returns the digest that the tag of the state names.
func (b *Bench) Current() digest.Digest {
	b.T.Helper()
	desc, err := b.Repo.Resolve(b.T.Context(), string(ociaddr.StateTag))
	if err != nil {
		b.T.Fatal(err)
	}
	return desc.Digest
}

func (b *Bench) MustRemember(c repo.StateChange) {
	b.T.Helper()
	if err := b.Remember(c); err != nil {
		b.T.Fatalf("%v (%s)", err, hint.Of(err))
	}
}

// Remember updates the state with a new Pusher, as another process would.
func (b *Bench) Remember(c repo.StateChange) error {
	return pusher.New(b.Options).Session().Writer(Destination(registry.Repository{Repository: b.Repo})).UpdateState(b.T.Context(), Widget, c, func(string, ...any) {})
}

// Lost returns the note about an index that the tag of the given version no longer names.
func Lost(text, version string) artifact.Replaced {
	return artifact.Replaced{Manifest: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString(text), Size: int64(len(text))}, Version: provider.MustParseVersion(version)}
}

// SawAt returns the state change of a sync that first sees the given version at the given time.
func SawAt(at time.Time, version string) repo.StateChange {
	return repo.StateChange{Seen: map[provider.Version]time.Time{provider.MustParseVersion(version): at}}
}

func (b *Bench) PushModule(pkg Module) (*pusher.Result, error) {
	return pusher.New(b.Options).PushZip(b.T.Context(), b.ModuleDestination(), pkg.Stored(), pkg.Open)
}

const AttachedType = "application/vnd.example.signature"
