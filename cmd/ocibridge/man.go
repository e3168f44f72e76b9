package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// newManCommand returns the command that writes the manual pages. It is hidden, because only those who install ocibridge
// need it: the pages have the same texts as --help. Cobra's package doc is not used, because it reads these texts as
// Markdown: it joins the lines of our lists, and HOST/*/* loses its stars.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages of all commands",
		Long:   "man writes the manual pages of all commands into FOLDER, such as ~/.local/share/man/man1.",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(hint.New("no folder for the pages, or more than one", "name one, such as ~/.local/share/man/man1"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := writeManPages(cmd.Root(), args[0]); err != nil {
				return hint.Wrap(fmt.Errorf("manual pages: %w", files.Cause(err)), "name a folder that you may write to")
			}
			return nil
		},
	}
}

// writeManPages writes the pages of cmd and of its subcommands into a folder, and creates the folder.
func writeManPages(cmd *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := writeManPages(c, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of a command in the language man.
func manPage(cmd *cobra.Command) string {
	var out strings.Builder
	fmt.Fprintf(&out, ".TH %q 1 \"\" %q\n", strings.ToUpper(manName(cmd)), "ocibridge "+version)
	fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n", manText(manName(cmd)), manText(cmd.Short))
	fmt.Fprintf(&out, ".SH SYNOPSIS\n%s\n", manText(cmd.UseLine()))
	fmt.Fprintf(&out, ".SH DESCRIPTION\n%s", manParagraphs(cmd.Long))
	const width = 72 // man indents text by 7 of 80 columns
	for _, section := range []struct{ title, text string }{
		{"EXAMPLES", cmd.Example},
		{"OPTIONS", cmd.NonInheritedFlags().FlagUsagesWrapped(width)},
		{"GLOBAL OPTIONS", cmd.InheritedFlags().FlagUsagesWrapped(width)},
	} {
		if section.text != "" {
			fmt.Fprintf(&out, ".SH %s\n.nf\n%s\n.fi\n", section.title, manText(strings.TrimRight(section.text, "\n")))
		}
	}
	var related []string
	if cmd.HasParent() {
		related = append(related, manName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			related = append(related, manName(c))
		}
	}
	for i, name := range related {
		related[i] = `\fB` + manText(name) + `\fR(1)`
	}
	if len(related) > 0 {
		fmt.Fprintf(&out, ".SH SEE ALSO\n%s\n", strings.Join(related, ", "))
	}
	return out.String()
}

// manParagraphs formats a text as paragraphs, which man wraps. Indented lines stay as they are.
func manParagraphs(text string) string {
	var out strings.Builder
	isKept := false
	for line := range strings.SplitSeq(text, "\n") {
		switch keep := strings.HasPrefix(line, " "); {
		case line == "":
			out.WriteString(".sp\n")
			continue
		case keep && !isKept:
			out.WriteString(".nf\n")
			isKept = true
		case !keep && isKept:
			out.WriteString(".fi\n")
			isKept = false
		}
		out.WriteString(manText(line) + "\n")
	}
	if isKept {
		out.WriteString(".fi\n")
	}
	return out.String()
}

// manText escapes a text so that man reads no line as a request, and so that people can copy hyphens into a shell.
func manText(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
