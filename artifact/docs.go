package artifact

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/provider"
)

// MaxDocsBytes is the maximum size in bytes of a zip with documentation.
const MaxDocsBytes = 16 << 20

// DocsWhere names the documentation in findings, see [Finding].
const DocsWhere = "documentation"

// Docs describes the documentation of a version.
type Docs struct {
	Provider provider.Address
	Version  provider.Version
	Zip      ocispec.Descriptor // at most [MaxDocsBytes] bytes, sha256; the zip is not read
}

// DocsZip returns the descriptor of a zip with documentation.
func DocsZip(zip []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaTypeZip, Digest: digest.FromBytes(zip), Size: int64(len(zip))}
}

// EncodeDocs returns the manifest of documentation. The manifest names the provider and the version, so no two
// versions share it, even if their pages are the same.
func EncodeDocs(d Docs) (Blob, error) {
	if err := checkDocsZip(d.Zip); err != nil {
		return Blob{}, fmt.Errorf("documentation: %w", err)
	}
	layer := ocispec.Descriptor{
		MediaType: mediaTypeZip, Digest: d.Zip.Digest, Size: d.Zip.Size,
		Annotations: map[string]string{ocispec.AnnotationTitle: "docs.zip"},
	}
	return encodeImage(TypeDocs, []ocispec.Descriptor{layer}, map[string]string{
		annotationProvider: d.Provider.Path(), annotationVersion: d.Version.String(),
	})
}

// ReadDocs reads the manifest of a version's documentation, but not the pages. desc is the version's Docs. The
// result is for version v of provider a. ReadDocs returns the same errors as [Read], except errdef.ErrNotFound.
func ReadDocs(ctx context.Context, store Fetcher, desc ocispec.Descriptor, a provider.Address, v provider.Version) (Docs, error) {
	d, err := readDocs(ctx, store, desc, a, v)
	if err != nil {
		return Docs{}, fmt.Errorf("documentation: %w", err)
	}
	return d, nil
}

func readDocs(ctx context.Context, store Fetcher, desc ocispec.Descriptor, a provider.Address, v provider.Version) (Docs, error) {
	m, err := fetchManifest(ctx, store, desc, TypeDocs)
	if err != nil {
		return Docs{}, err
	}
	layer, err := zipLayer(m, ErrNotProvider)
	if err == nil {
		err = checkDocsZip(layer)
	}
	if err != nil {
		return Docs{}, err
	}
	var of Version
	if err := describe(&of, m.Annotations); err != nil {
		return Docs{}, err
	}
	if err := of.checkOwner(a, v, "manifest"); err != nil {
		return Docs{}, err
	}
	return Docs{a, v, ocispec.Descriptor{MediaType: mediaTypeZip, Digest: layer.Digest, Size: layer.Size}}, nil
}

// checkDocsZip returns an error unless desc can be the descriptor of a zip with documentation.
func checkDocsZip(desc ocispec.Descriptor) error {
	if err := checkDescriptor(desc, MaxDocsBytes); err != nil {
		return err
	}
	if !isSHA256(desc.Digest) {
		return fmt.Errorf("%w: its layer %.80q has no SHA-256", ErrNotProvider, desc.Digest)
	}
	return nil
}

// FetchDocs returns the verified bytes of a zip with documentation. The errors are those of [ReadDocs].
func FetchDocs(ctx context.Context, store Fetcher, d Docs) ([]byte, error) {
	data, err := fetchVerified(ctx, store, d.Zip, MaxDocsBytes)
	if err != nil {
		return nil, fmt.Errorf("documentation: %w", err)
	}
	return data, nil
}
