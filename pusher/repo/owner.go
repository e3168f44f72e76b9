package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/refusals"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// ReadVersion reads a version of a repository. The error wraps [ErrOccupied] if the tag names
// something other than a version of the provider. Otherwise it is a *[RegistryError].
func ReadVersion(ctx context.Context, store artifact.ReferenceFetcher, r ociaddr.Repository, a provider.Address, v provider.Version) (*artifact.Version, error) {
	found, err := artifact.Read(ctx, store, a, v)
	if err == nil {
		return found, nil
	}
	tag := TagOf(v)
	switch {
	case errors.Is(err, artifact.ErrForeign):
		return nil, Occupied(r, tag, err, HelpForeign)
	case IsReplaceable(err):
		return nil, Occupied(r, tag, err, "the tag is left as it was; ocibridge push --force replaces what it names")
	}
	return nil, &RegistryError{"read " + string(tag) + " in", r, err}
}

// ownerProbes is the number of versions that ProbeOwner reads. If some of them are invalid, or
// if a policy of the registry forbids reading them, ProbeOwner tries more versions, up to
// maxOwnerProbes in total.
const ownerProbes, maxOwnerProbes = 3, 20

// CheckOwner refuses a repository whose newest versions name another provider, or are modules. Two providers
// share a repository if, for example, the template is ${namespace}-${type} and the providers
// are a-b/c and a/b-c. tag is the tag that will be written. CheckOwner warns if a policy of the registry forbids reading all of
// these versions.
func (w Writer) CheckOwner(ctx context.Context, tag ociaddr.Tag, a provider.Address, tags []ociaddr.Tag, warn func(format string, args ...any)) error {
	forbidden, err := w.ProbeOwner(ctx, tag, ociaddr.Versions(tags), HelpForeign, func(v provider.Version) (bool, error) {
		found, err := artifact.Read(ctx, w.Dest.Store, a, v)
		return err == nil && found.Owner != nil, err
	})
	if forbidden != nil {
		warn("%s: ocibridge could not check which provider this repository belongs to: %v", w.Dest.Repository, forbidden)
	}
	return err
}

// ProbeOwner reads the newest of the given versions, oldest first, with the function read. It
// returns [ErrOccupied] if one of them is foreign. tag is the tag that the push will write. read
// also reports whether the version names its owner. forbidden is not nil if a policy of the
// registry forbids reading all of these versions.
func (w *Writer) ProbeOwner(ctx context.Context, tag ociaddr.Tag, versions []provider.Version, help string, read func(provider.Version) (named bool, err error)) (forbidden, err error) {
	slices.Reverse(versions)
	probes, invalid := 0, false
	for _, v := range versions[:min(len(versions), maxOwnerProbes)] {
		if probes == ownerProbes {
			return nil, nil
		}
		named, err := read(v)
		if errors.Is(err, artifact.ErrForeign) {
			return nil, Occupied(w.Dest.Repository, tag, fmt.Errorf("its tag %s: %w", TagOf(v), err), help)
		}
		switch {
		case named:
			return nil, nil
		case refusals.Policy(err):
			forbidden = err
			continue
		case artifact.IsInvalid(err):
			invalid = true
			continue
		case err != nil && !IsUnusable(err):
			return nil, w.Failed("read "+string(TagOf(v))+" in", err)
		}
		probes++
	}
	if probes > 0 || invalid {
		forbidden = nil
	}
	return forbidden, nil
}

// IsRefusal reports whether err means that the destination does not accept the content.
func (w *Writer) IsRefusal(err error) bool {
	var registry *RegistryError
	return errors.As(err, &registry) && registry.Repository == w.Dest.Repository && (RefusesContent(err) || errors.Is(err, artifact.ErrTooLarge))
}

// Tags lists the repository's tags. It returns no tags if the repository does not exist.
func (w Writer) Tags(ctx context.Context) ([]ociaddr.Tag, error) {
	tags, err := artifact.ListAnyTags(ctx, w.Dest.Store)
	if err != nil {
		return nil, w.Failed("list tags of", err)
	}
	return tags, nil
}
