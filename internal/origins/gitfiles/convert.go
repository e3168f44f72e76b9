package gitfiles

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	maxConverted = 2 << 20 // bytes of a file before a conversion that needs the whole file
	maxPointer   = 1024    // bytes of a pointer of Git LFS
)

// conversion is what Git does to a file when it checks it out.
type conversion struct {
	crlf     bool // line ends become CR LF
	auto     bool // only in files that look like text
	ident    bool
	encoding string // "" for UTF-8
	filter   string
}

// encodings are the supported values of working-tree-encoding, in lower case. Git passes them to iconv, whose UTF-16 and
// UTF-32 begin with a byte order mark. On Linux the low byte comes first.
var encodings = map[string]encoding.Encoding{
	"utf-16":       unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
	"utf-16le":     unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
	"utf-16be":     unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"utf-16le-bom": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
	"utf-16be-bom": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
	"utf-32":       utf32.UTF32(utf32.LittleEndian, utf32.UseBOM),
	"utf-32le":     utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM),
	"utf-32be":     utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM),
	"iso-8859-1":   charmap.ISO8859_1,
}

// newConversion returns the conversion that the attributes of a file mean, without a configuration of Git.
func newConversion(name string, values map[string]value) (conversion, error) {
	var c conversion
	text := values["text"]
	if !isTextValue(text) {
		text = values["crlf"]
	}
	c.auto = text == "auto"
	c.crlf = text != isFalse && values["eol"] == "crlf"
	c.ident = values["ident"] == isTrue
	if f := values["filter"]; !strings.HasPrefix(string(f), "\x00") {
		c.filter = string(f)
	}
	switch e := strings.ToLower(string(values["working-tree-encoding"])); value(e) {
	case "", isUnset, "utf-8", "utf8":
	case isTrue, isFalse:
		return c, refuseFile("%s has the attribute working-tree-encoding without an encoding, which Git refuses", name)
	default:
		if digits, ok := strings.CutPrefix(e, "utf"); ok && !strings.HasPrefix(digits, "-") {
			e = "utf-" + digits
		}
		if c.encoding = e; encodings[e] == nil {
			return c, refuseFile("%s has the attribute working-tree-encoding=%.40q, which is not supported", name, e)
		}
	}
	return c, nil
}

// isTextValue reports whether Git knows a value of the attribute text. For others, it uses the attribute crlf.
func isTextValue(v value) bool {
	return v == isTrue || v == isFalse || v == "auto" || v == "input"
}

// isIdentity reports whether no file changes.
func (c conversion) isIdentity() bool { return !c.crlf && !c.ident && c.encoding == "" }

// onlyText reports whether the conversion only changes line ends.
func (c conversion) onlyText() bool { return c.crlf && !c.ident && c.encoding == "" }

// name returns the first attribute, for messages.
func (c conversion) name() string {
	switch {
	case c.ident:
		return "the attribute ident"
	case c.encoding != "":
		return "the attribute working-tree-encoding"
	}
	return "the attribute eol=crlf"
}

// apply converts a file. id is the ID of the blob.
func (c conversion) apply(name string, text []byte, id string) ([]byte, error) {
	if c.ident {
		text = expandIdent(text, id)
	}
	if c.crlf {
		var s stats
		s.Write(text)
		if c.changes(s) {
			text = addCR(text)
		}
	}
	if c.encoding == "" || len(text) == 0 {
		return text, nil
	}
	refused := refuseFile("%s cannot be written in the encoding %s of its attribute working-tree-encoding", name, c.encoding)
	if !utf8.Valid(text) {
		return nil, refused
	}
	out, err := encodings[c.encoding].NewEncoder().Bytes(text)
	if err != nil {
		return nil, refused
	}
	return out, nil
}

// changes reports whether line ends change in a file.
func (c conversion) changes(s stats) bool {
	if s.lf == 0 {
		return false
	}
	return !c.auto || s.cr == 0 && s.crlf == 0 && !s.isBinary()
}

// stats counts the bytes of a file, as Git does to find out whether it is text.
type stats struct {
	nul, cr, lf, crlf       int64 // CR and LF on their own, and together
	printable, nonprintable int64
	last                    byte
}

// Write implements [io.Writer].
func (s *stats) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n' && s.last == '\r':
			s.cr--
			s.crlf++
		case c == '\n':
			s.lf++
		case c == '\r':
			s.cr++
		case c == 0:
			s.nul++
			s.nonprintable++
		case c == 0x7f:
			s.nonprintable++
		case c < ' ' && c != '\b' && c != '\t' && c != 0x1b && c != '\f':
			s.nonprintable++
		default:
			s.printable++
		}
		s.last = c
	}
	return len(p), nil
}

func (s *stats) isBinary() bool {
	nonprintable := s.nonprintable
	if s.last == 0x1a { // the end of a text in DOS
		nonprintable--
	}
	return s.cr > 0 || s.nul > 0 || s.printable>>7 < nonprintable
}

// addCR adds a CR before each LF that has none.
func addCR(text []byte) []byte {
	out := make([]byte, 0, len(text)+bytes.Count(text, []byte("\n")))
	for i, c := range text {
		if c == '\n' && (i == 0 || text[i-1] != '\r') {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}

// expandIdent replaces $Id$, and an expansion that Git made before, by the ID of the blob.
func expandIdent(text []byte, id string) []byte {
	var out []byte
	for {
		dollar := bytes.IndexByte(text, '$')
		if dollar < 0 {
			return append(out, text...)
		}
		out, text = append(out, text[:dollar+1]...), text[dollar+1:]
		if len(text) < 3 || string(text[:2]) != "Id" {
			continue
		}
		switch text[2] {
		case '$':
			text = text[3:]
		case ':':
			end := bytes.IndexByte(text[3:], '$')
			if end < 0 {
				return append(out, text...)
			}
			inside := text[3 : 3+end]
			// Other programs write more than one word. Such a text stays.
			if bytes.IndexByte(inside, '\n') >= 0 || hasInnerSpace(inside) {
				continue
			}
			text = text[4+end:]
		default:
			continue
		}
		out = append(out, "Id: "+id+" $"...)
	}
}

// hasInnerSpace reports whether an expansion has a space that is neither its first nor its last byte.
func hasInnerSpace(inside []byte) bool {
	if len(inside) < 2 {
		return false
	}
	space := bytes.IndexByte(inside[1:], ' ')
	return space >= 0 && 1+space < len(inside)-1
}

// isPointer reports whether a file is a pointer of Git LFS.
func isPointer(text []byte) bool {
	return bytes.HasPrefix(text, []byte("version https://git-lfs.github.com/spec/")) || bytes.HasPrefix(text, []byte("version https://hawser.github.com/spec/"))
}

func refusePointer(name string) error {
	return hint.Wrap(refuse("%s has the attribute filter=lfs and is a pointer of Git LFS: clients with git-lfs get another file than clients without", name),
		"push a folder that has the files, or allow the pointers with --allow-lfs-pointers")
}
