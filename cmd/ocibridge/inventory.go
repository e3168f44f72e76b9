package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
)

// readerFlags are the flags of commands that read stored versions.
type readerFlags struct {
	commonFlags
	from string
}

func (f *readerFlags) register(cmd *cobra.Command) {
	f.reads = true
	f.commonFlags.register(cmd, "number of versions to read at once")
	f.registerFrom(cmd)
	cmd.ValidArgsFunction = f.complete
}

func (f *readerFlags) registerFrom(cmd *cobra.Command) {
	cmd.Flags().Var(&givenText{text: &f.from, help: "for the registry that is configured, leave out --from and unset OCIBRIDGE_FROM"}, "from", "`bundle` to read instead of the registry: oci-archive:FILE or oci:DIR")
	cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]cobra.Completion{"oci-archive:", "oci:"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// inventory opens the bundle that --from names, or else the registry. The caller must call
// the function that it returns.
func (f *readerFlags) inventory(ctx context.Context, s settings, queries []query.Query, stderr io.Writer) (*inventory.Inventory, func() error, error) {
	if f.from == "" {
		back, err := f.open(s, query.Addresses(queries), f.log.open(stderr))
		if err != nil {
			return nil, nil, err
		}
		return &inventory.Inventory{Registry: inventory.Remote{Repositories: back}, Configured: s.configured(), Jobs: int(f.jobs)}, back.Close, nil
	}
	b, err := f.bundle(ctx, stderr)
	if err != nil {
		return nil, nil, err
	}
	return &inventory.Inventory{Registry: b, Jobs: int(f.jobs)}, b.Close, nil
}

// bundle opens the bundle that --from names.
func (f *readerFlags) bundle(ctx context.Context, stderr io.Writer) (b transfer.Bundle, err error) {
	at, err := transfer.ParseLocation("--from", f.from)
	if err == nil && !at.IsBundle() {
		err = hint.New("--from "+f.from+" is no bundle", "--from is oci-archive:FILE or oci:DIR; name a registry by --template")
	}
	if err != nil {
		return b, usage(err)
	}
	if b, err = at.OpenBundle(ctx); err != nil {
		return b, err
	}
	if n, bytes := b.Omitted(); n > 0 {
		note(stderr, "%s leaves out %s, %s, that its destination has", f.from, count(n, "package"), size(bytes))
	}
	return b, nil
}

// report is the result of a command that reads the registry. The command prints the report as
// text or as JSON.
type report interface {
	// Failed returns an error if the report contains an error.
	Failed() error
}

// show finds the providers that the queries select, and prints the report that the function
// read returns about them. It fails if the report contains an error. The function text formats
// the report for people. The parameter w is the writer that show prints the text to.
func show[R report](f *readerFlags, cmd *cobra.Command, queries []query.Query, read func(context.Context, *inventory.Selection, settings) (R, error), text func(r R, w io.Writer) string) error {
	stderr := cmd.ErrOrStderr()
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	stored, end, err := f.inventory(cmd.Context(), s, queries, stderr)
	if err != nil {
		return err
	}
	defer end()
	found, err := stored.Find(cmd.Context(), queries)
	if err != nil {
		return err
	}
	for _, u := range found.Unlisted {
		warnAll(stderr, []string{u.Warning()})
	}
	r, err := read(cmd.Context(), found, s)
	if err != nil {
		return err
	}
	return printReport(&f.commonFlags, cmd, r, text)
}

// showVersions is like show, for a report about versions. If no version is stored, it then
// prints how to store one.
func showVersions(f *readerFlags, cmd *cobra.Command, queries []query.Query, read func(context.Context, *inventory.Selection, settings) (*inventory.Report, error), text func(*inventory.Report, io.Writer) string) error {
	next := ""
	err := show(f, cmd, queries, func(ctx context.Context, found *inventory.Selection, s settings) (*inventory.Report, error) {
		r, err := read(ctx, found, s)
		if err == nil {
			for _, p := range r.Providers {
				for _, v := range p.Versions {
					v.Denied = denial(s.file.Gateway.Denies(p.Provider, v.Version))
				}
			}
		}
		if err == nil && f.from == "" && !slices.ContainsFunc(r.Providers, func(p *inventory.ProviderReport) bool { return len(p.Versions) > 0 }) {
			next = nextStep(queries, s) + withSameFlags(cmd)
		}
		return r, err
	}, text)
	if err == nil && next != "" && !f.quiet && !f.output.json() {
		message(cmd.ErrOrStderr(), "hint", "%s", next)
	}
	return err
}

// nextStep returns the hint for queries that select no stored version.
func nextStep(queries []query.Query, s settings) string {
	switch {
	case len(queries) == 0 && len(s.configured()) > 0:
		return "to add the versions that the provider blocks select: ocibridge sync"
	case len(queries) == 0:
		return "to add the newest version of a provider: ocibridge push 'registry.opentofu.org/hashicorp/random@>= 0'; for modules, see ocibridge module list"
	case queries[0].Pattern != nil:
		return "ocibridge list without a pattern shows every stored provider, and ocibridge push adds one"
	}
	return fmt.Sprintf("to add the newest version: ocibridge push '%s@>= 0'", queries[0].Provider)
}

// printReport prints a report, and returns its error.
func printReport[R report](f *commonFlags, cmd *cobra.Command, r R, text func(r R, w io.Writer) string) error {
	if f.output.json() {
		return f.output.print(cmd, r, r.Failed())
	}
	stdout := cmd.OutOrStdout()
	if _, err := io.WriteString(stdout, linesText(terminalWidth(stdout), text(r, stdout))); err != nil {
		return err
	}
	return r.Failed()
}

// parseQueries parses the arguments of a command as queries. If versions is false, a query
// must not contain a version.
func parseQueries(args []string, versions bool) ([]query.Query, error) {
	var out []query.Query
	for _, s := range args {
		q, err := query.Parse(s, versions)
		if err != nil {
			return nil, usage(err)
		}
		out = append(out, q)
	}
	return out, nil
}
