package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// ErrListRefused means that the registry refuses the referrers API, and has no list of
// referrers under the fallback tag.
var ErrListRefused = errors.New("refuses to list referrers")

// ReferrerLister lists the referrers of a manifest. It calls fn with each page of the list.
// It uses the referrers API, or the subject's fallback tag. oras-go's remote.Repository implements it.
type ReferrerLister interface {
	Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string, fn func(referrers []ocispec.Descriptor) error) error
}

// ReferrerStore fetches manifests and lists their referrers.
type ReferrerStore interface {
	ReferenceFetcher
	ReferrerLister
}

// ListReferrers lists the referrers of a manifest. It calls add with each page of the list. If the registry
// refuses the referrers API, ListReferrers reads the list under the fallback tag itself, because oras-go reads
// that tag only if the API returns 404. If there is no such list, the error wraps ErrListRefused and the refusal.
//
// Some tools, such as "cosign copy" of cosign 3, give an index its own fallback tag. The list then contains the
// manifests that the index names.
func ListReferrers(ctx context.Context, store ReferrerStore, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) error {
	refusal := store.Referrers(ctx, s, "", add)
	switch {
	case isNotFound(refusal):
		return nil
	case !refusesReferrers(refusal):
		return refusal
	}
	found, err := listFallback(ctx, store, s, add)
	if err == nil && !found {
		return fmt.Errorf("%w (%w)", ErrListRefused, refusal)
	}
	return err
}

// listFallback calls add with the list of referrers under the fallback tag of a manifest. found is false if there is no such list.
func listFallback(ctx context.Context, store ReferenceFetcher, s ocispec.Descriptor, add func([]ocispec.Descriptor) error) (found bool, err error) {
	desc, data, err := fetchTag(ctx, store, string(ociaddr.ReferrersTag(s.Digest)))
	switch {
	case isNotFound(err), refusals.Content(err), err == nil && desc.MediaType != ocispec.MediaTypeImageIndex:
		return false, nil
	case err != nil:
		return false, err
	}
	var index ocispec.Index
	if err := Unmarshal(data, &index); err != nil {
		return false, err
	}
	return true, add(index.Manifests)
}

// Named returns the manifests that an index names.
func Named(ctx context.Context, store Fetcher, index ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	data, err := FetchManifest(ctx, store, index)
	if err != nil {
		return nil, err
	}
	var decoded ocispec.Index
	err = Unmarshal(data, &decoded)
	return decoded.Manifests, err
}

// isNotFound reports whether err means that the registry does not have the content.
func isNotFound(err error) bool {
	return errors.Is(err, errdef.ErrNotFound) || refusals.Status(err) == http.StatusNotFound
}

// refusesReferrers reports whether err means that the registry refuses or lacks the referrers API. Some registries
// return one of these statuses, although they should return 404.
func refusesReferrers(err error) bool {
	return refusals.Content(err) || errors.Is(err, errdef.ErrUnsupported) || refusals.Status(err) == http.StatusUnauthorized || errors.Is(err, auth.ErrBasicCredentialNotFound)
}
