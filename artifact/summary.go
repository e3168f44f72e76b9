package artifact

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// annotationVersions contains a [Summary] as JSON text, on the manifest of a state. It is
// separate from annotationState, so that an invalid summary does not affect the state.
const annotationVersions = annotationPrefix + "versions"

// summaryFormat is the format of the JSON. A reader ignores a summary of another format.
const summaryFormat = 1

// The limits of a summary. A writer leaves out the oldest versions of a summary that exceeds them.
const (
	maxSummarized   = 10_000
	maxSummaryBytes = 3 << 19
)

// The maximum number of signers in the summary of one version, and the maximum length in bytes of what describes one.
const (
	maxSigners     = 16
	maxSignerBytes = 1024
)

// DescribedSigners returns those of the given signers that a summary can contain, in a fixed order and without duplicates, or
// nil if there are none.
func DescribedSigners(signers []approval.Signer) []approval.Signer {
	out := slices.DeleteFunc(slices.Clone(signers), func(s approval.Signer) bool {
		n := len(s.Key) + len(s.Issuer) + len(s.Identity) + len(s.Predicate)
		return n == 0 || n > maxSignerBytes
	})
	slices.SortFunc(out, func(a, b approval.Signer) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Issuer, b.Issuer), cmp.Compare(a.Predicate, b.Predicate))
	})
	out = slices.Compact(out)
	return slices.Concat(out[:min(len(out), maxSigners)])
}

// summaryLimits limits the JSON of a summary. A version with 15 platforms and one protocol
// takes at most 22 values, and fewer if it shares its description with other versions.
var summaryLimits = document.Limits{Bytes: maxSummaryBytes, Values: 200_000, Elements: maxSummarized}

// Summary describes versions in a repository, so that a reader can list them without their
// indexes. It is only a hint. Nobody signs it, other tools do not update it, and concurrent
// writers can lose parts of it. It must not decide what is served.
type Summary map[provider.Version]VersionSummary

// VersionSummary describes one version.
type VersionSummary struct {
	// Index is the digest of the version's index.
	Index digest.Digest
	// Platforms is sorted. Other versions can share the slice, so callers must not change it.
	Platforms []provider.Platform
	// Protocols is nil if the protocols are unknown.
	Protocols []string
	// Verdict is trust.Signed, trust.ChecksumOnly, or [NoEvidence].
	Verdict trust.Verdict
	// Signers are those who are said to have signed the index, see [approval.Signers]. Other versions can share the list, so
	// callers must not change it. Nil: no signer is known. Other tools sign without updating the summary, so there may be
	// signers nevertheless.
	Signers []approval.Signer
}

// Signed reports whether the verdict is trust.Signed.
func (s VersionSummary) Signed() bool { return s.Verdict == trust.Signed }

// Summary returns a description of a stored version. The result is false if the index does
// not state the verdict, or if the version lacks packages.
func (v *Version) Summary() (VersionSummary, bool) {
	verdict := NoEvidence
	if v.Evidence != nil {
		verdict = trust.Verdict(verdictAnnotation(*v.Evidence)[annotationVerdict])
	}
	out := VersionSummary{Index: v.Index.Digest, Platforms: v.Platforms(), Protocols: v.Protocols, Verdict: verdict}
	return out, verdict != "" && len(v.Missing) == 0 && isSHA256(out.Index)
}

// summaryDocument is the JSON document of a summary. Versions with the same description are
// in one group.
type summaryDocument struct {
	Format int            `json:"format"`
	Groups []summaryGroup `json:"groups,omitempty"`
}

type summaryGroup struct {
	Platforms []provider.Platform                `json:"platforms,omitempty"`
	Protocols []string                           `json:"protocols,omitempty"`
	Verdict   trust.Verdict                      `json:"verdict"`
	Signers   []approval.Signer                  `json:"signers,omitempty"`
	Versions  map[provider.Version]digest.Digest `json:"versions"`
}

// encodeSummary returns the JSON text of a summary, or "". It leaves out the oldest versions if there are too
// many.
func encodeSummary(s Summary) (string, error) {
	versions := slices.Collect(maps.Keys(s))
	provider.SortVersions(versions)
	slices.Reverse(versions)
	for n := min(len(versions), maxSummarized); n > 0; n /= 2 {
		data, err := document.Join(groupVersions(s, versions[:n]))
		if err != nil {
			return "", err
		}
		if summaryLimits.Check(data) == nil {
			return string(data), nil
		}
	}
	return "", nil
}

// groupVersions returns the document of some versions, with the groups in the order of their first version.
func groupVersions(s Summary, versions []provider.Version) summaryDocument {
	out := summaryDocument{Format: summaryFormat}
	groups := map[string]int{}
	for _, v := range versions {
		e := s[v]
		key := fmt.Sprintf("%q %q %q %q", e.Platforms, e.Protocols, e.Verdict, e.Signers)
		i, ok := groups[key]
		if !ok {
			i = len(out.Groups)
			groups[key] = i
			out.Groups = append(out.Groups, summaryGroup{e.Platforms, e.Protocols, e.Verdict, e.Signers, map[provider.Version]digest.Digest{}})
		}
		out.Groups[i].Versions[v] = e.Index
	}
	return out
}

// decodeSummary decodes the JSON text of a summary. An empty text is an empty summary.
func decodeSummary(text string) (Summary, error) {
	if text == "" {
		return nil, nil
	}
	var d summaryDocument
	if err := unmarshalWithin(summaryLimits, []byte(text), &d, ErrNotProvider); err != nil {
		return nil, err
	}
	if d.Format != summaryFormat {
		return nil, fmt.Errorf("%w: a summary of versions in format %d, want %d", ErrNotProvider, d.Format, summaryFormat)
	}
	out := Summary{}
	for i := range d.Groups {
		g := &d.Groups[i]
		if err := g.check(); err != nil {
			return nil, err
		}
		for v, index := range g.Versions {
			if _, twice := out[v]; twice {
				return nil, fmt.Errorf("%w: a summary describes version %s twice", ErrAmbiguous, v)
			}
			if v.IsZero() || !isSHA256(index) {
				return nil, fmt.Errorf("%w: a summary has the digest %.80q for version %s", ErrNotProvider, index, v)
			}
			out[v] = VersionSummary{index, g.Platforms, g.Protocols, g.Verdict, g.Signers}
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	if len(out) > maxSummarized {
		return nil, fmt.Errorf("%w: a summary of %d versions, more than %d", ErrTooLarge, len(out), maxSummarized)
	}
	return out, nil
}

// check refuses a group with an unknown verdict, with platforms or protocols that no index can have, or with too many
// signers. It sorts the platforms, and replaces empty lists by nil.
func (g *summaryGroup) check() error {
	switch g.Verdict {
	case trust.Signed, trust.ChecksumOnly, NoEvidence:
	default:
		return fmt.Errorf("%w: a summary has the verdict %.80q", ErrNotProvider, g.Verdict)
	}
	if len(knownProtocols(g.Protocols)) != len(g.Protocols) {
		return fmt.Errorf("%w: a summary has %d protocols", ErrTooLarge, len(g.Protocols))
	}
	provider.SortPlatforms(g.Platforms)
	if slices.Contains(g.Platforms, provider.Platform{}) { // null in the JSON
		return fmt.Errorf("%w: a summary has a platform without a name", ErrNotProvider)
	}
	if len(slices.Compact(slices.Clone(g.Platforms))) != len(g.Platforms) {
		return fmt.Errorf("%w: a summary names a platform twice", ErrAmbiguous)
	}
	if len(DescribedSigners(g.Signers)) != len(g.Signers) {
		return fmt.Errorf("%w: a summary has %d signers of a version", ErrTooLarge, len(g.Signers))
	}
	g.Platforms, g.Protocols, g.Signers = slices.Concat(g.Platforms), slices.Concat(g.Protocols), slices.Concat(g.Signers)
	return nil
}

// ReadSummary returns the summary of a provider's repository, and the descriptor of the
// state's manifest. The descriptor is also valid after an error, unless the store failed.
// The errors are those of [ReadState]. The summary is empty if the state contains none.
func ReadSummary(ctx context.Context, store ReferenceFetcher, a provider.Address) (Summary, ocispec.Descriptor, error) {
	desc, data, err := fetchTag(ctx, store, string(ociaddr.StateTag))
	if err != nil {
		return nil, ocispec.Descriptor{}, err
	}
	desc.MediaType = ocispec.MediaTypeImageManifest
	annotations, err := stateAnnotations(data, a)
	if err != nil {
		return nil, desc, fmt.Errorf("tag %s: %w", ociaddr.StateTag, err)
	}
	s, err := decodeSummary(annotations[annotationVersions])
	if err != nil {
		return nil, desc, fmt.Errorf("tag %s: %w", ociaddr.StateTag, err)
	}
	return s, desc, nil
}

// MemorySize returns roughly the memory of a summary, in bytes.
func (s Summary) MemorySize() int64 {
	n := int64(64)
	for v, e := range s {
		n += 300 + int64(len(v.String())) + 8*int64(len(e.Platforms)+len(e.Protocols)) + int64(len(strings.Join(e.Protocols, "")))
		for _, by := range e.Signers {
			n += 64 + int64(len(by.Key)+len(by.Issuer)+len(by.Identity)+len(by.Predicate))
		}
	}
	return n
}
