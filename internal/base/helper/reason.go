package helper

import (
	"regexp"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// maxReason is the maximum length in bytes of the part of a helper's standard output that an error shows.
const maxReason = 1 << 10

var (
	namedSecret = regexp.MustCompile(`(?i)\b(password|passwd|secret|token)(["']?\s*[=:]\s*|\s+is\s+)\S+`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S+`)
	userinfo    = regexp.MustCompile(`://[^\s/@]+@`)
	// longWord matches a long word. The parts of host names, paths and ARNs are shorter, or have no digits.
	longWord = regexp.MustCompile(`[A-Za-z0-9+=_~-]{20,}`)
)

// reasonOf returns the reason for a failure that a helper has printed on its standard output, as one printable line. It
// returns "" for an output that is not a sentence, such as a login in JSON or a bare password. It redacts the words that
// may be secrets.
func reasonOf(stdout []byte) string {
	const redacted = "[redacted]"
	text := hint.OneLine(string(stdout[:min(len(stdout), maxReason)]))
	if strings.Contains(text, "{") || !strings.Contains(text, " ") {
		return ""
	}
	text = namedSecret.ReplaceAllString(text, "${1}${2}"+redacted)
	text = bearer.ReplaceAllString(text, "${1} "+redacted)
	text = userinfo.ReplaceAllString(text, "://"+redacted+"@")
	return longWord.ReplaceAllStringFunc(text, func(word string) string {
		if !strings.ContainsAny(word, "0123456789") {
			return word
		}
		return redacted
	})
}
