package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/docs"
)

// TestTopicsAreNoCommands checks that no topic has the name of a command, because "ocibridge
// help NAME" would then be ambiguous.
func TestTopicsAreNoCommands(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		if _, ok := docs.Find(c.Name()); ok {
			t.Errorf("%s is a command and a topic", c.Name())
		}
	}
}

// TestExamplesNameOneOrigin shows that no example names Terraform's public registry: all examples are of OpenTofu's, because
// clients do not find a provider that was pushed under one of the two hosts under the other one.
func TestExamplesNameOneOrigin(t *testing.T) {
	examples := map[string]string{}
	var learn func(*cobra.Command)
	learn = func(c *cobra.Command) {
		examples["ocibridge help "+c.CommandPath()] = c.Example
		for _, sub := range c.Commands() {
			learn(sub)
		}
	}
	learn(newRootCommand())
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{"README.md": string(readme)}
	for _, topic := range docs.Topics() {
		pages[topic.Name] = topic.Text()
	}
	for name, text := range pages {
		isFenced := false
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				isFenced = !isFenced
			}
			if isFenced || strings.HasPrefix(line, "    ") {
				examples[name] += line
			}
		}
	}
	if len(examples) < 50 || !strings.Contains(examples["README.md"], "ocibridge push registry.opentofu.org/") {
		t.Errorf("%d pages and commands have examples, README.md:\n%s", len(examples), examples["README.md"])
	}
	for name, text := range examples {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "registry.terraform.io") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// TestHelpFits shows that the help of each command fits a terminal of 80 columns. Examples have no longer line. Another
// line can only be longer if a word or a command line is longer. Without a terminal, the help is as the command has it.
func TestHelpFits(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Error(err)
		}
		text := out.String()
		got := helpText(text, 80)
		if a, b := strings.Fields(text), strings.Fields(got); strings.Join(a, " ") != strings.Join(b, " ") {
			t.Errorf("%s: other words:\n%s", cmd.CommandPath(), got)
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if len(line) > 80 {
				t.Errorf("%s: %d characters: %s", cmd.CommandPath(), len(line), line)
			}
		}
		for line := range strings.SplitSeq(examples.ReplaceAllString(got, ""), "\n") {
			if len(line) > 80 && strings.Contains(strings.TrimSpace(line), "  ") {
				t.Errorf("%s: %d characters: %s", cmd.CommandPath(), len(line), line)
			}
		}
		if helpText(text, 0) != text {
			t.Errorf("%s: changed without a terminal", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRootCommand())
}

var examples = regexp.MustCompile(`(?s)\nExamples:\n.*?\n\n([A-Z])`)

// TestHelpText shows where lines of help end.
func TestHelpText(t *testing.T) {
	const text = "a paragraph whose first line\nis long\n\nfits\nwell\n\nExamples:\n  an example that is too long\n\nFlags:\n  --all   push every version that\n  --b   x\n"
	const want = "a paragraph whose first\nline is long\n\nfits\nwell\n\nExamples:\n  an example that is too long\n\nFlags:\n  --all   push every\n          version that\n  --b   x\n"
	if got := helpText(text, 26); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
