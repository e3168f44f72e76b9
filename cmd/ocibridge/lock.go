package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lock"
	"github.com/ocibridge/ocibridge/internal/registries/inventory"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

const lockExamples = `  # the configuration in this folder, for every platform in the registry
  ocibridge lock .

  # two configurations, for the platforms of the team and the pipeline
  ocibridge lock network cluster --platform linux_amd64 --platform darwin_arm64

  # show the changes, and make none
  ocibridge lock . --dry-run

  # in a pipeline: exit with 3 if hashes are missing
  ocibridge lock . --dry-run --detailed-exitcode

  # signed hashes only
  ocibridge lock . --h1 none

  # h1: hashes that are computed from verified packages
  ocibridge lock . --h1 computed`

type lockFlags struct {
	commonFlags
	dryRunFlags
	platforms     []string
	h1            string
	allowUnsigned bool
	skipMissing   bool
}

// h1Modes are the values of --h1.
var h1Modes = []string{string(lock.Auto), string(lock.Annotated), string(lock.Computed), string(lock.None)}

func newLockCommand() *cobra.Command {
	f := &lockFlags{}
	cmd := &cobra.Command{
		Use:   "lock DIR...",
		Short: "Add every platform's hashes to dependency lock files",
		Long: `lock adds hashes to the .terraform.lock.hcl of configurations: for each locked
version, the hashes for every platform in the registry. "init -lockfile=readonly"
then works on all of these platforms. lock changes nothing else in the file. It
downloads packages only with --h1 computed, and where only an h1: hash that the
registry lacks can identify an entry.

lock takes zh: hashes from the SHA256SUMS that is stored with each version as
evidence. It verifies the signature again by the trust blocks of ocibridge.hcl, and
refuses an unsigned version unless a trust block or --allow-unsigned allows it. This
protects against somebody who can write to the registry only if a trust block pins
keys.

Nobody signs h1: hashes. The registry has those that push computed, as annotations.
Anybody who can write to the registry can change them, and clients accept any
package that matches one hash of the lock file. --h1 says where h1: hashes come from:

  auto       as annotated, or as none where a trust block pins keys
  annotated  take the annotations, and trust the registry
  computed   download and verify the packages, and compute the hashes
  none       add only zh: hashes; network mirrors and oci_mirror need no others

lock refuses a lock file that contradicts the registry: it has a zh: hash that the
SHA256SUMS does not list, or an h1: hash that no package has although the h1: hashes
of all platforms are known, or no hash in common with the registry. After such an error,
all files are unchanged. If only some packages of a version are refused, lock leaves out
their platforms, adds the hashes of the others, and exits with 1.`,
		Example: lockExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return perform(&f.commonFlags, cmd, func(s settings) (lock.Options, error) {
				return f.options(args, s.file.Trust)
			}, func(ctx context.Context, s settings, o lock.Options) ([]*lock.Change, error) {
				changes, err := f.lock(ctx, s, o, args, cmd.ErrOrStderr())
				if !f.output.json() {
					for _, c := range changes {
						f.print(cmd.OutOrStdout(), c)
					}
				}
				if err == nil {
					err = lock.LeftOut(changes)
				}
				if err == nil {
					err = f.pending(slices.ContainsFunc(changes, func(c *lock.Change) bool { return c.Diff != "" }))
				}
				return changes, err
			}, resultsDocument)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f.commonFlags.register(cmd, "number of versions to read at once")
	flags := cmd.Flags()
	flags.StringArrayVar(&f.platforms, "platform", nil, "`platform` to add, such as linux_amd64 (repeatable; default: all that the registry has)")
	flags.StringVar(&f.h1, "h1", string(lock.Auto), "`where` h1: hashes come from: auto, annotated, computed or none")
	flags.BoolVar(&f.allowUnsigned, "allow-unsigned", false, "accept unsigned versions as the registry has them")
	flags.BoolVar(&f.skipMissing, "skip-missing", false, "leave entries unchanged whose version is not in the registry")
	f.dryRunFlags.register(cmd, "print the changes as a diff, and change nothing")
	completePlatforms(cmd)
	cmd.RegisterFlagCompletionFunc("h1", cobra.FixedCompletions(h1Modes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// options parses and checks the arguments and flags of lock.
func (f *lockFlags) options(args []string, rules trust.Rules) (lock.Options, error) {
	if len(args) == 0 {
		return lock.Options{}, hint.New("no configuration is named", "name its folder: ocibridge lock . for this one")
	}
	if !slices.Contains(h1Modes, f.h1) {
		return lock.Options{}, hint.New(fmt.Sprintf("--h1 %s is not known", f.h1), "it is auto, annotated, computed or none")
	}
	if err := f.check(); err != nil {
		return lock.Options{}, err
	}
	platforms, err := parseAll(provider.ParsePlatform, f.platforms)
	return lock.Options{
		Policy: policyBy(rules, f.allowUnsigned), Platforms: platforms, H1: lock.H1(f.h1), SkipMissing: f.skipMissing, Jobs: int(f.jobs),
	}, err
}

// lock reads the lock files in dirs, plans their changes and, except in a dry run, writes them.
func (f *lockFlags) lock(ctx context.Context, s settings, o lock.Options, dirs []string, stderr io.Writer) ([]*lock.Change, error) {
	files, err := lock.Read(dirs)
	if err != nil {
		return nil, err
	}
	var addresses []provider.Address
	for _, file := range files {
		warnAll(stderr, file.Warnings)
		for _, e := range file.Providers {
			addresses = append(addresses, e.Address)
		}
	}
	back, err := f.open(s, subject.List(addresses), f.log.open(stderr))
	if err != nil {
		return nil, err
	}
	defer back.Close()
	o.Registry = back
	changes, warnings, err := lock.Plan(ctx, o, files)
	warnAll(stderr, warnings)
	if err != nil {
		return nil, err
	}
	if !f.dryRun {
		return lock.Write(changes)
	}
	for _, c := range changes {
		c.Compare()
	}
	return changes, nil
}

// print shows the changes of a lock file. In a dry run, it prints the diff, or only the status if there is no diff.
// Otherwise, it prints a line for each entry, and the status.
func (f *lockFlags) print(w io.Writer, c *lock.Change) {
	switch {
	case f.dryRun && c.Diff != "":
		io.WriteString(w, c.Diff)
		return
	case f.dryRun:
		fmt.Fprintf(w, "%s: %s\n", c.File, c.Status)
		return
	}
	for _, e := range c.Entries {
		if e.Missing {
			fmt.Fprintf(w, "%s: %s %s: not in the registry, left as it is\n", c.File, e.Provider, e.Version)
			continue
		}
		grounds := inventory.Signature{Verdict: e.Verdict, Fingerprint: e.Fingerprint}.Text(false)
		if e.Pinned {
			grounds += " (pinned)"
		}
		added := "complete"
		switch n := len(e.Added); {
		case n > 1:
			added = fmt.Sprintf("%d hashes added", n)
		case n == 1:
			added = "1 hash added"
		case len(e.LeftOut) > 0:
			added = "no hash added"
		}
		platforms := count(len(e.Platforms), "platform")
		if n := len(e.LeftOut); n > 0 {
			platforms += fmt.Sprintf(", %d left out", n)
		}
		fmt.Fprintf(w, "%s: %s %s: %s, %s, %s\n", c.File, e.Provider, e.Version, added, platforms, grounds)
	}
	fmt.Fprintf(w, "%s: %s\n", c.File, c.Status)
}
