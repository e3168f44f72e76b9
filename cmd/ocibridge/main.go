// Command ocibridge puts Terraform and OpenTofu providers into OCI registries,
// verified, and serves them to every client from there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// version is set when a release is built.
var version = "dev"

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := newRootCommand()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = hint.New("interrupted", "what was tagged before is as it was; running it again completes what is missing")
	}
	fmt.Fprintf(os.Stderr, "error: %v\n", err)
	if h := hint.Of(err); h != "" {
		fmt.Fprintf(os.Stderr, "hint: %s\n", h)
	}
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a mistake in how the command was called.
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
and gives them back to every client.

With no --template and no oci_mirror block in the CLI configuration, it uses a
registry of its own, on a data folder.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: fromEnvironment,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(hint.New(fmt.Sprintf("unknown command %q", args[0]), "ocibridge --help lists the commands"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(hint.Wrap(err, "%s --help lists the flags", cmd.CommandPath()))
	})
	root.AddCommand(newPushCommand(), newServeCommand(), newVersionCommand())
	return root
}
