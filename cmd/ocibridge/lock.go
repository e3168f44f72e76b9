package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/lockfile"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const lockExamples = `  # the configuration in this folder, for every platform that the registry has
  ocibridge lock .

  # two configurations, for what the team and the pipeline run on
  ocibridge lock network cluster --platform linux_amd64 --platform darwin_arm64

  # what would be added
  ocibridge lock . --dry-run

  # nothing that is not signed
  ocibridge lock . --h1 none

  # h1: hashes of packages that were downloaded and verified
  ocibridge lock . --h1 computed`

// lockFlags are the flags of lock.
type lockFlags struct {
	registryFlags
	output        outputFlag
	log           logFlag
	platforms     []string
	h1            string
	allowUnsigned bool
	skipMissing   bool
	dryRun        bool
	jobs          jobsFlag
}

// Where h1: hashes come from.
const (
	h1Auto      = "auto"
	h1Annotated = "annotated"
	h1Computed  = "computed"
	h1None      = "none"
)

var h1Modes = []string{h1Auto, h1Annotated, h1Computed, h1None}

func newLockCommand() *cobra.Command {
	f := &lockFlags{}
	cmd := &cobra.Command{
		Use:   "lock DIR...",
		Short: "Add every platform's hashes to dependency lock files",
		Long: `lock adds to the .terraform.lock.hcl of configurations the hashes that the locked
versions have on every platform in the registry, so that "init -lockfile=readonly"
works on all of them. It downloads no package, unless --h1 computed has it do so.
Only hashes are added: versions, constraints, comments and the hashes that are
there stay.

zh: hashes stand in the SHA256SUMS that is kept beside each version as evidence.
Its signature is checked again, by the trust blocks of ocibridge.hcl; a version
without one is refused, unless they or --allow-unsigned allow it. Only where a
trust block pins keys does that prove anything against whoever can write to the
registry.

h1: hashes are in no signed document. The registry has them as annotations, as
push computed them; whoever can write to the registry can write others, and
clients accept any package that has one hash of the lock file. --h1 says what to
do:

  auto       take annotations, but none where a trust block pins keys
  annotated  take annotations: believe the registry
  computed   download the packages, verify them, and compute the hashes
  none       add zh: hashes alone; network mirrors and oci_mirror need no others

A lock file that contradicts the registry is refused: one with a zh: hash that
the SHA256SUMS does not list, with an h1: hash of no platform where those of all
are known, or with no hash in common. If anything is wrong, no file is changed.`,
		Example: lockExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to add, such as linux_amd64 (repeatable; default: all that the registry has)")
	flags.StringVar(&f.h1, "h1", h1Auto, "`where` h1: hashes come from: auto, annotated, computed or none")
	flags.BoolVar(&f.allowUnsigned, "allow-unsigned", false, "accept versions by what the registry has, where nothing is signed")
	flags.BoolVar(&f.skipMissing, "skip-missing", false, "leave entries as they are whose version is not in the registry")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would change, and change nothing")
	f.jobs.register(cmd, "how many versions are looked at at once")
	completePlatforms(cmd)
	cmd.RegisterFlagCompletionFunc("h1", cobra.FixedCompletions(h1Modes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// lockPlan is what the command line asks for.
type lockPlan struct {
	platforms []provider.Platform // none: all
	policy    func(provider.Address) trust.Policy
}

func (f *lockFlags) plan(args []string, rules trust.Rules) (*lockPlan, error) {
	if len(args) == 0 {
		return nil, hint.New("no configuration is named", "name its folder: ocibridge lock . for this one")
	}
	if !slices.Contains(h1Modes, f.h1) {
		return nil, hint.New(fmt.Sprintf("--h1 %s is not known", f.h1), "it is auto, annotated, computed or none")
	}
	platforms, err := parsePlatforms(f.platforms)
	return &lockPlan{platforms: platforms, policy: policyBy(rules, f.allowUnsigned)}, err
}

// run adds the hashes. For a program it prints one JSON document however that
// ends, unless lock was called wrongly.
func (f *lockFlags) run(cmd *cobra.Command, args []string) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	s, settingsErr := f.settings(cmd)
	p, err := f.plan(args, s.trustRules())
	if err != nil {
		return usage(err)
	}
	var results []*lockResult
	if err = settingsErr; err == nil {
		results, err = f.lock(cmd.Context(), s, p, args, stderr)
	}
	if !f.output.json() {
		for _, r := range results {
			r.print(stdout, f.dryRun)
		}
	}
	return f.output.finish(func() error { return writeResults(stdout, results, err) }, err)
}

// lock works in three steps: everything is read, everything is decided, and only
// then is anything written.
func (f *lockFlags) lock(ctx context.Context, s settings, p *lockPlan, dirs []string, stderr io.Writer) ([]*lockResult, error) {
	files, err := readLockFiles(dirs)
	if err != nil {
		return nil, err
	}
	var addresses []provider.Address
	for _, file := range files {
		for _, w := range file.Warnings {
			fmt.Fprintf(stderr, "warning: %s\n", w)
		}
		for _, e := range file.Providers {
			addresses = append(addresses, e.Address)
		}
	}
	back, err := f.open(s, addresses, f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	defer back.Close()
	reader := &lockReader{back: back, plan: p, h1: f.h1, jobs: int(f.jobs), skipMissing: f.skipMissing}
	found, err := reader.read(ctx, files)
	for _, w := range reader.warnings {
		fmt.Fprintf(stderr, "warning: %s\n", w)
	}
	if err != nil {
		return nil, err
	}
	var results []*lockResult
	for _, file := range files {
		r, err := decide(file, found, p.platforms)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if f.dryRun {
		for _, r := range results {
			r.Diff = string(diff.Diff(r.File, r.old.Bytes(), r.File, r.new.Bytes()))
		}
		return results, nil
	}
	if err := writeLockFiles(results); err != nil {
		return slices.DeleteFunc(results, func(r *lockResult) bool { return r.Status == lockIncomplete }), err
	}
	return results, nil
}

// readLockFiles reads the lock file of every folder, each once.
func readLockFiles(dirs []string) ([]*lockfile.File, error) {
	var out []*lockfile.File
	seen := map[string]bool{}
	for _, dir := range dirs {
		if filepath.Base(dir) == lockfile.Name {
			if info, err := os.Stat(dir); err == nil && !info.IsDir() {
				dir = filepath.Dir(dir) // a shell completes to the file
			}
		}
		path := filepath.Join(dir, lockfile.Name)
		file, err := lockfile.Read(path)
		if err != nil {
			return nil, err
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		if !seen[path] {
			seen[path] = true
			out = append(out, file)
		}
	}
	return out, nil
}

// lockResult is what is done to one lock file.
type lockResult struct {
	File string `json:"file"`
	// Status is updated, or unchanged if nothing is missing; in a dry run,
	// incomplete in place of updated.
	Status  string       `json:"status"`
	Entries []*lockEntry `json:"providers"`
	// Diff is what would change, in a dry run.
	Diff string `json:"diff,omitempty"`

	old, new *lockfile.File
}

const (
	lockUpdated    = "updated"
	lockUnchanged  = "unchanged"
	lockIncomplete = "incomplete"
)

// lockEntry is what is done to one entry.
type lockEntry struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version"`
	// Missing is set if the version is not in the registry. There is no more to
	// say then.
	Missing bool `json:"missing,omitempty"`
	// Verdict and Fingerprint are on what grounds the hashes are right, and Pinned
	// is set if a trust block names that key.
	Verdict     trust.Verdict       `json:"verdict,omitempty"`
	Fingerprint string              `json:"fingerprint,omitempty"`
	Pinned      bool                `json:"pinned,omitempty"`
	Platforms   []provider.Platform `json:"platforms"` // that the file knows now
	Added       []string            `json:"added"`     // hashes
}

// decide checks a lock file against what was found and adds what it lacks.
func decide(file *lockfile.File, found map[lockedVersion]*lockedRelease, platforms []provider.Platform) (*lockResult, error) {
	r := &lockResult{File: file.Name, Status: lockUnchanged, Entries: []*lockEntry{}, old: file}
	add := map[provider.Address][]provider.Hash{}
	for _, p := range file.Providers {
		release := found[lockedVersion{p.Address, p.Version}]
		entry := &lockEntry{Provider: p.Address, Version: p.Version, Platforms: []provider.Platform{}, Added: []string{}}
		r.Entries = append(r.Entries, entry)
		if release == nil {
			entry.Missing = true
			continue
		}
		if err := file.Check(p.Address, release.Release); err != nil {
			return nil, err
		}
		entry.Verdict, entry.Fingerprint, entry.Pinned = release.verdict, release.fingerprint, release.pinned
		for _, pkg := range release.Packages {
			if len(platforms) > 0 && !slices.Contains(platforms, pkg.Platform) {
				continue
			}
			entry.Platforms = append(entry.Platforms, pkg.Platform)
			hashes := []provider.Hash{pkg.Zip}
			if release.writeH1 && !pkg.H1.IsZero() {
				hashes = append(hashes, pkg.H1)
			}
			for _, h := range hashes {
				if !slices.Contains(p.Hashes, h.String()) {
					entry.Added = append(entry.Added, h.String())
					add[p.Address] = append(add[p.Address], h)
				}
			}
		}
		slices.Sort(entry.Added)
	}
	var err error
	if r.new, err = file.With(add); err != nil {
		return nil, err
	}
	if r.new != r.old {
		r.Status = lockIncomplete
	}
	return r, nil
}

// writeLockFiles writes the files that change: all of them beside the old ones
// first, so that what fails does so before any is replaced.
func writeLockFiles(results []*lockResult) error {
	var ready []*lockfile.Replacement
	defer func() {
		for _, r := range ready {
			r.Discard()
		}
	}()
	var changed []*lockResult
	for _, r := range results {
		if r.new == r.old {
			continue
		}
		replacement, err := r.old.Prepare(r.new.Bytes())
		if err != nil {
			return err
		}
		ready = append(ready, replacement)
		changed = append(changed, r)
	}
	for i, r := range changed {
		if err := ready[i].Commit(); err != nil {
			return err
		}
		r.Status = lockUpdated
	}
	return nil
}

// print shows what was done to a file; in a dry run, the difference.
func (r *lockResult) print(w io.Writer, dryRun bool) {
	if dryRun {
		io.WriteString(w, r.Diff)
		return
	}
	for _, e := range r.Entries {
		if e.Missing {
			fmt.Fprintf(w, "%s: %s %s: not in the registry, left as it is\n", r.File, e.Provider, e.Version)
			continue
		}
		grounds := string(e.Verdict)
		if e.Fingerprint != "" {
			grounds += " by " + e.Fingerprint
		}
		if e.Pinned {
			grounds += " (pinned)"
		}
		added := "complete"
		if n := len(e.Added); n == 1 {
			added = "1 hash added"
		} else if n > 1 {
			added = fmt.Sprintf("%d hashes added", n)
		}
		fmt.Fprintf(w, "%s: %s %s: %s, %s, %s\n", r.File, e.Provider, e.Version, added, count(len(e.Platforms), "platform"), grounds)
	}
	fmt.Fprintf(w, "%s: %s\n", r.File, r.Status)
}
