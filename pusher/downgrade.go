package pusher

import (
	"context"
	"fmt"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/pusher/repo"
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

func (p *Pusher) checkDowngrade(ctx context.Context, dest repo.Destination, sums *trust.Checksums) error {
	if !sums.AsClients() || p.knownUnsigned(dest) {
		return nil
	}
	at := p.o.Now()
	signed, found, err := artifact.FindSignedIn(ctx, dest.Store, sums.Provider())
	switch {
	case err != nil:
		err = fmt.Errorf("%s %s: cannot tell whether a signed version is stored: %w", sums.Provider(), sums.Version(), &repo.RegistryError{Op: "read versions in", Repository: dest.Repository, Err: err})
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
func (p *Pusher) knownUnsigned(dest repo.Destination) bool {
	at, ok := p.unsigned.Load(dest.Repository)
	return ok && p.o.Now().Sub(at.(time.Time)) < unsignedLasts
}
