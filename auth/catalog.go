package auth

import (
	"context"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Registry returns an oras-go client for the registry's catalog, which lists all
// repositories. Some registries have no catalog. The client uses the login for the
// whole registry, and requests tokens for the catalog only. Registry returns the same
// errors as [Client.Repository].
func (c *Client) Registry(ctx context.Context, r ociaddr.Registry) (*remote.Registry, error) {
	registry, err := remote.NewRegistry(string(r))
	if err != nil {
		return nil, err
	}
	if registry.Client, registry.PlainHTTP, err = c.open(ctx, ociaddr.Repository{Registry: r}, string(r)); err != nil {
		return nil, err
	}
	return registry, nil
}
