package inventory

import (
	"context"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/provider"
)

// listProvider reads a version of a provider, and the record of its evidence.
func listProvider(ctx context.Context, p *Stored[provider.Address], v provider.Version) *VersionReport {
	out := &VersionReport{Version: v, Tag: p.tagOf[v]}
	found, err := artifact.Read(ctx, p.store, p.Address, v)
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
	out.Signature = &Signature{found.RecordedStanding(record.Verdict, p.Address, v), record.Fingerprint}
	return out
}
