package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// errUnsigned means that a version is not signed. Clients refuse unsigned versions in the provider registry protocol,
// so the gateway treats them as absent. See [gateway.checkKeyless] for the only exception.
var errUnsigned = fmt.Errorf("%w: signed by nobody", errAbsent)

// evidence reads a version and its stored evidence. It fails with errUnsigned if the evidence has no signature,
// whatever the index says.
func (g *gateway) evidence(ctx context.Context, view catalog.View, a provider.Address, v provider.Version) (*artifact.Version, *artifact.Evidence, error) {
	item, err := g.version(ctx, view, a, v)
	if err != nil {
		return nil, nil, err
	}
	e, err := view.Evidence(ctx, item)
	if errors.Is(err, artifact.ErrMissing) {
		// The tag may have moved, and a prune may have deleted the old index and its evidence.
		if newer, nerr := view.Newer(ctx, item); nerr == nil && newer != nil {
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

// vouched returns the packages that the checksum document lists with their file name and digest. It omits a package
// whose file name belongs to another version or platform. Nobody signed that package for this version and platform, and
// clients would not notice.
func (s *registryVersion) vouched() (out []artifact.Package) {
	for _, p := range s.found.Packages {
		if sum, ok := s.sums.Sum(p.Filename); ok && !provider.Misnamed(p.Filename, s.version, p.Platform) && digest.NewDigestFromBytes(digest.SHA256, sum[:]) == p.Digest {
			out = append(out, p)
		}
	}
	return out
}

// isContent reports whether err means that the stored content of one version is bad.
func isContent(err error) bool {
	return artifact.IsContent(err) || trust.Refused(err) || errors.Is(err, catalog.ErrLost)
}

// registry.opentofu.org has no key of some publishers. OpenTofu installs their providers by their checksums alone. It
// still requires SHA256SUMS and its signature, but does not verify the signature.

// noKeys is the signing_keys object of a version without a key.
var noKeys = json.RawMessage(`{"gpg_public_keys":[]}`)

// checkKeyless returns nil if OpenTofu installs a version without a key from the version's origin, and no signed
// version of the provider is stored. If not, it returns errUnsigned. Any other error means that the gateway cannot
// tell.
func (g *gateway) checkKeyless(ctx context.Context, a provider.Address, v provider.Version, e *artifact.Evidence) error {
	keyless, err := g.isKeyless(ctx, a, v, e)
	if err != nil {
		return err
	}
	if !keyless {
		return errUnsigned
	}
	if signed, err := g.storesSigned(ctx, a); err != nil || !signed {
		return err
	}
	return errUnsigned
}

// isKeyless reports whether evidence shows that the provider's own registry offered the version without a key, so that
// OpenTofu installs it. An error means that ctx has ended.
func (g *gateway) isKeyless(ctx context.Context, a provider.Address, v provider.Version, e *artifact.Evidence) (bool, error) {
	if !g.Keyless || e == nil || e.Record.Verdict != trust.ChecksumOnly {
		return false, nil
	}
	verified, err := e.Verify(ctx, a, v, nil, trust.Policy{UnsignedAsClients: true})
	if err != nil {
		return false, ctx.Err()
	}
	return verified.Checksums.AsClients(), nil
}

// storesSigned reports whether the registry has a signed version of a provider. It also considers denied versions.
func (g *gateway) storesSigned(ctx context.Context, a provider.Address) (bool, error) {
	view := g.Catalog.Registry()
	item, err := view.Versions(ctx, a)
	switch {
	case errors.Is(err, errAbsent):
		return false, nil
	case err != nil:
		return false, err
	}
	_, found, err := artifact.FindSigned(ctx, item.All(), func(ctx context.Context, v provider.Version) (trust.Verdict, error) {
		item, err := view.Examine(ctx, a, v)
		switch {
		case err != nil && (isContent(err) || StatusOf(err) == http.StatusNotFound):
			return "", nil
		case err != nil:
			return "", catalog.Named(a, v, err)
		}
		return artifact.KnownVerdict(ctx, view.Metadata(a), v, item.Found)
	})
	return found, err
}

// addKeyless adds to a list the versions without a key that OpenTofu installs. The elements of unsigned versions are nil.
func (g *gateway) addKeyless(ctx context.Context, view catalog.View, item *catalog.Item, list []*listedVersionJSON) error {
	if !g.Keyless || !trust.ClientsInstallKeyless(item.Address) || !slices.Contains(list, nil) {
		return nil
	}
	for i, v := range item.Versions {
		if _, offered := item.Offer(v); !offered && list[i].isDescribed() {
			return nil // a signed version is stored
		}
	}
	if signed, err := g.storesSigned(ctx, item.Address); err != nil || signed {
		return err
	}
	group, ctx := panics.WithContext(ctx)
	group.SetLimit(versionReads)
	for i, v := range item.Versions {
		if list[i] != nil {
			continue
		}
		group.Go(func() (err error) {
			list[i], err = g.listKeyless(ctx, view, item.Address, v)
			return err
		})
	}
	return group.Wait()
}

// listKeyless describes a version without a key, or returns nil if OpenTofu does not install it.
func (g *gateway) listKeyless(ctx context.Context, view catalog.View, a provider.Address, v provider.Version) (*listedVersionJSON, error) {
	item, err := view.Examine(ctx, a, v) // the list has no denied versions
	var e *artifact.Evidence
	if err == nil {
		e, err = view.Evidence(ctx, item)
	}
	switch {
	case err != nil && (isContent(err) || StatusOf(err) == http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, catalog.Named(a, v, err)
	}
	keyless, err := g.isKeyless(ctx, a, v, e)
	if !keyless {
		return nil, err
	}
	return listed(v, item.Found.Protocols, item.Found.Platforms()), nil
}
