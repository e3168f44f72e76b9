package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const configCheckExamples = `  # the file that serve and push would read
  ocibridge config check

  # in a pipeline, before the file is rolled out
  ocibridge config check deploy/ocibridge.hcl --output json`

func newConfigCheckCommand() *cobra.Command {
	var f configFlag
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the configuration file",
		Long: `check finds everything in the configuration file that can be found wrong before
anything starts, in the files that it names, and in the variables that hold a
login. Nothing is contacted.

It exits with 0 if the file is valid, and with 1 if not. Settings that are valid
and not in effect in this version are warned about.`,
		Example: configCheckExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(hint.New("more than one file", "%s --help shows how to call it", cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file := f.file
			if len(args) > 0 {
				if cmd.Flags().Changed("config") {
					return usage(hint.New("the file is named twice", "give FILE or --config FILE"))
				}
				if file = args[0]; file == "" {
					return usage(hint.New("the name of the file is empty", "leave it out for the file that serve and push would read"))
				}
			}
			return checkConfig(cmd, file, &output)
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"hcl"}, cobra.ShellCompDirectiveFilterFileExt),
	}
	f.register(cmd)
	output.register(cmd)
	return cmd
}

// checkConfig checks the configuration file at the path name. If name is "", it checks the file
// that other commands would read.
func checkConfig(cmd *cobra.Command, name string, output *outputFlag) error {
	env := configEnvironment(cmd.Context(), nil)
	c, err := config.Load(env, name)
	var invalid *config.Error
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	var file string
	var diags []config.Diagnostic
	if invalid != nil {
		file, diags = invalid.File, invalid.Diagnostics
	} else {
		file = c.File
		diags = append(c.CheckFiles(env), c.Warnings...)
	}
	if _, err := authEnvironment().VariableLogin(); err != nil {
		diags = append(diags, config.Diagnostic{Severity: config.SeverityError, Summary: "Invalid variables", Detail: err.Error() + ": " + hint.Of(err) + "."})
	}
	errs := 0
	for _, d := range diags {
		if d.Severity == config.SeverityError {
			errs++
		}
	}
	var failure error
	if errs > 0 {
		failure = hint.New(fmt.Sprintf("%s has %s", cmp.Or(file, "the configuration"), count(errs, "error")), "ocibridge help configuration lists all blocks and arguments")
	}
	if output.json() {
		return output.print(cmd, map[string]any{"file": file, "valid": errs == 0, "diagnostics": orEmpty(diags)}, failure)
	}
	if err := reportDiagnostics(cmd.ErrOrStderr(), diags); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	return printValid(cmd.OutOrStdout(), file, env.Places())
}

func printValid(stdout io.Writer, file string, places []string) error {
	if file == "" {
		_, err := fmt.Fprintf(stdout, "no configuration file: there is none at %s\n", strings.Join(places, ", "))
		return err
	}
	_, err := fmt.Fprintf(stdout, "%s is valid\n", file)
	return err
}
