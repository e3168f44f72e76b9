package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/run"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
)

func newCacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show and change the packages in the cache of this machine",
		Long: `cache is about the packages that gateways and exec keep on this machine: the zips,
and the packages that exec has unpacked. The cache block of ocibridge.hcl names the
folder and its maximum size. All commands may run beside gateways and exec.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCacheListCommand(), newCacheWarmCommand(), newCacheVerifyCommand(), newCachePruneCommand())
	return cmd
}

// cacheFlags are the flags of the commands that need no registry.
type cacheFlags struct {
	commonFlags
	do     func(ctx context.Context, c *archives.Cache, out *cacheReport) error
	dryRun *bool // nil for commands without a dry run
}

// cacheReport is the result of a command.
type cacheReport struct {
	summary  string        // for people
	DryRun   *bool         `json:"dry_run,omitempty"` // of prune
	Folder   string        `json:"folder"`
	Packages []cachedEntry `json:"packages"`
}

// cachedEntry is a zip or an unpacked package.
type cachedEntry struct {
	Program string         `json:"program,omitempty"` // the name of the provider's program
	Hash    string         `json:"hash"`              // sha256:... of a zip, h1:... of an unpacked package
	Form    string         `json:"form"`              // "zip" or "unpacked"
	Bytes   int64          `json:"bytes"`
	Used    time.Time      `json:"last_used"`
	Problem *string        `json:"problem,omitempty"`
	entry   archives.Entry `json:"-"`
}

func newCachedEntry(e archives.Entry) cachedEntry {
	form := "zip"
	if !e.H1.IsZero() {
		form = "unpacked"
	}
	return cachedEntry{Program: e.Program, Hash: e.Hash(), Form: form, Bytes: e.Size, Used: e.Used.UTC().Truncate(time.Second), entry: e}
}

// register adds the flags of a command, which needs no registry.
func (f *cacheFlags) register(cmd *cobra.Command) {
	f.configFlag.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.registerQuiet(cmd)
}

// run opens the cache, unless its folder is missing, and prints what the command's function reports.
func (f *cacheFlags) run(cmd *cobra.Command, _ []string) error {
	return perform(&f.commonFlags, cmd, func(s settings) (config.Cache, error) {
		return s.file.Gateway.EffectiveCache(false, defaultCacheFolder()), nil
	}, func(ctx context.Context, _ settings, c config.Cache) (*cacheReport, error) {
		out := &cacheReport{DryRun: f.dryRun, Folder: c.Directory, Packages: []cachedEntry{}}
		if c.Directory == "" {
			return out, hint.New("this user has no cache folder", "name a directory in the cache block of ocibridge.hcl")
		}
		if _, err := os.Stat(filepath.Join(c.Directory, "archives")); errors.Is(err, fs.ErrNotExist) {
			if !f.output.json() && !f.quiet {
				fmt.Fprintf(cmd.OutOrStdout(), "there is no cache in %s\n", c.Directory)
			}
			return out, nil
		}
		cache, err := archives.OpenCache(c.Directory, c.MaxSize, archives.CacheOptions{Log: f.log.open(cmd.ErrOrStderr()), KeepsAll: true})
		if err != nil {
			return out, err
		}
		defer cache.Close()
		err = f.do(ctx, cache, out)
		if !f.output.json() {
			f.print(cmd.OutOrStdout(), out)
		}
		return out, err
	}, func(r *cacheReport) any { return cmp.Or(r, &cacheReport{DryRun: f.dryRun, Packages: []cachedEntry{}}) })
}

func (f *cacheFlags) print(w io.Writer, r *cacheReport) {
	rows := [][]string{{"PROGRAM", "FORM", "SIZE", "LAST USED", "HASH"}}
	for _, e := range r.Packages {
		hash := e.Hash
		if e.Problem != nil {
			hash += " " + *e.Problem
		}
		rows = append(rows, []string{e.Program, e.Form, size(e.Bytes), e.Used.Format(time.DateOnly), hash})
	}
	if len(rows) > 1 {
		fmt.Fprint(w, tableText(rows, 4, terminalWidth(w)))
	}
	if r.summary != "" && !f.quiet {
		fmt.Fprintln(w, r.summary)
	}
}

// add adds packages, and returns their number and size for people.
func (r *cacheReport) add(all []archives.Entry) string {
	var total int64
	for _, e := range all {
		r.Packages = append(r.Packages, newCachedEntry(e))
		total += e.Size
	}
	return fmt.Sprintf("%s, %s", count(len(all), "package"), size(total))
}

func newCacheListCommand() *cobra.Command {
	f := &cacheFlags{}
	f.do = func(ctx context.Context, c *archives.Cache, out *cacheReport) error {
		all, err := c.Entries(ctx)
		out.summary = out.add(all) + ", in " + out.Folder
		return err
	}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the packages in the cache",
		Long: `list shows the zips and the unpacked packages in the cache, with their sizes and the
day of their last use. A package that exec has laid is there twice: as a zip and
unpacked. If the cache is full, the zip goes first.`,
		Example: `  # everything
  ocibridge cache list

  # the largest packages
  ocibridge cache list --output json \
    | jq -r '.packages | sort_by(-.bytes)[:5][] | .program'`,
		Args: noArgs,
		RunE: f.run,
	}
	f.register(cmd)
	return cmd
}

func newCacheVerifyCommand() *cobra.Command {
	f := &cacheFlags{}
	f.do = func(ctx context.Context, c *archives.Cache, out *cacheReport) error {
		all, err := c.Entries(ctx)
		if err != nil {
			return err
		}
		for _, e := range all {
			err := c.Verify(ctx, e)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil || errors.Is(err, archives.ErrNotCached): // another process may have evicted it
				continue
			}
			problem := "cannot be read: " + hint.OneLine(err.Error())
			if errors.Is(err, archives.ErrDigest) {
				problem = "was damaged, and is removed"
			}
			entry := newCachedEntry(e)
			entry.Problem = &problem
			out.Packages = append(out.Packages, entry)
		}
		if n := len(out.Packages); n > 0 {
			return hint.New(count(n, "package")+" of "+fmt.Sprint(len(all))+" did not match", "the next exec or gateway fetches what was removed; a disk that damages files will do so again")
		}
		out.summary = count(len(all), "package") + " checked, none has changed"
		return nil
	}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Hash every package in the cache again, and remove what has changed",
		Long: `verify reads every zip and every unpacked package in the cache, and compares it with
its hash. It removes what has changed, lists it, and exits with 1.

Gateways and exec check packages before they use them. verify finds a failing disk
earlier, and the damage in packages to which workspaces have links.`,
		Example: `  # in a scheduled job
  ocibridge cache verify --quiet`,
		Args: noArgs,
		RunE: f.run,
	}
	f.register(cmd)
	return cmd
}

func newCachePruneCommand() *cobra.Command {
	f := &cacheFlags{}
	unused := limitFlag[time.Duration]{parse: config.ParseUnused}
	all := false
	var dry dryRunFlags
	f.dryRun = &dry.dryRun
	f.do = func(ctx context.Context, c *archives.Cache, out *cacheReport) error {
		unwanted := func(e archives.Entry) bool { return all || unused.value > 0 && time.Since(e.Used) > unused.value }
		chosen, err := c.Prune(ctx, dry.dryRun, unwanted)
		done := "removed: "
		if dry.dryRun {
			done = "would be removed: "
		}
		out.summary = done + out.add(chosen)
		return cmp.Or(err, dry.pending(len(chosen) > 0))
	}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what interrupted commands have left, and packages that nobody uses",
		Long: `prune removes what killed processes have left in the cache. With --unused, it also
removes the packages that nobody has used for that time, and with --all every package.
It lists the packages that it has removed. With --dry-run, it only lists those that it
would remove.

A workspace with a link to a removed package cannot plan until the next exec has
mended the link.`,
		Example: `  # packages that were not used for 30 days
  ocibridge cache prune --unused 30d

  # all packages
  ocibridge cache prune --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := dry.check(); err != nil {
				return usage(err)
			}
			return f.run(cmd, args)
		},
	}
	f.register(cmd)
	dry.register(cmd, "print what would be removed, and remove nothing")
	cmd.Flags().Var(&unused, "unused", "remove the packages that nobody has used for this `time`, such as 30d")
	cmd.Flags().BoolVar(&all, "all", false, "remove all packages")
	return cmd
}

// warmFlags are the flags of cache warm.
type warmFlags struct{ commonFlags }

// warmedPackage is a locked package.
type warmedPackage struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	Bytes    int64            `json:"bytes"`
	Form     string           `json:"form,omitempty"` // "unpacked", or "zip" for a package that clients unpack in ways of their own; "" if it is not cached
	Fetched  bool             `json:"fetched"`        // it was not in the cache
	Problem  string           `json:"problem,omitempty"`
}

func newCacheWarmCommand() *cobra.Command {
	f := &warmFlags{}
	cmd := &cobra.Command{
		Use:   "warm [DIR...]",
		Short: "Bring the packages of lock files into the cache",
		Long: `warm fetches the packages for this machine's platform that the lock files of the
folders name, unpacks them, and keeps them in the cache. Without arguments, it reads the
lock file in the current folder. exec then lays these packages without a download.

It takes what exec would take: from the registry that the templates name, and only
what deny, verify and trust allow. A package must match its lock file.

Providers that no template selects are left out. warm exits with 1 if another package is
not in the cache afterwards.`,
		Example: `  # an image for runners
  COPY .terraform.lock.hcl ocibridge.hcl ./
  RUN ocibridge cache warm

  # all folders of a repository
  ocibridge cache warm envs/*`,
		RunE: f.run,
	}
	f.registryFlags.register(cmd)
	f.use = config.OwnGateway
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.registerQuiet(cmd)
	return cmd
}

func (f *warmFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		args = []string{"."}
	}
	return perform(&f.commonFlags, cmd, func(s settings) (run.Options, error) {
		repositories, err := f.repositories(s, nil)
		return run.Options{
			Settings: serve.Settings{Config: s.file, Repositories: repositories, CacheFolder: defaultCacheFolder(), Origins: s.origins()},
			Version:  version, UserAgent: userAgent(),
		}, err
	}, func(ctx context.Context, _ settings, o run.Options) ([]warmedPackage, error) {
		o.Log = f.log.open(cmd.ErrOrStderr())
		out := []warmedPackage{}
		failed := 0
		err := run.Warm(ctx, o, args, func(w run.Warmed) {
			p := newWarmedPackage(w)
			if w.Err != nil {
				failed++
			}
			out = append(out, p)
			if !f.output.json() && (w.Err != nil || !f.quiet) {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
		})
		if err == nil && failed > 0 {
			err = hint.New(count(failed, "package")+" of "+fmt.Sprint(len(out))+" could not be brought into the cache", "see the reasons above; ocibridge list shows what the registry has")
		}
		slices.SortFunc(out, func(a, b warmedPackage) int {
			return strings.Compare(a.Provider.String()+a.Version.String(), b.Provider.String()+b.Version.String())
		})
		return out, err
	}, func(all []warmedPackage) any {
		if all == nil {
			all = []warmedPackage{}
		}
		return map[string]any{"packages": all}
	})
}

func newWarmedPackage(w run.Warmed) warmedPackage {
	p := warmedPackage{Provider: w.Provider, Version: w.Version, Bytes: w.Size, Fetched: w.New}
	switch {
	case w.Err != nil:
		p.Problem = hint.OneLine(w.Err.Error())
	case w.Elsewhere:
	case w.Unpacked:
		p.Form = "unpacked"
	default:
		p.Form = "zip"
	}
	return p
}

func (p warmedPackage) String() string {
	name := p.Provider.String() + " " + p.Version.String()
	switch {
	case p.Problem != "":
		return name + ": " + p.Problem
	case p.Form == "":
		return name + ": left out: no template selects it, so clients get it from its origin"
	case !p.Fetched:
		return name + ": there already"
	case p.Form == "zip":
		return fmt.Sprintf("%s: fetched, %s; clients unpack it in ways of their own", name, size(p.Bytes))
	}
	return fmt.Sprintf("%s: fetched and unpacked, %s packed", name, size(p.Bytes))
}
