package transfer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/internal/registries/providerdoc"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/trust"
)

// Source yields releases to push.
type Source struct {
	Providers []provider.Address // the providers of the releases
	Close     func() error
	// each calls fn for every release. It stops, and returns the error, if fn fails.
	each func(ctx context.Context, warn func(string), fn func(*origin.Release) error) error
}

// Push pushes the releases of a source into a registry. It overwrites Destination and
// OnEvent of the given options.
func Push(ctx context.Context, src *Source, to *registry.Repositories, o pusher.Options, progress Progress) ([]*pusher.Result, error) {
	o.Destination, o.OnEvent = Destination(to), progress.Event
	p := pusher.New(o)
	all := newBatch(o.Jobs, progress.Done)
	results, err := all.wait(src.each(ctx, progress.Warn, func(r *origin.Release) error {
		return all.add(func() (*pusher.Result, error) {
			result, err := p.Push(ctx, r)
			return result, Explain(to, err)
		})
	}))
	if text := repo.SummaryWarning(p.Summarize(ctx)); text != "" { // even after a failure, for the versions that are stored
		progress.Warn(text)
	}
	return results, err
}

// PlanPush returns what [Push] would do, and writes nothing. If a release is refused, the plan has the steps of
// the releases before it.
func PlanPush(ctx context.Context, src *Source, to *registry.Repositories, o pusher.Options, progress Progress) (plan reconcile.Plan, err error) {
	o.Destination = Destination(to)
	p := pusher.New(o)
	all := newBatch(o.Jobs, func(part *pusher.PushPlan) {
		plan.Steps = append(plan.Steps, reconcile.Step{Step: part.Step})
		for _, text := range part.Warnings {
			plan.Warnings = append(plan.Warnings, text)
			progress.Warn(text)
		}
	})
	_, err = all.wait(src.each(ctx, progress.Warn, func(r *origin.Release) error {
		return all.add(func() (*pusher.PushPlan, error) {
			part, err := p.PlanPush(ctx, r)
			return part, Explain(to, err)
		})
	}))
	return plan, err
}

// folder returns a source of the given releases in dir, or closes dir and returns err if err is not nil.
func folder(dir io.Closer, releases []*origin.Release, err error) (*Source, error) {
	if err != nil {
		dir.Close()
		return nil, err
	}
	src := &Source{Close: dir.Close}
	for _, r := range releases {
		src.Providers = append(src.Providers, r.Provider())
	}
	src.each = func(_ context.Context, _ func(string), fn func(*origin.Release) error) error {
		for _, r := range releases {
			if err := fn(r); err != nil {
				return err
			}
		}
		return nil
	}
	return src, nil
}

// MirrorDir returns a source of the releases in a mirror folder, with the given platforms, or with all if none are
// given.
func MirrorDir(ctx context.Context, path string, platforms []provider.Platform) (*Source, error) {
	dir, err := origin.OpenMirrorDir(path)
	if err != nil {
		return nil, err
	}
	releases, err := dir.Releases(ctx, platforms)
	return folder(dir, releases, err)
}

// ReleaseDir returns a source of the release in a folder. publicKey is the signer's public key, in ASCII armour. docs is the
// folder with the documentation, or "".
func ReleaseDir(ctx context.Context, path string, q query.Query[provider.Address], publicKey, docs string, platforms []provider.Platform) (*Source, error) {
	dir, err := origin.OpenReleaseDir(path)
	if err != nil {
		return nil, err
	}
	r, err := dir.Release(ctx, q.Address, q.Version, publicKey, platforms)
	if err == nil && docs != "" {
		var warnings []string
		r.Docs, warnings, err = providerdoc.Pack(ctx, docs)
		r.Warnings = append(r.Warnings, warnings...)
	}
	return folder(dir, []*origin.Release{r}, err)
}

// Request is a query for releases, and the lock file entries that must allow the packages of these releases.
type Request struct {
	query.Query[provider.Address]
	Known []trust.Known
}

// Origins yields releases from the providers' origin registries.
type Origins struct {
	Registry  *origin.Registry
	Requests  []Request
	All       bool // yield every version that matches a constraint, and not only the newest
	Platforms []provider.Platform
}

// Source returns a source that yields the requested releases.
func (o *Origins) Source() *Source {
	src := &Source{Close: func() error { return nil }, each: o.each}
	for _, r := range o.Requests {
		src.Providers = append(src.Providers, r.Address)
	}
	return src
}

func (o *Origins) each(ctx context.Context, warn func(string), fn func(*origin.Release) error) error {
	for _, r := range o.Requests {
		listing, err := o.Registry.Versions(ctx, r.Address)
		if err != nil {
			return r.where(err)
		}
		for _, w := range listing.Warnings {
			warn(fmt.Sprintf("%s: %s", r.Address, w))
		}
		versions := newest(r.Query, listing.Versions, o.All)
		if len(versions) == 0 {
			return listing.NoMatch(r.Address, r.Versions)
		}
		for _, v := range versions {
			release, err := o.Registry.Release(ctx, r.Address, listing, v, o.Platforms)
			if err != nil {
				return r.where(err)
			}
			release.Claims.Known = r.Known
			if err := fn(release); err != nil {
				return err
			}
		}
	}
	return nil
}

// newest returns the versions that a query selects, oldest first. If the query names a version, it returns
// this version. If the query has a constraint, it returns the newest version that matches or, if the parameter all is
// set, every version that matches. If the query has neither, it returns all versions.
func newest[A subject.Address](q query.Query[A], versions []provider.Version, all bool) []provider.Version {
	if !q.Version.IsZero() {
		return []provider.Version{q.Version}
	}
	if q.All() {
		return versions
	}
	matches := q.Versions.Matches(versions)
	if !all && len(matches) > 0 {
		return matches[len(matches)-1:]
	}
	return matches
}

// where adds to err the line of the lock file that requested the release.
func (r Request) where(err error) error {
	if len(r.Known) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", r.Known[0].Where, err)
}

// Locked returns a request for each version that the lock files name, and the warnings about the files. Every file that
// names a version must allow the packages of that version.
func Locked(paths []string) (requests []Request, warnings []string, err error) {
	for _, path := range paths {
		file, err := lockfile.Read(path)
		if err != nil {
			return nil, warnings, fmt.Errorf("--lock-file: %w", err)
		}
		warnings = append(warnings, file.Warnings...)
		for _, p := range file.Providers {
			if len(p.Known()) == 0 {
				return nil, warnings, hint.New(fmt.Sprintf("%s: %s %s has no hashes there to check packages against", file.Where(p.Line), p.Address, p.Version),
					"have them written by tofu providers lock or terraform providers lock")
			}
			at := slices.IndexFunc(requests, func(r Request) bool { return r.Address == p.Address && r.Version == p.Version })
			if at < 0 {
				at = len(requests)
				requests = append(requests, Request{Query: query.Query[provider.Address]{Address: p.Address, Version: p.Version}})
			}
			requests[at].Known = append(requests[at].Known, trust.Known{Where: file.Where(p.Line), Hashes: p.Known()})
		}
	}
	if len(requests) == 0 {
		return nil, warnings, hint.New(fmt.Sprintf("no provider is locked in %s", strings.Join(paths, ", ")), "run tofu init or terraform init there: it writes the lock file")
	}
	return requests, warnings, nil
}
