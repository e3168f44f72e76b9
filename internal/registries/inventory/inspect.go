package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// Inspection describes everything that is stored about one version.
type Inspection struct {
	Provider   provider.Address   `json:"provider"`
	Version    provider.Version   `json:"version"`
	Repository ociaddr.Repository `json:"repository"`
	Tag        ociaddr.Tag        `json:"tag"`
	Digest     string             `json:"digest"`             // the digest of the index
	Declared   *Declared          `json:"declared,omitempty"` // nil if another tool wrote the index
	Protocols  []string           `json:"protocols,omitempty"`
	Evidence   *InspectedEvidence `json:"evidence,omitempty"`
	Docs       *InspectedDocs     `json:"docs,omitempty"` // nil if no documentation is stored
	Partial    []ociaddr.Tag      `json:"partial_tags,omitempty"`
	Packages   []InspectedPackage `json:"packages"`
	// Missing lists the platforms whose manifests the registry lacks.
	Missing []artifact.MissingPackage `json:"missing,omitempty"`
	Denied  *Denial                   `json:"denied,omitempty"` // nil if the gateway's configuration does not deny the version
	// Deprecated is nil if the gateway's configuration does not deprecate the version.
	Deprecated *Denial `json:"deprecated,omitempty"`
	// Approval is nil if the configuration requires no approval of the version.
	Approval *Approval `json:"approval,omitempty"`
	// Signatures are the signatures of the index.
	Signatures []InspectedSignature `json:"signatures,omitempty"`
	// SignaturesError says why the signatures could not be read, or is nil.
	SignaturesError *Problem `json:"signatures_error,omitempty"`
}

// Declared is the provider and the version that the annotations of the index name.
type Declared struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
}

// InspectedPackage is the package for one platform.
type InspectedPackage struct {
	Platform provider.Platform `json:"platform"`
	Filename string            `json:"filename"`
	Size     int64             `json:"size"`     // in bytes
	Digest   string            `json:"digest"`   // the digest of the layer
	Manifest string            `json:"manifest"` // the digest of the manifest
	Hashes   []provider.Hash   `json:"hashes"`   // the zh: hash, and the h1: hash if it is known
}

// InspectedEvidence describes the stored evidence. Inspect does not verify the evidence.
type InspectedEvidence struct {
	Digest      string        `json:"digest"` // the digest of the evidence manifest
	Origin      string        `json:"origin"`
	Verdict     trust.Verdict `json:"verdict"`
	Fingerprint string        `json:"fingerprint,omitempty"`
	Protocols   []string      `json:"protocols,omitempty"`
	// SHA256SUMS, Signature and SigningKeys are the sizes of the documents in bytes.
	SHA256SUMS  int `json:"sha256sums_size"`
	Signature   int `json:"signature_size"`
	SigningKeys int `json:"signing_keys_size"`
}

// InspectedDocs describes the stored documentation. Inspect does not read the pages.
type InspectedDocs struct {
	Digest string `json:"digest"` // the digest of the manifest
	Zip    string `json:"zip"`    // the digest of the zip with the pages
	Size   int64  `json:"size"`   // of the zip in bytes
}

// Inspect reads the newest selected version of the selection's first provider.
func Inspect(ctx context.Context, s *Selection[provider.Address]) (*Inspection, error) {
	p, v, err := s.newest()
	if err != nil {
		return nil, err
	}
	found, err := artifact.ReadAvailable(ctx, p.store, p.Address, v)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, p.missing()
	}
	if err != nil {
		return nil, unreadable(p, v, err)
	}
	out := &Inspection{
		Provider: p.Address, Version: v, Repository: p.Repository, Tag: p.tagOf[v], Digest: found.Index.Digest.String(), Protocols: found.Protocols,
		Packages: []InspectedPackage{}, Missing: found.Missing, Denied: p.inventory.denial(p.Address, v, found.Index.Digest.String()), Deprecated: p.inventory.deprecation(p.Address, v),
	}
	if a, ok := found.Owner.(provider.Address); ok && !found.Version.IsZero() {
		out.Declared = &Declared{a, found.Version}
	}
	for _, pkg := range found.Packages {
		hashes := []provider.Hash{pkg.ZipHash()}
		if !pkg.H1.IsZero() {
			hashes = append(hashes, pkg.H1)
		}
		out.Packages = append(out.Packages, InspectedPackage{pkg.Platform, pkg.Filename, pkg.Size, pkg.Digest.String(), pkg.Manifest.Digest.String(), hashes})
	}
	for _, t := range p.tags {
		if whole, ok := t.PartOf(); ok && whole == v {
			out.Partial = append(out.Partial, t)
		}
	}
	if found.Evidence != nil {
		if out.Evidence, err = inspectEvidence(ctx, p, v, found); err != nil {
			return nil, err
		}
	}
	if found.Docs != nil {
		d, err := artifact.ReadDocs(ctx, p.store, *found.Docs, p.Address, v)
		if err != nil {
			return nil, unreadable(p, v, err)
		}
		out.Docs = &InspectedDocs{found.Docs.Digest.String(), d.Zip.Digest.String(), d.Zip.Size}
	}
	report := &VersionReport{Version: v, found: found}
	p.approve(ctx, report)
	out.Approval = report.Approval
	out.Signatures, err = p.inspectSignatures(ctx, found, v)
	out.SignaturesError = problem(p.explain(err))
	return out, ctx.Err()
}

func inspectEvidence(ctx context.Context, p *Stored[provider.Address], v provider.Version, found *artifact.Version) (*InspectedEvidence, error) {
	e, err := artifact.ReadEvidence(ctx, p.store, *found.Evidence)
	if err != nil {
		return nil, unreadable(p, v, err)
	}
	return &InspectedEvidence{
		Digest: found.Evidence.Digest.String(), Origin: e.Record.Origin, Verdict: found.RecordedStanding(e.Record.Verdict, p.Address, v), Fingerprint: e.Record.Fingerprint,
		Protocols: e.Record.Protocols, SHA256SUMS: len(e.SHA256SUMS), Signature: len(e.Signature), SigningKeys: len(e.SigningKeys),
	}, nil
}

func unreadable(p *Stored[provider.Address], v provider.Version, err error) error {
	return hint.Wrap(p.explain(fmt.Errorf("%s %s: %w", p.Address, v, err)), "ocibridge verify %s@%s lists all that is wrong with it", p.Address, v)
}

// Failed returns an error if the registry lacks the manifest of a platform.
func (i *Inspection) Failed() error {
	if len(i.Missing) == 0 {
		return nil
	}
	var platforms []string
	for _, m := range i.Missing {
		platforms = append(platforms, m.Platform.String())
	}
	return hint.New(fmt.Sprintf("%s %s: the registry lacks the manifest of %s", i.Provider, i.Version, strings.Join(platforms, ", ")),
		"ocibridge verify %s@%s says what to do", i.Provider, i.Version)
}

// listProvider reads a version of a provider, and the record of its evidence.
func listProvider(ctx context.Context, p *Stored[provider.Address], v provider.Version) *VersionReport {
	out := &VersionReport{Version: v, Tag: p.tagOf[v]}
	found, err := artifact.Read(ctx, p.store, p.Address, v)
	if err != nil {
		out.Problem = problem(p.explain(err))
		return out
	}
	out.found, out.Digest = found, found.Index.Digest.String()
	for _, pkg := range found.Packages {
		out.Platforms = append(out.Platforms, pkg.Platform)
		out.Size += pkg.Size
	}
	out.Signature = &Signature{Verdict: artifact.NoEvidence}
	if found.Evidence == nil {
		return out
	}
	record, err := artifact.ReadRecord(ctx, p.store, *found.Evidence)
	if err != nil {
		out.Signature, out.Problem = nil, problem(p.explain(err))
		return out
	}
	out.Signature = &Signature{found.RecordedStanding(record.Verdict, p.Address, v), record.Fingerprint}
	return out
}
