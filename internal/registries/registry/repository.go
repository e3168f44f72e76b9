// Package registry opens the repositories that hold providers and modules, and lists the
// providers and modules in them.
//
// It also extends the repositories of oras-go. [Repository] can remove a tag without its
// manifest. [ReadOnly] also finds blobs for which a registry returns 404 to a HEAD.
package registry

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	orasauth "oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/refusals"
)

// Repository is a repository that can remove a tag without its manifest.
type Repository struct{ *remote.Repository }

// Remote returns the embedded repository of oras-go.
func (r Repository) Remote() *remote.Repository { return r.Repository }

// Untag removes a tag and keeps its manifest. See "Deleting tags" in the distribution
// specification. The error wraps [errdef.ErrUnsupported] if the registry can only delete
// by digest, and [errdef.ErrNotFound] if it returns 404.
func (r Repository) Untag(ctx context.Context, tag string) error {
	ctx = orasauth.AppendRepositoryScope(ctx, r.Reference, orasauth.ActionDelete)
	req, err := NewRequest(ctx, r.Repository, http.MethodDelete, "manifests/"+tag)
	if err != nil {
		return err
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return untagError(resp)
}

// untagError returns the error for a registry's response to the deletion of a tag. It
// returns nil if the registry has deleted the tag.
func untagError(resp *http.Response) error {
	if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	answer := refusals.Read(resp)
	has := func(codes ...string) bool {
		return slices.ContainsFunc(answer.Errors, func(e errcode.Error) bool { return slices.Contains(codes, e.Code) })
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %w", errdef.ErrNotFound, answer)
	case resp.StatusCode == http.StatusMethodNotAllowed,
		resp.StatusCode == http.StatusBadRequest && has(errcode.ErrorCodeUnsupported, errcode.ErrorCodeDigestInvalid, errcode.ErrorCodeManifestInvalid):
		return fmt.Errorf("%w: %w", errdef.ErrUnsupported, answer)
	}
	return answer
}

// NewRequest returns a request without a body for a path in the API of a repository, such
// as manifests/TAG.
func NewRequest(ctx context.Context, repo *remote.Repository, method, path string) (*http.Request, error) {
	scheme := "https"
	if repo.PlainHTTP {
		scheme = "http"
	}
	ref := repo.Reference
	return http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s://%s/v2/%s/%s", scheme, ref.Host(), ref.Repository, path), nil)
}
