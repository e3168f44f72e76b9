package doctor

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/test/testkit/quirks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

var vpc = module.MustParseAddress("registry.acme.example/platform/vpc/aws")

// TestModuleOnDistribution shows that the repository of a module is examined in both versions of the distribution
// registry, and that --write leaves nothing behind.
func TestModuleOnDistribution(t *testing.T) {
	for _, program := range registry.Programs {
		t.Run(string(program), func(t *testing.T) {
			r := registry.For(t, registry.Options{Program: program})
			addr := ociaddr.Repository{Registry: ociaddr.Registry(r.Addr), Name: "platform/vpc"}
			c := auth.New(auth.Options{Wire: wire.Options{PlainHTTP: true}})
			repo, err := c.Repository(t.Context(), addr)
			if err != nil {
				t.Fatal(err)
			}
			x := Repository{Subject: vpc, Address: addr, Template: "a test's", Store: repo, Write: true, Explain: func(err error) error { return c.Explain(err, addr) }}
			got := checks(t, x.Examine(t.Context()))
			want(t, got, "address", OK, vpc.String()+" is kept in "+addr.String())
			want(t, got, "tags", Warn, "there is no such repository yet")
			want(t, got, "versions", OK, "manifests of the type "+artifact.TypeModule)
			want(t, got, "removal", OK, "gone")
			found, err := r.Contents(addr.Name)
			if err != nil || len(found.Tags)+len(found.Manifests) != 0 {
				t.Errorf("the repository has %+v, %v", found, err)
			}

			// A leading v is read.
			storeModule(t, x, vpc, "1.9.0", "1.9.0")
			storeModule(t, x, vpc, "1.10.0", "v1.10.0")
			got = checks(t, x.Examine(t.Context()))
			want(t, got, "tags", OK, "2 versions and 0 other tags")
			want(t, got, "pull", OK, "the newest version, 1.10.0, is complete, with a zip of 6 bytes")
			want(t, got, "removal", OK, "gone")
		})
	}
}

// TestDamagedModule shows that a newest version that clients cannot install is a failure.
func TestDamagedModule(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil        func(*testing.T, Repository)
		detail, hint string
	}{
		"no zip": {func(t *testing.T, x Repository) {
			zip := storeModule(t, x, vpc, "1.0.0", "1.0.0")
			if err := x.Store.Delete(t.Context(), zip); err != nil {
				t.Fatal(err)
			}
		}, "version 1.0.0 lacks its zip", "ocibridge module push --force sends it again"},
		"another module": {func(t *testing.T, x Repository) {
			storeModule(t, x, module.MustParseAddress("registry.acme.example/platform/net/aws"), "1.0.0", "1.0.0")
		}, "registry.acme.example/platform/net/aws", "a repository of its own"},
		"another version": {func(t *testing.T, x Repository) { storeModule(t, x, vpc, "0.9.0", "1.0.0") },
			"belongs to another version: the manifest says that it is version 0.9.0", "delete that tag with the registry's own tools, and push the version again"},
		"a provider": {func(t *testing.T, x Repository) {
			x.Subject = null
			r := &Report{}
			if x.layout().run(t.Context(), &trial{Repository: x, tag: "1.0.0"}, r); r.Failed() {
				t.Fatalf("%+v", r)
			}
		}, "it is a provider", "a repository of its own"},
		"another artifact": {func(t *testing.T, x Repository) {
			data := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
			image := artifact.Blob{Descriptor: content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data), Data: data}
			if err := (&trial{Repository: x, tag: "1.0.0"}).manifest(t.Context(), image, "1.0.0"); err != nil {
				t.Fatal(err)
			}
		}, "not a module package", "push this version anew"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, quirks.Settings{})
			x := b.repository()
			x.Subject = vpc
			tc.spoil(t, x)
			got := checks(t, x.Examine(t.Context()))
			want(t, got, "pull", Fail, tc.detail)
			if h := got["pull"].Hint; !strings.Contains(h, tc.hint) {
				t.Errorf("the hint is %q", h)
			}
		})
	}
}

// storeModule stores a version of a module under the tag. It returns the descriptor of the zip.
func storeModule(t *testing.T, x Repository, a module.Address, version, tag string) ocispec.Descriptor {
	t.Helper()
	content := []byte("a zip\n")
	m := artifact.Version{Owner: a, Version: provider.MustParseVersion(version), Packages: []artifact.Package{{Digest: digest.FromBytes(content), Size: int64(len(content))}}}
	manifest, err := artifact.EncodeZip(m)
	if err != nil {
		t.Fatal(err)
	}
	w := &trial{Repository: x, tag: tag}
	if err := w.blobs(t.Context(), artifact.Config(), artifact.Blob{Descriptor: m.Zip().Layer(), Data: content}); err != nil {
		t.Fatal(err)
	}
	if err := w.manifest(t.Context(), manifest, tag); err != nil {
		t.Fatal(err)
	}
	return m.Zip().Layer()
}
