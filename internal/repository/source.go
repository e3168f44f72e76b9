package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	orasauth "oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/refusals"
)

// Source is a repository that is read and not written. Where the registry answers HEAD of
// a blob with 404, Source asks GET for the blob's first byte, and that answer decides.
// Harbor's proxy-cache projects answer HEAD so until the first GET fetches the blob from
// their upstream.
//
// A push must not use it: a push sends every blob that HEAD does not find.
type Source struct{ *remote.Repository }

// Blobs returns the blobs, whose Exists and Resolve find those that only GET finds.
func (s Source) Blobs() registry.BlobStore { return sourceBlobs{s.Repository.Blobs(), s.Repository} }

// Exists reports whether the repository has a manifest, by HEAD alone, or a blob.
func (s Source) Exists(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	switch desc.MediaType {
	case ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex:
		return s.Repository.Exists(ctx, desc)
	}
	return s.Blobs().Exists(ctx, desc)
}

// sourceBlobs are the blobs of a Source.
type sourceBlobs struct {
	registry.BlobStore
	repo *remote.Repository
}

// Exists reports whether the repository has a blob.
func (b sourceBlobs) Exists(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	_, err := b.Resolve(ctx, desc.Digest.String())
	if errors.Is(err, errdef.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Resolve returns the descriptor of a blob. Its size is 0 where only GET finds the blob,
// and does not announce its size.
func (b sourceBlobs) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := b.BlobStore.Resolve(ctx, reference)
	if !errors.Is(err, errdef.ErrNotFound) {
		return desc, err
	}
	ref, err := b.repo.ParseReference(reference)
	if err != nil {
		return desc, err
	}
	d, err := ref.Digest()
	if err != nil {
		return desc, err
	}
	return statByGet(ctx, b.repo, d)
}

// statByGet gets the first byte of a blob, and returns the blob's descriptor. It reads one
// byte of the answer, also where the registry ignores Range and answers 200 with the whole
// blob.
func statByGet(ctx context.Context, repo *remote.Repository, d digest.Digest) (ocispec.Descriptor, error) {
	ctx = orasauth.AppendRepositoryScope(ctx, repo.Reference, orasauth.ActionPull)
	req, err := newRequest(ctx, repo, http.MethodGet, "blobs/"+d.String())
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	req.Header.Set("Range", "bytes=0-0")
	resp, err := repo.Client.Do(req)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer resp.Body.Close()
	desc := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: d}
	switch resp.StatusCode {
	case http.StatusOK:
		desc.Size = max(resp.ContentLength, 0)
	case http.StatusPartialContent:
		desc.Size = wholeSize(resp.Header.Get("Content-Range"))
	case http.StatusNotFound:
		return ocispec.Descriptor{}, fmt.Errorf("%s: %w", d, errdef.ErrNotFound)
	default:
		return ocispec.Descriptor{}, refusals.Read(resp)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		return ocispec.Descriptor{}, &url.Error{Op: "Get", URL: req.URL.String(), Err: err}
	}
	return desc, nil
}

// wholeSize returns the size of the whole that a Content-Range names; 0 if it names none.
func wholeSize(contentRange string) int64 {
	_, whole, _ := strings.Cut(contentRange, "/")
	size, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || size < 0 {
		return 0
	}
	return size
}
