package lockfile

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// splice replaces a byte range of the file by text.
type splice struct {
	start, end int
	text       string
}

// apply applies splices, which must not overlap. Splices at one position keep their order.
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

// insert returns the splices that add sorted hashes to an entry: each before the first one in the list that
// sorts after it, as clients sort them.
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
		end = splice{start: end.end, end: end.end} // a missing comma was added by the previous splice
	}
	return out
}

// end returns the splice position after the last hash and its comma; it adds the comma if necessary.
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

// newList adds the list after the last argument of an entry without one.
func (e *entry) newList(src []byte, hashes []string, newline string) splice {
	var list strings.Builder
	list.WriteString(newline + "  hashes = [" + newline)
	for _, h := range hashes {
		list.WriteString(`    "` + h + `",` + newline)
	}
	list.WriteString("  ]")
	open, closing := e.block.OpenBraceRange, e.block.CloseBraceRange
	if open.Start.Line == closing.Start.Line { // a block on one line may have only one argument
		from, to := open.End.Byte, closing.Start.Byte
		return splice{from, to, newline + "  " + strings.TrimSpace(string(src[from:to])) + list.String() + newline}
	}
	at := 0
	for _, attr := range e.block.Body.Attributes {
		at = max(at, attr.SrcRange.End.Byte)
	}
	return splice{at, at, list.String()}
}

// lineEnd returns the file's line ending: if git checks out text files with CRLF, added lines with LF would
// show up in every diff.
func lineEnd(src []byte) string {
	if i := bytes.IndexByte(src, '\n'); i > 0 && src[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
