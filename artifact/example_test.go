package artifact_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// inMemory is a repository in memory, in place of the [remote.Repository] of oras-go.
type inMemory struct{ *memory.Store }

func (m inMemory) FetchReference(ctx context.Context, tag string) (ocispec.Descriptor, io.ReadCloser, error) {
	desc, err := m.Resolve(ctx, tag)
	if err != nil {
		return desc, nil, err
	}
	body, err := m.Fetch(ctx, desc)
	return desc, body, err
}

// Example verifies a package, stores it as a version of a provider, and reads the version.
func Example() {
	ctx := context.Background()
	repo := inMemory{memory.New()}
	widget := provider.MustParseAddress("registry.acme.example/acme/widget")
	version := provider.MustParseVersion("1.0.0")
	linux := provider.MustParsePlatform("linux_amd64")

	// The publisher's files: a zip, and the SHA256SUMS that lists it.
	filename := provider.PackageFilename(widget, version, linux)
	data := oneFile("terraform-provider-widget_v1.0.0", "a program")
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(data), filename)

	// Only package trust makes packages that can be stored. This release has no signature, which the policy must allow.
	policy := trust.Policy{AllowUnsigned: true}
	accepted, err := policy.Accept(ctx, trust.Claims{Provider: widget, Version: version, SHA256SUMS: sums})
	must(err)
	verifier, err := accepted.Verifier(linux, filename)
	must(err)
	verifier.Write(data)
	verified, err := verifier.Accept(ctx, bytes.NewReader(data))
	must(err)

	// The zip, the manifest of the platform, and the index, whose tag makes the version visible.
	pkg, manifest, err := artifact.EncodePackage(verified)
	must(err)
	index, err := artifact.EncodeIndex(artifact.Version{Owner: widget, Version: version, Packages: []artifact.Package{pkg}})
	must(err)
	tag, err := ociaddr.VersionTag(version)
	must(err)
	zipped := artifact.Blob{Descriptor: pkg.Layer(), Data: data}
	for _, b := range []artifact.Blob{artifact.Config(), zipped, manifest, index} {
		must(repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)))
	}
	must(repo.Tag(ctx, index.Descriptor, string(tag)))

	stored, err := artifact.Read(ctx, repo, widget, version)
	must(err)
	for _, p := range stored.Packages {
		fmt.Println(tag, p.Platform, p.Filename, p.ZipHash() == provider.ZipHash(sha256.Sum256(data)))
	}
	back, err := content.FetchAll(ctx, repo, stored.Packages[0].Layer())
	must(err)
	fmt.Println("byte for byte:", bytes.Equal(back, data))
	// Output:
	// 1.0.0 linux_amd64 terraform-provider-widget_1.0.0_linux_amd64.zip true
	// byte for byte: true
}

func oneFile(name, content string) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create(name)
	must(err)
	io.WriteString(f, content)
	must(w.Close())
	return out.Bytes()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
