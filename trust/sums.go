package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

// maxSumsBytes is the maximum size in bytes of a SHA256SUMS document. Real ones have about 2 KiB.
const maxSumsBytes = 1 << 20

// sums maps file names to the checksums in a SHA256SUMS document.
type sums map[string][sha256.Size]byte

// parseSums parses a document in the format of sha256sum. Like clients, it splits lines at white
// space, and compares names exactly. Unlike clients, it refuses a line that is not exactly a
// checksum and a name, and two different checksums for one name. A document is signed and replayed
// as a whole, so all programs must read the same checksums in it, and no line can be left out. Some
// lines would make a client fail.
func parseSums(doc []byte) (sums, error) {
	if len(doc) > maxSumsBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrMalformed, len(doc), maxSumsBytes)
	}
	out := sums{}
	for i, line := range bytes.Split(bytes.TrimSuffix(doc, []byte("\n")), []byte("\n")) {
		name, sum, ok := parseSumsLine(line)
		if !ok {
			return nil, fmt.Errorf("%w: line %d is not a SHA-256 and a file name: %.80q", ErrMalformed, i+1, line)
		}
		if prev, ok := out[name]; ok && prev != sum {
			return nil, fmt.Errorf("%w: it gives two checksums for %.80q", ErrMalformed, name)
		}
		out[name] = sum
	}
	return out, nil
}

// maxSumsLine is the maximum length of a line in bytes. A client stops reading at a line of 64 KiB.
const maxSumsLine = 4 << 10

func parseSumsLine(line []byte) (name string, sum [sha256.Size]byte, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) != 2 || len(line) > maxSumsLine || len(fields[0]) != hex.EncodedLen(len(sum)) {
		return "", sum, false
	}
	_, err := hex.Decode(sum[:], fields[0])
	return string(fields[1]), sum, err == nil
}

// packages maps the platforms of a version to the file names under which the document lists their
// packages. If the document lists a package under several names, the published name counts. If that
// name is not among them, and the checksums differ, packages omits the platform.
func (s sums) packages(a provider.Address, v provider.Version) map[provider.Platform]string {
	out := map[provider.Platform]string{}
	ambiguous := map[provider.Platform]bool{}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		p, ok := provider.NamedPlatform(name, a, v)
		if !ok {
			continue
		}
		first, again := out[p]
		ambiguous[p] = ambiguous[p] || again && s[first] != s[name]
		if !again {
			out[p] = name
		}
	}
	for p := range out {
		published := provider.PackageFilename(a, v, p)
		if _, ok := s[published]; ok {
			out[p] = published
		} else if ambiguous[p] {
			delete(out, p)
		}
	}
	return out
}

// check returns ErrNotListed if the document does not list the file, and ErrChecksum if it
// lists another checksum.
func (s sums) check(name string, sum [sha256.Size]byte) error {
	listed, ok := s[name]
	switch {
	case !ok:
		return hint.Wrap(fmt.Errorf("%.255s: %w", name, ErrNotListed),
			"the release is incomplete: its publisher must list every package under its exact file name; nothing was stored")
	case listed != sum:
		return hint.Wrap(fmt.Errorf("%.255s: %w: its origin announces %x, SHA256SUMS lists %x", name, ErrChecksum, sum, listed),
			"the origin contradicts its own checksum document; nothing was stored")
	}
	return nil
}

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
	return slices.DeleteFunc(slices.Clone(r.Hashes), func(h provider.Hash) bool { return h.IsZip() != zip })
}

const reportHelp = "the origin contradicts its own checksum document or package, and clients would refuse it or record a wrong hash; nothing was stored. Tell the operator of the origin"

// checkReports returns ErrChecksum if a report contradicts the checksum document about a
// listed file.
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

// checkPackage returns ErrChecksum if the report contradicts a verified package. It ignores h1:
// hashes if clients would compute different h1: hashes of the package.
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
