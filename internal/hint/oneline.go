package hint

import (
	"strings"
	"unicode"
)

// OneLine returns a message as one line that is safe to print. It replaces each run of
// spaces, line breaks and control characters with one space, because a message can contain
// a server's words, and a terminal obeys control characters.
func OneLine(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }), " ")
}
