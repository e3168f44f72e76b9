// Package origin knows where provider packages come from: origin registries (by
// service discovery and the provider registry protocol), mirror folders and
// release folders.
//
// Each of them yields a [Release]: what the origin claims of one version, and
// how to open its packages. Nothing of it is verified here; package trust does
// that. Every answer is bounded, and a credential goes to the origin's own JSON
// endpoints and nowhere else, and never unencrypted.
package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Release is one version of a provider as an origin offers it.
type Release struct {
	// Claims are what trust decides on.
	Claims trust.Claims
	// Origin names the origin in the evidence: a registry's host name, or the
	// kind of folder. It never depends on the machine.
	Origin string
	// Protocols are the plugin protocols, such as 5.0; nil if not known.
	Protocols []string
	// About has the source and the time that a registry gives.
	About provider.About
	// Packages are the ones asked for, sorted by platform.
	Packages []Package
	// Partial is set if there may be packages of this version beside these: the
	// origin has some that were not asked for, or is a folder.
	Partial bool
	// ByPlatform is set if jobs that build one platform each are likely to push the
	// version at the same time: the origin is a release folder.
	ByPlatform bool
	// Warnings are what the origin wants its users to read.
	Warnings []string
}

// Provider returns the provider that the release is of.
func (r *Release) Provider() provider.Address { return r.Claims.Provider }

// Version returns its version.
func (r *Release) Version() provider.Version { return r.Claims.Version }

// Package is one platform's package of a release.
type Package struct {
	Platform provider.Platform
	Filename string
	// Host is the name of the host in the package's URL; "" for a file.
	Host string
	// Open starts reading the package and returns its size, -1 if the origin
	// does not announce it. A download fails where the origin sends less than 16 KiB/s
	// for a minute, or on the whole. [WatchHosts] reports the hosts that it asks.
	Open func(ctx context.Context) (body io.ReadCloser, size int64, err error)
	// Size asks for the package's size in bytes without reading it; -1 if the
	// origin does not say. It is for people: nothing is decided by it. Only
	// packages of a [Source] have it.
	Size func(ctx context.Context) int64
	// MismatchHint says what a checksum mismatch most likely comes from, if the
	// origin gives reason to think so.
	MismatchHint string
}

// Source is an origin that says what it offers of a provider.
type Source interface {
	// Versions lists the versions of a provider. Errors wrap
	// [ErrProviderNotFound] or [ErrUnauthorized] where that is the reason.
	Versions(ctx context.Context, a provider.Address) (*Listing, error)
	// Platforms returns the platforms of a version that l lists; nil if the
	// origin does not say.
	Platforms(ctx context.Context, a provider.Address, l *Listing, v provider.Version) ([]provider.Platform, error)
	// Release returns a version that l lists, with the platforms given, or with
	// all of them if none is given.
	Release(ctx context.Context, a provider.Address, l *Listing, v provider.Version, want []provider.Platform) (*Release, error)
}

var (
	_ Source = (*Registry)(nil)
	_ Source = (*NetworkMirror)(nil)
	_ Source = (*MirrorDir)(nil)
)

// Reasons for which an origin has no release.
var (
	ErrProviderNotFound = errors.New("provider not found")
	ErrVersionNotFound  = errors.New("version not found")
	ErrPlatformNotFound = errors.New("platform not found")
	ErrUnauthorized     = errors.New("credentials refused")
)

// maxListed is how many names an error message lists.
const maxListed = 8

// selectPlatforms returns the wanted platforms, or all that are there if none
// is named, and whether some that are there were left out.
func selectPlatforms(a provider.Address, v provider.Version, have, want []provider.Platform) (selected []provider.Platform, partial bool, err error) {
	there := map[provider.Platform]bool{}
	for _, p := range have {
		there[p] = true
	}
	if len(want) == 0 {
		for p := range there {
			selected = append(selected, p)
		}
		provider.SortPlatforms(selected)
		return selected, false, nil
	}
	wanted := map[provider.Platform]bool{}
	for _, p := range want {
		if !there[p] {
			have = slices.Clone(have)
			provider.SortPlatforms(have)
			return nil, false, hint.Wrap(fmt.Errorf("%s %s for %s: %w", a, v, p, ErrPlatformNotFound), "it is there for %s", list(have))
		}
		if !wanted[p] {
			wanted[p] = true
			selected = append(selected, p)
		}
	}
	provider.SortPlatforms(selected)
	return selected, len(wanted) < len(there), nil
}

// list joins names for a message, the first few of many.
func list[T fmt.Stringer](all []T) string {
	var out names
	for _, n := range all {
		out.add(n)
	}
	return out.String()
}

// names are what a message lists. It keeps the first few, and counts the others.
type names struct {
	first []string
	count int
}

func (n *names) add(name fmt.Stringer) {
	if n.count++; n.count <= maxListed {
		n.first = append(n.first, name.String())
	}
}

func (n names) String() string {
	switch {
	case n.count == 0:
		return "nothing"
	case n.count > maxListed:
		return fmt.Sprintf("%s and %d more", strings.Join(n.first, ", "), n.count-maxListed)
	}
	return strings.Join(n.first, ", ")
}

// text is something to be listed as it is, and quote makes one of what may be
// long or not fit to be shown.
type text string

func (t text) String() string { return string(t) }

func quote(s string) text { return text(fmt.Sprintf("%.80q", s)) }

// quoteAll joins texts that may be long or not fit to be shown.
func quoteAll(all []string) string {
	var out names
	for _, s := range all {
		out.add(quote(s))
	}
	return out.String()
}
