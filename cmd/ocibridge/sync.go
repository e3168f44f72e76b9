package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

const syncExamples = `  # print the plan, by the provider and module blocks of ocibridge.hcl
  ocibridge sync --dry-run

  # sync one provider
  ocibridge sync registry.opentofu.org/hashicorp/aws

  # sync the modules of one namespace
  ocibridge sync 'registry.opentofu.org/cloudposse/*/*'

  # carry it out, and remove versions that no block selects
  ocibridge sync --prune

  # in a scheduled job: print nothing if nothing has changed
  ocibridge sync --config /etc/ocibridge/ocibridge.hcl --prune --quiet

  # would a sync change anything? 3: yes
  ocibridge sync --dry-run --detailed-exitcode`

type syncFlags struct {
	commonFlags
	dryRunFlags
	first      bool
	prune      bool
	pruneLimit int
}

func newSyncCommand() *cobra.Command {
	f := &syncFlags{}
	cmd := &cobra.Command{
		Use:   "sync [PROVIDER | MODULE | PATTERN]...",
		Short: "Push, complete and prune versions until the registry matches ocibridge.hcl",
		Long: `sync stores the versions in the registry that the provider and module blocks of
ocibridge.hcl select. It prints a line for each version that it changed, and one line with the
totals. --dry-run prints the plan, without the versions in place:

  +  a version to push           -  a version to prune
  ~  platforms to add            .  a version that waits until it is as
  !  a version to repair            old as cooldown says

A block that selects nothing is a failure, unless it has versions = "< 0.0.0".

With closure = true in a module block, sync also stores the modules that the selected
versions call, and those that these call, as module push --closure does. A warning names
with file and line what it does not store: a source that is in no module registry or is no
constant, a module without a repository in the templates, a module or a version that does
not exist, and a version that is refused. In place of a refused version, clients get the
next older one that the constraint allows, so sync stores that one. It is a failure if the
origin of a called module fails or wants a login, or if its stored version cannot be read.

With arguments, sync concerns these providers and modules alone. Each argument is the
address of a block, or a pattern for several, such as registry.opentofu.org/hashicorp/*
for providers, and registry.opentofu.org/cloudposse/*/* for modules.

sync repairs a version if verify = "required" is configured and the gateway refuses
it: it pushes the version again with the evidence of its origin. The packages stay.

Stored versions of a module do not change. If the origin leads to another commit or to
other files than before, if the tags 1.2.3 and v1.2.3 name different commits, or if a
listed version is gone, sync fails for this version, and names what it found. Clients
still get the stored version. ocibridge module push --force replaces it.

The age of a version counts from the first sync that saw it, or from the first push of
a module, because origins publish no dates. The versions at the first sync of a
provider or a module with a cooldown do not wait. If the repository already has
versions, that sync needs --first. Without it, sync fails, because the tag that stores
the ages may have been lost.

With --prune, sync removes the versions that no block selects, of providers and modules
that have a block, and that no closure has. It never does so because an origin failed or
lists fewer versions. If anything about a closure fails, it prunes no modules.
Without --prune-limit it removes at most ten versions, and never the last one of a
provider or a module.

A failure does not stop the work on other versions. sync exits with 0 if all
versions are in place, with 1 if anything failed, and with 3 if --dry-run and
--detailed-exitcode are given and there is something to change. ocibridge help
output lists all exit statuses.`,
		Example: syncExamples,
		RunE:    f.run,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return f.completeKinds(cmd, subject.Kinds...)
		},
	}
	f.commonFlags.register(cmd, "number of packages and modules to transfer at once")
	flags := cmd.Flags()
	f.dryRunFlags.register(cmd, "print the plan and do nothing")
	flags.BoolVar(&f.first, "first", false, "allow a first sync with a cooldown in repositories that have versions: the present versions do not wait")
	flags.BoolVar(&f.prune, "prune", false, "remove versions that no block selects and that no closure has")
	flags.IntVar(&f.pruneLimit, "prune-limit", 0, "remove up to this number of versions, also the last one of a provider or a module (default: 10, and no last one)")
	return cmd
}

// syncRun is the plan and the outcome of a sync. Neither of them is nil.
type syncRun struct {
	plan    *reconcile.Plan
	outcome *reconcile.Outcome
	missing []missingSource // of blocks with closure = true
}

// run performs a sync. It returns an error if the sync of a provider, a module or a version failed.
func (f *syncFlags) run(cmd *cobra.Command, args []string) error {
	run := &syncRun{plan: &reconcile.Plan{}, outcome: &reconcile.Outcome{}}
	return perform(&f.commonFlags, cmd, func(settings) ([]query.Query[subject.Address], error) {
		queries, err := parseAll(query.ParseBlock, args)
		return queries, cmp.Or(f.check(), usage(err))
	}, func(ctx context.Context, s settings, queries []query.Query[subject.Address]) (*syncRun, error) {
		err := f.sync(ctx, s, queries, run, cmd.OutOrStdout(), cmd.ErrOrStderr())
		return run, cmp.Or(err, failed(run.outcome.Failures), f.pending(changes(run.plan) > 0))
	}, func(*syncRun) any {
		return run.document(f.dryRun)
	})
}

// failed returns the error of a command that failed to process providers, modules or versions.
func failed(failures []reconcile.Failure) error {
	switch {
	case len(failures) == 1:
		return failures[0].Err
	case len(failures) > 1:
		return hint.New(fmt.Sprintf("%d failures; each is named above", len(failures)), "what did not fail is done; correct what the hints name, and run it again")
	}
	return nil
}

func (f *syncFlags) check() error {
	if f.pruneLimit < 0 || f.pruneLimit > 0 && !f.prune {
		return hint.New("--prune-limit goes with --prune, and is a number above 0", "ocibridge sync --help says what it is for")
	}
	return f.dryRunFlags.check()
}

// sync plans the sync of the selected providers and modules, and applies the plan.
func (f *syncFlags) sync(ctx context.Context, s settings, queries []query.Query[subject.Address], run *syncRun, stdout, stderr io.Writer) error {
	all := transfer.AllBlocks(s.file)
	if len(all.Addresses()) == 0 {
		return hint.New("nothing to sync: the configuration has neither a provider block nor a module block", "write one into ocibridge.hcl: ocibridge help syncing shows how")
	}
	blocks, err := all.Selected(queries)
	if err != nil {
		return err
	}
	log := f.log.open(stderr)
	back, err := f.open(s, all.Addresses(), log)
	if err != nil {
		return err
	}
	defer back.Close()
	wants := transfer.OpenWants(s.file, blocks, s.origins().Registry(), f.cacheFolder("etags", log))
	defer wants.Close()
	progress := f.progress(stdout, stderr)
	defer progress.Close()
	push, err := s.approving(ctx, pusher.Options{
		Destination: transfer.Destination(back), Policy: s.file.Trust.For, Jobs: int(f.jobs), OnEvent: progress.Event,
	}, stderr)
	if err != nil {
		return err
	}
	planned, done := progress.planning(len(wants.Wants))
	syncer := reconcile.NewSyncer(reconcile.Options{
		Push: push, OnPlanned: planned, ManifestCache: f.cacheFolder("manifests", log), First: f.first, Prune: f.prune, PruneLimit: f.pruneLimit, Served: s.served(),
		Closure: wants.Closure, KeepModules: wants.KeepModules,
	})
	plan, err := syncer.Plan(ctx, wants.Wants)
	done()
	if err != nil {
		return err
	}
	run.plan = plan
	for _, m := range wants.Closure.Missing {
		run.missing = append(run.missing, newMissingSource(m))
		progress.Warn("not stored: " + m.String())
	}
	err = f.apply(ctx, syncer, run, progress)
	explainAll(back, run.outcome.Failures)
	if !f.dryRun {
		progress.synced(run)
		progress.freeable(run.outcome.Freeable, back)
	}
	progress.failures(run.outcome.Failures)
	return err
}

// apply shows the plan and, except in a dry run, carries it out and shows the outcome.
func (f *syncFlags) apply(ctx context.Context, syncer *reconcile.Syncer, run *syncRun, progress *progress) (err error) {
	for _, w := range run.plan.Warnings {
		progress.Warn(w)
	}
	if f.dryRun {
		progress.dryRun(run.plan)
		run.outcome.Failures = run.plan.Failures
		return syncer.CheckPrune(run.plan)
	}
	if changes(run.plan) > 0 {
		progress.note("Plan: %s", planTotals(run.plan))
	}
	for _, line := range unasked(run.plan) {
		progress.note("%s", line)
	}
	run.outcome, err = syncer.Apply(ctx, run.plan, progress.Done)
	for _, w := range run.outcome.Warnings {
		progress.Warn(w)
	}
	progress.pruned(run.outcome.Pruned)
	return err
}

// served returns the check with which the configured gateway decides which packages it serves.
// It returns nil if the gateway serves all packages.
func (s settings) served() func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
	if !s.file.Gateway.VerifyRequired {
		return nil
	}
	checker := verify.New(verify.Options{Policy: s.file.Trust.For})
	return func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		out, err := checker.Check(ctx, store, a, v, found)
		if errors.Is(err, verify.ErrRefused) {
			err = fmt.Errorf("%w: %w", reconcile.ErrNotServed, err)
		}
		return out, err
	}
}

// cacheFolder returns the folder of one of the caches of sync, which is inside the user's cache
// folder. It returns "" if the user has no usable cache folder. In the container image, the
// user's cache folder is inside the data folder.
func (f *syncFlags) cacheFolder(name string, log *slog.Logger) string {
	dir, err := os.UserCacheDir()
	if err == nil {
		err = privatefolder.MakeBelow(f.dataFolder(), dir, log)
	}
	folder := filepath.Join(dir, "ocibridge", name)
	if err == nil {
		err = privatefolder.Check(folder)
	}
	if err != nil {
		return ""
	}
	return folder
}
