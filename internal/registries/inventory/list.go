package inventory

import (
	"context"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// List reports every version of the selection. It verifies nothing.
func (s *Selection) List(ctx context.Context) (*Report, error) {
	r := &Report{failed: "providers and versions cannot be read", help: "the list shows the reasons; ocibridge verify PROVIDER@VERSION says what to do"}
	return r, s.read(ctx, r, listVersion)
}

// listVersion reads a version, and the record of its evidence.
func listVersion(ctx context.Context, p *Provider, v provider.Version) *VersionReport {
	out := &VersionReport{Version: v}
	out.Tag, _ = ociaddr.VersionTag(v) // no error, because v was read from a version tag
	found, err := artifact.Read(ctx, p.store, p.Provider, v)
	if err != nil {
		out.Problem = problem(p.explain(err))
		return out
	}
	out.Digest = found.Index.Digest.String()
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
	out.Signature = &Signature{found.RecordedStanding(record.Verdict, p.Provider, v), record.Fingerprint}
	return out
}
