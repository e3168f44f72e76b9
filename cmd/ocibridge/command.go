package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// commonFlags are the flags of the commands that process many versions in a registry.
type commonFlags struct {
	registryFlags
	output outputFlag
	log    logFlag
	jobs   jobsFlag
	quiet  bool
}

// register adds the flags to a command. jobs is the usage text of --jobs.
func (f *commonFlags) register(cmd *cobra.Command, jobs string) {
	f.registryFlags.register(cmd)
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelWarn)
	f.jobs.register(cmd, jobs)
	f.registerQuiet(cmd)
}

func (f *commonFlags) registerQuiet(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print no progress and no summary: only results, warnings and errors")
}

// perform runs a command that changes registries or files. The function plan checks the
// command line, the function do carries out the plan, and the function document returns the
// JSON output, a JSON object. If the settings cannot be read, neither plan nor do runs. With
// --output json, perform prints the document even if the settings cannot be read or do fails. If
// the command line is wrong, the document contains only the error.
func perform[P, R any](f *commonFlags, cmd *cobra.Command, plan func(settings) (P, error), do func(context.Context, settings, P) (R, error), document func(R) any) error {
	s, err := f.settings(cmd) // settings runs before plan, because the configuration file sets flags and policies
	var results R
	if err == nil {
		results, err = planAndDo(cmd.Context(), s, plan, do)
	}
	if !f.output.json() || errors.As(err, new(usageError)) {
		return err
	}
	return f.output.print(cmd, document(results), err)
}

// planAndDo makes the plan and carries it out. An error of the plan is a usage error.
func planAndDo[P, R any](ctx context.Context, s settings, plan func(settings) (P, error), do func(context.Context, settings, P) (R, error)) (results R, err error) {
	p, err := plan(s)
	if err != nil {
		return results, usage(err)
	}
	return do(ctx, s, p)
}

// dryRunFlags are the flags of commands that can print what they would change.
type dryRunFlags struct{ dryRun, detailedExitCode bool }

// register adds the flags to a command. usage is the usage text of --dry-run.
func (f *dryRunFlags) register(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, usage)
	cmd.Flags().BoolVar(&f.detailedExitCode, "detailed-exitcode", false, "with --dry-run: exit with 3 if there is something to change")
}

func (f *dryRunFlags) check() error {
	if f.detailedExitCode && !f.dryRun {
		return hint.New("--detailed-exitcode goes with --dry-run", "add --dry-run, or leave it out: without --dry-run, a command that succeeds exits with 0")
	}
	return nil
}

// pending returns the result of a command that has succeeded: exitPending if --detailed-exitcode is set and a dry run has
// found changes, and nil otherwise.
func (f *dryRunFlags) pending(changes bool) error {
	if f.detailedExitCode && changes {
		return exitStatus(exitPending)
	}
	return nil
}

// resultsDocument returns the JSON output of a command that reports a result for each version
// or file.
func resultsDocument[T any](results []T) any {
	return map[string][]T{"results": orEmpty(results)}
}

// orEmpty replaces a nil list with an empty list. JSON encodes an empty list as [] and a nil
// list as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// configured returns the addresses of the provider blocks in the configuration file.
func (s settings) configured() []provider.Address {
	return subject.Of[provider.Address](transfer.AllBlocks(s.file).Addresses())
}

// configuredModules returns the addresses of the module blocks in the configuration file.
func (s settings) configuredModules() []module.Address {
	return subject.Of[module.Address](transfer.AllBlocks(s.file).Addresses())
}
