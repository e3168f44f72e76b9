package lockfile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/provider"
)

// With returns the file with hashes added to existing entries; it ignores hashes that the entries have. If
// there is nothing to add, it returns f.
func (f *File) With(add map[provider.Address][]provider.Hash) (*File, error) {
	inserts := insertions{}
	for a, hashes := range add {
		p, ok := f.Provider(a)
		if !ok {
			return nil, fmt.Errorf("%s has no entry for %s", f.Name, a)
		}
		p.insert(p.missing(hashes), inserts)
	}
	if len(inserts) == 0 {
		return f, nil
	}
	next, err := Parse(f.Name, inserts.apply(f.src))
	if err != nil {
		return nil, fmt.Errorf("with hashes added: %w", err)
	}
	for a, hashes := range add {
		p, _ := next.Provider(a)
		if left := p.missing(hashes); len(left) > 0 || len(next.Providers) != len(f.Providers) {
			return nil, fmt.Errorf("%s: %v could not be added to %s", f.Name, left, a)
		}
	}
	return next, nil
}

// missing returns the hashes that the entry lacks, sorted and without duplicates.
func (p Provider) missing(hashes []provider.Hash) []string {
	var out []string
	for _, h := range hashes {
		if s := h.String(); !h.IsZero() && !slices.Contains(p.Hashes, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// insertions are texts to insert into a file, by the position in bytes.
type insertions map[int]string

// apply returns the file with the texts inserted. If the file has CRLF as line ending, so have they: if git
// checks out text files with CRLF, added lines with LF would show up in every diff.
func (i insertions) apply(src []byte) []byte {
	newline := "\n"
	if bytes.Contains(src, []byte("\r\n")) {
		newline = "\r\n"
	}
	var out bytes.Buffer
	at := 0
	for _, next := range slices.Sorted(maps.Keys(i)) {
		out.Write(src[at:next])
		out.WriteString(strings.ReplaceAll(i[next], "\n", newline))
		at = next
	}
	out.Write(src[at:])
	return out.Bytes()
}

// insert inserts sorted hashes: each before the first one in the list that sorts after it, as clients sort
// them.
func (p Provider) insert(hashes []string, into insertions) {
	if p.Hashes == nil && len(hashes) > 0 {
		p.insertList(hashes, into)
		return
	}
	for _, h := range hashes {
		if next := slices.IndexFunc(p.Hashes, func(s string) bool { return s > h }); next >= 0 {
			into[p.ranges[next].Start.Byte] += `"` + h + "\",\n    "
		} else {
			into[p.ranges[len(p.ranges)-1].End.Byte] += ",\n    \"" + h + `"`
		}
	}
}

// insertList inserts a list after the last argument of an entry without one.
func (p Provider) insertList(hashes []string, into insertions) {
	list := "\n  hashes = [\n    \"" + strings.Join(hashes, "\",\n    \"") + "\",\n  ]"
	if r := p.body.SrcRange; r.Start.Line == r.End.Line { // a block on one line may have only one argument
		into[r.Start.Byte] = "\n  "
		list += "\n"
	}
	at := 0
	for _, attr := range p.body.Attributes {
		at = max(at, attr.SrcRange.End.Byte)
	}
	into[at] = list
}
