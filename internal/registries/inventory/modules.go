package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// listModule reads the manifest of a version of a module.
func listModule(ctx context.Context, of *Stored[module.Address], v provider.Version) *VersionReport {
	out, _, err := readModule(ctx, of, v)
	out.Problem = problem(of.explain(err))
	return out
}

// readModule reads the manifest of a version. The report describes what could be read.
func readModule(ctx context.Context, of *Stored[module.Address], v provider.Version) (*VersionReport, *artifact.Version, error) {
	out := &VersionReport{Version: v, Tag: of.tagOf[v], Declared: new(bool)}
	m, err := artifact.ReadTagged(ctx, of.store, of.Address, v, out.Tag)
	if err == nil {
		zip := m.Zip()
		out.found = m
		out.Digest, out.Zip, out.Size = m.Index.Digest.String(), zip.Digest.String(), zip.Size
		out.H1, out.Revision, out.Source, *out.Declared = zip.H1, m.Revision, m.Provenance, m.Owner != nil && !m.Version.IsZero()
	}
	if errors.Is(err, errdef.ErrNotFound) {
		err = hint.New("the registry lists the tag, but has no manifest for it", "unless it was deleted just now, ask the operator of the registry")
	}
	return out, m, err
}

// The limits of Terragrunt.
const (
	terragruntFiles = 10_000
	terragruntBytes = 512 << 20
)

// Zips checks versions of modules: it downloads each zip. It implements [Checks].
type Zips struct{}

func (Zips) lint([]ociaddr.Tag) []artifact.Finding { return nil }

// verify reads the manifest of a version, and checks its zip. If the registry fails, the report
// has a problem. If the content is invalid, it has a finding.
func (Zips) verify(ctx context.Context, of *Stored[module.Address], version provider.Version) *VersionReport {
	v, m, err := readModule(ctx, of, version)
	v.Findings = []artifact.Finding{}
	switch {
	case err == nil:
		err = v.verifyZip(ctx, of.store, m.Zip())
	case errors.Is(err, artifact.ErrForeign):
		v.report(artifact.SeverityError, string(v.Tag), err.Error(), "no gateway serves it: "+artifact.HelpForeign(err, of.Address))
		err = nil
	case artifact.IsContent(err):
		v.report(artifact.SeverityError, string(v.Tag), err.Error(), cmp.Or(hint.Of(err), "OpenTofu cannot install it: push the module again with ocibridge module push --force"))
		err = nil
	}
	v.Problem = problem(of.explain(err))
	return v
}

// verifyZip downloads the zip of a version and checks it.
func (v *VersionReport) verifyZip(ctx context.Context, store Store, zip *artifact.Package) error {
	contents, err := artifact.RehashZip(ctx, store, *zip)
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

// ModuleInspection describes one stored version of a module.
type ModuleInspection struct {
	Module     module.Address     `json:"module"`
	Repository ociaddr.Repository `json:"repository"`
	*VersionReport
	// Signatures are the signatures of the manifest.
	Signatures []InspectedSignature `json:"signatures,omitempty"`
	// SignaturesError says why the signatures could not be read, or is nil.
	SignaturesError *Problem `json:"signatures_error,omitempty"`
	// Contents is what the files of the module declare; nil if the zip could not be read, and Unread says why.
	Contents *moduledoc.Doc `json:"contents,omitempty"`
	Unread   *Problem       `json:"contents_error,omitempty"`

	failed error // the zip is damaged, or the registry failed
}

// InspectModule reads the newest selected version of the selection's first module.
func InspectModule(ctx context.Context, s *Selection[module.Address]) (*ModuleInspection, error) {
	of, version, err := s.newest()
	if err != nil {
		return nil, err
	}
	v, m, err := readModule(ctx, of, version)
	if err != nil {
		return nil, hint.Wrap(of.explain(fmt.Errorf("%s %s: %w", of.Address, version, err)), "ocibridge module verify %s@%s says what to do", of.Address, version)
	}
	v.Denied, v.Deprecated = of.inventory.denial(of.Address, version, v.Digest), of.inventory.deprecation(of.Address, version)
	of.approve(ctx, v)
	out := &ModuleInspection{Module: of.Address, Repository: of.Repository, VersionReport: v}
	out.Signatures, err = of.inspectSignatures(ctx, m, version)
	out.SignaturesError = problem(of.explain(err))
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	out.Contents, err = readContents(ctx, of.store, m)
	out.Unread = problem(of.explain(err))
	if err != nil && !isAny(err, artifact.ErrTooLarge, moduledoc.ErrTooLarge) {
		out.failed = hint.Wrap(of.explain(fmt.Errorf("%s %s: read its zip: %w", of.Address, version, err)), "ocibridge module verify %s@%s says what to do", of.Address, version)
	}
	return out, nil
}

// isAny reports whether err wraps one of the target errors.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// readContents reads what the files of a module declare.
func readContents(ctx context.Context, store Store, m *artifact.Version) (*moduledoc.Doc, error) {
	data, err := artifact.FetchZip(ctx, store, *m.Zip(), moduledoc.MaxZip)
	if err != nil {
		return nil, err
	}
	return moduledoc.Read(ctx, data, m.Provenance.Folder)
}

// Failed returns an error if the zip is damaged, or could not be read because the registry failed.
func (i *ModuleInspection) Failed() error { return i.failed }
