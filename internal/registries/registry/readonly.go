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

	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
)

// ReadOnly is a repository for callers that only read. If the registry returns 404 for the
// HEAD of a blob, ReadOnly also sends a GET for the blob's first byte. The blob exists if the
// GET succeeds. This is needed for Harbor's proxy-cache projects, which return 404 for a HEAD
// until the first GET has fetched the blob from their upstream.
//
// A push must not use ReadOnly, because it must upload every blob that a HEAD does not
// find.
type ReadOnly struct{ *remote.Repository }

// Exists reports whether the repository has the manifest or blob. For a manifest, it sends
// only a HEAD.
func (s ReadOnly) Exists(ctx context.Context, desc ocispec.Descriptor) (bool, error) {
	found, err := s.Repository.Exists(ctx, desc)
	if found || err != nil || desc.MediaType == ocispec.MediaTypeImageManifest || desc.MediaType == ocispec.MediaTypeImageIndex {
		return found, err
	}
	return existsByGet(ctx, s.Repository, desc)
}

// existsByGet reports whether a GET finds the blob. It requests and reads one byte of the
// blob. The registry may ignore the Range header and send the whole blob with status 200.
// existsByGet returns an error if the size of the blob is not desc.Size.
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
	var size int64 // the size of the blob; 0 or -1 if the response does not state the size
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

// wholeSize returns the size of the whole blob in a Content-Range header, or 0 if the
// header does not state the size.
func wholeSize(contentRange string) int64 {
	_, whole, _ := strings.Cut(contentRange, "/")
	size, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || size < 0 {
		return 0
	}
	return size
}
