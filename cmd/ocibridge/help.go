package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const helpExamples = `  # the flags of a command
  ocibridge help push

  # a page of the documentation
  ocibridge help trust`

// addHelp adds a help command to root. The command prints the help of commands and the pages
// of the documentation. addHelp also adds a list of these pages to the root command's help.
func addHelp(root *cobra.Command) {
	standard := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text strings.Builder
		cmd.SetOut(&text)
		standard(cmd, args)
		cmd.SetOut(out)
		if cmd == root {
			listTopics(&text)
		}
		fmt.Fprint(out, helpText(text.String(), terminalWidth(out)))
	})
	root.InitDefaultHelpCmd()
	help := subcommand(root, "help")
	help.Use, help.Short = "help [COMMAND | TOPIC]", "Help about a command, or a page of the documentation"
	help.Long = `help prints the help of a command, or a page of the documentation for this
version. Without an argument it lists the commands and the topics.

On a terminal, the program that PAGER names shows a page, or else less. Without a
terminal, a page is Markdown.`
	help.Example, help.Run, help.RunE = helpExamples, nil, printHelp
	commands := help.ValidArgsFunction
	help.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		out, directive := commands(cmd, args, toComplete)
		for _, t := range docs.Topics() {
			if len(args) == 0 && strings.HasPrefix(t.Name, toComplete) {
				out = append(out, cobra.CompletionWithDesc(t.Name, t.Title))
			}
		}
		return out, directive
	}
}

// described matches the beginning of a line up to its second column, such as the description of a flag.
var described = regexp.MustCompile(`^ +\S+(?: \S+)*  +`)

// helpText ends the lines of a command's help at the width of the terminal, except in the examples.
// It leaves a paragraph alone if its lines fit. If width is 0, it returns the text unchanged.
func helpText(text string, width int) string {
	if width == 0 {
		return text
	}
	var out []string
	lines := strings.Split(text, "\n")
	for len(lines) > 0 {
		n := 1
		if first := lines[0]; first == "Examples:" {
			n += blockLength(lines[1:], func(line string) bool { return line == "" || line[0] == ' ' })
			out = append(out, lines[:n]...)
		} else if first != "" && first[0] != ' ' {
			n += blockLength(lines[1:], func(line string) bool { return line != "" && line[0] != ' ' })
			out = append(out, paragraph(lines[:n], width)...)
		} else {
			out = append(out, describedLine(first, width))
		}
		lines = lines[n:]
	}
	return strings.Join(out, "\n")
}

// describedLine ends the lines of a description below its beginning.
func describedLine(line string, width int) string {
	before := len(described.FindString(line))
	if len(line) <= width || before == 0 || before > width/2 {
		return linesText(width, line)
	}
	return line[:before] + besideText(width, before, line[before:])
}

// paragraph fills the lines of a paragraph anew if one of them is too long.
func paragraph(lines []string, width int) []string {
	if !slices.ContainsFunc(lines, func(line string) bool { return len(line) > width }) {
		return lines
	}
	return []string{hint.Wrapped(strings.Join(lines, " "), width, 0)}
}

// subcommand returns the subcommand of the given name.
func subcommand(root *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(root.Commands(), func(cmd *cobra.Command) bool { return cmd.Name() == name })
	return root.Commands()[i]
}

// listTopics prints the names and titles of the documentation's pages, shelf by shelf. This
// list ends the root command's help.
func listTopics(w io.Writer) {
	fmt.Fprint(w, "\nTopics, printed by \"ocibridge help TOPIC\":\n")
	var shelf docs.Shelf
	longest := 0
	for _, t := range docs.Topics() {
		longest = max(longest, len(t.Name))
	}
	for _, t := range docs.Topics() {
		if t.Shelf != shelf {
			shelf = t.Shelf
			fmt.Fprintf(w, "\n%s:\n", shelf.Title)
		}
		fmt.Fprintf(w, "  %-*s  %s\n", longest, t.Name, t.Title)
	}
}

func printHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if topic, ok := docs.Find(args[0]); ok {
			return showTopic(cmd.OutOrStdout(), topic)
		}
	}
	about, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) == 0 {
		about.InitDefaultHelpFlag()
		about.InitDefaultVersionFlag()
		return about.Help()
	}
	help := "ocibridge help lists the commands and topics"
	if like := likelyTopic(strings.Join(args, " ")); like != "" {
		help = fmt.Sprintf("did you mean ocibridge help %s? %s", like, help)
	}
	return unknown(cmd.Root(), "help topic", strings.Join(args, " "), help)
}

// likelyTopic returns the topic whose name begins with a text, or of whose name the text is probably a misspelling. It
// returns "" if there is none.
func likelyTopic(text string) string {
	var names []string
	for _, t := range docs.Topics() {
		if len(text) > 2 && strings.HasPrefix(t.Name, text) {
			return t.Name
		}
		names = append(names, t.Name)
	}
	return hint.Nearest(text, names)
}
