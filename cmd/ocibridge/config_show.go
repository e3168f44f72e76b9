package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
)

const configShowExamples = `  ocibridge config show

  # what would serve do with this flag?
  ocibridge config show --listen :9443

  # where does the address come from?
  ocibridge config show --output json | jq '.settings[] | select(.path == "gateway.listen")'`

func newConfigShowCommand() *cobra.Command {
	var f configFlag
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what is in force, and where it comes from",
		Long: `show prints every setting in force, as a configuration file, with a comment that
says where it comes from: a flag, a variable, the configuration file, the CLI
configuration of OpenTofu and Terraform, or the default. Secrets are redacted.`,
		Example: configShowExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.read()
			if err != nil {
				return err
			}
			cli, err := loadCLIConfig(cmd.ErrOrStderr(), nil)
			if err != nil {
				return err
			}
			return showConfig(cmd.OutOrStdout(), c.File, c.InForce(surroundings(cmd, cli)), output.json())
		},
	}
	f.register(cmd)
	output.register(cmd)
	surroundingFlags(cmd)
	return cmd
}

func showConfig(w io.Writer, file string, inForce *config.InForce, asJSON bool) error {
	if asJSON {
		return printJSON(w, map[string]any{"file": file, "settings": inForce})
	}
	if file == "" {
		file = "no configuration file"
	}
	_, err := fmt.Fprintf(w, "# %s\n%s", hint.OneLine(file), inForce.HCL())
	return err
}
