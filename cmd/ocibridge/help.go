package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/hint"
)

const helpExamples = `  # the flags of a command
  ocibridge help push

  # a page of the documentation
  ocibridge help trust`

// addHelp adds a help command that also prints the documentation, and lists the topics in the
// root command's help.
func addHelp(root *cobra.Command) {
	standard := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		standard(cmd, args)
		if cmd == root {
			listTopics(cmd.OutOrStdout())
		}
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Help about a command, or a page of the documentation",
		Long: `help prints the help of a command, or a page of the documentation for this
version as Markdown. Without an argument it lists the commands and the topics.`,
		Example:           helpExamples,
		RunE:              printHelp,
		ValidArgsFunction: completeHelp,
	})
}

// listTopics prints the topics, as the end of the root command's help.
func listTopics(w io.Writer) {
	fmt.Fprint(w, "\nTopics, printed by \"ocibridge help TOPIC\":\n")
	for _, t := range docs.Topics() {
		fmt.Fprintf(w, "  %-14s %s\n", t.Name, t.Title)
	}
}

func printHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if topic, ok := docs.Find(args[0]); ok {
			_, err := io.WriteString(cmd.OutOrStdout(), topic.Text())
			return err
		}
	}
	about, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) == 0 {
		about.InitDefaultHelpFlag()
		about.InitDefaultVersionFlag()
		return about.Help()
	}
	unknown := fmt.Errorf("unknown help topic %q", strings.Join(args, " "))
	if like := cmd.Root().SuggestionsFor(args[0]); len(like) > 0 && len(args) == 1 {
		return usage(hint.Wrap(unknown, "did you mean %s? ocibridge help lists the commands and topics", strings.Join(like, " or ")))
	}
	return usage(hint.Wrap(unknown, "ocibridge help lists the commands and topics"))
}

// completeHelp offers the subcommands of the given command, and the topics.
func completeHelp(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	above, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	add := func(name, title string) {
		if strings.HasPrefix(name, toComplete) {
			out = append(out, cobra.CompletionWithDesc(name, title))
		}
	}
	for _, c := range above.Commands() {
		if c.IsAvailableCommand() {
			add(c.Name(), c.Short)
		}
	}
	if len(args) == 0 {
		for _, t := range docs.Topics() {
			add(t.Name, t.Title)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
