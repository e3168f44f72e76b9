package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionOf returns the version that the linker has set, or else the version of the module that
// "go install" has built.
func versionOf(linked string, build *debug.BuildInfo) string {
	if linked == development && build != nil && build.Main.Version != "" && build.Main.Version != "(devel)" {
		return build.Main.Version
	}
	return linked
}

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
