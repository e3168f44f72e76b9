package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// errUnsigned means that nobody signed a version, so that the provider registry
// protocol, which knows no other, does not have it.
var errUnsigned = fmt.Errorf("%w: signed by nobody", errAbsent)

// evidence reads a version with the evidence of its signature, as it is stored;
// errUnsigned if it has none, whatever its index says.
func (g *gateway) evidence(ctx context.Context, a provider.Address, v provider.Version) (*artifact.Version, *artifact.Evidence, error) {
	item, err := g.catalog.Version(ctx, a, v)
	if err != nil {
		return nil, nil, err
	}
	e, err := g.catalog.Evidence(ctx, item)
	if errors.Is(err, artifact.ErrMissing) {
		// The tag may have moved, and a prune has deleted what it named before.
		newer, nerr := g.catalog.Newer(ctx, item)
		if nerr == nil && newer != nil {
			item = newer
			e, err = g.catalog.Evidence(ctx, item)
		}
	}
	switch {
	case err != nil:
		return nil, nil, err
	case e == nil || !e.Signed():
		return nil, nil, errUnsigned
	}
	return item.Found, e, nil
}

// vouchedFor returns the packages whose digest the checksum document lists under
// their file name, if that is not the name of another package. The others nobody
// signed as what they are, whatever the index says, and clients would not notice.
// An error says that the document does not read.
func vouchedFor(ctx context.Context, found *artifact.Version, e *artifact.Evidence, a provider.Address, v provider.Version) ([]artifact.Package, error) {
	// The signature is for clients to check: they do, by keys that they show.
	sums, err := trust.Policy{AllowUnsigned: true}.Accept(ctx, trust.Claims{Provider: a, Version: v, SHA256SUMS: e.SHA256SUMS})
	if err != nil {
		return nil, err
	}
	var out []artifact.Package
	for _, p := range found.Packages {
		if sum, ok := sums.Sum(p.Filename); ok && !provider.Misnamed(p.Filename, v, p.Platform) && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest {
			out = append(out, p)
		}
	}
	return out, nil
}

// isContent reports whether an error is about the stored content of one version,
// rather than about the connection to the registry.
func isContent(err error) bool {
	return artifact.IsContent(err) || trust.Refused(err) || errors.Is(err, errLost)
}
