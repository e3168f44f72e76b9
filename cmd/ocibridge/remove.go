package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

const removeExamples = `  # print what would be removed
  ocibridge remove --dry-run registry.acme.example/acme/widget@1.4.0

  # two versions, with the signatures and SBOMs that other tools attached
  ocibridge remove --referrers registry.acme.example/acme/widget@1.4.0 \
    registry.acme.example/acme/widget@1.4.1

  # a version of a module
  ocibridge remove registry.acme.example/platform/vpc/aws@1.0.0

  # every stored version that matches a constraint
  ocibridge remove --dry-run 'registry.acme.example/acme/widget@< 1.4.0'

  # one platform
  ocibridge remove --platform darwin_arm64 \
    registry.acme.example/acme/widget@1.5.0`

type removeFlags struct {
	commonFlags
	dryRunFlags
	platforms []string
	referrers bool
}

func newRemoveCommand() *cobra.Command {
	f := &removeFlags{}
	cmd := &cobra.Command{
		Use:   "remove {PROVIDER@VERSION | MODULE@VERSION}...",
		Short: "Remove stored versions from the registry",
		Long: `remove takes versions back: it removes the tag, the index, and the manifests that
no other tag names. It asks no origin, so it also removes what --release-dir pushed.
It never asks for a confirmation: --dry-run shows what it would remove.

VERSION is a version, or a constraint for every stored version that matches it. A
constraint selects prereleases only if it names one.

A MODULE is HOSTNAME/NAMESPACE/NAME/SYSTEM. remove also removes a tag of the version
that begins with a v. Content that other tags name stays.

With --platform, remove keeps the version, and moves its tag to an index without the
platform. The evidence stays. Clients on that platform then find no package.

Artifacts that other tools attached to the version, such as signatures and SBOMs, are
named and stay, unless --referrers is given. Some registries, such as Harbor, delete
them together with the version.

remove deletes no packages. The registry's garbage collection does: remove says how
many bytes it can free.

A removed version is not withdrawn. A later sync, push or pull-through stores it again,
and clients may get it elsewhere. To withdraw a version, also name it in deny in the
gateway block: clients then get an error that gives the reason. An interrupted removal
leaves each version whole or without a tag. Run it again to complete it, and name a
version without a tag itself: a constraint does not find it.`,
		Example: removeExamples,
		RunE:    f.run,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return f.completeKinds(cmd, subject.Kinds...)
		},
	}
	f.commonFlags.register(cmd, "number of requests to send at once")
	flags := cmd.Flags()
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to remove, such as linux_amd64 (repeatable; default: the whole version)")
	flags.BoolVar(&f.referrers, "referrers", false, "also remove the artifacts that other tools attached, such as signatures and SBOMs")
	f.dryRunFlags.register(cmd, "print what would be removed, and change nothing")
	completePlatforms(cmd)
	return cmd
}

// removeRun is the plan and the outcome of a removal. Neither field is nil.
type removeRun struct {
	plan    *reconcile.RemovePlan
	outcome *reconcile.RemoveOutcome
}

// run removes the versions that the arguments name.
func (f *removeFlags) run(cmd *cobra.Command, args []string) error {
	run := &removeRun{&reconcile.RemovePlan{}, &reconcile.RemoveOutcome{}}
	return perform(&f.commonFlags, cmd, func(settings) (*removeRequests, error) {
		requests, err := f.requests(args)
		return requests, cmp.Or(f.dryRunFlags.check(), err)
	}, func(ctx context.Context, s settings, requests *removeRequests) (*removeRun, error) {
		err := f.remove(ctx, s, run, requests, cmd.OutOrStdout(), cmd.ErrOrStderr())
		return run, cmp.Or(err, failed(run.outcome.Failures), f.pending(len(run.plan.Removals) > 0))
	}, func(*removeRun) any {
		return run.document(f.dryRun)
	})
}

// removeRequests are the versions and platforms to remove, as the command line names them.
type removeRequests struct {
	queries   []query.Query[subject.Address]
	platforms []provider.Platform
}

// requests parses the command line.
func (f *removeFlags) requests(args []string) (*removeRequests, error) {
	if len(args) == 0 {
		return nil, hint.New("nothing to remove", "name a version, such as registry.acme.example/acme/widget@1.4.0; ocibridge list shows the versions that are stored")
	}
	platforms, err := parseAll(provider.ParsePlatform, f.platforms)
	if err != nil {
		return nil, err
	}
	out := &removeRequests{platforms: platforms}
	for _, s := range args {
		q, err := query.ParseEither(s)
		switch {
		case err != nil:
			return nil, err
		case !subject.TraitsOf(q.Address).Packages && len(platforms) > 0:
			return nil, hint.New(fmt.Sprintf("%s is a %s, and does not go with --platform", q.Address, q.Address.Kind()), "remove modules and platforms of providers by separate commands")
		case q.All():
			return nil, hint.New(fmt.Sprintf("%s: no version given", q.Address), "name the versions: %s %s shows them", subject.TraitsOf(q.Address).List, q.Address)
		}
		out.queries = append(out.queries, q)
	}
	return out, nil
}

// resolve returns the versions to remove. For a constraint, these are the stored versions that match it. A constraint that
// no stored version matches is an error.
func (r *removeRequests) resolve(ctx context.Context, back *registry.Repositories) (out []reconcile.RemoveRequest, err error) {
	for _, q := range r.queries {
		versions := []provider.Version{q.Version}
		if q.Version.IsZero() {
			if versions, err = transfer.StoredVersions(ctx, back, q); err != nil {
				if errors.Is(err, origin.ErrVersionNotFound) { // also if an earlier removal has removed only the tags
					err = hint.Replace(err, "name the version exactly, also to complete a removal that was interrupted; a constraint does not select prereleases that it does not name")
				}
				return nil, err
			}
		}
		for _, v := range versions {
			if !slices.ContainsFunc(out, func(r reconcile.RemoveRequest) bool { return r.Subject == q.Address && r.Version == v }) {
				out = append(out, reconcile.RemoveRequest{Subject: q.Address, Version: v, Platforms: r.platforms})
			}
		}
	}
	return out, nil
}

// remove shows the plan. Except in a dry run, it then carries out the plan and shows the outcome.
func (f *removeFlags) remove(ctx context.Context, s settings, run *removeRun, requests *removeRequests, stdout, stderr io.Writer) error {
	back, err := f.openFor(s, query.Addresses(requests.queries), f.log.open(stderr))
	if err != nil {
		return err
	}
	defer back.Close()
	progress := f.progress(stdout, stderr)
	defer progress.Close()
	remover := reconcile.NewRemover(pusher.Options{Destination: transfer.Destination(back), Jobs: int(f.jobs), Approvals: s.file.Approvals.For}, f.referrers)
	versions, err := requests.resolve(ctx, back)
	if err != nil {
		return transfer.Explain(back, err)
	}
	plan, err := remover.Plan(ctx, versions)
	if err != nil {
		return transfer.Explain(back, err)
	}
	run.plan = plan
	for _, w := range run.plan.Warnings {
		progress.Warn(w)
	}
	if f.dryRun {
		progress.removals(progress.result, run.plan, f.referrers)
		run.outcome.Failures = run.plan.Failures
		progress.freeable(run.plan.Freeable(), back)
	} else {
		progress.removals(progress.note, run.plan, f.referrers)
		run.outcome, err = remover.Apply(ctx, run.plan)
		for _, w := range run.outcome.Warnings {
			progress.Warn(w)
		}
		progress.removed(run.outcome)
		progress.freeable(run.outcome.Freeable, back)
	}
	for _, w := range s.storedAgain(run.plan.Removals) {
		progress.Warn(w)
	}
	explainAll(back, run.outcome.Failures)
	progress.failures(run.outcome.Failures)
	return err
}

// explainAll adds hints to failures that a registry caused.
func explainAll(back *registry.Repositories, failures []reconcile.Failure) {
	for i, e := range failures {
		failures[i].Err = transfer.Explain(back, e.Err)
	}
}

// storedAgain returns warnings about settings that would store removed versions again.
func (s settings) storedAgain(removals []*reconcile.Removal) (out []string) {
	for _, r := range removals {
		for _, m := range s.file.Modules {
			if m.Address == r.Subject && (m.Versions.IsZero() || m.Versions.Has(r.Version)) {
				out = append(out, storedBySync(m.Source, r))
			}
		}
		_, denied := s.file.Gateway.Denies(r.Subject, r.Version, "")
		for _, p := range s.file.Providers {
			switch {
			case p.Address != r.Subject || !p.Versions.IsZero() && !p.Versions.Has(r.Version):
			case len(r.Left) == 0:
				out = append(out, storedBySync(p.Source, r))
			default: // a constraint in versions would exclude the other platforms, too
				if again := selected(p.Platforms, r.Platforms); len(again) > 0 {
					out = append(out, fmt.Sprintf("the provider block at %s selects %s of %s: the next sync may store it again, unless platforms leaves it out", p.Source, joined(again, ", "), r.Version))
				}
			}
		}
		pull := s.file.PullThrough
		if pull != nil && pull.Enabled && pull.Selects(r.Subject) && (pull.Versions.IsZero() || pull.Versions.Has(r.Version)) && !denied {
			out = append(out, fmt.Sprintf("pull_through covers %s: the gateway stores %s again at its next request, unless deny names it", r.Subject, r.Version))
		}
	}
	return out
}

// storedBySync returns the warning about a block that selects a removed version.
func storedBySync(block string, r *reconcile.Removal) string {
	return fmt.Sprintf("the %s block at %s selects %s: the next sync may store it again, unless versions excludes it (!= %[3]s)", r.Subject.Kind(), block, r.Version)
}

// selected returns those of the given platforms that a provider block selects. The parameter block is the block's list
// of platforms. An empty list selects all platforms.
func selected(block, platforms []provider.Platform) (out []provider.Platform) {
	for _, p := range platforms {
		if len(block) == 0 || slices.Contains(block, p) {
			out = append(out, p)
		}
	}
	return out
}

// removals prints a line for each version in the plan, and for each referrer of the version. print
// is a method of p that prints a line.
func (p *progress) removals(print func(format string, args ...any), plan *reconcile.RemovePlan, referrers bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last subject.Address
	for _, r := range plan.Removals {
		if r.Subject != last {
			print("%s in %s", r.Subject, r.Repository)
			last = r.Subject
		}
		what := joined(r.Platforms, ", ")
		if len(r.Tags) > 0 {
			what = "tag " + joinedTags(r.Tags)
		}
		print("  - %s  %s, %s%s", r.Version, what, size(r.Size), keeps(r))
		referrerLines(print, r.Referrers, referrers)
	}
}

func joinedTags(tags []ociaddr.Tag) string {
	var out []string
	for _, t := range tags {
		out = append(out, string(t))
	}
	return strings.Join(out, ", ")
}

// referrerLines prints a line for each referrer of a removed version.
func referrerLines(print func(format string, args ...any), referrers []reconcile.Referrer, remove bool) {
	for _, ref := range referrers {
		what := ref.ArtifactType
		if ref.Tag != "" {
			what = "tag " + string(ref.Tag)
		}
		if what != "" {
			what = " (" + what + ")"
		}
		fate := "stays; --referrers removes it"
		switch {
		case ref.Approval:
			fate = "is an approval, and is removed with the version"
		case remove:
			fate = "is removed, unless another tag names it"
		}
		print("    referrer %s%s %s", ref.Digest, what, fate)
	}
}

// keeps names the platforms that remain. It returns "" if the whole version is removed.
func keeps(r *reconcile.Removal) string {
	if len(r.Left) == 0 {
		return ""
	}
	return "; keeps " + joined(r.Left, ", ")
}

// removed prints a line for each version that was removed.
func (p *progress) removed(out *reconcile.RemoveOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range out.Removed {
		if len(r.Left) > 0 {
			p.result("%s %s: removed %s, %s%s", r.Subject, r.Version, joined(r.Platforms, ", "), size(r.Size), keeps(r))
		} else {
			p.result("%s %s: removed, %s", r.Subject, r.Version, size(r.Size))
		}
	}
}

// freeable prints how many bytes a garbage collection can free, and whether ocibridge gc or the registry does it. It
// prints nothing if bytes is 0.
func (p *progress) freeable(bytes int64, back *registry.Repositories) {
	if bytes == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if back.Embedded != nil {
		p.summary("ocibridge gc can free %s", size(bytes))
	} else {
		p.summary("The registry's garbage collection can free up to %s", size(bytes))
	}
}

// document returns the JSON output of remove. It contains the plan and the outcome.
func (r *removeRun) document(dryRun bool) any {
	freeable := r.outcome.Freeable
	if dryRun {
		freeable = r.plan.Freeable()
	}
	of := func(r *reconcile.Removal) subject.Address { return r.Subject }
	plan, removed := subject.ByKind(r.plan.Removals, of), subject.ByKind(r.outcome.Removed, of)
	lists := map[string][]*reconcile.Removal{"plan": orEmpty(plan[subject.Provider]), "removed": orEmpty(removed[subject.Provider])}
	for _, kind := range subject.Kinds[1:] {
		for name, of := range map[string][]*reconcile.Removal{"plan_": plan[kind], "removed_": removed[kind]} {
			if len(of) > 0 {
				lists[name+kind.Traits().Plural] = of
			}
		}
	}
	return document.Object{map[string]bool{"dry_run": dryRun}, lists, struct {
		Freeable int64     `json:"freeable"` // in bytes
		Warnings []string  `json:"warnings,omitempty"`
		Failures []failure `json:"failures"`
	}{freeable, slices.Concat(r.plan.Warnings, r.outcome.Warnings), failureDocuments(r.outcome.Failures)}}
}
