// Package origin reads provider releases from their origins. An origin is a registry, a
// network mirror, a mirror folder or a release folder. Registries are found by service
// discovery and read with the provider registry protocol. Of modules, the package reads the
// versions and the locations that a registry announces, and opens archives at such locations.
//
// Only ocibridge itself imports this package: it can change at any time.
//
// Each kind of origin yields a [Release]: the origin's claims about one version, and
// functions that open the packages of the version. This package verifies none of the
// claims; package trust does. The size of every document is limited. A credential is sent
// only to the origin's own JSON endpoints, and never unencrypted.
package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Release is one version of a provider as an origin offers it.
type Release struct {
	Claims trust.Claims // the input of package trust
	// Origin names the origin in the evidence: the host name of a registry or a network
	// mirror, or the kind of folder. It does not depend on the machine.
	Origin    string
	Protocols []string       // the plugin protocols, such as 5.0; nil if unknown
	About     provider.About // the source and the publication time from a registry
	Packages  []Package      // the requested packages, sorted by platform
	// Partial reports whether the version might have more packages. It is true if the
	// origin has packages that were not requested, or does not list its platforms. It is
	// always true for a folder or a mirror.
	Partial bool
	// Lost lists the platforms that a copied version should have, but that its repository cannot
	// deliver. Packages does not contain them.
	Lost []provider.Platform
	// ByPublisher reports whether the publisher of the release pushes it, from a release folder.
	// In that case, several jobs, each building one platform, are likely to push the version
	// concurrently, and the publisher can still sign it with another key.
	ByPublisher bool
	// Docs is the zip with the documentation that the publisher pushes with a release folder, or nil.
	Docs     []byte
	Warnings []string // for the user, such as a package without a hash
}

// Provider returns the address of the provider.
func (r *Release) Provider() provider.Address { return r.Claims.Provider }

// Version returns the version of the release.
func (r *Release) Version() provider.Version { return r.Claims.Version }

// Package is one platform's package of a release.
type Package struct {
	Platform provider.Platform
	Filename string
	Host     string // the host name in the package's URL; "" for a file
	// Open opens the package and returns its size, or -1 if the origin does not announce it. A
	// download fails if the origin sends less than 16 KiB/s for a minute, or on average over the
	// whole file. [WatchHosts] reports the hosts that the download contacts.
	Open func(ctx context.Context) (body io.ReadCloser, size int64, err error)
	// Size returns the package's size in bytes, for display, without downloading it, or -1 if the
	// origin does not announce it. It is nil for the packages of a [ReleaseDir].
	Size func(ctx context.Context) int64
	// Local is set for a file of the publisher's own release folder. A push reads the file even
	// if the package is stored, because the file may no longer match SHA256SUMS.
	Local bool
	// MismatchHint is the hint for a checksum mismatch of the package, with the most likely cause,
	// if the kind of origin suggests one.
	MismatchHint string
}

// Source lists and reads the versions of providers at an origin.
type Source interface {
	// Versions lists the versions of a provider. Errors wrap [ErrProviderNotFound] if the
	// origin does not have the provider, and [ErrUnauthorized] if it refuses the
	// credentials.
	Versions(ctx context.Context, a provider.Address) (*Listing, error)
	// Platforms returns the platforms of a version in l, or nil if the origin does not list
	// them.
	Platforms(ctx context.Context, a provider.Address, l *Listing, v provider.Version) ([]provider.Platform, error)
	// Release returns a version in l with the given platforms, or with all platforms if
	// none is given.
	Release(ctx context.Context, a provider.Address, l *Listing, v provider.Version, want []provider.Platform) (*Release, error)
}

var (
	_ Source = (*Registry)(nil)
	_ Source = (*NetworkMirror)(nil)
	_ Source = (*MirrorDir)(nil)
)

// The reasons why an origin does not provide a release.
var (
	ErrProviderNotFound = errors.New("provider not found")
	ErrModuleNotFound   = errors.New("module not found")
	ErrVersionNotFound  = errors.New("version not found")
	ErrPlatformNotFound = errors.New("platform not found")
	ErrUnauthorized     = errors.New("credentials refused")
	ErrNoModules        = errors.New("the host has no module registry")
)

// maxListed is the maximum number of names in a message.
const maxListed = 8

// selectPlatforms returns the platforms in want, or all platforms in have if want is empty.
// partial reports whether have contains platforms that are not returned.
func selectPlatforms(a provider.Address, v provider.Version, have, want []provider.Platform) (selected []provider.Platform, partial bool, err error) {
	have, want = distinct(have), distinct(want)
	if len(want) == 0 {
		return have, false, nil
	}
	for _, p := range want {
		if !slices.Contains(have, p) {
			return nil, false, hint.Wrap(fmt.Errorf("%s %s for %s: %w", a, v, p, ErrPlatformNotFound), "its platforms are %s", list(have))
		}
	}
	return want, len(want) < len(have), nil
}

// distinct returns the platforms sorted and without duplicates.
func distinct(platforms []provider.Platform) []provider.Platform {
	platforms = slices.Clone(platforms)
	provider.SortPlatforms(platforms)
	return slices.Compact(platforms)
}

func list[T fmt.Stringer](all []T) string {
	var out names
	for _, n := range all {
		out = append(out, n.String())
	}
	return out.String()
}

// names is a list of names for a message, which shows the first ones and the number of the others.
type names []string

func (n names) String() string {
	switch {
	case len(n) == 0:
		return "nothing"
	case len(n) > maxListed:
		return fmt.Sprintf("%s and %d more", strings.Join(n[:maxListed], ", "), len(n)-maxListed)
	}
	return strings.Join(n, ", ")
}

// quote quotes and shortens a string that may be long or contain control characters.
func quote(s string) string { return fmt.Sprintf("%.80q", s) }
