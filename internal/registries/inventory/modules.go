package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Modules are the modules in registries or in a bundle.
type Modules struct {
	Registry Registry
	Jobs     int // the maximum number of concurrent requests; at least 1
}

// Module is a stored module, and its versions that a query selected.
type Module struct {
	Module     module.Address     `json:"module"`
	Repository ociaddr.Repository `json:"repository,omitzero"` // zero if no template selects the module
	Problem    *Problem           `json:"error,omitempty"`     // why its tags could not be listed
	Versions   []*ModuleVersion   `json:"versions"`            // newest first

	store Store
}

// ModuleVersion is one stored version of a module.
type ModuleVersion struct {
	Version  provider.Version   `json:"version"`
	Tag      ociaddr.Tag        `json:"tag"`
	Digest   string             `json:"digest,omitempty"` // the digest of the manifest
	Zip      string             `json:"zip,omitempty"`    // the digest of the zip
	Size     int64              `json:"size,omitempty"`   // the size of the zip in bytes
	H1       provider.Hash      `json:"h1,omitzero"`      // as the manifest gives it
	Revision string             `json:"revision,omitempty"`
	Declared bool               `json:"declared"`          // whether the manifest names the module and the version
	Files    int                `json:"files,omitempty"`   // the number of files; only set by Verify
	Findings []artifact.Finding `json:"findings,omitzero"` // only set by Verify
	Problem  *Problem           `json:"error,omitempty"`   // why the version could not be read
	Denied   *Denial            `json:"denied,omitempty"`  // set by the caller if the gateway's configuration denies the version
}

// ModuleReport shows the modules that queries select.
type ModuleReport struct {
	Modules  []*Module  `json:"modules"`
	Unlisted []Unlisted `json:"unlisted,omitempty"`

	failed, help string
}

// List reports the versions that the queries select, or all without queries. It downloads no
// zip.
func (m *Modules) List(ctx context.Context, queries []query.ModuleQuery) (*ModuleReport, error) {
	return m.read(ctx, queries, false)
}

// Verify is like List, but downloads each zip and checks it. If a query names a module that
// has no version, Verify reports a failure.
func (m *Modules) Verify(ctx context.Context, queries []query.ModuleQuery) (*ModuleReport, error) {
	return m.read(ctx, queries, true)
}

func (m *Modules) read(ctx context.Context, queries []query.ModuleQuery, verify bool) (*ModuleReport, error) {
	out := &ModuleReport{Modules: []*Module{}, failed: "modules and versions cannot be read", help: "the list shows the reasons"}
	if verify {
		out.failed, out.help = "checks failed", "each error above says what to do"
	}
	all, err := m.resolve(ctx, queries, out)
	if err != nil {
		return nil, err
	}
	// 1. List the tags of each repository.
	g, listing := errgroup.WithContext(ctx)
	g.SetLimit(m.Jobs)
	for _, q := range all {
		r := &Module{Module: q.Module, Versions: []*ModuleVersion{}}
		out.Modules = append(out.Modules, r)
		g.Go(func() error {
			err := m.list(listing, r, q)
			if err == nil && verify && len(r.Versions) == 0 && slices.Contains(query.Modules(queries), q.Module) {
				err = r.missing(q)
			}
			r.Problem = problem(err)
			return context.Cause(listing)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	// 2. Read the versions.
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(m.Jobs)
	for _, r := range out.Modules {
		for _, v := range r.Versions {
			g.Go(func() error {
				if reading.Err() == nil {
					v.Problem = problem(m.explain(v.read(reading, r, verify), r.Module))
				}
				return context.Cause(reading)
			})
		}
	}
	return out, g.Wait()
}

// explain adds a registry's hint to err, if err is not nil.
func (m *Modules) explain(err error, a module.Address) error {
	if err == nil {
		return nil
	}
	return m.Registry.ExplainFor(a, err)
}

// resolve replaces patterns by queries for the modules that match, sorted by address.
func (m *Modules) resolve(ctx context.Context, queries []query.ModuleQuery, out *ModuleReport) (all []query.ModuleQuery, err error) {
	var sel module.Selector
	for _, q := range queries {
		if q.Pattern != nil {
			sel.Include = append(sel.Include, *q.Pattern)
		} else {
			all = append(all, q)
		}
	}
	if len(sel.Include) > 0 || len(queries) == 0 {
		listed, failed, err := m.Registry.Modules(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range failed {
			out.Unlisted = append(out.Unlisted, Unlisted{u.Where, problem(u.Err)})
		}
		for _, a := range listed {
			if sel.Selects(a) && !slices.Contains(query.Modules(all), a) {
				all = append(all, query.ModuleQuery{Module: a})
			}
		}
	}
	if len(all) == 0 && len(out.Unlisted) > 0 {
		u := out.Unlisted[0]
		return nil, hint.New(fmt.Sprintf("%s cannot be listed: %s", u.Where, u.Problem.Message), "name the modules, such as registry.acme.example/platform/vpc/aws")
	}
	slices.SortStableFunc(all, func(a, b query.ModuleQuery) int { return cmp.Compare(a.Module.String(), b.Module.String()) })
	return all, nil
}

// list sets the repository of a module, and the versions that the query selects.
func (m *Modules) list(ctx context.Context, r *Module, q query.ModuleQuery) error {
	addr, store, err := m.Registry.Repository(ctx, q.Module)
	if err != nil {
		return err
	}
	r.Repository, r.store = addr, store
	tags, err := artifact.ListAnyTags(ctx, store)
	if err != nil {
		return m.explain(fmt.Errorf("list tags of %s: %w", addr, err), q.Module)
	}
	for v, tag := range ociaddr.ModuleTags(tags) {
		if q.Has(v) {
			r.Versions = append(r.Versions, &ModuleVersion{Version: v, Tag: tag})
		}
	}
	slices.SortFunc(r.Versions, func(a, b *ModuleVersion) int { return b.Version.Compare(a.Version) })
	return nil
}

// missing returns the error for a query that selects no stored version.
func (r *Module) missing(q query.ModuleQuery) error {
	asked := "version"
	if !q.Version.IsZero() {
		asked += " " + q.Version.String()
	} else if c := q.Versions.String(); c != "" {
		asked += fmt.Sprintf(" that matches %q", c)
	}
	return hint.New(fmt.Sprintf("%s: no %s is stored in %s", r.Module, asked, r.Repository),
		"ocibridge module list %s, with the same flags, shows what is, and ocibridge module push stores more", r.Module)
}

// read reads the manifest of a version and, if verify is set, checks its zip. The error is
// about the registry. Verify reports invalid content as findings.
func (v *ModuleVersion) read(ctx context.Context, r *Module, verify bool) error {
	if verify {
		v.Findings = []artifact.Finding{}
	}
	m, err := artifact.ReadModuleTag(ctx, r.store, r.Module, v.Version, v.Tag)
	if err == nil {
		v.Digest, v.Zip, v.Size = m.Manifest.Digest.String(), m.Digest.String(), m.Size
		v.H1, v.Revision, v.Declared = m.H1, m.Revision, !m.Address.IsZero() && !m.Version.IsZero()
	}
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return hint.New("the registry lists the tag, but has no manifest for it", "unless it was deleted just now, ask the operator of the registry")
	case err == nil && verify:
		return v.verify(ctx, r.store, m)
	case verify && errors.Is(err, artifact.ErrForeign):
		v.report(artifact.SeverityError, string(v.Tag), err.Error(), "no gateway serves it: push the module to a repository of its own, and delete this tag with the tools of the registry")
		return nil
	case verify && artifact.IsContent(err):
		v.report(artifact.SeverityError, string(v.Tag), err.Error(), hintOr(err, "OpenTofu cannot install it: push the module again with ocibridge module push --force"))
		return nil
	}
	return err
}

// The limits of Terragrunt.
const (
	terragruntFiles = 10_000
	terragruntBytes = 512 << 20
)

// verify downloads the zip of a version and checks it.
func (v *ModuleVersion) verify(ctx context.Context, store Store, m *artifact.Module) error {
	contents, err := artifact.RehashModule(ctx, store, m)
	v.Files = contents.Entries
	switch {
	case artifact.IsContent(err):
		v.report(artifact.SeverityError, "zip", err.Error(), helpForBytes(err, "push the module again with ocibridge module push --force"))
		return nil
	case err != nil:
		return err
	case contents.Entries == 0:
		v.report(artifact.SeverityError, "zip", "it has no files", "push the module again with ocibridge module push --force")
	case contents.Entries > terragruntFiles || contents.Unpacked > terragruntBytes:
		v.report(artifact.SeverityWarning, "zip", fmt.Sprintf("Terragrunt refuses it: it has %d files of %d bytes together", contents.Entries, contents.Unpacked),
			"name what the module does not need in .terraformignore")
	}
	return nil
}

func (v *ModuleVersion) report(s artifact.Severity, where, what, help string) {
	v.Findings = append(v.Findings, artifact.Finding{Severity: s, Where: where, What: what, Hint: help})
}

// String names the module and its repository.
func (r *Module) String() string {
	if r.Repository == (ociaddr.Repository{}) {
		return r.Module.String()
	}
	return fmt.Sprintf("%s in %s", r.Module, r.Repository)
}

// Failed returns an error if a module or a version could not be read, or if a finding is an
// error.
func (r *ModuleReport) Failed() error {
	var t tally
	for _, m := range r.Modules {
		if m.Problem != nil {
			t.add(nil, m.Problem)
		}
		for _, v := range m.Versions {
			t.add(v.Findings, v.Problem)
		}
	}
	return t.err(r.failed, r.help)
}

// ModuleInspection describes one stored version of a module.
type ModuleInspection struct {
	Module     module.Address     `json:"module"`
	Repository ociaddr.Repository `json:"repository"`
	*ModuleVersion
}

// Inspect reads the newest version that the query selects.
func (m *Modules) Inspect(ctx context.Context, q query.ModuleQuery) (*ModuleInspection, error) {
	r := &Module{Module: q.Module}
	if err := m.list(ctx, r, q); err != nil {
		return nil, err
	}
	if len(r.Versions) == 0 {
		return nil, r.missing(q)
	}
	v := r.Versions[0]
	if err := v.read(ctx, r, false); err != nil {
		return nil, hint.Wrap(m.explain(fmt.Errorf("%s %s: %w", r.Module, v.Version, err), r.Module), "ocibridge module verify %s@%s says what to do", r.Module, v.Version)
	}
	return &ModuleInspection{Module: r.Module, Repository: r.Repository, ModuleVersion: v}, nil
}

// Failed returns nil.
func (*ModuleInspection) Failed() error { return nil }
