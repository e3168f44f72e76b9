package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// errUnsigned means that a version is not signed. Clients refuse unsigned versions in the provider registry protocol,
// so the gateway treats them as absent. See [gateway.checkKeyless] for the only exception.
var errUnsigned = fmt.Errorf("%w: signed by nobody", errAbsent)

// evidence reads a version and its stored evidence. It fails with errUnsigned if the evidence has no
// signature, even if the index says that the version is signed.
func (g *gateway) evidence(ctx context.Context, view catalog.View, a provider.Address, v provider.Version) (*artifact.Version, *artifact.Evidence, error) {
	item, err := view.Version(ctx, a, v)
	if err != nil {
		return nil, nil, err
	}
	e, err := view.Evidence(ctx, item)
	if errors.Is(err, artifact.ErrMissing) {
		// The tag may have moved, and a prune may have deleted the old index and its evidence.
		newer, nerr := view.Newer(ctx, item)
		if nerr == nil && newer != nil {
			item = newer
			e, err = view.Evidence(ctx, item)
		}
	}
	if err == nil && (e == nil || !e.Signed()) {
		err = g.checkKeyless(ctx, a, v, e)
	}
	if err != nil {
		return nil, nil, err
	}
	return item.Found, e, nil
}

// vouched returns the packages that the checksum document lists with their file name and digest. It omits a
// package whose file name belongs to another version or platform. Nobody has signed that package for the
// version and platform in the index, and clients would not notice that.
func (s *registryVersion) vouched() (out []artifact.Package) {
	for _, p := range s.found.Packages {
		if sum, ok := s.sums.Sum(p.Filename); ok && !provider.Misnamed(p.Filename, s.version, p.Platform) && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest {
			out = append(out, p)
		}
	}
	return out
}

// isContent reports whether err means that the stored content of one version is bad. Other errors concern the
// connection to the registry.
func isContent(err error) bool {
	return artifact.IsContent(err) || trust.Refused(err) || errors.Is(err, catalog.ErrLost)
}
