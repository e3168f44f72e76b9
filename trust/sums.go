package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// maxSumsBytes is the maximum size in bytes of a SHA256SUMS document. Real documents have
// about 2 KiB.
const maxSumsBytes = 1 << 20

// sums maps file names to the checksums in a SHA256SUMS document.
type sums map[string][sha256.Size]byte

// parseSums parses a document in the format of sha256sum. Each line has a hexadecimal
// SHA-256 and a file name. Like clients, it splits lines at white space, and compares
// names exactly. Unlike clients, it refuses a line that is not exactly a checksum and a
// name. It also refuses two different checksums for one name. The reason is that a
// document is signed as a whole, and all programs must read the same checksums in it.
func parseSums(doc []byte) (sums, error) {
	if len(doc) > maxSumsBytes {
		return nil, fmt.Errorf("SHA256SUMS has %d bytes, more than %d", len(doc), maxSumsBytes)
	}
	out := sums{}
	for i, line := range bytes.Split(doc, []byte("\n")) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var sum [sha256.Size]byte
		if len(fields) != 2 || len(fields[0]) != hex.EncodedLen(len(sum)) {
			return nil, fmt.Errorf("SHA256SUMS line %d is not a SHA-256 and a file name: %.80q", i+1, line)
		}
		if _, err := hex.Decode(sum[:], fields[0]); err != nil {
			return nil, fmt.Errorf("SHA256SUMS line %d is not a SHA-256 and a file name: %.80q", i+1, line)
		}
		name := string(fields[1])
		if prev, ok := out[name]; ok && prev != sum {
			return nil, fmt.Errorf("SHA256SUMS gives two checksums for %.80q", name)
		}
		out[name] = sum
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("SHA256SUMS names no file")
	}
	return out, nil
}

// check returns ErrNotListed if the document does not list the file, and ErrChecksum if it
// lists another checksum for the file.
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
