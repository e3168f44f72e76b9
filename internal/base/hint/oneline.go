package hint

import (
	"strings"
	"unicode"
)

// OneLine returns a message as one line that is safe to print. It replaces each run of
// spaces, line breaks and control characters with one space. The reason is that a message
// can contain text from a server, and that a terminal obeys control characters.
func OneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(Printable, s)), " ")
}

// Printable is the mapping, for [strings.Map] and [bytes.Map], of a text of several lines to one that is
// safe to print. It replaces all characters that are not printable with spaces, except for line feeds and
// tabs. Those are control characters (C0 and C1), marks that change the direction of text, and other
// invisible characters.
func Printable(r rune) rune {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return ' '
}
