package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

const copyExamples = `  # all providers of provider blocks, or without such blocks all, into one file
  ocibridge copy --to oci-archive:providers.tar

  # from that file into the registry behind the air gap, by its template
  ocibridge copy --from oci-archive:providers.tar \
    --to 'harbor.internal/tf/${hostname}/${namespace}/${type}'

  # later, only what the earlier file lacks
  ocibridge copy --since oci-archive:providers.tar --to oci-archive:update.tar

  # what that would send
  ocibridge copy --dry-run --since oci-archive:providers.tar \
    --to oci-archive:update.tar

  # one version, two platforms, from one registry to another
  ocibridge copy registry.opentofu.org/hashicorp/null@3.2.4 \
    --from 'ghcr.io/acme/providers/${hostname}/${namespace}/${type}' \
    --to 'harbor.internal/tf/${hostname}/${namespace}/${type}' \
    --platform linux_amd64 --platform darwin_arm64

  # all versions of a module, into a bundle
  ocibridge copy registry.acme.example/platform/vpc/aws \
    --to oci-archive:modules.tar

  # a folder for filesystem_mirror, or for a plain web server
  ocibridge copy registry.opentofu.org/hashicorp/null --to mirror:/srv/providers`

type copyFlags struct {
	commonFlags
	dryRunFlags
	from, to      string
	since         string
	platforms     []string
	all           bool
	allowUnsigned bool
	noReferrers   bool
}

func newCopyCommand() *cobra.Command {
	f := &copyFlags{}
	cmd := &cobra.Command{
		Use:   "copy [PROVIDER[@VERSION] | MODULE[@VERSION]]... --from PLACE --to PLACE",
		Short: "Copy stored providers and modules to another registry, a bundle or a mirror folder",
		Long: `copy reads stored versions, verifies them by the evidence that is stored with them,
and stores them and their evidence at another place. It does not send packages again
that this place has. A PLACE is one of

  REGISTRY/...      a repository template, such as ghcr.io/acme/${namespace}/${type}
  embedded          the embedded registry, in the folder that --data names
  oci:DIR           a bundle: an OCI image layout with all versions, in a folder
  oci-archive:FILE  a bundle in one tar file
  mirror:DIR        a folder as "tofu providers mirror" writes it (with --to only, and
                    for providers only)

A template is for providers. If it has ${name} or ${system}, or if only modules are
named, it is for modules.

Without --from or without --to, copy uses the configured registry.

Manifests keep their digests. copy also copies the artifacts that are attached to
them, such as signatures and SBOMs, as referrers or by cosign's tags. Nobody verifies
attached artifacts.

PROVIDER is HOSTNAME/NAMESPACE/TYPE, and MODULE is HOSTNAME/NAMESPACE/NAME/SYSTEM, for
all of their versions. VERSION is a version or a version constraint. copy takes the newest version that matches the constraint, or
every one with --all. Without arguments it copies everything in a bundle. From a
registry it then copies the providers that have a provider block in ocibridge.hcl, or
without such blocks the providers in the registry's catalog: ocibridge list shows them.
It also copies the modules in the catalog, which ocibridge module list shows.

If a version is incomplete or its evidence does not verify, copy goes on with the others,
and exits with 1 at the end.

Modules have no evidence. copy compares their sizes and digests, and stores their
manifests byte for byte.

--since makes a small bundle for a destination that has an earlier one. It leaves out the
packages of the earlier bundle, or of the versions in a listing that the destination's
"ocibridge list --output json" wrote. If the destination lacks such a package after all,
copying the bundle there fails. --since leaves out no modules.

With --dry-run, copy prints which packages it would send, and how many bytes. It writes
nothing, and does not count artifacts that are attached to versions.

A bundle lists its content. copy refuses an incomplete bundle before it copies
anything. It adds versions to a folder that already holds a bundle.`,
		Example: copyExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return perform(&f.commonFlags, cmd, func(s settings) (*transfer.Copy, error) {
				return f.plan(args, s.file.Trust)
			}, func(ctx context.Context, s settings, c *transfer.Copy) (transfer.Copied, error) {
				return f.copy(ctx, s, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}, f.document)
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return f.completeKinds(cmd, subject.Kinds...)
		},
	}
	f.commonFlags.register(cmd, "number of packages to transfer at once, of all versions together")
	flags := cmd.Flags()
	flags.Var(&givenText{text: &f.from, help: "for the registry that is configured, leave out --from and unset OCIBRIDGE_FROM"}, "from", "`place` to copy from (default: the registry that is configured)")
	flags.Var(&givenText{text: &f.to, help: "for the registry that is configured, leave out --to and unset OCIBRIDGE_TO"}, "to", "`place` to copy to (default: the registry that is configured)")
	flags.Var(&givenText{text: &f.since, help: "for a full bundle, leave out --since and unset OCIBRIDGE_SINCE"}, "since", "earlier `bundle`, or list:FILE with the output of \"list --output json\": leave out the packages that it has")
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to copy, such as linux_amd64 (repeatable; default: all)")
	flags.BoolVar(&f.all, "all", false, "copy every version that matches a constraint, not only the newest")
	flags.BoolVar(&f.allowUnsigned, "allow-unsigned", false, "accept unsigned packages by their checksum")
	f.dryRunFlags.register(cmd, "print what would be sent, in packages and bytes, and write nothing")
	flags.BoolVar(&f.noReferrers, "without-referrers", false, "omit the artifacts that are attached to versions, such as signatures and SBOMs")
	for _, name := range []string{"from", "to"} {
		cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions([]cobra.Completion{"oci:", "oci-archive:", "mirror:", "embedded"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	}
	cmd.RegisterFlagCompletionFunc("since", cobra.FixedCompletions([]cobra.Completion{"oci-archive:", "oci:", "list:"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	completePlatforms(cmd)
	return cmd
}

// plan parses and checks the command line.
func (f *copyFlags) plan(args []string, rules trust.Rules) (*transfer.Copy, error) {
	c := &transfer.Copy{All: f.all, DryRun: f.dryRun, Push: pusher.Options{Policy: policyBy(rules, f.allowUnsigned), Jobs: int(f.jobs), WithoutReferrers: f.noReferrers}}
	var err error
	if c.From, err = transfer.ParseLocation("--from", f.from); err != nil {
		return nil, err
	}
	if c.To, err = transfer.ParseLocation("--to", f.to); err != nil {
		return nil, err
	}
	if c.Since, err = transfer.ParseSince(f.since); err != nil {
		return nil, err
	}
	switch {
	case f.from == "" && f.to == "":
		return nil, hint.New("neither --from nor --to is given", "give --to, such as --to oci-archive:providers.tar, or --from; ocibridge copy --help shows more")
	case c.From == c.To:
		return nil, hint.New("--from and --to name the same place", "leave one of them out for the registry that is configured")
	case c.From.Kind == transfer.Mirror:
		return nil, hint.New("--from "+f.from+": a mirror folder has no evidence to copy", "ocibridge push --mirror-dir %s stores what is in it", c.From.Name)
	case f.since != "" && !c.To.IsBundle():
		return nil, hint.New("--since goes with --to oci-archive:FILE or --to oci:DIR", "a copy to a registry sends only what that registry lacks, without --since")
	case f.since != "" && c.Since == c.To:
		return nil, hint.New("--since and --to name the same place", "--since names an earlier bundle, and --to a new one")
	}
	constraints := false
	for _, s := range args {
		q, err := query.ParseEither(s)
		if err != nil {
			return nil, err
		}
		if c.To.Kind == transfer.Mirror && !subject.TraitsOf(q.Address).Origins {
			many := subject.TraitsOf(q.Address).Plural
			return nil, hint.New(fmt.Sprintf("%s cannot go to --to %s: a mirror folder has no %s", q.Address, c.To, many), "copy %s to a registry or a bundle", many)
		}
		c.Queries = append(c.Queries, q)
		constraints = constraints || !q.Versions.IsZero()
	}
	if f.all && !constraints {
		return nil, hint.New("--all goes with PROVIDER@CONSTRAINT or MODULE@CONSTRAINT", "without a constraint, every version is copied anyway")
	}
	if c.Platforms, err = parseAll(provider.ParsePlatform, f.platforms); err != nil {
		return nil, err
	}
	return c, f.dryRunFlags.check()
}

func (f *copyFlags) copy(ctx context.Context, s settings, c *transfer.Copy, stdout, stderr io.Writer) (transfer.Copied, error) {
	var err error
	if c.Push, err = s.approving(ctx, c.Push, stderr); err != nil {
		return transfer.Copied{}, err
	}
	progress := f.progress(stdout, stderr)
	progress.onlyChanges = true
	defer progress.Close()
	c.Progress, c.Configured = progress, transfer.AllBlocks(s.file).Addresses()
	c.Open = func(at transfer.Location, of []subject.Address) (*registry.Repositories, error) {
		if kind := templates.KindOf(at.Name); len(c.Queries) == 0 && at.Kind == transfer.Template && !kind.Traits().Mirrors {
			of = subject.ByKind(of, func(a subject.Address) subject.Address { return a })[kind]
		}
		return f.openAt(s, at, of, f.log.open(stderr))
	}
	if f.dryRun {
		c.Progress = planned{progress}
	}
	results, err := c.Run(ctx)
	switch {
	case errors.Is(err, transfer.ErrSameRepository), errors.Is(err, transfer.ErrNoPlace):
		err = usage(err)
	case len(results.Failures) > 0:
		if len(results.Results) > 0 && !f.dryRun {
			progress.copied(results)
		}
		progress.failures(results.Failures)
		switch {
		case err == nil:
			err = failed(results.Failures)
		case len(results.Failures) == 1: // progress.failures does not print a single failure, and err is a different error
			progress.Warn(results.Failures[0].Err.Error())
		}
	case err == nil && f.dryRun:
		progress.copyPlan(results)
		err = f.pending(slices.ContainsFunc(results.Results, func(r *pusher.Result) bool { return r.Status != pusher.Unchanged }))
	case err == nil:
		progress.copied(results)
	}
	return results, err
}

// document returns the JSON output of copy.
func (f *copyFlags) document(copied transfer.Copied) any {
	by := subject.ByKind(copied.Results, func(r *pusher.Result) subject.Address { return r.Subject })
	out := document.Object{struct {
		DryRun bool `json:"dry_run,omitempty"`
	}{f.dryRun}}
	for _, kind := range subject.Kinds {
		out = append(out, map[string][]*pusher.Result{kind.Traits().Copied: orEmpty(by[kind])})
	}
	return append(out, struct {
		// Failures are the versions that could not be copied. The other versions were copied.
		Failures []failure `json:"failures,omitempty"`
	}{failureDocuments(copied.Failures)})
}

// planned shows a dry run. It shows only the warnings of a result, because
// [progress.copyPlan] shows all results at the end.
type planned struct{ *progress }

// Done implements [transfer.Progress].
func (p planned) Done(r *pusher.Result) { p.warnOf(r) }

// openAt opens the registry at a location. It uses the configured templates only if the
// location is the configured registry.
func (f *copyFlags) openAt(s settings, at transfer.Location, of []subject.Address, log *slog.Logger) (*registry.Repositories, error) {
	flags := f.registryFlags
	flags.ignoresVariables = at.Kind == transfer.Template || at.Kind == transfer.Embedded
	switch at.Kind {
	case transfer.Template:
		flags.template, flags.include, flags.exclude = at.Name, nil, nil
	case transfer.Embedded:
		flags.template, flags.include, flags.exclude = "", nil, nil
		s = settings{file: &config.Config{}, cli: &cliconfig.Config{}}
	}
	return flags.openFor(s, of, log)
}

// packageCount is a number of packages, and their total size in bytes.
type packageCount struct {
	n     int
	bytes int64
}

func (c *packageCount) add(p pusher.PackageResult) {
	c.n++
	c.bytes += p.Size
}

// text returns the number and the size with a note, or "" if there are no packages.
func (c *packageCount) text(note string) string {
	if c.n == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s (%s)", count(c.n, "package"), note, size(c.bytes))
}

// copyPlan prints a line for each version of a dry run, and the totals.
func (p *progress) copyPlan(copied transfer.Copied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	signs := map[pusher.Status]string{pusher.Pushed: "+", pusher.Unchanged: "="}
	versions := map[string]int{}
	var sent, omitted packageCount
	var last subject.Address
	for _, r := range copied.Results {
		if r.Subject != last {
			p.result("%s to %s", r.Subject, r.Repository)
			last = r.Subject
		}
		sign := cmp.Or(signs[r.Status], "~")
		versions[sign]++
		var mine, left packageCount
		for _, pkg := range r.Packages {
			switch {
			case pkg.Sent:
				mine.add(pkg)
				sent.add(pkg)
			case pkg.Omitted:
				left.add(pkg)
				omitted.add(pkg)
			}
		}
		p.result("  %s %s  %s", sign, r.Version, cmp.Or(listed(mine.text("to send"), left.text("left out")), "no package to send"))
	}
	var parts []string
	for _, s := range []struct{ sign, what string }{{"+", "to copy"}, {"~", "to complete"}, {"=", "in place"}} {
		if n := versions[s.sign]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", count(n, "version"), s.what))
		}
	}
	p.summary("Plan: %s", listed(append(parts, sent.text("to send"), omitted.text("left out"))...))
}

// copied prints the line that sums up a complete copy.
func (p *progress) copied(results transfer.Copied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by := map[string]int{}
	for _, r := range results.Results {
		by[string(r.Status)]++
	}
	p.summary("Copy: %s", totals(by))
}

// listed joins the non-empty texts with commas.
func listed(texts ...string) string {
	var out []string
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, ", ")
}
