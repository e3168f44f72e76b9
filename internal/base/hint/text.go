package hint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agext/levenshtein"
	"github.com/mitchellh/go-wordwrap"
)

// OneLine returns a message as one line that is safe to print. It replaces each run of spaces, line breaks and control
// characters with one space: a message can contain text from a server, and a terminal obeys control characters.
func OneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(Printable, s)), " ")
}

// Printable is a mapping for [strings.Map] or [bytes.Map] that makes a text of several lines safe to print. It replaces
// all characters that are not printable with spaces, except for line feeds and tabs: control characters (C0 and C1),
// marks that change the direction of text, and other invisible characters.
func Printable(r rune) rune {
	if r == '\n' || r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// Count returns a number with its noun, such as "1 version" and "2 versions".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Bytes formats a number of bytes for people, such as "1023 B", "12 KiB", "1.5 MiB" and "10 MiB".
func Bytes(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// Nearest returns the element of names that the user probably meant by the misspelt name: the element with the smallest
// edit distance. It returns "" if this distance is more than two, or more than half of the length of name.
func Nearest(name string, names []string) string {
	best, least := "", 3
	if len(name) > maxName {
		return ""
	}
	for _, n := range names {
		if d := levenshtein.Distance(name, n, nil); d < least && 2*d <= len(name) {
			best, least = n, d
		}
	}
	return best
}

// maxName is the maximum length in bytes of a name for which Nearest searches.
const maxName = 64

// minWrapped is the minimum width of wrapped lines. Narrower terminals break the lines themselves.
const minWrapped = 16

// Wrapped returns a text whose lines have at most width characters. Each line after a line break that Wrapped adds
// begins with indent spaces. A word, a command line and a flag with its value stay in one line, so that people can copy
// them; a line can be longer for that reason alone. If width is 0, Wrapped returns the text unchanged.
func Wrapped(text string, width, indent int) string {
	if width == 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) > width {
			line = wordwrap.WrapString(joined(line), uint(max(minWrapped, width-indent)))
			lines[i] = strings.ReplaceAll(strings.ReplaceAll(line, "\n", "\n"+strings.Repeat(" ", indent)), noBreak, " ")
		}
	}
	return strings.Join(lines, "\n")
}

// noBreak is the space at which package wordwrap does not end a line.
const noBreak = "\u00a0"

// joined replaces the spaces in command lines, between a flag and its value, and around equals signs with noBreak.
func joined(text string) string {
	words := strings.Split(text, " ")
	var out strings.Builder
	var command []string // the words of the command line so far
	for i, word := range words {
		switch {
		case i == 0:
		case word == "=", words[i-1] == "=", continues(command, word):
			out.WriteString(noBreak)
		default:
			out.WriteByte(' ')
			command = nil
		}
		out.WriteString(word)
		switch {
		case command != nil, isProgram(word), strings.HasPrefix(word, "--"):
			command = append(command, word)
		}
	}
	return out.String()
}

// programs are the programs whose command lines occur in messages. groups are their commands that have subcommands.
var (
	programs = []string{"chmod", "gpg", "ocibridge", "openssl", "terraform", "tofu"}
	groups   = []string{"config", "help", "module", "providers"}
)

// isProgram reports whether a word begins a command line. The word can follow a quotation mark.
func isProgram(word string) bool { return slices.Contains(programs, strings.TrimLeft(word, "\"'(`")) }

// continues reports whether a word belongs to the command line or the flag that precedes it.
func continues(command []string, word string) bool {
	if len(command) == 0 {
		return false
	}
	last := command[len(command)-1]
	switch {
	case ended.MatchString(last):
		return false
	case isProgram(last) && !strings.HasPrefix(word, "("), len(command) == 2 && isProgram(command[0]) && slices.Contains(groups, last):
		return true
	}
	return last == "--" || last == "--output" || argument.MatchString(word)
}

var (
	// ended matches a word with which a command line ends.
	ended = regexp.MustCompile(`[,;:!?)]$|[^.]\.$`)
	// argument matches an argument: a flag, a placeholder such as FILE, a number, or a word with characters that do not
	// occur in the words of a sentence.
	argument = regexp.MustCompile(`^[-<>$'"\d]|^\.+$|[/@=_]|:\w|^[A-Z][A-Z0-9]+[.,;:!?)]*$`)
)
