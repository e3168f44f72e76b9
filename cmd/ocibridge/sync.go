package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/manifestcache"
	"github.com/ocibridge/ocibridge/internal/repository"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
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
	jobs       int
	dryRun     bool
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
  .  a version that waits until it is as old as cooldown says

A version's age counts from when a sync first saw it, because origins publish no
dates. Those that were there at a provider's first sync do not wait.

With --prune, versions that no block asks for are removed, of providers that have
a block: never because an origin failed or lists less than before, and never more
than ten or a provider's last one unless --prune-limit says so.

It exits with 0 if everything is as asked for, and with 1 if anything failed; what
failed keeps sync from nothing else.`,
		Example: syncExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.settings(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	flags.IntVar(&f.jobs, "jobs", 4, "how many packages are under way at once")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan and do nothing")
	flags.BoolVar(&f.prune, "prune", false, "remove versions that no block asks for")
	flags.IntVar(&f.pruneLimit, "prune-limit", 0, "remove up to so many versions, and a provider's last one, too (default: 10, and no last one)")
	return cmd
}

func (f *syncFlags) run(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	switch {
	case f.pruneLimit < 0 || f.pruneLimit > 0 && !f.prune:
		return usage(hint.New("--prune-limit goes with --prune, and is a number above 0", "ocibridge sync --help says what it is for"))
	case f.jobs < 1:
		return usage(hint.New("--jobs is less than 1", "leave it out for 4"))
	case len(s.file.Providers) == 0:
		return hint.New("nothing to sync: the configuration has no provider block", "write one into ocibridge.hcl; docs/sync.md shows how")
	}
	var asked []provider.Address
	for _, p := range s.file.Providers {
		asked = append(asked, p.Address)
	}
	back, err := f.open(s, asked, f.log.open(stderr))
	if err != nil {
		return err
	}
	defer back.Close()
	wants, closeSources := syncWants(s)
	defer closeSources()
	progress := newProgress(stdout, stderr, f.output.json())
	defer progress.Close()
	syncer := pusher.NewSyncer(pusher.SyncOptions{
		Push: pusher.Options{
			Destination: func(ctx context.Context, a provider.Address) (pusher.Destination, error) {
				addr, repo, err := back.repository(ctx, a)
				return pusher.Destination{Repository: addr, Store: repository.Repository{Repository: repo}}, err
			},
			Policy:  func(a provider.Address) trust.Policy { return s.trustRules().For(a) },
			Jobs:    f.jobs,
			OnEvent: progress.event,
		},
		Manifests: manifests(), Prune: f.prune, PruneLimit: f.pruneLimit,
	})
	plan, err := syncer.Plan(ctx, wants)
	if err != nil {
		return err
	}
	return f.apply(ctx, syncer, plan, back, progress, stdout)
}

// apply shows a plan, does it, and tells what came of it.
func (f *syncFlags) apply(ctx context.Context, syncer *pusher.Syncer, plan *pusher.Plan, back *backend, progress *progress, stdout io.Writer) error {
	for _, w := range plan.Warnings {
		progress.warn(w)
	}
	if !f.output.json() {
		progress.plan(plan)
	}
	outcome := &pusher.Outcome{Failures: plan.Failures}
	var err error
	if !f.dryRun {
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
			e.Err = back.explain(e.Err, refused.Repository)
		}
	}
	if f.output.json() {
		if werr := writeOutcome(stdout, plan, outcome, f.dryRun, err); werr != nil {
			return werr
		}
	} else {
		progress.failures(outcome.Failures)
	}
	switch n := len(outcome.Failures); {
	case err != nil:
		return err
	case n == 1:
		return outcome.Failures[0].Err
	case n > 1:
		return hint.New(fmt.Sprintf("%d providers or versions failed; each is named above", n), "what did not fail is done; running it again does the rest")
	}
	return nil
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
	registry := newOrigin(s.cli)
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

// manifests is the cache of manifests in the user's cache folder; none without
// one.
func manifests() pusher.Manifests {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	return manifestcache.Open(filepath.Join(dir, "ocibridge", "manifests"))
}

var planSigns = map[pusher.Action]string{
	pusher.ActionPush: "+", pusher.ActionAdd: "~", pusher.ActionKeep: "=", pusher.ActionPrune: "-", pusher.ActionWait: ".",
}

// plan shows a plan: a line a version, and what they come to.
func (p *progress) plan(plan *pusher.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last provider.Address
	for _, s := range plan.Steps {
		if s.Provider != last {
			p.line("%s", s.Provider)
			last = s.Provider
		}
		switch note := ""; s.Action {
		case pusher.ActionWait:
			p.line("  %s %s  waits until %s", planSigns[s.Action], s.Version, s.Until.Local().Format(time.DateTime))
		default:
			if s.FirstSync {
				note = ", does not wait: it was there at the first sync"
			}
			p.line("  %s %s  %s, %s%s", planSigns[s.Action], s.Version, platforms(s.Platforms), size(s.Size), note)
		}
	}
	var parts []string
	for _, a := range []struct {
		action pusher.Action
		what   string
	}{
		{pusher.ActionPush, "to push"}, {pusher.ActionAdd, "to complete"}, {pusher.ActionPrune, "to prune"},
		{pusher.ActionKeep, "in place"}, {pusher.ActionWait, "waiting"},
	} {
		n, bytes := plan.Count(a.action)
		switch {
		case n == 0:
		case a.action == pusher.ActionWait:
			parts = append(parts, fmt.Sprintf("%d %s", n, a.what))
		default:
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, a.what, size(bytes)))
		}
	}
	p.line("Plan: %s", joinOr(parts, "nothing to do"))
	if plan.Unasked > 0 {
		p.line("%s no block asks for: --prune removes what is not kept for a pull-through", count(plan.Unasked, "version"))
	}
}

// platforms names the platforms of a step, or counts many.
func platforms(ps []provider.Platform) string {
	if len(ps) > 3 {
		return count(len(ps), "platform")
	}
	var names []string
	for _, p := range ps {
		names = append(names, p.String())
	}
	return joinOr(names, "no platform")
}

func joinOr(list []string, none string) string {
	out := none
	for i, s := range list {
		if i == 0 {
			out = s
			continue
		}
		out += ", " + s
	}
	return out
}

func (p *progress) pruned(steps []pusher.Step) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range steps {
		p.line("%s %s: pruned, %s", s.Provider, s.Version, size(s.Size))
	}
}

// failures shows what failed where there is more than one thing, for the last
// line can name but one.
func (p *progress) failures(failures []pusher.Failure) {
	if len(failures) < 2 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range failures {
		fmt.Fprintf(p.err, "failed: %s\n", oneLine(f.Err.Error()))
		if h := hint.Of(f.Err); h != "" {
			fmt.Fprintf(p.err, "  hint: %s\n", oneLine(h))
		}
	}
}

// writeOutcome prints a plan and what came of it for a program.
func writeOutcome(w io.Writer, plan *pusher.Plan, outcome *pusher.Outcome, dryRun bool, err error) error {
	type failure struct {
		Provider provider.Address  `json:"provider"`
		Version  *provider.Version `json:"version,omitempty"`
		Message  string            `json:"message"`
		Hint     string            `json:"hint,omitempty"`
	}
	out := struct {
		DryRun   bool              `json:"dry_run"`
		Plan     []pusher.Step     `json:"plan"`
		Unasked  int               `json:"unasked,omitempty"`
		Results  []*pusher.Result  `json:"results"`
		Pruned   []pusher.Step     `json:"pruned"`
		Warnings []string          `json:"warnings,omitempty"`
		Failures []failure         `json:"failures"`
		Error    map[string]string `json:"error,omitempty"`
	}{
		DryRun: dryRun, Plan: orEmpty(plan.Steps), Unasked: plan.Unasked, Results: orEmpty(outcome.Results), Pruned: orEmpty(outcome.Pruned),
		Warnings: slices.Concat(plan.Warnings, outcome.Warnings), Failures: []failure{},
	}
	for _, f := range outcome.Failures {
		shown := failure{Provider: f.Provider, Message: f.Err.Error(), Hint: hint.Of(f.Err)}
		if !f.Version.IsZero() {
			shown.Version = &f.Version
		}
		out.Failures = append(out.Failures, shown)
	}
	if err != nil {
		out.Error = map[string]string{"message": err.Error(), "hint": hint.Of(err)}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
