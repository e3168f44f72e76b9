package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	orasauth "oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/refusals"
)

// ReadOnly is a repository for callers that only read. If the registry answers HEAD of a blob
// with 404, ReadOnly gets the blob's first byte, and that answer decides. Harbor's
// proxy-cache projects answer HEAD with 404 until the first GET fetches the blob from their
// upstream.
//
// A push must not use ReadOnly: a push must upload every blob that HEAD does not find.
type ReadOnly struct{ *remote.Repository }

// Exists reports whether the repository has a manifest or a blob. For a manifest, HEAD alone
// decides.
func (s ReadOnly) Exists(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	found, err := s.Repository.Exists(ctx, desc)
	if found || err != nil || desc.MediaType == ocispec.MediaTypeImageManifest || desc.MediaType == ocispec.MediaTypeImageIndex {
		return found, err
	}
	return existsByGet(ctx, s.Repository, desc)
}

// existsByGet reports whether GET finds a blob. It reads one byte of the answer, even if the
// registry ignores Range and answers 200 with the whole blob. A blob of another size is an
// error.
func existsByGet(ctx context.Context, repo *remote.Repository, desc ocispec.Descriptor) (bool, error) {
	ctx = orasauth.AppendRepositoryScope(ctx, repo.Reference, orasauth.ActionPull)
	req, err := NewRequest(ctx, repo, http.MethodGet, "blobs/"+desc.Digest.String())
	if err != nil {
		return false, err
	}
	req.Header.Set("Range", outgoing.FirstByte)
	resp, err := repo.Client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	var size int64 // 0 if the answer does not state it
	switch resp.StatusCode {
	case http.StatusOK:
		size = resp.ContentLength
	case http.StatusPartialContent:
		size = wholeSize(resp.Header.Get("Content-Range"))
	case http.StatusNotFound:
		return false, nil
	default:
		return false, refusals.Read(resp)
	}
	if _, err = io.ReadFull(resp.Body, make([]byte, 1)); err == nil && size > 0 && size != desc.Size {
		err = fmt.Errorf("the registry has %d bytes, the manifest names %d", size, desc.Size)
	}
	if err != nil {
		return false, &url.Error{Op: "Get", URL: req.URL.String(), Err: err}
	}
	return true, nil
}

// wholeSize returns the size of the whole blob from a Content-Range header, or 0 if the
// header does not state it.
func wholeSize(contentRange string) int64 {
	_, whole, _ := strings.Cut(contentRange, "/")
	size, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || size < 0 {
		return 0
	}
	return size
}
