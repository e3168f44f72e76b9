// Package inventory reads and checks the providers that are stored in registries and
// bundles. It finds providers by name, in provider blocks and in the registries' catalogs. It
// lists their versions, shows everything about one version, and verifies versions by their
// evidence. It writes nothing, and sends no requests to origins.
//
// A provider or version that cannot be read does not affect the others. The result contains
// its error.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Store is the repository of a provider or a module, in a registry or in a bundle.
type Store interface {
	artifact.Prober
	artifact.TagLister
}

// Registry opens the repositories of providers and of modules. It is a registry or a bundle.
type Registry interface {
	// Repository returns the address of the repository of a provider or a module, and the
	// repository.
	Repository(context.Context, subject.Address) (ociaddr.Repository, Store, error)
	// Providers returns the providers in the registries' catalogs, and Modules the modules. They
	// also return the catalogs that could not be listed.
	Providers(context.Context) ([]provider.Address, []registry.Unlisted, error)
	Modules(context.Context) ([]module.Address, []registry.Unlisted, error)
	// ExplainFor adds a hint to a refusal of the registry of a provider or a module. The hint says
	// what to do about the refusal.
	ExplainFor(subject.Address, error) error
}

// Repositories are the repositories that templates name. registry.Repositories implements it.
type Repositories interface {
	Repository(context.Context, subject.Address) (ociaddr.Repository, *remote.Repository, error)
	Providers(context.Context) ([]provider.Address, []registry.Unlisted, error)
	Modules(context.Context) ([]module.Address, []registry.Unlisted, error)
	ExplainFor(subject.Address, error) error
}

// Remote makes a [Registry] of the repositories that templates name.
type Remote struct{ Repositories }

// Repository implements [Registry].
func (r Remote) Repository(ctx context.Context, a subject.Address) (ociaddr.Repository, Store, error) {
	addr, repo, err := r.Repositories.Repository(ctx, a)
	return addr, repo, err
}

// Inventory is the content of the registries that templates name, or of a bundle.
type Inventory struct {
	Registry   Registry
	Configured []provider.Address // the providers of provider blocks; no catalog needs to list them
	Jobs       int                // the maximum number of concurrent requests; at least 1
}

// Provider is a stored provider, and its versions that a query selected.
type Provider struct {
	query.Query
	Repository ociaddr.Repository
	Matches    []provider.Version // the selected versions, newest first
	Err        error              // why the repository could not be opened, or its tags could not be listed

	inventory *Inventory
	store     Store
	tags      []ociaddr.Tag
}

// Providers returns all providers, and the catalogs that could not be listed. It returns an
// error if it finds no provider and some catalog could not be listed.
func (i *Inventory) Providers(ctx context.Context) (all []provider.Address, skipped []Unlisted, err error) {
	queries, skipped, err := i.resolve(ctx, nil)
	return query.Addresses(queries), skipped, err
}

// Selection contains the providers that queries selected, sorted by address.
type Selection struct {
	Providers []*Provider
	Unlisted  []Unlisted // the catalogs that could not be listed; they can contain further providers

	named []provider.Address // the providers that queries named
	jobs  int
}

// Find returns the providers that the queries select, and lists their tags. If a query is a
// pattern, or if there are no queries, Find searches the configured providers and the
// registries' catalogs. It returns an error if it finds no provider and some catalog could
// not be listed.
func (i *Inventory) Find(ctx context.Context, queries []query.Query) (*Selection, error) {
	all, skipped, err := i.resolve(ctx, queries)
	if err != nil {
		return nil, err
	}
	out := &Selection{Unlisted: skipped, named: query.Addresses(queries), jobs: i.Jobs}
	for _, q := range all {
		p := &Provider{Query: q, inventory: i}
		p.Repository, p.store, p.Err = i.Registry.Repository(ctx, q.Provider)
		out.Providers = append(out.Providers, p)
	}
	slices.SortStableFunc(out.Providers, func(a, b *Provider) int { return cmp.Compare(a.Provider.String(), b.Provider.String()) })
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(i.Jobs)
	for _, p := range out.Providers {
		if p.Err != nil {
			continue
		}
		g.Go(func() error {
			p.list(ctx)
			return context.Cause(ctx)
		})
	}
	return out, g.Wait()
}

// resolve replaces each query that is a pattern by queries for the providers that match it.
// If there are no queries, resolve returns a query for each provider.
func (i *Inventory) resolve(ctx context.Context, queries []query.Query) (all []query.Query, skipped []Unlisted, err error) {
	var patterns []provider.Pattern
	for _, q := range queries {
		if q.Pattern != nil {
			patterns = append(patterns, *q.Pattern)
		} else {
			all = append(all, q)
		}
	}
	if len(patterns) > 0 || len(queries) == 0 {
		listed, failed, err := i.Registry.Providers(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, u := range failed {
			skipped = append(skipped, Unlisted{u.Where, problem(u.Err)})
		}
		sel := provider.Selector{Include: patterns}
		for _, a := range slices.Concat(i.Configured, listed) {
			if sel.Selects(a) && !slices.Contains(query.Addresses(all), a) {
				all = append(all, query.Query{Provider: a})
			}
		}
	}
	if len(all) == 0 && len(skipped) > 0 {
		return nil, nil, skipped[0].nothingFound()
	}
	return all, skipped, nil
}

// Unlisted is a registry, template or repository whose providers could not be listed.
type Unlisted struct {
	Where   string   `json:"where"`
	Problem *Problem `json:"error"`
}

// nothingFound returns the error of a search that found no provider and could not list u.
func (u Unlisted) nothingFound() error {
	return hint.New(fmt.Sprintf("%s cannot be listed: %s", u.Where, u.Problem.Message),
		"name the providers, such as registry.opentofu.org/hashicorp/null, or write provider blocks into ocibridge.hcl")
}

// Warning returns a warning that a search may have missed the providers of u.
func (u Unlisted) Warning() string {
	return fmt.Sprintf("%s cannot be listed, so only the providers of provider blocks are found there: %s", u.Where, u.Problem.Message)
}

// list sets the tags of the provider and the versions that the query selects. A repository
// that does not exist has no tags.
func (p *Provider) list(ctx context.Context) {
	var err error
	if p.tags, err = artifact.ListAnyTags(ctx, p.store); err != nil {
		p.Err = p.explain(fmt.Errorf("list tags of %s: %w", p.Repository, err))
		return
	}
	for _, t := range p.tags {
		if v, ok := t.Version(); ok && p.Has(v) {
			p.Matches = append(p.Matches, v)
		}
	}
	provider.SortVersions(p.Matches)
	slices.Reverse(p.Matches)
}

func (p *Provider) explain(err error) error {
	return p.inventory.Registry.ExplainFor(p.Provider, err)
}

// missing returns the error for a query that selects no stored version.
func (p *Provider) missing() error {
	asked := "version"
	if !p.Version.IsZero() {
		asked = "version " + p.Version.String()
	} else if c := p.Versions.String(); c != "" {
		asked = fmt.Sprintf("version that matches %q", c)
	}
	return hint.New(fmt.Sprintf("%s: no %s is stored in %s", p.Provider, asked, p.Repository),
		"ocibridge list %s, with the same flags, shows what is, and ocibridge push stores more", p.Provider)
}

// Report shows the versions of a selection.
type Report struct {
	Providers []*ProviderReport `json:"providers"`
	Unlisted  []Unlisted        `json:"unlisted,omitempty"`

	failed, help string // the text after the number of failures in the error of [Report.Failed], and its hint
}

// ProviderReport is the part of a [Report] that is about one provider.
type ProviderReport struct {
	Provider   provider.Address   `json:"provider"`
	Repository ociaddr.Repository `json:"repository,omitzero"` // zero if no template selects the provider
	Problem    *Problem           `json:"error,omitempty"`
	// Findings are about tags that are not version tags. Only Verify sets them.
	Findings []artifact.Finding `json:"findings,omitzero"`
	Versions []*VersionReport   `json:"versions"`
}

// String names the provider and its repository.
func (r *ProviderReport) String() string {
	if r.Repository == (ociaddr.Repository{}) {
		return r.Provider.String()
	}
	return fmt.Sprintf("%s in %s", r.Provider, r.Repository)
}

// VersionReport is the part of a [Report] that is about one version.
type VersionReport struct {
	Version   provider.Version    `json:"version"`
	Tag       ociaddr.Tag         `json:"tag,omitempty"`    // only set by List
	Digest    string              `json:"digest,omitempty"` // the digest of the index
	Platforms []provider.Platform `json:"platforms,omitempty"`
	Size      int64               `json:"size,omitempty"` // the total size of the packages in bytes; only set by List
	// Signature is the recorded signature if List set it. It is the verified signature if
	// Verify set it.
	Signature *Signature `json:"signature,omitempty"`
	// Pinned points to true if a trust block pins the signing key. List leaves it nil.
	Pinned   *bool              `json:"pinned,omitempty"`
	Findings []artifact.Finding `json:"findings,omitzero"` // List leaves it nil
	Problem  *Problem           `json:"error,omitempty"`   // why the version could not be read
	// Denied is set by the caller if the gateway's configuration denies the version.
	Denied *Denial `json:"denied,omitempty"`
	// Refused is set if the signature is invalid, or if the policy does not accept it.
	Refused bool `json:"-"`
}

// read calls fn for every version of the selection. It stops when ctx is done.
func (s *Selection) read(ctx context.Context, out *Report, fn func(context.Context, *Provider, provider.Version) *VersionReport) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.jobs)
	out.Providers, out.Unlisted = []*ProviderReport{}, s.Unlisted
	for _, p := range s.Providers {
		r := &ProviderReport{Provider: p.Provider, Repository: p.Repository, Problem: problem(p.Err), Versions: make([]*VersionReport, len(p.Matches))}
		out.Providers = append(out.Providers, r)
		for i, v := range p.Matches {
			g.Go(func() error {
				if ctx.Err() == nil {
					r.Versions[i] = fn(ctx, p, v)
				}
				return context.Cause(ctx)
			})
		}
	}
	return g.Wait()
}

// Failed returns an error if a provider or a version could not be read, or if a finding is
// an error.
func (r *Report) Failed() error {
	var t tally
	for _, p := range r.Providers {
		if n, _ := Count(p.Findings); n > 0 || p.Problem != nil {
			t.add(p.Findings, p.Problem)
		}
		for _, v := range p.Versions {
			t.add(v.Findings, v.Problem)
		}
	}
	return t.err(r.failed, r.help)
}

// tally counts the providers, modules and versions that were checked, and those with an error.
type tally struct{ bad, all int }

func (t *tally) add(findings []artifact.Finding, problem *Problem) {
	t.all++
	if n, _ := Count(findings); n > 0 || problem != nil {
		t.bad++
	}
}

// err returns an error if anything has an error.
func (t *tally) err(failed, help string) error {
	if t.bad == 0 {
		return nil
	}
	return hint.New(fmt.Sprintf("%d of %d %s", t.bad, t.all, failed), "%s", help)
}

// Count returns the number of errors and warnings among findings.
func Count(findings []artifact.Finding) (errs, warnings int) {
	for _, f := range findings {
		if f.Severity == artifact.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	return errs, warnings
}

// Problem is an error in JSON output.
type Problem struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// problem converts err to a Problem. It returns nil if err is nil.
func problem(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{hint.OneLine(err.Error()), hint.OneLine(hint.Of(err))}
}

// String returns the message and the hint on one line.
func (p *Problem) String() string {
	if p.Hint == "" {
		return p.Message
	}
	return p.Message + " (" + p.Hint + ")"
}

// Signature says who signed a version.
type Signature struct {
	Verdict     trust.Verdict `json:"verdict"` // also artifact.NoEvidence or artifact.SignedOtherName
	Fingerprint string        `json:"fingerprint,omitempty"`
}

// Text describes the signature in words. If short is set, it shows only the last 16 digits
// of the fingerprint.
func (s Signature) Text(short bool) string {
	by := s.Fingerprint
	if short && len(by) > 16 {
		by = by[len(by)-16:]
	}
	if by == "" {
		return string(s.Verdict)
	}
	return fmt.Sprintf("%s by %s", s.Verdict, by)
}
