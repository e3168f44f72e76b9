package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
	"github.com/ocibridge/ocibridge/templates"
)

// Copy copies stored versions from one location to another.
type Copy struct {
	From, To Location
	Since    Location // the bundle or listing with the packages that a bundle need not contain, because its destination has them; zero: none
	// Queries are the versions of providers and modules to copy. If there are none, the copy
	// includes all versions.
	Queries   []query.Query[subject.Address]
	All       bool // copy every version that matches a constraint, and not only the newest
	Platforms []provider.Platform
	// Configured lists the providers and modules to copy from a registry if there are no
	// queries. If it names no provider, the copy includes all providers in the registry's
	// catalog. Without queries, the copy always includes the modules in the registry's catalog.
	Configured []subject.Address
	// DryRun returns the results that the copy would have, without referrers, and writes nothing.
	DryRun bool
	// Push contains the policy, the number of jobs and the referrers option.
	Push     pusher.Options
	Progress Progress
	// Open opens the registries at a location for the given providers and modules.
	Open func(at Location, of []subject.Address) (*registry.Repositories, error)
}

// Copied are the results of a [Copy].
type Copied struct {
	Results []*pusher.Result // by kind, in the order of [subject.Kinds]
	// Failures are the versions that could not be copied, in the order in which they failed. The other versions were copied.
	// [Copy.Run] returns no error for these versions. An error of Copy.Run says why the copy as a whole has failed.
	Failures []reconcile.Failure
}

// lost returns the error about the first version that was copied without some of its platforms, or nil.
func (c *Copied) lost() error {
	for _, r := range c.Results {
		if err := r.LostError(); err != nil {
			return err
		}
	}
	return nil
}

// everything reports whether the copy includes all versions.
func (c Copy) everything() bool { return len(c.Queries) == 0 }

// ErrSameRepository means that a provider or module would be copied onto itself.
var ErrSameRepository = errors.New("would be copied to the same repository")

// source is an open location to copy from.
type source struct {
	registry *registry.Repositories // nil if the location is not a registry
	all      func(context.Context, subject.Kind) ([]subject.Address, error)
	open     func(context.Context, subject.Address) (pusher.Stored, error)
	omits    bool // the location is a bundle that omits packages
	close    func() error
}

// target is an open location to copy to.
type target struct {
	registry *registry.Repositories // nil if the location is not a registry
	put      func(ctx context.Context, from pusher.Stored, v provider.Version, platforms []provider.Platform) (*pusher.Result, error)
	save     func(context.Context) error // nil if the location is complete after each version
	close    func() error
	// destination opens the repository of a provider or a module. It is nil for a mirror folder.
	destination func(context.Context, subject.Address) (repo.Destination, error)
	name        string // for messages
}

// selected is a stored provider or module, and its versions that will be copied.
type selected struct {
	pusher.Stored
	versions []provider.Version
}

// selection holds the versions to copy, by kind.
type selection map[subject.Kind][]selected

// list returns everything that is selected.
func (s selection) list() (out []selected) {
	for _, kind := range subject.Kinds {
		out = append(out, s[kind]...)
	}
	return out
}

// addresses returns the providers and modules whose versions are selected.
func (s selection) addresses() (out []subject.Address) {
	for _, of := range s.list() {
		out = append(out, of.Subject)
	}
	return out
}

// Run copies the versions. It opens the target only after it has selected them, so it creates no target if there
// is nothing to copy.
func (c Copy) Run(ctx context.Context) (out Copied, err error) {
	queries := c.Queries
	if c.everything() && !c.From.IsBundle() {
		for _, a := range c.Configured {
			if subject.TraitsOf(a).Origins {
				queries = append(queries, query.Query[subject.Address]{Address: a})
			}
		}
	}
	src, err := c.openSource(ctx, query.Addresses(queries))
	if err != nil {
		return out, err
	}
	defer src.close()
	// 1. Select the versions.
	all, err := c.selectVersions(ctx, src, queries)
	if err != nil {
		return out, err
	}
	if len(all) == 0 {
		return out, hint.New("there is nothing to copy", "ocibridge push, sync or module push stores versions; --from says where to look")
	}
	// 2. Copy them.
	dst, err := c.openTarget(ctx, all)
	if err != nil {
		return out, err
	}
	defer dst.close()
	out, err = c.copyAll(ctx, src, dst, all.list())
	if err == nil && dst.save != nil && len(out.Results) > 0 {
		err = dst.save(ctx)
	}
	if err == nil && len(out.Failures) == 0 {
		err = out.lost()
	}
	return out, err
}

// selectVersions returns the versions in the source that the queries select. If the copy includes everything,
// it returns all versions of all modules, and of those configured modules that a catalog does not list, and of the
// configured providers, or of all providers if none are configured.
func (c Copy) selectVersions(ctx context.Context, src *source, queries []query.Query[subject.Address]) (selection, error) {
	for _, kind := range subject.Kinds {
		if !c.everything() || kind.Traits().Origins && len(queries) > 0 {
			continue
		}
		found, err := src.all(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, a := range c.Configured {
			if src.registry != nil && a.Kind() == kind && !slices.Contains(found, a) {
				if _, err := src.registry.Templates.Repository(a); err == nil {
					found = append(found, a)
				}
			}
		}
		for _, a := range found {
			queries = append(queries, query.Query[subject.Address]{Address: a})
		}
	}
	var out []selected
	for _, q := range queries {
		stored, err := src.open(ctx, q.Address)
		if err != nil {
			return nil, err
		}
		versions, err := c.pick(ctx, stored, q)
		if err != nil {
			return nil, Explain(src.registry, err)
		}
		if len(versions) > 0 {
			out = append(out, selected{stored, versions})
		}
	}
	return subject.ByKind(out, func(s selected) subject.Address { return s.Subject }), nil
}

// pick returns those stored versions that a query selects. A query that selects none is an error, but only causes a
// warning if the copy includes everything.
func (c Copy) pick(ctx context.Context, stored pusher.Stored, q query.Query[subject.Address]) ([]provider.Version, error) {
	var have []provider.Version
	if q.Version.IsZero() {
		var err error
		if have, err = stored.Versions(ctx); err != nil {
			return nil, err
		}
	}
	versions := newest(q, have, c.All)
	switch {
	case len(versions) > 0:
		return versions, nil
	case c.everything():
		c.Progress.Warn(fmt.Sprintf("%s has no version of %s", stored.Repository, q.Address))
		return nil, nil
	case len(have) == 0:
		return nil, hint.Wrap(fmt.Errorf("%s: %s not found in %s", q.Address, q.Address.Kind(), stored.Repository), "check its spelling, and that --from names the place that has it")
	}
	return nil, hint.Wrap(fmt.Errorf("%s %s: %w: nothing in %s matches", q.Address, q.Versions, origin.ErrVersionNotFound, stored.Repository),
		"the newest version there is %s; a prerelease must be named exactly", have[len(have)-1])
}

// failures collects the failures of versions. Its methods can be called concurrently.
type failures struct {
	mu  sync.Mutex
	all []reconcile.Failure
}

// keep keeps a failure that concerns one version alone, and returns nil. If the failure is an error of a registry or of
// the disk, keep returns this error, because it would affect all further versions, too.
func (f *failures) keep(failure reconcile.Failure) error {
	err := failure.Err
	var refused *repo.RegistryError
	var disk *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &disk),
		errors.As(err, &refused) && !errors.Is(err, errdef.ErrNotFound):
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, failure)
	return nil
}

// copyAll copies several versions concurrently.
func (c Copy) copyAll(ctx context.Context, src *source, dst *target, all []selected) (out Copied, err error) {
	var failed failures
	b := newBatch(c.Push.Jobs, c.Progress.Done)
	for _, s := range all {
		for _, v := range s.versions {
			from := s.Stored
			if src.omits {
				from.Store = fromBoth{from.Store, from.Subject, v, dst}
			}
			_ = b.add(func() (*pusher.Result, error) { // wait returns the first failure that is not kept
				result, err := dst.put(ctx, from, v, c.Platforms)
				return result, failed.keep(reconcile.Failure{Subject: s.Subject, Version: v, Err: explainCopy(src, dst, s.Repository, err)})
			})
		}
	}
	out.Results, err = b.wait(nil)
	out.Failures = failed.all
	return out, err
}

// explainCopy adds the hint of the registry that caused err. from is the repository of the source.
func explainCopy(src *source, dst *target, from ociaddr.Repository, err error) error {
	if refused := new(repo.RegistryError); errors.As(err, &refused) && refused.Repository == from {
		return Explain(src.registry, err)
	}
	return Explain(dst.registry, err)
}

// checkRepositories checks that the target has a repository for each selected provider and
// module, and that none of these repositories is also the source.
func (c Copy) checkRepositories(r *registry.Repositories, all selection) error {
	for _, kind := range subject.Kinds {
		if c.To.Kind != Template || len(r.Templates.Of(kind)) > 0 {
			continue
		}
		reason := fmt.Sprintf("--to %s is a template for %s, and has no place for %s", c.To.Name, templates.KindOf(c.To.Name).Traits().Plural, kind.Traits().Plural)
		if err := c.leave(all, kind, hint.New(reason, "copy the %s to a template with %s", kind.Traits().Plural, templates.NamesOf(kind))); err != nil {
			return err
		}
	}
	for _, of := range all.list() {
		to, err := r.Templates.Repository(of.Subject)
		if err == nil && to == of.Repository {
			err = hint.Wrap(fmt.Errorf("%s is stored in %s, and %w", of.Subject, to, ErrSameRepository), "let --from and --to name different places")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrNoPlace means that the target of a copy holds providers only, or modules only.
var ErrNoPlace = errors.New("no place")

// leave removes everything of a kind from the selection, with a warning. It returns an error that wraps
// reason if the selection has no other kind, or if the user has named what to copy.
func (c Copy) leave(all selection, kind subject.Kind, reason error) error {
	n := len(all[kind])
	if n == 0 {
		return nil
	}
	if !c.everything() || len(all) == 1 {
		return noPlace{reason}
	}
	c.Progress.Warn(fmt.Sprintf("not copied: %s, because %v", hint.Count(n, string(kind)), reason))
	delete(all, kind)
	return nil
}

// noPlace wraps a reason, and also matches ErrNoPlace.
type noPlace struct{ error }

func (e noPlace) Unwrap() error        { return e.error }
func (e noPlace) Is(target error) bool { return target == ErrNoPlace }
