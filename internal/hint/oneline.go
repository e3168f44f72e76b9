package hint

import (
	"strings"
	"unicode"
)

// OneLine returns a message as one line that is safe to print. It replaces each run of
// spaces, line breaks and control characters with one space. The reason is that a message
// can contain text from a server, and that a terminal obeys control characters.
func OneLine(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }), " ")
}
