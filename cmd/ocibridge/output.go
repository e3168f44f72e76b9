package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// output is the standard output of a command. It records whether the command has written anything. It also records the
// first write error, so that a command fails if its results are lost.
type output struct {
	io.Writer
	written bool
	err     error
}

func (o *output) Write(p []byte) (int, error) {
	o.written = true
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// printer is an [io.Writer] for everything that a command prints to standard output and standard error. It replaces control
// characters with spaces, because the texts and names of other parties can be anywhere in the output.
type printer struct{ io.Writer }

// Write implements [io.Writer]. The caller must not split a character between two calls.
func (w printer) Write(p []byte) (int, error) {
	if _, err := w.Writer.Write(printable(p, isTerminal(w))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// colour matches the codes with which commands colour words on a terminal.
var colour = regexp.MustCompile(`\x1b\[(0|1|1;4|2|31|32|33)m`)

// printable replaces the control characters in a text with spaces. If coloured is true, it keeps colours.
func printable(text []byte, coloured bool) []byte {
	var out []byte
	for coloured {
		at := colour.FindIndex(text)
		if at == nil {
			break
		}
		out = append(append(out, bytes.Map(hint.Printable, text[:at[0]])...), text[at[0]:at[1]]...)
		text = text[at[1]:]
	}
	return append(out, bytes.Map(hint.Printable, text)...)
}

// jsonWriter is an [io.Writer] for JSON. It escapes control characters that encoding/json does not escape, such as C1 and
// marks that change the direction of text. The decoded texts stay the same.
type jsonWriter struct{ io.Writer }

// Write implements [io.Writer]. The caller must not split a character between two calls.
func (w jsonWriter) Write(p []byte) (int, error) {
	if _, err := w.Writer.Write(escapeJSON(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escapeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, isHidden) {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		if !isHidden(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

func isHidden(r rune) bool { return hint.Printable(r) != r }

// terminal returns the terminal that w writes to, or nil if w does not write to a terminal.
func terminal(w io.Writer) *os.File {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	if p, ok := w.(printer); ok {
		w = p.Writer
	}
	if a, ok := w.(aboveBars); ok {
		return a.terminal
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

func isTerminal(w io.Writer) bool { return terminal(w) != nil }

// outputFlag is the value of --output.
type outputFlag struct{ formatFlag }

func (o *outputFlag) register(cmd *cobra.Command) {
	o.formatFlag.register(cmd, "output", "o", "output `format`: text or json")
}

// print prints v as the only JSON document of a command. v is encoded as a JSON object. If err is not nil, the command
// has failed, and the document contains err as the member "error". print returns err, or else its own error.
func (o *outputFlag) print(cmd *cobra.Command, v any, err error) error {
	err = explainInterrupt(cmd.Context(), err)
	document, werr := withError(v, err)
	if werr == nil {
		werr = printJSON(cmd.OutOrStdout(), document)
	}
	return cmp.Or(err, werr)
}

// member is a member of a JSON document.
type member struct {
	name  string
	value any
	// list yields the elements of the value, if it is an array. They are encoded one at a time, because encoding/json would
	// hold the text of all of them in memory, several times.
	list iter.Seq[any]
}

// elements returns the elements of a slice for [member].
func elements[T any](all []T) iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, e := range all {
			if !yield(e) {
				return
			}
		}
	}
}

// printMembers is like print for a document with long arrays.
func (o *outputFlag) printMembers(cmd *cobra.Command, members []member, err error) error {
	err = explainInterrupt(cmd.Context(), err)
	if message := errorDocument(err); message != nil {
		members = append(members, member{name: "error", value: message})
	}
	return cmp.Or(err, writeMembers(jsonWriter{cmd.OutOrStdout()}, members))
}

// writeMembers writes a JSON object, with the indentation of printJSON.
func writeMembers(w io.Writer, members []member) error {
	const indent = "  "
	before := "{\n"
	for _, m := range members {
		text := []byte(fmt.Sprintf("%s%s%q: ", before, indent, m.name))
		var err error
		if m.list == nil {
			if text, err = appendJSON(text, m.value, indent); err != nil {
				return err
			}
		} else {
			text = append(text, '[')
			end := "]"
			for e := range m.list {
				if end != "]" {
					text = append(text, ',')
				}
				end = "\n" + indent + "]"
				if text, err = appendJSON(append(text, "\n"+indent+indent...), e, indent+indent); err == nil {
					_, err = w.Write(text)
				}
				if err != nil {
					return err
				}
				text = text[:0]
			}
			text = append(text, end...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		before = ",\n"
	}
	_, err := io.WriteString(w, "\n}\n")
	return err
}

// appendJSON appends the JSON of v. Its lines after the first begin with prefix.
func appendJSON(to []byte, v any, prefix string) ([]byte, error) {
	out := bytes.NewBuffer(to)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent(prefix, "  ")
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// withError returns the JSON object v with the error as an additional member.
func withError(v any, err error) (any, error) {
	message := errorDocument(err)
	if message == nil {
		return v, nil
	}
	joined, err := document.Join(v, map[string]any{"error": message})
	return json.RawMessage(joined), err
}

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(jsonWriter{w})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// errorMember is the member "error" of a JSON document.
type errorMember struct {
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// errorDocument returns the message and the hint of err for JSON output, or nil if err has no message for users.
func errorDocument(err error) *errorMember {
	if err == nil || errors.As(err, new(exitStatus)) {
		return nil
	}
	return &errorMember{err.Error(), hint.Of(err)}
}

// asksForJSON reports whether the command line or the environment selects JSON output. It searches args for the flag,
// because an error may have ended the parsing before the flag.
func asksForJSON(cmd *cobra.Command, args []string) bool {
	flag := cmd.Flags().Lookup("output")
	if flag == nil && !cmd.HasSubCommands() {
		return false // the arguments of exec contain the flags of another command
	}
	format := os.Getenv(variablePrefix + "OUTPUT")
	for i, arg := range args {
		if arg == "--" {
			break
		}
		for _, name := range []string{"--output", "-o"} {
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				format = value
			} else if arg == name && i+1 < len(args) {
				format = args[i+1]
			}
		}
		if arg == "-ojson" {
			format = "json"
		}
	}
	return format == "json"
}
