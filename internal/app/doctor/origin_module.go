package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// ModuleOrigin diagnoses the origin of a public module.
type ModuleOrigin struct {
	Module module.Address
	Origin *moduleorigin.Origin
	// URL is the URL of the module registry, or of its host.
	URL *url.URL
	// Versions selects the versions that are of interest. The zero value selects all.
	Versions provider.VersionSet
}

// Examine diagnoses an origin. It sends the requests of a push, and reads only the references of a Git repository, or the
// beginning of an archive.
func (x ModuleOrigin) Examine(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeout(ctx, originTimeout)
	defer cancel()
	r := &Report{Subject: fmt.Sprintf("origin %s of %s", x.Module.Hostname(), x.Module)}
	if !r.proxy(ctx, x.URL) {
		return r
	}
	v, ok := x.versions(ctx, r)
	if !ok {
		return r
	}
	r.clockOf(ctx, x.URL)
	x.files(ctx, r, v)
	return r
}

// versions lists the versions, and returns the newest one that is of interest. The bool is false if there is none.
func (x ModuleOrigin) versions(ctx context.Context, r *Report) (newest provider.Version, ok bool) {
	const name = "origin"
	listing, err := x.Origin.Registry.ModuleVersions(ctx, x.Module)
	if err != nil {
		r.failOf(x.Module.Hostname(), name, err, "check the address of the module, and that its registry is running")
		return newest, false
	}
	matching := listing.Versions
	if !x.Versions.IsZero() {
		matching = x.Versions.Matches(listing.Versions)
	}
	switch {
	case len(listing.Versions) == 0:
		r.fail(name, errors.New("it lists no version"), "check the address of the module")
		return newest, false
	case len(matching) == 0:
		r.fail(name, listing.NoMatch(x.Module, x.Versions), "correct the version constraint")
		return newest, false
	}
	newest = matching[len(matching)-1]
	r.ok(name, "it lists %s; the newest one to push is %s", count(len(listing.Versions), "version"), newest)
	return newest, true
}

// files finds out where a version is, and whether it can be fetched from there.
func (x ModuleOrigin) files(ctx context.Context, r *Report, v provider.Version) {
	const name, help = "files", "the registry lists this version, but its files cannot be fetched: ask the publisher of the module"
	at, err := x.Origin.Locate(ctx, x.Module, v.String())
	if err != nil {
		r.failOf(x.Module.Hostname(), name, err, help)
		return
	}
	commit, err := x.Origin.Probe(ctx, at)
	switch {
	case err != nil:
		r.failOf(x.Module.Hostname(), name, err, help)
	case commit.Commit != "":
		r.ok(name, "version %s is the commit %s at %s", v, commit.Commit, at)
	default:
		r.ok(name, "version %s is at %s", v, at)
	}
}
