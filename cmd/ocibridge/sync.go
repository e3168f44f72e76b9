package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/verify"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/privatefolder"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

const syncExamples = `  # what would be done, by the provider blocks of ocibridge.hcl
  ocibridge sync --dry-run

  # do it, and remove what no block asks for any more
  ocibridge sync --prune

  # in a scheduled job
  ocibridge sync --config /etc/ocibridge/ocibridge.hcl --prune --output json`

// syncFlags are the flags of sync.
type syncFlags struct {
	registryFlags
	output     outputFlag
	log        logFlag
	jobs       jobsFlag
	dryRun     bool
	first      bool
	prune      bool
	pruneLimit int
}

func newSyncCommand() *cobra.Command {
	f := &syncFlags{}
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Bring the registry to what the configuration asks for",
		Long: `sync makes the registry hold what the provider blocks of ocibridge.hcl ask for. It
prints a plan, and does it:

  +  a version to push           =  a version in place
  ~  platforms to add            -  a version to prune
  !  a version to repair         .  a version that waits until it is as
                                    old as cooldown says

A version is repaired if verify = "required" is configured and the gateway refuses
it: it is pushed again with the evidence of its origin, and its packages stay.

A version's age counts from when a sync first saw it, because origins publish no
dates. Versions that were there at a provider's first sync with a cooldown do not
wait. If the repository has versions by then, that sync needs --first: without it,
sync fails, because the tag that keeps the ages may have been lost.

With --prune, versions that no block asks for are removed, of providers that have
a block: never because an origin failed or lists less than before, and never more
than ten or a provider's last one unless --prune-limit says so.

It exits with 0 if everything is as asked for, and with 1 if anything failed; what
failed keeps sync from nothing else.`,
		Example: syncExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd)
		},
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	f.jobs.register(cmd, "how many packages are under way at once")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan and do nothing")
	flags.BoolVar(&f.first, "first", false, "let a first sync with a cooldown begin in repositories that have versions: no version that is there by then waits")
	flags.BoolVar(&f.prune, "prune", false, "remove versions that no block asks for")
	flags.IntVar(&f.pruneLimit, "prune-limit", 0, "remove up to so many versions, and a provider's last one, too (default: 10, and no last one)")
	return cmd
}

// run syncs. For a program it prints one JSON document however that ends, unless
// sync was called wrongly.
func (f *syncFlags) run(cmd *cobra.Command) error {
	s, err := f.settings(cmd) // before the check: they have values for flags
	if uerr := f.check(); uerr != nil {
		return usage(uerr)
	}
	plan, outcome := &pusher.Plan{}, &pusher.Outcome{}
	if err == nil {
		plan, outcome, err = f.sync(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	err = f.output.finish(func() error { return writeOutcome(cmd.OutOrStdout(), plan, outcome, f.dryRun, err) }, err)
	switch n := len(outcome.Failures); {
	case err != nil:
		return err
	case n == 1:
		return outcome.Failures[0].Err
	case n > 1:
		return hint.New(fmt.Sprintf("%d providers or versions failed; each is named above", n), "what did not fail is done; correct what the hints name, and run it again")
	}
	return nil
}

func (f *syncFlags) check() error {
	if f.pruneLimit < 0 || f.pruneLimit > 0 && !f.prune {
		return hint.New("--prune-limit goes with --prune, and is a number above 0", "ocibridge sync --help says what it is for")
	}
	return nil
}

// sync opens the registry and sources, plans, and does it. Plan and outcome are
// never nil.
func (f *syncFlags) sync(ctx context.Context, s settings, stdout, stderr io.Writer) (*pusher.Plan, *pusher.Outcome, error) {
	plan, outcome := &pusher.Plan{}, &pusher.Outcome{}
	if len(s.file.Providers) == 0 {
		return plan, outcome, hint.New("nothing to sync: the configuration has no provider block", "write one into ocibridge.hcl: ocibridge help syncing shows how")
	}
	var asked []provider.Address
	for _, p := range s.file.Providers {
		asked = append(asked, p.Address)
	}
	log := f.log.open(stderr)
	back, err := f.open(s, asked, log)
	if err != nil {
		return plan, outcome, err
	}
	defer back.Close()
	wants, closeSources := syncWants(s)
	defer closeSources()
	progress := newProgress(stdout, stderr, f.output.json())
	defer progress.Close()
	syncer := pusher.NewSyncer(pusher.SyncOptions{
		Push: pusher.Options{
			Destination: func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
				addr, repo, err := back.Repository(ctx, a)
				return pusher.Destination{Repository: addr, Store: registry.Repository{Repository: repo}}, err
			},
			Policy:  s.trustRules().For,
			Jobs:    int(f.jobs),
			OnEvent: progress.event,
		},
		ManifestCache: f.manifestCache(log), First: f.first, Prune: f.prune, PruneLimit: f.pruneLimit, Served: s.served(),
	})
	made, err := syncer.Plan(ctx, wants)
	if err != nil {
		return plan, outcome, err
	}
	outcome, err = f.apply(ctx, syncer, made, back, progress)
	return made, outcome, err
}

// apply shows a plan, does it, and tells what came of it.
func (f *syncFlags) apply(ctx context.Context, syncer *pusher.Syncer, plan *pusher.Plan, back *registry.Repositories, progress *progress) (*pusher.Outcome, error) {
	for _, w := range plan.Warnings {
		progress.warn(w)
	}
	if !f.output.json() {
		progress.plan(plan)
	}
	outcome := &pusher.Outcome{Failures: plan.Failures}
	var err error
	if f.dryRun {
		err = syncer.CheckPrune(plan)
	} else {
		outcome, err = syncer.Apply(ctx, plan, func(r *pusher.Result) {
			for _, w := range r.Warnings {
				progress.warn(fmt.Sprintf("%s %s: %s", r.Provider, r.Version, w))
			}
			progress.done(r)
		})
		for _, w := range outcome.Warnings {
			progress.warn(w)
		}
		progress.pruned(outcome.Pruned)
	}
	for i := range outcome.Failures {
		var refused *pusher.RegistryError
		if e := &outcome.Failures[i]; errors.As(e.Err, &refused) {
			e.Err = back.Explain(e.Err, refused.Repository)
		}
	}
	if !f.output.json() {
		progress.failures(outcome.Failures)
	}
	return outcome, err
}

// served returns what the configured gateway serves of a version, nil if that is
// everything.
func (s settings) served() func(context.Context, artifact.Fetcher, provider.Address, provider.Version, *artifact.Version) (*artifact.Version, error) {
	if !s.file.Gateway.VerifyRequired {
		return nil
	}
	checker := verify.New(verify.Options{Policy: s.trustRules().For})
	return func(ctx context.Context, store artifact.Fetcher, a provider.Address, v provider.Version, found *artifact.Version) (*artifact.Version, error) {
		out, err := checker.Check(ctx, store, a, v, found)
		if errors.Is(err, verify.ErrRefused) {
			err = fmt.Errorf("%w: %w", pusher.ErrNotServed, err)
		}
		return out, err
	}
}

// unusable is a source that cannot be opened: a failure of its provider alone.
type unusable struct {
	origin.Source
	err error
}

// Versions implements [origin.Source].
func (u unusable) Versions(context.Context, provider.Address) (*origin.Listing, error) {
	return nil, u.err
}

// syncWants are the provider blocks of the configuration, with their sources.
func syncWants(s settings) ([]pusher.Want, func()) {
	registry := s.origins().Registry()
	folders := map[string]*origin.MirrorDir{}
	closeAll := func() {
		for _, dir := range folders {
			dir.Close()
		}
	}
	var out []pusher.Want
	for _, p := range s.file.Providers {
		w := pusher.Want{
			Provider: p.Address, Versions: p.Versions, Prereleases: p.Prereleases, Latest: p.Latest,
			Platforms: p.Platforms, Cooldown: p.Cooldown,
			Keep: s.file.PullThrough != nil && s.file.PullThrough.Enabled && s.file.PullThrough.Selector.Selects(p.Address),
		}
		source, err := syncSource(p.From, registry, folders)
		if w.Source = source; err != nil {
			w.Source = unusable{err: fmt.Errorf("provider block at %s: %w", p.Source, err)}
		}
		out = append(out, w)
	}
	return out, closeAll
}

// syncSource is where a block has versions from. Folders are opened once.
func syncSource(from config.Source, registry *origin.Registry, folders map[string]*origin.MirrorDir) (origin.Source, error) {
	switch {
	case from.MirrorURL != "":
		base, err := url.Parse(from.MirrorURL)
		if err != nil {
			return nil, err
		}
		return registry.NetworkMirror(base), nil
	case from.Folder == "":
		return registry, nil
	case folders[from.Folder] == nil:
		dir, err := origin.OpenMirrorDir(from.Folder)
		if err != nil {
			return nil, err
		}
		folders[from.Folder] = dir
	}
	return folders[from.Folder], nil
}

// manifestCache returns the folder for cached manifests, in the user's cache folder. It
// returns "" if the user has none. In the container image, the data folder contains it.
func (f *syncFlags) manifestCache(log *slog.Logger) string {
	dir, err := os.UserCacheDir()
	if err == nil {
		err = privatefolder.MakeBelow(f.dataFolder(), dir, log)
	}
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "ocibridge", "manifests")
}
