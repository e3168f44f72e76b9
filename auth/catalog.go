package auth

import (
	"context"
	"fmt"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// Registry returns the client of a registry as a whole, for its catalog: the list
// of repositories that some registries give. The login is the one for the whole
// registry, and the token that it is asked for is for the catalog alone. It fails
// as [Client.Repository] does.
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
	if registry.PlainHTTP, err = c.plainHTTP(ctx, r); err != nil {
		return nil, err
	}
	registry.Client = b.sender
	return registry, nil
}

// PlainHTTP reports whether a registry is spoken to without TLS, as clients never
// do. A loopback registry is asked, once.
func (c *Client) PlainHTTP(ctx context.Context, r ociaddr.Registry) (bool, error) {
	return c.plainHTTP(ctx, r)
}
