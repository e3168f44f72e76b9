// Package inventory reads and checks the providers and modules that are stored in registries
// and bundles. It finds them by name, in provider blocks and in the registries' catalogs. It
// lists their versions, shows everything about one version, and verifies versions. It writes
// nothing, and sends no requests to origins.
//
// A provider, module or version that cannot be read does not affect the others. The result
// contains its error.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Store is the repository of a provider or a module, in a registry or in a bundle.
type Store interface {
	artifact.Prober
	artifact.TagLister
	artifact.ReferrerLister
}

// Registry opens the repositories of all kinds. It is a registry or a bundle.
type Registry interface {
	// Repository returns the repository of a provider or a module, and the repository's address.
	Repository(context.Context, subject.Address) (ociaddr.Repository, Store, error)
	// All returns the addresses of one kind in the registries' catalogs, and the catalogs that could not be
	// listed.
	All(context.Context, subject.Kind) ([]subject.Address, []registry.Unlisted, error)
	// ExplainFor adds a hint to a refusal of the registry of a provider or a module. The hint says
	// what to do about the refusal.
	ExplainFor(subject.Address, error) error
}

// Repositories are the repositories that templates name. registry.Repositories implements it.
type Repositories interface {
	Repository(context.Context, subject.Address) (ociaddr.Repository, *remote.Repository, error)
	All(context.Context, subject.Kind) ([]subject.Address, []registry.Unlisted, error)
	ExplainFor(subject.Address, error) error
}

// Remote makes a [Registry] of the repositories that templates name.
type Remote struct{ Repositories }

// Repository implements [Registry].
func (r Remote) Repository(ctx context.Context, a subject.Address) (ociaddr.Repository, Store, error) {
	addr, repo, err := r.Repositories.Repository(ctx, a)
	return addr, repo, err
}

// Address is the address of a provider or a module.
type Address interface {
	comparable
	subject.Address
}

// Kind says how the inventory reads one kind: [Providers] or [Modules].
type Kind[A Address] struct {
	noun     subject.Kind
	list     reader[A] // reads a version for a list, and verifies nothing
	listHelp string    // what to do about versions that cannot be listed
	commands string    // the words that every command about this kind begins with
	name     string    // what to do if no catalog can be listed
	hidden   string    // what is missing from a result if a catalog cannot be listed
}

// reader reads a stored version.
type reader[A Address] func(context.Context, *Stored[A], provider.Version) *VersionReport

// Providers and Modules are the kinds.
var (
	Providers = Kind[provider.Address]{
		subject.Provider, listProvider, "the list shows the reasons; ocibridge verify PROVIDER@VERSION says what to do", "ocibridge",
		"name the providers, such as registry.opentofu.org/hashicorp/null, or write provider blocks into ocibridge.hcl",
		"only the providers of provider blocks are found there",
	}
	Modules = Kind[module.Address]{
		subject.Module, listModule, "the list shows the reasons", "ocibridge module",
		"name the modules, such as registry.acme.example/platform/vpc/aws", "its modules are missing here",
	}
)

// Inventory is the content of the registries that templates name, or of a bundle.
type Inventory[A Address] struct {
	Kind       Kind[A]
	Registry   Registry
	Configured []A // the providers of provider blocks; no catalog needs to list them
	Jobs       int // the maximum number of concurrent requests; at least 1
	// Denies reports whether the gateway's configuration denies a version whose tag names the given manifest, and why. The digest is ""
	// if the manifest is unknown. If Denies is nil, the configuration denies nothing.
	Denies func(a subject.Address, v provider.Version, manifest digest.Digest) (reason string, denied bool)
	// Approvals returns the approvals that the versions of a provider or a module need. If Approvals is nil, no version needs one.
	Approvals func(subject.Address) *approval.Policy
	// Deprecates returns the reason why the gateway's configuration deprecates a version, or "". If Deprecates is nil, the
	// configuration deprecates nothing.
	Deprecates func(subject.Address, provider.Version) (reason string)
}

// deprecation is like denial, for a deprecated version.
func (i *Inventory[A]) deprecation(a A, v provider.Version) *Denial {
	if i.Deprecates != nil {
		if reason := i.Deprecates(a, v); reason != "" {
			return &Denial{reason}
		}
	}
	return nil
}

// denial returns the description of a denied version, or nil if the version is not denied. manifest is the digest of what its tag names,
// or "" if that could not be read.
func (i *Inventory[A]) denial(a A, v provider.Version, manifest string) *Denial {
	if i.Denies != nil {
		if reason, denied := i.Denies(a, v, digest.Digest(manifest)); denied {
			return &Denial{reason}
		}
	}
	return nil
}

// Stored is a stored provider or module, and its versions that a query selected.
type Stored[A Address] struct {
	query.Query[A]
	Repository ociaddr.Repository
	Matches    []provider.Version // the selected versions, newest first
	Err        error              // why the repository could not be opened, or its tags could not be listed

	inventory *Inventory[A]
	store     Store
	tags      []ociaddr.Tag
	tagOf     map[provider.Version]ociaddr.Tag
}

// All returns all addresses, and the catalogs that could not be listed. It returns an error if
// it finds no address and some catalog could not be listed.
func (i *Inventory[A]) All(ctx context.Context) (all []A, skipped []Unlisted, err error) {
	queries, skipped, err := i.resolve(ctx, nil)
	return query.Addresses(queries), skipped, err
}

// Selection contains what queries selected, sorted by address.
type Selection[A Address] struct {
	Stored   []*Stored[A]
	Unlisted []Unlisted // the catalogs that could not be listed; they can contain more

	named     []A // the addresses that queries named
	inventory *Inventory[A]
}

// Find returns the providers or modules that the queries select, and lists their tags. For patterns, and without
// queries, it searches the configured providers and the registries' catalogs. It returns an error if it finds
// nothing and some catalog could not be listed.
func (i *Inventory[A]) Find(ctx context.Context, queries []query.Query[A]) (*Selection[A], error) {
	all, skipped, err := i.resolve(ctx, queries)
	if err != nil {
		return nil, err
	}
	out := &Selection[A]{Unlisted: skipped, named: query.Addresses(queries), inventory: i}
	for _, q := range all {
		s := &Stored[A]{Query: q, inventory: i}
		s.Repository, s.store, s.Err = i.Registry.Repository(ctx, q.Address)
		out.Stored = append(out.Stored, s)
	}
	slices.SortStableFunc(out.Stored, func(a, b *Stored[A]) int { return cmp.Compare(a.Address.String(), b.Address.String()) })
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(i.Jobs)
	for _, s := range out.Stored {
		if s.Err != nil {
			continue
		}
		g.Go(func() error {
			s.list(ctx)
			return context.Cause(ctx)
		})
	}
	return out, g.Wait()
}

// resolve replaces each query that is a pattern by queries for the addresses that match it.
// If there are no queries, resolve returns a query for each address.
func (i *Inventory[A]) resolve(ctx context.Context, queries []query.Query[A]) (all []query.Query[A], skipped []Unlisted, err error) {
	var patterns []subject.Pattern
	for _, q := range queries {
		if q.Pattern != nil {
			patterns = append(patterns, q.Pattern)
		} else {
			all = append(all, q)
		}
	}
	if len(patterns) > 0 || len(queries) == 0 {
		listed, failed, err := i.Registry.All(ctx, i.Kind.noun)
		if err != nil {
			return nil, nil, err
		}
		for _, u := range failed {
			skipped = append(skipped, Unlisted{u.Where, problem(u.Err), i.Kind.hidden})
		}
		for _, a := range slices.Concat(i.Configured, subject.Of[A](listed)) {
			matches := func(p subject.Pattern) bool { return p.Covers(a) }
			if (len(patterns) == 0 || slices.ContainsFunc(patterns, matches)) && !slices.Contains(query.Addresses(all), a) {
				all = append(all, query.Query[A]{Address: a})
			}
		}
	}
	if len(all) == 0 && len(skipped) > 0 {
		u := skipped[0]
		return nil, nil, hint.New(fmt.Sprintf("%s cannot be listed: %s", u.Where, u.Problem.Message), "%s", i.Kind.name)
	}
	return all, skipped, nil
}

// Unlisted is a registry, template or repository whose providers or modules could not be listed.
type Unlisted struct {
	Where   string   `json:"where"`
	Problem *Problem `json:"error"`

	hides string
}

// Warning returns a warning that a search may have missed the content of u.
func (u Unlisted) Warning() string {
	return fmt.Sprintf("%s cannot be listed, so %s: %s", u.Where, u.hides, u.Problem.Message)
}

// list sets the tags of the repository and the versions that the query selects. A repository
// that does not exist has no tags.
func (s *Stored[A]) list(ctx context.Context) {
	var err error
	if s.tags, err = artifact.ListAnyTags(ctx, s.store); err != nil {
		s.Err = s.explain(fmt.Errorf("list tags of %s: %w", s.Repository, err))
		return
	}
	s.tagOf = ociaddr.TagsOf(s.Address, s.tags)
	for v := range s.tagOf {
		if s.Has(v) {
			s.Matches = append(s.Matches, v)
		}
	}
	provider.SortVersions(s.Matches)
	slices.Reverse(s.Matches)
}

// explain adds a registry's hint to err, if err is not nil.
func (s *Stored[A]) explain(err error) error {
	if err == nil {
		return nil
	}
	return s.inventory.Registry.ExplainFor(s.Address, err)
}

// missing returns the error for a query that selects no stored version.
func (s *Stored[A]) missing() error {
	asked := "version"
	if !s.Version.IsZero() {
		asked = "version " + s.Version.String()
	} else if c := s.Versions.String(); c != "" {
		asked = fmt.Sprintf("version that matches %q", c)
	}
	return hint.New(fmt.Sprintf("%s: no %s is stored in %s", s.Address, asked, s.Repository),
		"%s list %s, with the same flags, shows what is, and %[1]s push stores more", s.inventory.Kind.commands, s.Address)
}

// newest returns the first provider or module of the selection, and its newest selected version.
func (s *Selection[A]) newest() (*Stored[A], provider.Version, error) {
	of := s.Stored[0]
	switch {
	case of.Err != nil:
		return nil, provider.Version{}, of.Err
	case len(of.Matches) == 0:
		return nil, provider.Version{}, of.missing()
	}
	return of, of.Matches[0], nil
}

// List reports every version of the selection. It verifies nothing.
func (s *Selection[A]) List(ctx context.Context) (*Report[A], error) {
	kind := s.inventory.Kind
	r := &Report[A]{Noun: kind.noun, failed: kind.noun.Traits().Plural + " and versions cannot be read", help: kind.listHelp}
	return r, s.read(ctx, r, kind.list)
}

// Checks verifies versions of one kind. It is a [Verifier] or [Zips].
type Checks[A Address] interface {
	verify(context.Context, *Stored[A], provider.Version) *VersionReport
	// lint returns the findings about the tags of a repository. It returns nil if there is no check of tags.
	lint([]ociaddr.Tag) []artifact.Finding
}

// Verify checks every version of the selection. If a query names a provider or module that has
// no version, Verify reports a failure.
func (s *Selection[A]) Verify(ctx context.Context, c Checks[A]) (*Report[A], error) {
	r := &Report[A]{Noun: s.inventory.Kind.noun, failed: "checks failed", help: "each error above says what to do"}
	err := s.read(ctx, r, c.verify)
	for i, of := range s.Stored {
		for _, v := range r.Stored[i].Versions {
			if v != nil && v.Findings != nil {
				of.reportApproval(v)
			}
		}
	}
	for i, of := range s.Stored {
		var tags []ociaddr.Tag
		if of.Err == nil && len(of.Matches) == 0 && slices.Contains(s.named, of.Address) {
			r.Stored[i].Problem = problem(of.missing())
		}
		if of.All() {
			tags = of.tags
		}
		r.Stored[i].Findings = c.lint(tags)
	}
	return r, err
}

// VerifyVersions checks the given versions, like [Selection.Verify]. The reports have no findings about tags.
func (i *Inventory[A]) VerifyVersions(ctx context.Context, of map[A][]provider.Version, c Checks[A]) (map[A][]*VersionReport, error) {
	s := &Selection[A]{inventory: i}
	for a, versions := range of {
		stored := &Stored[A]{Query: query.Query[A]{Address: a}, inventory: i}
		if stored.Repository, stored.store, stored.Err = i.Registry.Repository(ctx, a); stored.Err != nil {
			return nil, stored.Err
		}
		if stored.list(ctx); stored.Err != nil {
			return nil, stored.Err
		}
		stored.Matches = slices.DeleteFunc(slices.Clone(versions), func(v provider.Version) bool { return stored.tagOf[v] == "" })
		s.Stored = append(s.Stored, stored)
	}
	r := &Report[A]{}
	if err := s.read(ctx, r, c.verify); err != nil {
		return nil, err
	}
	out := map[A][]*VersionReport{}
	for i, stored := range s.Stored {
		out[stored.Address] = r.Stored[i].Versions
		for _, v := range of[stored.Address] {
			if stored.tagOf[v] == "" {
				stored.Version = v
				out[stored.Address] = append(out[stored.Address], &VersionReport{Version: v, Problem: problem(stored.missing())})
			}
		}
	}
	return out, nil
}

// read calls fn for every version of the selection. It stops when ctx is done.
func (s *Selection[A]) read(ctx context.Context, out *Report[A], fn reader[A]) error {
	g, ctx := panics.WithContext(ctx)
	g.SetLimit(s.inventory.Jobs)
	out.Stored, out.Unlisted = []*StoredReport[A]{}, s.Unlisted
	for _, of := range s.Stored {
		r := &StoredReport[A]{Address: of.Address, Repository: of.Repository, Problem: problem(of.Err), Versions: make([]*VersionReport, len(of.Matches))}
		out.Stored = append(out.Stored, r)
		for i, v := range of.Matches {
			g.Go(func() error {
				if ctx.Err() == nil {
					report := fn(ctx, of, v)
					report.Denied, report.Deprecated = s.inventory.denial(of.Address, v, report.Digest), s.inventory.deprecation(of.Address, v)
					of.approve(ctx, report)
					r.Versions[i] = report
				}
				return context.Cause(ctx)
			})
		}
	}
	return g.Wait()
}
