package pusher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// CheckDowngrade returns an error that wraps [trust.ErrUnsigned] if checksums were accepted only because OpenTofu
// accepts them, too, although a signed version of the provider is stored. It is for callers that use checksums before
// they push the release. Any other error means that the registry has failed.
func (p *Pusher) CheckDowngrade(ctx context.Context, sums *trust.Checksums) error {
	if !sums.AsClients() {
		return nil
	}
	dest, err := p.o.Destination(ctx, sums.Provider())
	if err != nil {
		return err
	}
	return p.checkDowngrade(ctx, dest, sums)
}

func (p *Pusher) checkDowngrade(ctx context.Context, dest Destination, sums *trust.Checksums) error {
	if !sums.AsClients() || p.knownUnsigned(dest) {
		return nil
	}
	at := p.o.Now()
	signed, found, err := signedVersion(ctx, dest, sums.Provider())
	switch {
	case err != nil:
		err = fmt.Errorf("%s %s: cannot tell whether a signed version is stored: %w", sums.Provider(), sums.Version(), &RegistryError{"read versions in", dest.Repository, err})
		return hint.Wrap(err, "its registry offers no key, so it is accepted only if no stored version is signed: try again when the repository can be read")
	case found:
		return sums.Downgrade(signed)
	}
	p.unsigned.Store(dest.Repository, at)
	return nil
}

// unsignedLasts is how long checkDowngrade relies on its last search of a repository. It is
// long enough for a sync of many versions.
const unsignedLasts = time.Minute

// knownUnsigned reports whether no version in the repository was signed a short time ago.
func (p *Pusher) knownUnsigned(dest Destination) bool {
	at, ok := p.unsigned.Load(dest.Repository)
	return ok && p.o.Now().Sub(at.(time.Time)) < unsignedLasts
}

// versionReads is the maximum number of versions that signedVersion reads concurrently.
const versionReads = 8

// errFound ends the search of signedVersion.
var errFound = errors.New("found")

// signedVersion returns a stored version whose index says that it is signed. The index is not
// verified: a registry that forges a verdict can only cause a refusal.
func signedVersion(ctx context.Context, dest Destination, a provider.Address) (signed provider.Version, found bool, err error) {
	tags, err := artifact.ListAnyTags(ctx, dest.Store)
	if err != nil {
		return signed, false, err
	}
	hits := make(chan provider.Version, 1)
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(versionReads)
	for _, v := range slices.Backward(versionsOf(tags)) {
		group.Go(func() error {
			verdict, err := verdictOf(reading, dest.Store, a, v)
			if err != nil || verdict != trust.Signed {
				return err
			}
			select {
			case hits <- v:
			default:
			}
			return errFound
		})
	}
	err = group.Wait()
	select {
	case v := <-hits:
		return v, true, nil
	default:
		return signed, false, err
	}
}

// verdictOf returns the verdict of a stored version, or "" if the tag names no version of the
// provider.
func verdictOf(ctx context.Context, store Store, a provider.Address, v provider.Version) (trust.Verdict, error) {
	found, err := artifact.Read(ctx, store, a, v)
	switch {
	case isUnusable(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("version %s: %w", v, err)
	}
	return artifact.ReadVerdict(ctx, store, found)
}
