package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output.json() {
				return output.print(cmd, map[string]string{
					"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "_" + runtime.GOARCH,
				}, nil)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "ocibridge %s (%s, %s_%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	output.register(cmd)
	return cmd
}
