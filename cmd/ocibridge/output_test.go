package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// hidden are control characters and marks that change the direction of text.
const hidden = "\x00\a\r\x1b\x7f\u0080\u0085\u009b\u009f\u061c\u200e\u202a\u202e\u2066\u2069\u2028\U000e0001"

// TestPrinter shows that everything that commands print to standard output and standard error is without
// control characters. Lines and columns stay.
func TestPrinter(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\n  c\n":                     "a\tb\n  c\n",
		"a" + hidden + "b\n":              "a" + strings.Repeat(" ", len([]rune(hidden))) + "b\n",
		"\x1b[31mred\x1b[0m\x1b[2K\n":     " [31mred [0m [2K\n",
		"bücher.example\xff \u0085\xc2\n": "bücher.example\ufffd  \ufffd\n",
	} {
		var out bytes.Buffer
		if n, err := (printer{&out}).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: %q, want %q, %d, %v", text, out.String(), want, n, err)
		}
	}
	const red = "\x1b[31mFAILED\x1b[0m \x1b[1;4mon\x1b[0m"
	if got := string(printable([]byte(red+"\x1b[2K\x1b[8m\u009b31m"), true)); got != red+" [2K [8m 31m" {
		t.Errorf("on a terminal: %q", got)
	}
}

// hideTestVariables removes the variables that make sets for tests. The program would warn of them.
func hideTestVariables(t *testing.T) {
	t.Helper()
	for _, name := range []string{clients.ToolsVariable, clients.BuiltVariable, testkit.PartVariable} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
}

// TestCommandPanics shows that a command that fails because of a panic in another goroutine prints the stack.
func TestCommandPanics(t *testing.T) {
	hideTestVariables(t)
	root := newRootCommand()
	root.AddCommand(&cobra.Command{Use: "panic", RunE: func(cmd *cobra.Command, _ []string) error {
		return panics.Catch(cmd.Context(), nil, func() error { panic("a bug") })
	}})
	var stdout, stderr bytes.Buffer
	status := executeRoot(t.Context(), root, []string{"panic"}, &stdout, &stderr)
	if got := stderr.String(); status != exitFailed || !strings.Contains(got, "output_test.go") || !strings.Contains(got, "\nerror: a bug ended the operation: panic: a bug\nhint: please report it") {
		t.Errorf("status %d, %s", status, got)
	}
}

// TestCommandsArePrintable shows that a command prints to standard output and standard error through a printer.
func TestCommandsArePrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a\u0085\u202e.hcl")
	must(t, os.WriteFile(file, nil, 0o600))
	hideTestVariables(t)
	t.Setenv(variablePrefix+"\u0085\u202e", "x")
	var stdout, stderr bytes.Buffer
	if status := execute(t.Context(), []string{"config", "check", file}, &stdout, &stderr); status != 0 || !strings.HasSuffix(stdout.String(), "a  .hcl is valid\n") {
		t.Errorf("status %d, %q", status, stdout.String())
	}
	if got := stderr.String(); got != "warning: the variable OCIBRIDGE_ is none that ocibridge knows\n" {
		t.Errorf("%q", got)
	}
	root := newRootCommand()
	root.AddCommand(&cobra.Command{Use: "forge", Run: func(cmd *cobra.Command, _ []string) { cmd.PrintErr("\u0085forged\n") }})
	stderr.Reset()
	if status := executeRoot(t.Context(), root, []string{"forge"}, &stdout, &stderr); status != 0 || !strings.HasSuffix(stderr.String(), "\n forged\n") {
		t.Errorf("status %d, %q", status, stderr.String())
	}
}

// TestJSONIsPrintable shows that JSON has no control characters, and the same texts.
func TestJSONIsPrintable(t *testing.T) {
	var out bytes.Buffer
	if err := printJSON(&out, map[string]string{"<a" + hidden: hidden}); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["<a"+hidden] != hidden || strings.ContainsAny(out.String(), hidden) || !strings.Contains(out.String(), "{\n  \"<a") {
		t.Errorf("%q: %v", out.String(), err)
	}
}

// TestMembers shows that a document that is written member by member is the one that printJSON writes.
func TestMembers(t *testing.T) {
	type element struct {
		Name string   `json:"name"`
		All  []string `json:"all"`
	}
	all := []element{{"a<b>", []string{"x", "y"}}, {"\u202e", nil}}
	var want, got bytes.Buffer
	err := errors.Join(
		printJSON(&want, struct {
			Number int       `json:"number"`
			Object element   `json:"object"`
			Empty  []element `json:"empty"`
			All    []element `json:"all"`
		}{1, all[0], []element{}, all}),
		writeMembers(jsonWriter{&got}, []member{
			{name: "number", value: 1}, {name: "object", value: all[0]}, {name: "empty", list: elements([]element{})}, {name: "all", list: elements(all)},
		}))
	if err != nil || got.String() != want.String() {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got.String(), want.String())
	}
}
