package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Host is the host name of the cases' providers and modules.
const Host = "registry.acme.example"

// The versions of the cases.
var (
	Version = provider.MustParseVersion("1.0.0")
	Next    = provider.MustParseVersion("2.0.0")
)

// Registry is a registry on the loopback interface, over plain HTTP, for many cases. Each case has a namespace of its own.
type Registry struct {
	Host string // the registry's address
	// Requests has the requests to the registry.
	Requests *recorder.Recorder

	tb     testkit.TB
	client *http.Client

	mu      sync.Mutex
	answers map[string]recorder.Intercept // by namespace
}

// NewRegistry serves a registry.
func NewRegistry(tb testkit.TB, registry http.Handler) *Registry {
	tb.Helper()
	r := &Registry{tb: tb, Requests: recorder.New(registry), answers: map[string]recorder.Intercept{}}
	r.Requests.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"+Host+"/"), "/")
		r.mu.Lock()
		answer := r.answers[namespace]
		r.mu.Unlock()
		return answer != nil && answer(w, req)
	})
	server := httptest.NewServer(r.Requests)
	tb.Cleanup(server.Close)
	r.Host, r.client = strings.TrimPrefix(server.URL, "http://"), server.Client()
	return r
}

// Templates returns the templates of the repositories of providers and of modules.
func (r *Registry) Templates() (providers, modules string) {
	return r.Host + "/${hostname}/${namespace}/${type}", r.Host + "/${hostname}/${namespace}/${name}/${system}"
}

// In returns the repositories of a namespace.
func (r *Registry) In(namespace string) Places {
	return Places{Namespace: namespace, registry: r}
}

// Places are the repositories of one case.
type Places struct {
	Namespace string
	registry  *Registry
}

// Serve serves a registry for one case.
func Serve(tb testkit.TB, registry http.Handler, namespace string) Places {
	tb.Helper()
	return NewRegistry(tb, registry).In(namespace)
}

// Intercept sets what the registry answers in place of itself in the namespace. nil means nothing.
func (p Places) Intercept(f recorder.Intercept) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.registry.answers[p.Namespace] = f
}

// Requests has the requests to the registry.
func (p Places) Requests() *recorder.Recorder { return p.registry.Requests }

// Repository returns the repository of a provider or a module. Its name has the namespace of the places, also if the address has another
// one.
func (p Places) Repository(a subject.Address) *remote.Repository {
	name := Host + "/" + p.Namespace + "/" + strings.SplitN(strings.ToLower(a.Path()), "/", 3)[2]
	repo, err := remote.NewRepository(p.registry.Host + "/" + name)
	if err != nil {
		p.registry.tb.Fatalf("open the repository %s: %v", name, err)
	}
	repo.PlainHTTP, repo.Client = true, p.registry.client
	return repo
}

// Provider returns the provider of the namespace with a type.
func (p Places) Provider(name string) provider.Address {
	return provider.MustParseAddress(Host + "/" + p.Namespace + "/" + name)
}

// Module returns the module of the namespace with a name.
func (p Places) Module(name string) module.Address {
	return module.MustParseAddress(Host + "/" + p.Namespace + "/" + name + "/aws")
}

// Shared has what all cases of a test use, because it takes long to make.
type Shared struct {
	Authority, Stranger *Authority
	Key, Other          *Key
	// Publisher signs the releases of the providers.
	Publisher *pgp.Signer

	tb     testkit.TB
	cosign func() *Cosign
}

// NewShared makes the keys and authorities. It starts cosign when the first case needs it.
func NewShared(tb testkit.TB) *Shared {
	tb.Helper()
	s := &Shared{Authority: NewAuthority(tb), Stranger: NewAuthority(tb), Key: NewKey(tb, P256), Other: NewKey(tb, P256), Publisher: pgp.For(tb, "Acme"), tb: tb}
	s.cosign = sync.OnceValue(func() *Cosign { return NewCosign(tb) })
	return s
}

// World is the registry of one case.
type World struct {
	*Shared
	Places
	TB      testkit.TB
	Address subject.Address // what the case asks for
	Version provider.Version
	// Stored is the manifest of the version before the case changed anything.
	Stored ocispec.Descriptor
	// Child is the manifest of a platform. It is zero for a module.
	Child ocispec.Descriptor
}

// NewWorld stores version 1.0.0 of the case's provider or module.
func NewWorld(tb testkit.TB, s *Shared, p Places, c Case) *World {
	tb.Helper()
	w := &World{Shared: s, Places: p, TB: tb, Address: p.Provider("widget"), Version: Version}
	if c.Module {
		w.Address = p.Module("vpc")
	}
	w.Stored, w.Child = w.Store(w.Address, Version, "")
	return w
}

// Repo returns the repository of the address.
func (w *World) Repo() *remote.Repository { return w.Repository(w.Address) }

// AsProvider returns the address, and whether it is a provider's.
func (w *World) AsProvider() (provider.Address, bool) {
	a, ok := w.Address.(provider.Address)
	return a, ok
}

// At returns the world of the same case that asks for another version.
func (w *World) At(version string) *World {
	out := *w
	out.Version = provider.MustParseVersion(version)
	return &out
}

// Tagged returns the manifest that the tag of the version names.
func (w *World) Tagged(ctx context.Context) ocispec.Descriptor {
	w.TB.Helper()
	desc, err := artifact.Resolve(ctx, w.Repo(), w.Version.String())
	w.check(err)
	return desc
}

// IsSigned reports whether a signature of what the tag names meets a requirement of the policy.
func (w *World) IsSigned(ctx context.Context, policy *approval.Policy) bool {
	w.TB.Helper()
	manifest := w.Tagged(ctx)
	signatures, err := artifact.Signatures(ctx, w.Repo(), manifest, nil)
	w.check(err)
	verdict, err := policy.Check(ctx, manifest.Digest, signatures)
	w.check(err)
	return len(verdict.Approvals) > 0
}

// Image returns REGISTRY/REPOSITORY@DIGEST for cosign.
func (w *World) Image(d digest.Digest) string {
	r := w.Repo().Reference
	return fmt.Sprintf("%s/%s@%s", r.Registry, r.Repository, d)
}

// Cosign returns the real cosign. It ends the test if cosign is missing.
func (w *World) Cosign() *Cosign {
	w.TB.Helper()
	clients.Program(w.TB, "cosign") // skips this test, and not the test that shares the keys
	c := *w.cosign()
	c.tb = w.TB
	return &c
}

func (w *World) check(err error) {
	w.TB.Helper()
	if err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		w.TB.Fatalf("%v", err)
	}
}

// Store stores a version under its tag, signed by the publisher. It returns its manifest, and the manifest of a platform.
func (w *World) Store(a subject.Address, v provider.Version, more string) (manifest, child ocispec.Descriptor) {
	w.TB.Helper()
	repo := w.Repository(a)
	var blob artifact.Blob
	var err error
	if p, ok := a.(provider.Address); ok {
		version := artifact.Version{Owner: a, Version: v, Protocols: []string{"5.0"}}
		version.Packages, version.Evidence, child = w.storeRelease(repo, p, v, more)
		blob, err = artifact.EncodeIndex(version)
		w.check(err)
	} else {
		body, err := release.Zip(map[string][]byte{"main.tf": fmt.Appendf(nil, "output \"name\" {\n  value = %q\n}\n", a.Path()+v.String()+more)})
		w.check(err)
		pkg := artifact.Package{Digest: digest.FromBytes(body), Size: int64(len(body))}
		w.put(repo, artifact.Blob{Descriptor: pkg.Layer(), Data: body}, "")
		w.put(repo, artifact.Config(), "")
		blob, err = artifact.EncodeZip(artifact.Version{Owner: a, Version: v, Packages: []artifact.Package{pkg}})
		w.check(err)
	}
	tag, err := ociaddr.VersionTag(v)
	w.check(err)
	w.put(repo, blob, string(tag))
	return blob.Descriptor, child
}

// Others are the platforms of every release whose packages are not stored.
var Others = []string{"solaris_amd64", "freebsd_amd64", "netbsd_amd64"}

// Release returns a version of a provider as its publisher releases it. The content of its packages depends on more.
func (w *World) Release(a provider.Address, v provider.Version, more string) *release.Release {
	w.TB.Helper()
	spec := release.Spec{Host: a.Hostname(), Namespace: a.Namespace(), Type: a.Type(), Version: v.String(), Signer: w.Publisher}
	for _, p := range append([]string{runtime.GOOS + "_" + runtime.GOARCH}, Others...) {
		os, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: os, Arch: arch, Files: map[string][]byte{
			"terraform-provider-" + a.Type() + "_v" + v.String(): []byte(a.Path() + v.String() + more),
		}})
	}
	return release.For(w.TB, spec)
}

// storeRelease stores a release's package for this machine, and the evidence.
func (w *World) storeRelease(repo *remote.Repository, a provider.Address, v provider.Version, more string) ([]artifact.Package, *ocispec.Descriptor, ocispec.Descriptor) {
	w.TB.Helper()
	ctx := context.Background()
	r := w.Release(a, v, more)
	keys := encodeJSON(w.TB, map[string]any{"gpg_public_keys": []any{map[string]string{"key_id": w.Publisher.KeyID(), "ascii_armor": w.Publisher.ArmoredPublicKey()}}})
	sums, err := trust.Policy{}.Accept(ctx, trust.Claims{
		Provider: a, Version: v, FromRegistry: true, SHA256SUMS: r.SHA256SUMS, Signature: r.Signature, Keys: []string{w.Publisher.ArmoredPublicKey()}, SigningKeys: keys,
	})
	w.check(err)
	zip := r.Packages[0]
	verifier, err := sums.Verifier(provider.MustParsePlatform(zip.OS+"_"+zip.Arch), zip.Filename)
	w.check(err)
	verifier.Write(zip.Data)
	accepted, err := verifier.Accept(ctx, bytes.NewReader(zip.Data))
	w.check(err)
	pkg, platform, err := artifact.EncodePackage(accepted)
	w.check(err)
	evidence, parts, err := artifact.EncodeEvidence(artifact.NewEvidence(sums, "test", r.Protocols, provider.About{}))
	w.check(err)
	for _, b := range append(parts, artifact.Blob{Descriptor: pkg.Layer(), Data: zip.Data}, artifact.Config(), platform, evidence) {
		w.put(repo, b, "")
	}
	return []artifact.Package{pkg}, &evidence.Descriptor, platform.Descriptor
}

func (w *World) put(repo *remote.Repository, b artifact.Blob, tag string) {
	w.TB.Helper()
	if tag == "" {
		w.check(repo.Push(context.Background(), b.Descriptor, bytes.NewReader(b.Data)))
		return
	}
	w.check(repo.PushReference(context.Background(), b.Descriptor, bytes.NewReader(b.Data), tag))
}

// Retag stores a changed copy of the stored manifest under a tag.
func (w *World) Retag(tag string, change func(annotations map[string]string)) ocispec.Descriptor {
	w.TB.Helper()
	data, err := content.FetchAll(context.Background(), w.Repo(), w.Stored)
	w.check(err)
	var m map[string]json.RawMessage
	w.check(json.Unmarshal(data, &m))
	var annotations map[string]string
	w.check(json.Unmarshal(m["annotations"], &annotations))
	before := maps.Clone(annotations)
	change(annotations)
	if !maps.Equal(before, annotations) {
		m["annotations"] = encodeJSON(w.TB, annotations)
		data = encodeJSON(w.TB, m)
	}
	desc := content.NewDescriptorFromBytes(w.Stored.MediaType, data)
	w.put(w.Repo(), artifact.Blob{Descriptor: desc, Data: data}, tag)
	return desc
}

// Sign attaches cosign's signature over a manifest, made with a key.
func (w *World) Sign(k *Key, d ocispec.Descriptor) ocispec.Descriptor {
	w.TB.Helper()
	return Attach(w.TB, w.Repo(), d, k.Attest(Statement(w.TB, d.Digest, CosignSign)))
}

// Require is a require block.
type Require struct {
	Name             string
	PublicKey        []byte // PEM
	Issuer, Identity string
	TrustedRoot      []byte
	Predicate        string
	ReportOnly       bool
}

// Requirement returns the requirement of the block.
func (r Require) Requirement(tb testkit.TB) approval.Requirement {
	tb.Helper()
	out := approval.Requirement{Name: r.Name, Issuer: r.Issuer, Identity: r.Identity, Predicate: r.Predicate, ReportOnly: r.ReportOnly}
	var err error
	if r.PublicKey != nil {
		out.Key, err = approval.ParsePublicKey(r.PublicKey)
	} else {
		out.Root, err = approval.ParseTrustedRoot(r.TrustedRoot)
	}
	if err != nil {
		tb.Fatalf("the requirement %q: %v", r.Name, err)
	}
	return out
}

// Policy returns the policy of the blocks.
func Policy(tb testkit.TB, all []Require) *approval.Policy {
	tb.Helper()
	var requirements []approval.Requirement
	for _, r := range all {
		requirements = append(requirements, r.Requirement(tb))
	}
	p, err := approval.NewPolicy(requirements...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return p
}

// content returns a stored manifest.
func (w *World) content(d ocispec.Descriptor) []byte {
	w.TB.Helper()
	data, err := content.FetchAll(context.Background(), w.Repo(), d)
	w.check(err)
	return data
}

// CopyTo copies the stored version with all that is attached to it to the repository of another address.
func (w *World) CopyTo(a subject.Address) {
	w.TB.Helper()
	_, err := oras.ExtendedCopy(context.Background(), w.Repo(), "1.0.0", w.Repository(a), "1.0.0", oras.DefaultExtendedCopyOptions)
	w.check(err)
}

// Read reads the version that the case asks for.
func (w *World) Read(ctx context.Context) (*artifact.Version, error) {
	switch a := w.Address.(type) {
	case provider.Address:
		return artifact.Read(ctx, w.Repo(), a, w.Version)
	case module.Address:
		return artifact.ReadZip(ctx, w.Repo(), a, w.Version)
	}
	panic("another kind")
}

// Decide returns the decision of the packages that read and verify signatures, which everything else builds on. err is the error
// of a version that is not approved or cannot be read.
func (w *World) Decide(ctx context.Context, policy *approval.Policy) (verdict approval.Verdict, _ Decision, err error) {
	v, err := w.Read(ctx)
	if err == nil {
		verdict, err = artifact.CheckApprovals(ctx, w.Repo(), policy, v, w.Address, w.Version)
	}
	switch {
	case errors.Is(err, artifact.ErrForeign):
		return verdict, Foreign, err
	case err != nil:
		return verdict, Unavailable, err
	case verdict.Err() != nil:
		return verdict, NotApproved, verdict.Err()
	}
	return verdict, Approved, nil
}

func version(v string) provider.Version { return provider.MustParseVersion(v) }
