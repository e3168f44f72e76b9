package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
)

const moduleListExamples = `  # all modules in the embedded registry, or in a registry with a catalog
  ocibridge module list

  # one module, and all of a namespace
  ocibridge module list registry.acme.example/platform/vpc/aws \
    'registry.acme.example/platform/*/*'`

func newModuleListCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "list [MODULE | PATTERN]...",
		Short: "List the modules in a registry",
		Long: `module list shows the stored versions of modules with their sizes, hashes and source
commits, as push recorded them. ocibridge module verify checks them.

MODULE is HOSTNAME/NAMESPACE/NAME/SYSTEM. A PATTERN is a MODULE whose last parts are *.
Without arguments, and for patterns, module list searches the registry's catalog. The
embedded registry, Harbor, distribution and some other registries have a catalog.

With --from, module list reads a bundle of ocibridge copy, and no registry.

It exits with 1 if a module or a version could not be read.`,
		Example: moduleListExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			queries, err := parseModuleQueries(args, false)
			if err != nil {
				return err
			}
			return showModuleVersions(f, cmd, queries, (*inventory.Modules).List, moduleListText)
		},
	}
	f.registerModules(cmd)
	return cmd
}

const moduleInspectExamples = `  ocibridge module inspect registry.acme.example/platform/vpc/aws@1.4.0

  # the newest that matches
  ocibridge module inspect 'registry.acme.example/platform/vpc/aws@~> 1.0'`

func newModuleInspectCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "inspect MODULE@VERSION",
		Short: "Show one stored version of a module in full",
		Long: `module inspect shows a stored version: its digests, and the hash and the source commit
as push recorded them. ocibridge module verify checks them.

VERSION is a version or a version constraint. module inspect shows the newest stored
version that matches.`,
		Example: moduleInspectExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(hint.New(fmt.Sprintf("%d arguments, not one MODULE@VERSION", len(args)), "name one version, such as registry.acme.example/platform/vpc/aws@1.4.0"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := query.ParseModuleRelease(args[0])
			if err != nil {
				return usage(err)
			}
			return showModules(f, cmd, []query.ModuleQuery{q}, func(ctx context.Context, m *inventory.Modules, s settings) (*inventory.ModuleInspection, error) {
				v, err := m.Inspect(ctx, q)
				if err != nil {
					return nil, err
				}
				v.Denied = denial(s.file.Gateway.Denies(v.Module, v.Version))
				return v, nil
			}, moduleInspectText)
		},
	}
	f.registerModules(cmd)
	return cmd
}

const moduleVerifyExamples = `  # all stored versions
  ocibridge module verify

  # the versions that match
  ocibridge module verify 'registry.acme.example/platform/vpc/aws@~> 1.0'`

func newModuleVerifyCommand() *cobra.Command {
	f := &readerFlags{}
	cmd := &cobra.Command{
		Use:   "verify [MODULE | MODULE@VERSION | PATTERN]...",
		Short: "Verify stored versions of modules",
		Long: `module verify downloads the zip of each version and compares it with the manifest: its
size, its digest, and the h1: hash of its files. It also lists everything that keeps
clients from installing a version, whichever tool pushed it, and says what to do about
it. Modules have no signature, so it cannot say who made a version.

Without arguments, it checks all versions that ocibridge module list shows. With --from,
it checks the versions in a bundle of ocibridge copy, and sends no requests.

It exits with 1 if there is an error. Warnings do not count.`,
		Example: moduleVerifyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			queries, err := parseModuleQueries(args, true)
			if err != nil {
				return err
			}
			return showModuleVersions(f, cmd, queries, (*inventory.Modules).Verify, moduleVerifyText)
		},
	}
	f.registerModules(cmd)
	return cmd
}

// registerModules adds the flags of a command that reads modules.
func (f *readerFlags) registerModules(cmd *cobra.Command) {
	f.registerModule(cmd)
	f.registerFrom(cmd)
	f.jobs.register(cmd, "number of versions to read at once")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

func parseModuleQueries(args []string, versions bool) ([]query.ModuleQuery, error) {
	var out []query.ModuleQuery
	for _, s := range args {
		q, err := query.ParseModule(s, versions)
		if err != nil {
			return nil, usage(err)
		}
		out = append(out, q)
	}
	return out, nil
}

// modules is like inventory, for modules.
func (f *readerFlags) modules(ctx context.Context, s settings, queries []query.ModuleQuery, stderr io.Writer) (*inventory.Modules, func() error, error) {
	if f.from == "" {
		repos, err := f.openForModules(s, query.Modules(queries), f.log.open(stderr))
		if err != nil {
			return nil, nil, err
		}
		return &inventory.Modules{Registry: inventory.Remote{Repositories: repos}, Jobs: int(f.jobs)}, repos.Close, nil
	}
	b, err := f.bundle(ctx, stderr)
	if err != nil {
		return nil, nil, err
	}
	return &inventory.Modules{Registry: b, Jobs: int(f.jobs)}, b.Close, nil
}

// showModules opens the repositories of modules, and prints the report that the function read
// returns about them. It fails if the report contains an error.
func showModules[R report](f *readerFlags, cmd *cobra.Command, queries []query.ModuleQuery, read func(context.Context, *inventory.Modules, settings) (R, error), text func(r R, w io.Writer) string) error {
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	stored, end, err := f.modules(cmd.Context(), s, queries, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer end()
	r, err := read(cmd.Context(), stored, s)
	if err != nil {
		return err
	}
	return printReport(&f.commonFlags, cmd, r, text)
}

// showModuleVersions is like showModules, for a report about versions. It prints a warning for each catalog that could
// not be listed. If no module is stored, it then prints how to store one.
func showModuleVersions(f *readerFlags, cmd *cobra.Command, queries []query.ModuleQuery, read func(*inventory.Modules, context.Context, []query.ModuleQuery) (*inventory.ModuleReport, error), text func(*inventory.ModuleReport, io.Writer) string) error {
	stderr, none := cmd.ErrOrStderr(), false
	err := showModules(f, cmd, queries, func(ctx context.Context, m *inventory.Modules, s settings) (*inventory.ModuleReport, error) {
		r, err := read(m, ctx, queries)
		if err != nil {
			return nil, err
		}
		for _, m := range r.Modules {
			for _, v := range m.Versions {
				v.Denied = denial(s.file.Gateway.Denies(m.Module, v.Version))
			}
		}
		for _, u := range r.Unlisted {
			warnAll(stderr, []string{fmt.Sprintf("%s cannot be listed, so its modules are missing here: %s", u.Where, u.Problem.Message)})
		}
		none = f.from == "" && len(r.Modules) == 0
		return r, nil
	}, text)
	if err == nil && none && !f.quiet && !f.output.json() {
		message(stderr, "hint", "to add a module: ocibridge module push FOLDER --as registry.acme.example/platform/vpc/aws@1.0.0%s", withSameFlags(cmd))
	}
	return err
}

// moduleListText formats a listing as one table for each module.
func moduleListText(l *inventory.ModuleReport, w io.Writer) string {
	var out strings.Builder
	for i, m := range l.Modules {
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s\n", m)
		if m.Problem != nil {
			fmt.Fprintf(&out, "  cannot be listed: %s\n", m.Problem)
			continue
		}
		rows, unreadable := [][]string{{"VERSION", "SIZE", "H1", "COMMIT"}}, ""
		var denials []*inventory.Denial
		for _, v := range m.Versions {
			if v.Problem != nil {
				unreadable += fmt.Sprintf("  %s  cannot be read: %s\n", v.Version, v.Problem.Message)
				continue
			}
			rows = append(rows, []string{v.Version.String(), size(v.Size), cmp.Or(v.H1.String(), "-"), cmp.Or(hint.OneLine(v.Revision), "-")})
			denials = append(denials, v.Denied)
		}
		switch {
		case len(rows) > 1:
			out.WriteString(tableText(markDenied(rows, denials), 2, terminalWidth(w)))
		case unreadable == "":
			out.WriteString("  no version\n")
		}
		out.WriteString(unreadable)
	}
	if len(l.Modules) == 0 {
		out.WriteString("no module\n")
	}
	return out.String()
}

// moduleInspectText formats the description of a version for people.
func moduleInspectText(v *inventory.ModuleInspection, _ io.Writer) string {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-11s %s\n", name, hint.OneLine(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&out, "%s %s\n", v.Module, v.Version)
	line("repository", "%s", v.Repository)
	line("tag", "%s", v.Tag)
	line("manifest", "%s", v.Digest)
	if !v.Declared {
		line("pushed by", "another tool: the manifest does not say what it is")
	}
	line("zip", "%s", v.Zip)
	line("size", "%s (%d bytes)", size(v.Size), v.Size)
	line("h1", "%s", cmp.Or(v.H1.String(), "not recorded"))
	line("commit", "%s", cmp.Or(v.Revision, "not recorded"))
	if v.Denied != nil {
		line("denied", "by the configuration of the gateway: %s", cmp.Or(v.Denied.Reason, "no reason is given"))
	}
	return out.String()
}

// moduleVerifyText formats a verification for people, with colours on a terminal.
func moduleVerifyText(r *inventory.ModuleReport, w io.Writer) string {
	var out strings.Builder
	for _, m := range r.Modules {
		if m.Problem != nil {
			fmt.Fprintf(&out, "%s\n", m)
			printFindings(&out, w, nil, m.Problem)
		}
		for _, v := range m.Versions {
			errs, warnings := inventory.Count(v.Findings)
			parts := []string{"ok"}
			if v.Problem != nil {
				parts[0] = "not checked"
			} else if errs > 0 {
				parts[0] = count(errs, "error")
			}
			if warnings > 0 {
				parts = append(parts, count(warnings, "warning"))
			}
			if v.Files > 0 {
				parts = append(parts, count(v.Files, "file"))
			}
			fmt.Fprintf(&out, "%s %s: %s\n", m.Module, v.Version, strings.Join(parts, ", "))
			printFindings(&out, w, v.Findings, v.Problem)
		}
	}
	if len(r.Modules) == 0 {
		out.WriteString("no module\n")
	}
	return out.String()
}
