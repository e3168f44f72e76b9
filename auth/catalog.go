package auth

import (
	"context"
	"fmt"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Registry returns the client of a whole registry, for its catalog: the list of
// repositories that some registries offer. It uses the login for the whole registry,
// and requests a token for the catalog only. It returns the same errors as
// [Client.Repository].
func (c *Client) Registry(ctx context.Context, r ociaddr.Registry) (*remote.Registry, error) {
	if err := c.invalid(); err != nil {
		return nil, err
	}
	b, err := c.bind(ociaddr.Repository{Registry: r})
	if err != nil {
		return nil, fmt.Errorf("find the login for %s: %w", r, err)
	}
	registry, err := remote.NewRegistry(string(r))
	if err != nil {
		return nil, err
	}
	if registry.PlainHTTP, err = c.PlainHTTP(ctx, r); err != nil {
		return nil, err
	}
	registry.Client = b.sender
	return registry, nil
}
