package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
	"github.com/ocibridge/ocibridge/pusher/repo"
)

const gcExamples = `  # how much can be freed
  ocibridge gc --dry-run

  # after removing versions that no provider block selects
  ocibridge sync --prune && ocibridge gc

  # what would be removed if nobody has used it for 90 days?
  ocibridge gc --dry-run --unused 90d

  # in a scheduled job, beside a gateway that stays up
  ocibridge gc --data /var/lib/ocibridge --wait 10m --quiet`

type gcFlags struct {
	commonFlags
	dryRunFlags
	wait    limitFlag[time.Duration]
	unused  limitFlag[time.Duration]
	maxSize limitFlag[int64]
}

func newGCCommand() *cobra.Command {
	f := &gcFlags{}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete the content of the embedded registry that no tag reaches",
		Long: `gc deletes the content of the embedded registry that no tag reaches, through indexes,
manifests and referrers: packages of removed versions, replaced indexes, interrupted
uploads, and repositories without tags. No stored version loses anything.

First, gc applies the retention block of pull_through, or --unused and --max-size: it
removes versions that pull-through stored and that clients no longer use. It never
removes what push, sync or copy has stored, completed or found in place. The next
request for a removed version pulls it through again.

Gateways go on serving. gc waits up to a minute for pushes, syncs and pull-through that
are writing to the same data folder. Writers that begin in the meantime wait for gc. If
gc has to wait longer, it names the writer, and deletes nothing.

If a manifest is damaged or missing, or a file cannot be read, gc deletes nothing and
exits with 1. An interrupted gc does no damage, and the next one continues.

With --dry-run, gc changes nothing and does not wait. It then also counts what a running
push has stored, but not tagged yet.

A registry elsewhere collects its garbage itself.`,
		Example: gcExamples,
		Args:    noArgs,
		RunE:    f.run,
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.registerQuiet(cmd)
	f.dryRunFlags.register(cmd, "print what can be freed, and delete nothing")
	f.unused = limitFlag[time.Duration]{parse: config.ParseUnused}
	f.maxSize = limitFlag[int64]{parse: config.ParseSize}
	cmd.Flags().Var(&f.unused, "unused", "first remove versions that pull-through stored and that were unused for this `time`, such as 90d; 0: without limit")
	cmd.Flags().Var(&f.maxSize, "max-size", "first remove versions that pull-through stored, until they need at most this `size`, such as 200GiB; 0: without limit")
	f.wait = limitFlag[time.Duration]{value: embedded.DefaultGCWait, text: embedded.DefaultGCWait.String(), parse: config.ParseDuration}
	cmd.Flags().Var(&f.wait, "wait", "longest `time` to wait for writers")
	return cmd
}

func (f *gcFlags) run(cmd *cobra.Command, _ []string) error {
	return perform(&f.commonFlags, cmd, func(settings) (struct{}, error) {
		return struct{}{}, f.check()
	}, func(ctx context.Context, s settings, _ struct{}) (*collection, error) {
		c := newCollection()
		err := f.collect(ctx, s, c, cmd.ErrOrStderr())
		if !f.output.json() {
			c.print(cmd.OutOrStdout(), f.dryRun, err == nil && !f.quiet)
		}
		return c, cmp.Or(err, f.pending(c.found()))
	}, func(c *collection) any {
		return struct {
			DryRun bool `json:"dry_run"`
			*collection
		}{f.dryRun, cmp.Or(c, newCollection())}
	})
}

func (f *gcFlags) check() error {
	if f.wait.value <= 0 {
		return hint.New(fmt.Sprintf("--wait %s is no time to wait", &f.wait), "give a time above 0, such as 30s or 10m")
	}
	return f.dryRunFlags.check()
}

// collect opens the embedded registry, applies the retention and deletes the garbage. In a dry run,
// it only finds out what it would do.
func (f *gcFlags) collect(ctx context.Context, s settings, c *collection, stderr io.Writer) error {
	o, err := f.repositories(s, nil)
	if err != nil {
		return err
	}
	if len(o.Templates) > 0 {
		return hint.New("gc is for the embedded registry, and the configured repositories are in another registry: "+o.Templates[0].Source(),
			"that registry collects its garbage itself, as its operator has scheduled it; for the embedded registry, leave out --template and the oci_mirror and module_mirror blocks")
	}
	if !embedded.IsDataFolder(o.DataFolder) {
		return hint.New("there is no registry in "+o.DataFolder, "--data names the folder of serve and push; the first of them creates the registry")
	}
	o.Log = f.log.open(stderr)
	back, err := registry.Open(o)
	if err != nil {
		return err
	}
	defer back.Close()
	retention := embedded.Retention{Unused: f.unused.value, MaxSize: f.maxSize.value}
	if f.dryRun {
		var expired []embedded.Expired
		if c.Garbage, expired, err = back.Embedded.Garbage(ctx, retention); err != nil {
			return err
		}
		for _, e := range expired {
			if err := c.add(back, e); err != nil {
				return err
			}
		}
		return nil
	}
	remover := newExpiredRemover(back)
	c.Garbage, err = back.Embedded.GC(ctx, embedded.GCOptions{Wait: f.wait.value, Retention: retention, Remove: func(ctx context.Context, e embedded.Expired) error {
		if err := removeExpired(ctx, back, remover, e); err != nil {
			return err
		}
		return c.add(back, e)
	}})
	return err
}

const nothingToFree = "nothing to free"

// garbageText describes deleted garbage in one line. In a dry run, it describes the garbage that
// can be deleted.
func garbageText(g embedded.Garbage, dryRun bool) string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{g.Blobs, "blob"}, {g.Manifests, "manifest"}, {g.Files, "file"}} {
		if part.n > 0 {
			parts = append(parts, count(part.n, part.what))
		}
	}
	switch n := len(g.Repositories); {
	case n == 1:
		parts = append(parts, "1 repository without tags")
	case n > 1:
		parts = append(parts, fmt.Sprintf("%d repositories without tags", n))
	}
	if len(parts) == 0 {
		return nothingToFree
	}
	done := "freed"
	if dryRun {
		done = "can be freed:"
	}
	return fmt.Sprintf("%s %s (%s)", done, size(g.Bytes), strings.Join(parts, ", "))
}

// limitFlag is the value of a flag: a duration or a size in the syntax of ocibridge.hcl, or 0.
type limitFlag[T ~int64] struct {
	value T
	text  string
	parse func(string) (T, error)
}

func (f *limitFlag[T]) String() string {
	if f.text == "" {
		return "0"
	}
	return f.text
}

// Type returns the placeholder for the value in help, unless the usage text has its own.
func (f *limitFlag[T]) Type() string { return "limit" }

func (f *limitFlag[T]) Set(text string) error {
	if text == "0" {
		f.value, f.text = 0, text
		return nil
	}
	value, err := f.parse(text)
	if err == nil {
		f.value, f.text = value, text
	}
	return err
}

// collection is the result of gc.
type collection struct {
	// Removed are the versions that the retention has removed. In a dry run, they are the versions
	// that it would remove.
	Removed []removedVersion `json:"removed"`
	embedded.Garbage
}

func newCollection() *collection {
	return &collection{Garbage: embedded.Garbage{Repositories: []string{}}, Removed: []removedVersion{}}
}

// removedVersion is a version that the retention removes.
type removedVersion struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	Reason   embedded.Reason  `json:"reason"`
	LastUsed time.Time        `json:"last_used"`
	Bytes    int64            `json:"bytes"` // the bytes that its removal frees
}

// add adds an expired version.
func (c *collection) add(back *registry.Repositories, e embedded.Expired) error {
	a, v, err := expiredVersion(back, e)
	if err == nil {
		c.Removed = append(c.Removed, removedVersion{a, v, e.Reason, e.LastUsed.UTC().Truncate(time.Second), e.Bytes})
	}
	return err
}

// found reports whether there is anything to remove or to free.
func (c *collection) found() bool {
	return len(c.Removed) > 0 || garbageText(c.Garbage, true) != nothingToFree
}

// print prints a line for each removed version, and a line about the garbage. If gc has found nothing, print prints the
// line about the garbage only if always is set.
func (c *collection) print(w io.Writer, dryRun, always bool) {
	done := "removed"
	if dryRun {
		done = "would be removed"
	}
	for _, r := range c.Removed {
		why := "unused since " + r.LastUsed.Format(time.DateOnly)
		if r.Reason == embedded.ReasonMaxSize {
			why = "over --max-size, last used on " + r.LastUsed.Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s %s: %s, %s (%s)\n", r.Provider, r.Version, done, size(r.Bytes), why)
	}
	if always || c.found() {
		fmt.Fprintln(w, garbageText(c.Garbage, dryRun))
	}
}

// expiredVersion returns the provider and the version in a repository of the embedded registry.
func expiredVersion(back *registry.Repositories, e embedded.Expired) (provider.Address, provider.Version, error) {
	repo := ociaddr.Repository{Registry: embedded.Host, Name: e.Repository}
	v, ok := e.Tag.Version()
	for _, t := range back.Templates {
		if of := subject.Of[provider.Address](t.Addresses(repo)); ok && len(of) > 0 {
			return of[0], v, nil
		}
	}
	return provider.Address{}, v, fmt.Errorf("%s:%s is no version of a provider", e.Repository, e.Tag)
}

// newExpiredRemover returns a remover that takes no lock, because gc has locked out all writers.
func newExpiredRemover(back *registry.Repositories) *reconcile.Remover {
	unlocked := func(ctx context.Context, a subject.Address) (repo.Destination, error) {
		d, err := transfer.Destination(back)(ctx, a)
		d.Lock = nil
		return d, err
	}
	return reconcile.NewRemover(pusher.Options{Destination: unlocked}, true)
}

// removeExpired removes one version, with the artifacts that other tools have attached to it.
func removeExpired(ctx context.Context, back *registry.Repositories, remover *reconcile.Remover, e embedded.Expired) error {
	a, v, err := expiredVersion(back, e)
	if err != nil {
		return err
	}
	plan, err := remover.Plan(ctx, []reconcile.RemoveRequest{{Subject: a, Version: v}})
	if err != nil {
		return err
	}
	out, err := remover.Apply(ctx, plan)
	if err != nil {
		return err
	}
	explainAll(back, out.Failures)
	for _, f := range out.Failures {
		return fmt.Errorf("remove %s %s: %w", a, v, f.Err)
	}
	return nil
}
