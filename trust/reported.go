package trust

import (
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// Report holds the hashes and the size of a package that newer registries report in addition
// to the checksum document. A report does not prove that a package is right. However, a
// package that contradicts its report is refused, because either the package or the report
// is wrong. Clients also record the reported hashes in lock files.
type Report struct {
	Hashes []provider.Hash
	Size   int64 // bytes; 0 means unknown
}

// hashes returns the zh: hashes if zip is true, and the h1: hashes otherwise.
func (r Report) hashes(zip bool) []provider.Hash {
	var out []provider.Hash
	for _, h := range r.Hashes {
		if h.IsZip() == zip {
			out = append(out, h)
		}
	}
	return out
}

const reportHelp = "the origin contradicts its own checksum document or package, and clients would refuse it or record a wrong hash; nothing was stored. Tell the operator of the origin"

// checkReports returns ErrChecksum if a report contradicts the checksum document. It ignores
// files that the document does not list.
func (s sums) checkReports(reports map[string]Report) error {
	for name, r := range reports {
		sum, listed := s[name]
		for _, h := range r.hashes(true) {
			if listed && h != provider.ZipHash(sum) {
				return hint.Wrap(fmt.Errorf("%.255s: %w: its origin reports %s, SHA256SUMS lists %x", name, ErrChecksum, h, sum), reportHelp)
			}
		}
	}
	return nil
}

// checkPackage returns ErrChecksum if the report contradicts a verified package. If clients
// would compute different h1: hashes of the package, the h1: hashes in the report are
// ignored.
func (r Report) checkPackage(p Package) error {
	if r.Size != 0 && r.Size != p.size {
		return hint.Wrap(fmt.Errorf("%s: %w: it has %d bytes, its origin reports %d", p.filename, ErrChecksum, p.size, r.Size), reportHelp)
	}
	if zh := r.hashes(true); len(zh) > 0 && !slices.Contains(zh, provider.ZipHash(p.sum)) {
		return hint.Wrap(fmt.Errorf("%s: %w: it has %s, its origin reports %v", p.filename, ErrChecksum, provider.ZipHash(p.sum), zh), reportHelp)
	}
	if h1 := r.hashes(false); len(h1) > 0 && !p.H1().IsZero() && !slices.Contains(h1, p.H1()) {
		return hint.Wrap(fmt.Errorf("%s: %w: it has %s, its origin reports %v", p.filename, ErrChecksum, p.H1(), h1), reportHelp)
	}
	return nil
}
