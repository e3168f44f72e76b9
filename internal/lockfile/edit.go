package lockfile

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// splice replaces a part of the file, in bytes, by text.
type splice struct {
	start, end int
	text       string
}

// apply makes splices, which do not overlap. Of those at one place the first comes
// first.
func apply(src []byte, splices []splice) []byte {
	slices.SortStableFunc(splices, func(a, b splice) int { return cmp.Compare(a.start, b.start) })
	var out bytes.Buffer
	at := 0
	for _, s := range splices {
		out.Write(src[at:s.start])
		out.WriteString(s.text)
		at = s.end
	}
	out.Write(src[at:])
	return out.Bytes()
}

// insert returns the splices that add hashes, sorted, to an entry: each before the
// first in the list that sorts after it, as clients sort them.
func (e *entry) insert(src []byte, hashes []string) []splice {
	newline := lineEnd(src)
	if e.list == nil {
		return []splice{e.newList(src, hashes, newline)}
	}
	var out []splice
	end := e.end(src)
	for _, h := range hashes {
		next := slices.IndexFunc(e.hashes, func(l listed) bool { return l.text > h })
		if next >= 0 {
			at := e.hashes[next].start
			out = append(out, splice{at, at, `"` + h + `",` + newline + "    "})
			continue
		}
		out = append(out, splice{end.start, end.end, end.text + newline + `    "` + h + `",`})
		end = splice{start: end.end, end: end.end} // the comma, if one was missing, is there now
	}
	return out
}

// end is where hashes are added behind the last: after its comma, which it brings
// along where there is none.
func (e *entry) end(src []byte) splice {
	last := e.hashes[len(e.hashes)-1].end
	tokens, _ := hclsyntax.LexExpression(src[last:e.list.SrcRange.End.Byte], "", hcl.InitialPos)
	for _, t := range tokens {
		if t.Type == hclsyntax.TokenComma {
			at := last + t.Range.End.Byte
			return splice{start: at, end: at}
		}
	}
	return splice{last, last, ","}
}

// newList adds the list to an entry that has none, after its last argument.
func (e *entry) newList(src []byte, hashes []string, newline string) splice {
	var list strings.Builder
	list.WriteString(newline + "  hashes = [" + newline)
	for _, h := range hashes {
		list.WriteString(`    "` + h + `",` + newline)
	}
	list.WriteString("  ]")
	open, closing := e.block.OpenBraceRange, e.block.CloseBraceRange
	if open.Start.Line == closing.Start.Line { // a block in one line has room for one argument
		from, to := open.End.Byte, closing.Start.Byte
		return splice{from, to, newline + "  " + strings.TrimSpace(string(src[from:to])) + list.String() + newline}
	}
	at := 0
	for _, attr := range e.block.Body.Attributes {
		at = max(at, attr.SrcRange.End.Byte)
	}
	return splice{at, at, list.String()}
}

// lineEnd is how the lines of a file end: where git checks out text files with
// CRLF, adding to them with LF would change every line in a comparison.
func lineEnd(src []byte) string {
	if i := bytes.IndexByte(src, '\n'); i > 0 && src[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
