package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/bundle"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

// Listing is the kind of a file with the JSON output of ocibridge list.
const Listing Kind = "list"

// listingLimits limit the JSON of a listing. They allow about as many versions as a bundle has room for.
var listingLimits = document.Limits{Bytes: 12 << 20, Values: 300_000, Elements: 40_000}

// ParseSince parses the value of --since, which names an earlier bundle or a listing.
func ParseSince(s string) (Location, error) {
	if s == "" {
		return Location{}, nil
	}
	if name, ok := strings.CutPrefix(s, string(Listing)+":"); ok && name != "" {
		return Location{Listing, name}, nil
	}
	at, err := ParseLocation("--since", s)
	if err == nil && at.IsBundle() {
		return at, nil
	}
	return Location{}, hint.New(fmt.Sprintf("--since %s is neither a bundle nor a listing", s),
		"it is oci-archive:FILE or oci:DIR, the bundle that the other side has, or list:FILE, the output of ocibridge list --output json")
}

// packagesOf returns those packages of a stored version that the other side of an air gap has.
type packagesOf func(ctx context.Context, a provider.Address, v provider.Version, found *artifact.Version) ([]artifact.Package, error)

// otherSide knows the packages that the other side of an air gap has.
type otherSide struct {
	packages packagesOf // nil: no packages
	close    func() error
}

// omits returns the function with which copies into the bundle b omit the packages that the other side has.
func (o *otherSide) omits(b *bundle.Bundle) packagesOf {
	if o.packages == nil {
		return nil
	}
	return func(ctx context.Context, a provider.Address, v provider.Version, found *artifact.Version) ([]artifact.Package, error) {
		out, err := o.packages(ctx, a, v, found)
		for _, p := range out {
			b.Omit(p.Layer())
		}
		return out, err
	}
}

// openSince opens the bundle or the listing that c.Since names.
func (c Copy) openSince(ctx context.Context) (*otherSide, error) {
	switch c.Since.Kind {
	case Configured:
		return &otherSide{close: func() error { return nil }}, nil
	case Listing:
		packages, err := readListing(ctx, c.Since.Name)
		return &otherSide{packages, func() error { return nil }}, err
	}
	b, err := c.Since.OpenBundle(ctx)
	if err != nil {
		return nil, err
	}
	return &otherSide{close: b.Close, packages: func(ctx context.Context, a provider.Address, v provider.Version, found *artifact.Version) ([]artifact.Package, error) {
		there, err := artifact.Read(ctx, b.Bundle.Repository(a), a, v)
		if errors.Is(err, errdef.ErrNotFound) || artifact.IsContent(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(slices.Clone(found.Packages), func(p artifact.Package) bool {
			return !slices.ContainsFunc(there.Packages, func(q artifact.Package) bool { return q.Platform == p.Platform && q.Digest == p.Digest })
		}), nil
	}}, nil
}

// readListing reads the JSON output of ocibridge list. The other side has the packages of each version whose
// index has the listed digest.
func readListing(ctx context.Context, name string) (packagesOf, error) {
	const help = "name a file that ocibridge list --output json wrote"
	file, err := files.OpenGiven(ctx, name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("listing: %w", err), help)
	}
	defer file.Close()
	var doc struct {
		Providers *[]struct {
			Provider string `json:"provider"`
			Versions []struct {
				Version string `json:"version"`
				Digest  string `json:"digest"`
			} `json:"versions"`
		} `json:"providers"`
	}
	data, err := document.ReadAll(file, listingLimits.Bytes)
	if err == nil {
		err = listingLimits.Unmarshal(data, &doc)
	}
	if err == nil && doc.Providers == nil {
		err = errors.New("it has no providers")
	}
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("listing %s: %w", name, err), help)
	}
	digests := map[string]string{}
	for _, p := range *doc.Providers {
		for _, v := range p.Versions {
			digests[p.Provider+"@"+v.Version] = v.Digest
		}
	}
	return func(_ context.Context, a provider.Address, v provider.Version, found *artifact.Version) ([]artifact.Package, error) {
		if digests[a.String()+"@"+v.String()] != found.Index.Digest.String() {
			return nil, nil
		}
		return found.Packages, nil
	}, nil
}

// fromBoth is a bundle's repository that reads omitted packages from the destination.
type fromBoth struct {
	repo.Reader
	subject subject.Address
	version provider.Version
	target  *target
}

// Fetch opens a blob. If the bundle omits the blob, Fetch opens it at the destination.
func (s fromBoth) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := s.Reader.Fetch(ctx, target)
	if !errors.Is(err, bundle.ErrOmitted) {
		return body, err
	}
	where := s.target.name
	if s.target.destination != nil {
		to, err := s.target.destination(ctx, s.subject)
		if err != nil {
			return nil, err
		}
		where = to.Repository.String()
		if body, err = to.Store.Fetch(ctx, target); !errors.Is(err, errdef.ErrNotFound) {
			return body, err
		}
	}
	return nil, hint.New(fmt.Sprintf("the package %s of %s %s is %v, and %s lacks it", target.Digest, s.subject, s.version, bundle.ErrOmitted, where),
		"copy the earlier bundle first, or make a full bundle: ocibridge copy without --since")
}
