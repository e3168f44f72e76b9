package registry_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/stored"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

func TestProviders(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	want := []provider.Address{r.Store("acme/null", "1.0.0"), r.Store("acme/widget", "1.0.0")}
	r.Store("acme/null", "1.1.0")
	found, unlisted, err := r.Repositories.All(t.Context(), subject.Provider)
	if err != nil || len(unlisted) > 0 || len(found) != 2 || found[0] != want[0] || found[1] != want[1] {
		t.Errorf("%v, %v, %v", found, unlisted, err)
	}
}

// TestProvidersOfSharedRepositories shows that the annotations of a repository's
// versions decide to which provider the repository belongs. This is needed because the
// template assigns the repository to two providers.
func TestProvidersOfSharedRepositories(t *testing.T) {
	r := stored.For(t, "${namespace}-${type}")
	a := r.Store("a-b/c", "1.0.0")
	found, unlisted, err := r.Repositories.All(t.Context(), subject.Provider)
	if err != nil || len(unlisted) > 0 || len(found) != 1 || found[0] != a {
		t.Errorf("%v, %v, %v", found, unlisted, err)
	}
	storeModule(t, r, a, "0.9.0") // belongs to no candidate, so it decides nothing
	found, unlisted, err = r.Repositories.All(t.Context(), subject.Provider)
	if err != nil || len(unlisted) > 0 || len(found) != 1 || found[0] != a {
		t.Errorf("beside a module: %v, %v, %v", found, unlisted, err)
	}
	r.Reindex(a, "1.0.0", func(i *ocispec.Index) { i.Annotations = nil })
	found, unlisted, err = r.Repositories.All(t.Context(), subject.Provider)
	if err != nil || len(found) > 0 || len(unlisted) != 1 || !strings.Contains(unlisted[0].Err.Error(), "it may belong to") {
		t.Errorf("without annotations: %v, %v, %v", found, unlisted, err)
	}
}

// storeModule stores a module under a tag in the repository of a provider.
func storeModule(t *testing.T, r *stored.Registry, a provider.Address, tag string) {
	t.Helper()
	_, repo, err := r.Repository(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	m := artifact.Version{
		Owner: module.MustParseAddress(stored.Host + "/acme/net/aws"), Version: provider.MustParseVersion(tag),
		Packages: []artifact.Package{{Digest: digest.FromString("zip"), Size: 3}},
	}
	manifest, err := artifact.EncodeZip(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range []artifact.Blob{artifact.Config(), {Descriptor: m.Zip().Layer(), Data: []byte("zip")}} {
		if err := repo.Blobs().Push(t.Context(), blob.Descriptor, bytes.NewReader(blob.Data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := repo.Manifests().PushReference(t.Context(), manifest.Descriptor, bytes.NewReader(manifest.Data), tag); err != nil {
		t.Fatal(err)
	}
}

func TestProvidersInManyRegistries(t *testing.T) {
	r := stored.For(t, "${namespace}/${type}")
	r.Store("acme/null", "1.0.0")
	many, err := templates.Parse("${hostname}/${namespace}/${type}", provider.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	r.Templates = append(templates.Set{many}, r.Templates...)
	_, unlisted, err := r.Repositories.All(t.Context(), subject.Provider)
	if err != nil || len(unlisted) != 1 || unlisted[0].Where != many.Source() {
		t.Errorf("%v, %v", unlisted, err)
	}
}
