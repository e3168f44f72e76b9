package inventory

import (
	"context"
	"fmt"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// Listing shows versions in brief.
type Listing struct {
	*Report[*ListedVersion]
}

// ListedVersion is one version of a listing.
type ListedVersion struct {
	Version   provider.Version    `json:"version"`
	Tag       ociaddr.Tag         `json:"tag"`
	Digest    string              `json:"digest,omitempty"` // of the index
	Platforms []provider.Platform `json:"platforms,omitempty"`
	Size      int64               `json:"size,omitempty"` // of all packages, in bytes
	Signature *Signature          `json:"signature,omitempty"`
	Problem   *Problem            `json:"error,omitempty"`
}

// List reads every version of the selection.
func (s *Selection) List(ctx context.Context) (*Listing, error) {
	r, err := read(ctx, s, listVersion)
	return &Listing{r}, err
}

// listVersion reads a version, and the record of its evidence.
func listVersion(ctx context.Context, p *Provider, v provider.Version) *ListedVersion {
	out := &ListedVersion{Version: v}
	out.Tag, _ = ociaddr.VersionTag(v) // cannot fail: v was read from a tag
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

// Failed returns an error if a provider or a version could not be read.
func (l *Listing) Failed() error {
	n := 0
	for _, p := range l.Providers {
		if p.Problem != nil {
			n++
		}
		for _, v := range p.Versions {
			if v.Problem != nil {
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	problems := "1 problem"
	if n > 1 {
		problems = fmt.Sprintf("%d problems", n)
	}
	return hint.New(problems+" in reading what is stored", "the list shows each; ocibridge verify PROVIDER@VERSION says what to do")
}
