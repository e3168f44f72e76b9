package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
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

// reads is what differs between the commands that read providers and those that read modules.
type reads[A inventory.Address] struct {
	query.Form[A]
	kind       inventory.Kind[A]
	configured func(settings) []A
	// next returns the hint if the report has no version, or "".
	next func(*inventory.Report[A], []query.Query[A], settings) string

	columns []string // the heads of the columns after the version
	row     func(*inventory.VersionReport) []string
	flexes  int // the column that can become narrower; 0 is the version
}

var (
	readsProviders = &reads[provider.Address]{
		query.Providers, inventory.Providers, settings.configured, nextProvider,
		[]string{"PLATFORMS", "SIZE", "SIGNATURE"}, func(v *inventory.VersionReport) []string {
			return []string{joined(v.Platforms, " "), size(v.Size), v.Signature.Text(true)}
		}, 1,
	}
	readsModules = &reads[module.Address]{
		query.Modules, inventory.Modules, settings.configuredModules, nextModule,
		[]string{"SIZE", "H1", "COMMIT"}, func(v *inventory.VersionReport) []string {
			return []string{size(v.Size), cmp.Or(v.H1.String(), "-"), cmp.Or(hint.OneLine(v.Revision), "-")}
		}, 2,
	}
)

// inventory opens the bundle that --from names, or else the registry. The caller must call
// the function that it returns.
func (k *reads[A]) inventory(ctx context.Context, f *readerFlags, s settings, queries []query.Query[A], stderr io.Writer) (*inventory.Inventory[A], func() error, error) {
	i := &inventory.Inventory[A]{Kind: k.kind, Jobs: int(f.jobs), Denies: s.file.Gateway.Denies, Deprecates: s.file.Gateway.Deprecates, Approvals: s.file.Approvals.For}
	if f.from != "" {
		b, err := f.bundle(ctx, stderr)
		if err != nil {
			return nil, nil, err
		}
		i.Registry = b
		return i, b.Close, nil
	}
	back, err := f.open(s, subject.List(query.Addresses(queries)), f.log.open(stderr))
	if err != nil {
		return nil, nil, err
	}
	i.Registry, i.Configured = inventory.Remote{Repositories: back}, k.configured(s)
	return i, back.Close, nil
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

// report is the result of a command that reads the registry.
type report interface {
	// Failed returns an error if the report contains an error.
	Failed() error
}

// show finds the versions that the queries select, calls the function read, and prints the report that read returns. The
// function text formats the report for w. show fails if the report contains an error.
func show[A inventory.Address, R report](f *readerFlags, cmd *cobra.Command, k *reads[A], queries []query.Query[A], read func(context.Context, *inventory.Selection[A], settings) (R, error), text func(r R, w io.Writer) string) error {
	stderr := cmd.ErrOrStderr()
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	stored, end, err := k.inventory(cmd.Context(), f, s, queries, stderr)
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
	if f.output.json() {
		return f.output.print(cmd, r, r.Failed())
	}
	stdout := cmd.OutOrStdout()
	if _, err := io.WriteString(stdout, linesText(terminalWidth(stdout), text(r, stdout))); err != nil {
		return err
	}
	return r.Failed()
}

// showVersions is like show, for a report about versions. If no version is stored, it also prints a hint that says how to
// store one.
func (k *reads[A]) showVersions(f *readerFlags, cmd *cobra.Command, queries []query.Query[A], read func(context.Context, *inventory.Selection[A], settings) (*inventory.Report[A], error), text func(*inventory.Report[A], io.Writer) string) error {
	next := ""
	err := show(f, cmd, k, queries, func(ctx context.Context, found *inventory.Selection[A], s settings) (*inventory.Report[A], error) {
		r, err := read(ctx, found, s)
		if err == nil && f.from == "" {
			next = k.next(r, queries, s)
		}
		return r, err
	}, text)
	if err == nil && next != "" && !f.quiet && !f.output.json() {
		message(cmd.ErrOrStderr(), "hint", "%s%s", next, withSameFlags(cmd))
	}
	return err
}

// list runs a command that lists versions.
func (k *reads[A]) list(f *readerFlags, cmd *cobra.Command, args []string) error {
	queries, err := parseQueries(k.Form, args, false)
	if err != nil {
		return err
	}
	return k.showVersions(f, cmd, queries, func(ctx context.Context, found *inventory.Selection[A], _ settings) (*inventory.Report[A], error) {
		return found.List(ctx)
	}, k.listText)
}

// verify runs "ocibridge verify" or "ocibridge module verify", with the given checks.
func (k *reads[A]) verify(f *readerFlags, cmd *cobra.Command, args []string, checks func(settings) inventory.Checks[A]) error {
	queries, err := parseQueries(k.Form, args, true)
	if err != nil {
		return err
	}
	return k.showVersions(f, cmd, queries, func(ctx context.Context, found *inventory.Selection[A], s settings) (*inventory.Report[A], error) {
		return found.Verify(ctx, checks(s))
	}, verifyText)
}

// waiting runs "ocibridge verify --waiting" or "ocibridge module verify --waiting".
func (k *reads[A]) waiting(f *readerFlags, cmd *cobra.Command, args []string) error {
	queries, err := parseQueries(k.Form, args, true)
	if err != nil {
		return err
	}
	n := 0
	err = show(f, cmd, k, queries, func(ctx context.Context, found *inventory.Selection[A], s settings) (*inventory.Report[A], error) {
		if s.file.Approvals == nil {
			return nil, hint.New("no version can wait for an approval: no trust block has a require block", "ocibridge help trust says how to require approvals")
		}
		r, err := found.Verify(ctx, inventory.Waiting[A]{})
		if err == nil {
			n = r.KeepWaiting()
		}
		return r, err
	}, waitingText)
	if err == nil && n > 0 {
		return exitStatus(exitPending)
	}
	return err
}

// waitingText formats the versions that wait for an approval.
func waitingText[A inventory.Address](r *inventory.Report[A], w io.Writer) string {
	var out strings.Builder
	for _, of := range r.Stored {
		if of.Problem != nil {
			fmt.Fprintf(&out, "%s\n", of)
			printFindings(&out, w, nil, of.Problem)
		}
		for _, v := range of.Versions {
			switch {
			case v.Problem != nil:
				fmt.Fprintf(&out, "%s %s: not checked\n", of.Address, v.Version)
				printFindings(&out, w, nil, v.Problem)
			case v.Approval.Problem != nil:
				fmt.Fprintf(&out, "%s %s: not checked\n", of.Address, v.Version)
				printFindings(&out, w, nil, v.Approval.Problem)
			default:
				fmt.Fprintf(&out, "%s %s: %s\n", of.Address, v.Version, v.Approval.Text())
				for _, m := range v.Approval.Missing {
					fmt.Fprintf(&out, "  %q: %s\n", m.Requirement, m.Reason)
				}
			}
		}
	}
	return out.String()
}

// inspect shows the report that the function read returns about the newest stored version that arg selects.
func inspect[A inventory.Address, R report](f *readerFlags, cmd *cobra.Command, k *reads[A], arg string, read func(context.Context, *inventory.Selection[A]) (R, error), text func(R, io.Writer) string) error {
	q, err := k.ParseRelease(arg)
	if err != nil {
		return usage(err)
	}
	return show(f, cmd, k, []query.Query[A]{q}, func(ctx context.Context, found *inventory.Selection[A], _ settings) (R, error) {
		return read(ctx, found)
	}, text)
}

// oneVersion returns a check of the arguments of a command: there must be exactly one. what names the form of the
// argument in the error, and example is one such argument.
func oneVersion(what, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(hint.New(fmt.Sprintf("%d arguments, not one %s", len(args), what), "name one version, such as %s", example))
		}
		return nil
	}
}

// nextProvider returns the hint for queries that select no stored version.
func nextProvider(r *inventory.Report[provider.Address], queries []query.Query[provider.Address], s settings) string {
	switch {
	case slices.ContainsFunc(r.Stored, func(p *inventory.StoredReport[provider.Address]) bool { return len(p.Versions) > 0 }):
		return ""
	case len(queries) == 0 && len(s.configured()) > 0:
		return "to add the versions that the provider blocks select: ocibridge sync"
	case len(queries) == 0:
		return "to add the newest version of a provider: ocibridge push 'registry.opentofu.org/hashicorp/random@>= 0'; for modules, see ocibridge module list"
	case queries[0].Pattern != nil:
		return "ocibridge list without a pattern shows every stored provider, and ocibridge push adds one"
	}
	return fmt.Sprintf("to add the newest version: ocibridge push '%s@>= 0'", queries[0].Address)
}

// nextModule is like nextProvider, for modules.
func nextModule(r *inventory.Report[module.Address], queries []query.Query[module.Address], s settings) string {
	switch {
	case slices.ContainsFunc(r.Stored, func(m *inventory.StoredReport[module.Address]) bool { return len(m.Versions) > 0 }):
		return ""
	case len(queries) == 0 && len(s.configuredModules()) > 0:
		return "to add the versions that the module blocks select: ocibridge sync"
	case len(r.Stored) > 0:
		return ""
	}
	return "to add a module: ocibridge module push FOLDER --as registry.acme.example/platform/vpc/aws@1.0.0"
}

// parseQueries parses the arguments of a command as queries. If versions is false, a query
// must not contain a version.
func parseQueries[A subject.Address](form query.Form[A], args []string, versions bool) ([]query.Query[A], error) {
	out, err := parseAll(func(s string) (query.Query[A], error) { return form.Parse(s, versions) }, args)
	return out, usage(err)
}
