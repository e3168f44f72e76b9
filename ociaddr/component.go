package ociaddr

import (
	"strconv"
	"strings"
)

// maxEncoded is the maximum length of a text that [EncodeComponent] encodes: the mask has a bit for each character.
const maxEncoded = 64

// EncodeComponent returns a component of a repository name for a text of letters, digits, _ and -, such as the namespace
// of a module. A text that is a valid component stays as it is. Every other text is written in lower case with - for each
// _, followed by a dot and a hexadecimal mask: bit i is set if character i was a capital letter or _. For example, Azure
// becomes azure.1. The result differs for each text, and [DecodeComponent] reverses it. Texts for which there is no such
// component are returned unchanged.
func EncodeComponent(s string) string {
	if namePart.MatchString(s) || len(s) > maxEncoded {
		return s
	}
	var mask uint64
	plain := []byte(s)
	for i, c := range plain {
		switch {
		case c >= 'A' && c <= 'Z':
			plain[i] = c - 'A' + 'a'
		case c == '_':
			plain[i] = '-'
		default:
			continue
		}
		mask |= 1 << i
	}
	encoded := string(plain) + "." + strconv.FormatUint(mask, 16)
	if mask == 0 || strings.Contains(s, ".") || !namePart.MatchString(encoded) {
		return s
	}
	return encoded
}

// DecodeComponent returns the text for which [EncodeComponent] returns s. It returns false if s is not the encoded form
// of any text.
func DecodeComponent(s string) (string, bool) {
	plain, hex, ok := strings.Cut(s, ".")
	mask, err := strconv.ParseUint(hex, 16, 64)
	if !ok || err != nil || len(plain) > maxEncoded {
		return "", false
	}
	text := []byte(plain)
	for i, c := range text {
		switch {
		case mask&(1<<i) == 0:
		case c == '-':
			text[i] = '_'
		case c >= 'a' && c <= 'z':
			text[i] = c - 'a' + 'A'
		}
	}
	// Encoding again refuses every other form: a mask with leading zeros, or with a bit for a digit or beyond the text,
	// and texts that are valid components themselves.
	return string(text), EncodeComponent(string(text)) == s
}
