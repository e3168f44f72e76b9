package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ocibridge/ocibridge/docs"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const helpExamples = `  # the flags of a command
  ocibridge help push

  # a page of the documentation
  ocibridge help trust`

// addHelp adds a help command to root. The command prints the help of commands, and the pages of the documentation.
// addHelp also adds a list of these pages to the root command's help.
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

// described matches the first column of a line with two columns, such as a flag and its description, with the spaces
// after it.
var described = regexp.MustCompile(`^ +\S+(?: \S+)*  +`)

// helpText wraps a command's help at the width of the terminal, except for the examples and for paragraphs whose lines
// fit. If width is 0, it returns the text unchanged.
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

// describedLine wraps a line with two columns. Further lines of the second column begin below its first line.
func describedLine(line string, width int) string {
	before := len(described.FindString(line))
	if len(line) <= width || before == 0 || before > width/2 {
		return linesText(width, line)
	}
	return line[:before] + besideText(width, before, line[before:])
}

// paragraph wraps a paragraph again if one of its lines is too long.
func paragraph(lines []string, width int) []string {
	if !slices.ContainsFunc(lines, func(line string) bool { return len(line) > width }) {
		return lines
	}
	return []string{hint.Wrapped(strings.Join(lines, " "), width, 0)}
}

func subcommand(root *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(root.Commands(), func(cmd *cobra.Command) bool { return cmd.Name() == name })
	return root.Commands()[i]
}

// listTopics prints the names and titles of the documentation's pages, shelf by shelf, at the end of the root command's help.
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

// likelyTopic returns the topic that the user probably means: its name begins with the text, or the text is a likely
// misspelling of its name. It returns "" if there is none.
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

// synonyms maps the names of flags in other tools to ocibridge's flags for the same purpose. A command suggests the first
// of these flags that it has.
var synonyms = map[string][]string{
	"addr": {"listen"}, "address": {"listen"}, "bind": {"listen"}, "port": {"listen"}, "p": {"listen"},
	"dest": {"to", "template"}, "destination": {"to", "template"}, "registry": {"to", "template"}, "repo": {"to", "template"},
	"repository": {"to", "template"}, "source": {"from", "release-dir"}, "src": {"from", "release-dir"},
	"folder": {"release-dir", "data"}, "storage": {"data"}, "root": {"data"}, "data-dir": {"data"},
	"config-file": {"config"}, "file": {"config"}, "f": {"config"},
	"ca": {"ca-file"}, "ca-cert": {"ca-file"}, "cacert": {"ca-file"}, "certificate-authority": {"ca-file"},
	"insecure": {"ca-file"}, "insecure-skip-tls-verify": {"ca-file"}, "k": {"ca-file"}, "skip-tls-verify": {"ca-file"}, "tls-verify": {"ca-file"},
	"cert": {"tls-cert"}, "cert-file": {"tls-cert"}, "tls-cert-file": {"tls-cert"}, "key-file": {"tls-key"}, "tls-key-file": {"tls-key"},
	"key": {"tls-key", "public-key"}, "gpg-key": {"public-key"}, "http": {"plain-http"}, "use-http": {"plain-http"},
	"concurrency": {"jobs"}, "j": {"jobs"}, "parallel": {"jobs"}, "parallelism": {"jobs"}, "threads": {"jobs"}, "workers": {"jobs"},
	"debug": {"log-level"}, "v": {"log-level"}, "verbose": {"log-level"}, "verbosity": {"log-level"}, "format": {"output"}, "json": {"output"},
	"check": {"dry-run"}, "n": {"dry-run"}, "plan": {"dry-run"}, "simulate": {"dry-run"}, "delete": {"prune"}, "remove": {"prune"},
	"user": {"username"}, "pass": {"password-stdin"}, "password": {"password-stdin"},
	"arch": {"platform"}, "os": {"platform"}, "target": {"platform"}, "all-platforms": {"all"},
}

// didYouMean returns a question that names the flag that the user probably meant, such as "did you mean --listen? ". It returns
// "" if err is not about an unknown flag, or if the command has no similar flag.
func didYouMean(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	// Terraform's flags begin with a single dash. pflag reads each letter after a single dash as a flag, so take the
	// letters together as the name.
	name, _, _ := strings.Cut(cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()), "=")
	name = strings.ToLower(name)
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, flag := range slices.Concat([]string{name}, synonyms[name], []string{hint.Nearest(name, names)}) {
		if slices.Contains(names, flag) {
			return fmt.Sprintf("did you mean --%s? ", flag)
		}
	}
	return ""
}

// withSameFlags returns the end of a hint that names another command, such as ", with the same --data". It names the
// flags on the command line of cmd that select the registry, or returns "" if there are none.
func withSameFlags(cmd *cobra.Command) string {
	return same(cmd, "config", "data", "template", "include", "exclude", "plain-http", "ca-file")
}

// withSameModuleFlags is like withSameFlags, for a hint that names a command about modules. It leaves out --template,
// --include and --exclude, which are for providers.
func withSameModuleFlags(cmd *cobra.Command) string {
	return same(cmd, "config", "data", "plain-http", "ca-file")
}

func same(cmd *cobra.Command, names ...string) string {
	var same []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			same = append(same, "--"+name)
		}
	}
	if len(same) == 0 {
		return ""
	}
	return ", with the same " + strings.Join(same, ", ")
}
