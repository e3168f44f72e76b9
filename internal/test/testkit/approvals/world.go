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
	"github.com/ocibridge/ocibridge/internal/test/testkit/accepted"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// The addresses and the version of the cases.
var (
	Widget  = provider.MustParseAddress("registry.acme.example/acme/widget")
	Gadget  = provider.MustParseAddress("registry.acme.example/acme/gadget")
	VPC     = module.MustParseAddress("registry.acme.example/acme/vpc/aws")
	Version = provider.MustParseVersion("1.0.0")
	Next    = provider.MustParseVersion("2.0.0")
)

// Places is where a world stores versions.
type Places struct {
	// Repository returns the repository of a provider or a module, over plain HTTP on the loopback interface.
	Repository func(subject.Address) *remote.Repository
	// Intercept sets what the registry answers in place of itself.
	Intercept func(recorder.Intercept)
	// Requests has the requests to the registry.
	Requests *recorder.Recorder
}

// Serve serves a registry on the loopback interface for one case. The names of its repositories begin with prefix.
func Serve(tb testkit.TB, registry http.Handler, prefix string) Places {
	tb.Helper()
	rec := recorder.New(registry)
	server := httptest.NewServer(rec)
	tb.Cleanup(server.Close)
	return Places{Intercept: rec.Intercept, Requests: rec, Repository: func(a subject.Address) *remote.Repository {
		name := prefix + strings.ToLower(strings.TrimPrefix(a.Path(), a.Hostname()+"/"))
		repo, err := remote.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/" + name)
		if err != nil {
			tb.Fatalf("open the repository %s: %v", name, err)
		}
		repo.PlainHTTP, repo.Client = true, server.Client()
		return repo
	}}
}

// Shared has what all cases of a test use, because it takes long to make.
type Shared struct {
	Authority, Stranger *Authority
	Key, Other          *Key

	tb     testkit.TB
	cosign func() *Cosign
}

// NewShared makes the keys and authorities. It starts cosign when the first case needs it.
func NewShared(tb testkit.TB) *Shared {
	tb.Helper()
	s := &Shared{Authority: NewAuthority(tb), Stranger: NewAuthority(tb), Key: NewKey(tb, P256), Other: NewKey(tb, P256), tb: tb}
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
	w := &World{Shared: s, Places: p, TB: tb, Address: Widget, Version: Version}
	if c.Module {
		w.Address = VPC
	}
	w.Stored, w.Child = w.Store(w.Address, Version, "")
	return w
}

// Repo returns the repository of the address.
func (w *World) Repo() *remote.Repository { return w.Repository(w.Address) }

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

// Store stores a version under its tag. It returns its manifest, and the manifest of a platform.
func (w *World) Store(a subject.Address, v provider.Version, more string) (manifest, child ocispec.Descriptor) {
	w.TB.Helper()
	repo := w.Repository(a)
	body := release.AsZip([]byte(a.Path() + v.String() + more))
	var blob artifact.Blob
	var err error
	if p, ok := a.(provider.Address); ok {
		accepted, _ := accepted.Package(w.TB, p, v, provider.MustParsePlatform("linux_amd64"), body)
		pkg, platform, err := artifact.EncodePackage(accepted)
		w.check(err)
		w.put(repo, artifact.Blob{Descriptor: pkg.Layer(), Data: body}, "")
		w.put(repo, artifact.Config(), "")
		w.put(repo, platform, "")
		child = platform.Descriptor
		blob, err = artifact.EncodeIndex(artifact.Version{Owner: a, Version: v, Protocols: []string{"5.0"}, Packages: []artifact.Package{pkg}})
		w.check(err)
	} else {
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

func version(v string) provider.Version { return provider.MustParseVersion(v) }
