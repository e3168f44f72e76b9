// Command ocibridge verifies Terraform and OpenTofu providers, stores them in OCI registries,
// and serves them to every client from there.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/panics"
)

// version is the version of this release. The linker sets version when a release is built.
var version = development

// development is the version of a build that is no release.
const development = "dev"

func main() {
	build, _ := debug.ReadBuildInfo()
	version = versionOf(version, build)
	ctx, stop := interruptible(context.Background())
	status := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// execute runs the command that args select, and returns its exit status. It prints the command's error as text. If the
// user wants JSON and nothing was printed before, it also prints the error as JSON.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return executeRoot(ctx, newRootCommand(), args, stdout, stderr)
}

func executeRoot(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	out := &output{Writer: printer{stdout}}
	stderr = printer{stderr}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	err = explainInterrupt(ctx, err)
	if out.err != nil && errorDocument(err) == nil {
		err = hint.Wrap(fmt.Errorf("the results cannot be printed: %w", out.err), "what the command did stays; make standard output writable")
	}
	if message := errorDocument(err); message != nil {
		if !out.written && asksForJSON(cmd, args) {
			_ = printJSON(out, map[string]any{"error": message})
		}
		if bug, ok := errors.AsType[*panics.Error](err); ok {
			fmt.Fprintln(stderr, bug.Stack)
		}
		printError(stderr, message.Message, message.Hint)
	}
	return statusOf(ctx, err)
}

// usageError is an error about a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ocibridge",
		Short: "Terraform and OpenTofu providers in any OCI registry",
		Long: `ocibridge puts Terraform and OpenTofu providers into any OCI registry, verified,
and serves them to every client.

Its settings come from ocibridge.hcl, from the user's own CLI configuration and from
flags: ocibridge config show prints all of them, and where each comes from. Without
--template and without an oci_mirror block, it uses its embedded registry, which is
a folder on this machine.`,
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: fromEnvironment,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, "command", args[0], "ocibridge --help lists the commands")
			}
			return nil
		},
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2, // cobra suggests commands whose names differ by at most this number of letters
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
			// The unknown flags belong to a subcommand whose name is misspelt.
			return cmd.ValidateArgs(cmd.Flags().Args())
		}
		return usage(hint.Wrap(err, "%s%s --help lists the flags", didYouMean(cmd, err), cmd.CommandPath()))
	})
	root.AddCommand(newPushCommand(), newSyncCommand(), newRemoveCommand(), newApproveCommand(), newServeCommand(), newExecCommand(), newListCommand(), newInspectCommand(), newVerifyCommand(), newUsageCommand(), newLockCommand(), newCopyCommand(), newGCCommand(), newDoctorCommand(), newLoginCommand(), newLogoutCommand(), newModuleCommand(), newCacheCommand(), newFingerprintCommand(), newConfigCommand(), newVersionCommand(), newManCommand())
	addHelp(root)
	addCompletion(root)
	return root
}

// unknown returns the error for an argument that names no command or topic. The hint of the
// error suggests commands with similar names.
func unknown(root *cobra.Command, what, name, help string) error {
	if like := root.SuggestionsFor(name); len(like) > 0 {
		help = fmt.Sprintf("did you mean %s? %s", strings.Join(like, " or "), help)
	}
	return usage(hint.New(fmt.Sprintf("unknown %s %q", what, name), "%s", help))
}

// addCompletion adds cobra's completion command to root, and makes the command fail on unknown
// arguments. By default, cobra's command would print help and succeed.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion := subcommand(root, "completion")
	completion.Args = noCommand
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range completion.Commands() {
		shell.Args = noArgs
	}
}
