package artifact

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// verdictReads is the maximum number of versions that FindSigned reads concurrently.
const verdictReads = 8

// errFound ends the search of FindSigned.
var errFound = errors.New("found")

// FindSigned returns one of the versions whose verdict is [trust.Signed]. It calls verdict concurrently, and stops at
// the first error or signed version.
func FindSigned(ctx context.Context, versions []provider.Version, verdict func(context.Context, provider.Version) (trust.Verdict, error)) (signed provider.Version, found bool, err error) {
	hits := make(chan provider.Version, 1)
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(verdictReads)
	for _, v := range slices.Backward(versions) { // the newest version is most likely to be signed
		group.Go(func() error {
			if reading.Err() != nil {
				return context.Cause(reading)
			}
			got, err := verdict(reading, v)
			if err != nil || got != trust.Signed {
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

// FindSignedIn returns a version in a provider's repository whose index says that it is signed. It reads the indexes
// and not the summary, which may be outdated. The index is not verified: a registry that forges a verdict can only cause
// a refusal.
func FindSignedIn(ctx context.Context, store interface {
	ReferenceFetcher
	TagLister
}, a provider.Address) (signed provider.Version, found bool, err error) {
	tags, err := ListAnyTags(ctx, store)
	if err != nil {
		return signed, false, err
	}
	return FindSigned(ctx, ociaddr.Versions(tags), func(ctx context.Context, v provider.Version) (trust.Verdict, error) {
		found, err := Read(ctx, store, a, v)
		switch {
		case IsContent(err), errors.Is(err, errdef.ErrNotFound):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("version %s: %w", v, err)
		}
		return KnownVerdict(ctx, store, v, found)
	})
}

// KnownVerdict is like [ReadVerdict]. If the registry has lost the evidence of an index that does not state the verdict,
// the hint of its error says how to repair the version.
func KnownVerdict(ctx context.Context, store Fetcher, v provider.Version, found *Version) (trust.Verdict, error) {
	verdict, err := ReadVerdict(ctx, store, found)
	if err == nil {
		return verdict, nil
	}
	err = fmt.Errorf("version %s: %w", v, err)
	if IsContent(err) {
		return "", hint.Wrap(err, "if the origin signs version %s, push it again with --force; otherwise delete its tag", v)
	}
	return "", err
}
