// Package stored provides an OCI registry in this process, and a publisher whose signed releases are pushed into
// it.
package stored

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/ociaddr"
	realorigin "github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// Host is the host name of the publisher's providers in the registries of [For].
const Host = "registry.acme.example"

// Platforms are the platforms of every release.
var Platforms = []string{"linux_amd64", "darwin_arm64"}

// Registry is an OCI registry with a publisher.
type Registry struct {
	*registry.Repositories
	Signer *pgp.Signer
	// Broken contains errors by parts of repository names. [Registry.Repository] returns the error for every
	// repository whose name contains the part. The error under "catalog" makes [Registry.Providers] report that it
	// could not list the catalog.
	Broken map[string]error

	tb     testkit.TB
	host   string
	dir    string
	origin *origin.Origin
	client *realorigin.Registry
}

// For creates an empty registry. template gives the names of its repositories, such as ${namespace}/${type},
// without the registry's host.
func For(tb testkit.TB, template string) *Registry {
	tb.Helper()
	return ForHost(tb, template, Host)
}

// ForHost is like [For], for providers with the given host name.
func ForHost(tb testkit.TB, template, host string) *Registry {
	tb.Helper()
	r := &Registry{Signer: pgp.For(tb, "Acme"), Broken: map[string]error{}, tb: tb, host: host, dir: testkit.MemoryDir(tb), origin: origin.New(origin.Options{})}
	t, err := templates.Parse(string(embedded.Host)+"/"+template, provider.Selector{Include: []provider.Pattern{provider.MustParsePattern(host + "/*/*")}})
	r.check(err)
	e, err := embedded.Open(r.dir, slog.New(slog.DiscardHandler))
	r.check(err)
	r.Repositories = &registry.Repositories{Templates: templates.Set{t}, Embedded: e}
	tb.Cleanup(func() { e.Close() })
	server := httptest.NewServer(r.origin)
	tb.Cleanup(server.Close)
	r.client = origin.Client(host, server.URL)
	return r
}

func (r *Registry) check(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatalf("%v", err)
	}
}

// Repository is like [registry.Repositories.Repository], but fails for a repository in r.Broken.
func (r *Registry) Repository(ctx context.Context, a subject.Address) (ociaddr.Repository, *remote.Repository, error) {
	for name, err := range r.Broken {
		if addr, _ := r.Templates.Repository(a); strings.Contains(addr.Name, name) {
			return addr, nil, err
		}
	}
	return r.Repositories.Repository(ctx, a)
}

// All is like [registry.Repositories.All], but lists no catalog if r.Broken contains "catalog".
func (r *Registry) All(ctx context.Context, kind subject.Kind) ([]subject.Address, []registry.Unlisted, error) {
	if err := r.Broken["catalog"]; err != nil {
		return nil, []registry.Unlisted{{Where: string(embedded.Host), Err: err}}, nil
	}
	return r.Repositories.All(ctx, kind)
}

// Lose removes the data folder of the running registry.
func (r *Registry) Lose() { r.check(os.RemoveAll(r.dir)) }

// Destination returns the repository of a provider, as the destination of a push.
func (r *Registry) Destination(ctx context.Context, a subject.Address) (repo.Destination, error) {
	addr, store, err := r.Repository(ctx, a)
	return repo.Destination{Repository: addr, Store: registry.Repository{Repository: store}}, err
}

// Build creates and signs a release of a provider. name is NAMESPACE/TYPE.
func (r *Registry) Build(name, version string) *release.Release {
	r.tb.Helper()
	namespace, typ, _ := strings.Cut(name, "/")
	spec := release.Spec{Host: r.host, Namespace: namespace, Type: typ, Version: version, Protocols: []string{"5.0"}, Signer: r.Signer}
	for _, p := range Platforms {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{"terraform-provider-" + typ + "_v" + version: []byte(version + " for " + p)}})
	}
	return release.For(r.tb, spec)
}

// Push publishes a release at the origin, and then pushes it from the origin to the registry. It returns the
// provider.
func (r *Registry) Push(rel *release.Release) provider.Address {
	r.tb.Helper()
	r.origin.Add(rel)
	ctx, a := context.Background(), provider.MustParseAddress(r.host+"/"+rel.Namespace+"/"+rel.Type)
	found := origin.Fetch(r.tb, r.client, a, rel.Version)
	_, err := pusher.New(pusher.Options{
		Destination: r.Destination, Policy: func(provider.Address) trust.Policy { return trust.Policy{AllowUnsigned: true} },
	}).Push(ctx, found)
	r.check(err)
	return a
}

// Store builds, publishes and pushes a release of a provider, and returns the provider. name is NAMESPACE/TYPE.
func (r *Registry) Store(name, version string) provider.Address {
	r.tb.Helper()
	return r.Push(r.Build(name, version))
}

// Reindex moves the tag of a version to a changed copy of the version's index. It does not change the signed
// documents.
func (r *Registry) Reindex(a provider.Address, version string, change func(*ocispec.Index)) {
	r.tb.Helper()
	ctx := context.Background()
	_, repo, err := r.Repository(ctx, a)
	r.check(err)
	desc, body, err := repo.FetchReference(ctx, version)
	r.check(err)
	defer body.Close()
	data, err := content.ReadAll(body, desc)
	r.check(err)
	var index ocispec.Index
	r.check(json.Unmarshal(data, &index))
	change(&index)
	data, err = json.Marshal(index)
	r.check(err)
	r.check(repo.PushReference(ctx, content.NewDescriptorFromBytes(ocispec.MediaTypeImageIndex, data), bytes.NewReader(data), version))
}

// ReplaceEvidence moves the tag of a version to an index with changed evidence. It does not change the packages, and the
// index still states the old verdict.
func ReplaceEvidence(tb testkit.TB, repo *remote.Repository, address, version string, change func(*artifact.Evidence)) {
	tb.Helper()
	check := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("replace the evidence: %v", err)
		}
	}
	ctx := context.Background()
	found, err := artifact.Read(ctx, repo, provider.MustParseAddress(address), provider.MustParseVersion(version))
	check(err)
	verdict, err := artifact.KnownVerdict(ctx, repo, found.Version, found)
	check(err)
	e, err := artifact.ReadEvidence(ctx, repo, *found.Evidence)
	check(err)
	change(e)
	manifest, parts, err := artifact.EncodeEvidence(*e)
	check(err)
	for _, blob := range append(parts, manifest) {
		exists, err := repo.Exists(ctx, blob.Descriptor)
		check(err)
		if !exists {
			check(repo.Push(ctx, blob.Descriptor, bytes.NewReader(blob.Data)))
		}
	}
	described := artifact.DescribeEvidence(manifest.Descriptor, verdict)
	found.Evidence = &described
	index, err := artifact.EncodeIndex(*found)
	check(err)
	check(repo.PushReference(ctx, index.Descriptor, bytes.NewReader(index.Data), version))
}

// Commented adds a comment to the SHA256SUMS in evidence, and signs the document again. Clients ignore the comment, and
// ocibridge refuses it, because no line may be anything else than a SHA-256 and a file name.
func Commented(tb testkit.TB, signer *pgp.Signer) func(*artifact.Evidence) {
	return func(e *artifact.Evidence) {
		tb.Helper()
		e.SHA256SUMS = append(bytes.Clone(e.SHA256SUMS), "# made by Acme\n"...)
		signature, err := signer.Sign(e.SHA256SUMS)
		if err != nil {
			tb.Fatalf("sign: %v", err)
		}
		e.Signature = signature
	}
}

// Swap exchanges the packages of two platforms in an index.
func Swap(index *ocispec.Index) {
	var packages []*ocispec.Descriptor
	for i := range index.Manifests {
		if index.Manifests[i].Platform != nil {
			packages = append(packages, &index.Manifests[i])
		}
	}
	packages[0].Platform, packages[1].Platform = packages[1].Platform, packages[0].Platform
}

// WithoutEvidence removes the evidence from an index.
func WithoutEvidence(index *ocispec.Index) {
	var kept []ocispec.Descriptor
	for _, m := range index.Manifests {
		if m.ArtifactType != artifact.TypeEvidence {
			kept = append(kept, m)
		}
	}
	index.Manifests = kept
}
