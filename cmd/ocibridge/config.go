package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/files"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration, and print that of clients",
		Long: `config checks and shows the configuration file, ocibridge.hcl. ocibridge help
configuration lists its blocks and arguments, and the places where it is found.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigShowCommand(), newConfigClientCommand())
	return cmd
}

// configFlag is --config, for commands that the configuration file is for.
type configFlag struct {
	file  string
	files *files.Snapshot // that settings are read from; nil: nobody looks for changes
}

func (f *configFlag) register(cmd *cobra.Command) {
	given := &givenText{text: &f.file, help: "leave out --config for the file that is found without it", emptyVariable: true}
	cmd.Flags().Var(given, "config", "configuration `file` (default: ocibridge.hcl here, in the user's configuration folder or in /etc/ocibridge)")
	cmd.MarkFlagFilename("config", "hcl")
}

// load reads the configuration file for a command, and gives the command's flags
// the values that the file has for them, unless the command line or a variable has
// given them one.
func (f *configFlag) load(cmd *cobra.Command) (*config.Config, error) {
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s:%d: %s\n", w.File, w.Line, hint.OneLine(w.Detail))
	}
	given := func(name string) bool {
		flag := cmd.Flags().Lookup(name)
		return flag != nil && flagSource(flag) != ""
	}
	// Settings may be read again: a flag that the file no longer sets has its default.
	for _, name := range config.Flags() {
		if flag := cmd.Flags().Lookup(name); flag != nil && !given(name) {
			if err := flag.Value.Set(flag.DefValue); err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	for _, v := range c.FlagValues(given) {
		flag := cmd.Flags().Lookup(v.Flag)
		if flag == nil {
			continue
		}
		if err := flag.Value.Set(v.Value); err != nil {
			return nil, fmt.Errorf("%s: --%s: %w", v.Source, v.Flag, err)
		}
	}
	return c, nil
}

// read reads the configuration file alone.
func (f *configFlag) read() (*config.Config, error) {
	env := configEnvironment()
	env.ReadFile = f.files.ReadFile
	c, err := config.Load(env, f.file)
	return c, explainConfig(err)
}

// explainConfig says how to see in full what is wrong with a configuration file.
func explainConfig(err error) error {
	var invalid *config.Error
	if errors.As(err, &invalid) {
		return hint.Wrap(err, "ocibridge config check %s shows it in its place", invalid.File)
	}
	return err
}

// flagSource says where a flag has its value from: "flag", the name of its
// variable, or "" for none of them.
func flagSource(flag *pflag.Flag) string {
	if flag.Changed {
		return "flag"
	}
	if _, given := variableValue(flag); given {
		return variableOf(flag)
	}
	return ""
}

func configEnvironment() config.Environment {
	return config.Environment{LookupEnv: os.LookupEnv, ReadFile: files.Read, Home: homeDir(), GOOS: runtime.GOOS}
}

// surroundingFlags are the flags that stand above the configuration file, for
// commands that tell what is in force and do nothing with it.
func surroundingFlags(cmd *cobra.Command) {
	for _, like := range []*cobra.Command{newServeCommand(), newPushCommand()} {
		for _, name := range append(config.Flags(), "template", "include", "exclude") {
			if flag := like.Flags().Lookup(name); flag != nil && cmd.Flags().Lookup(name) == nil {
				cmd.Flags().AddFlag(flag)
			}
		}
	}
}

// surroundings gathers what stands above and below the configuration file: the
// command's flags and their variables, and the CLI configuration.
func surroundings(cmd *cobra.Command, cli *cliconfig.Config) config.Surroundings {
	s := config.Surroundings{Flags: map[string]config.FlagValue{}, CLI: cliSettings(cli), Defaults: map[string]string{}}
	if dir := defaultDataFolder(); dir != "" {
		s.Defaults["data"] = dir
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if source := flagSource(flag); source != "" {
			s.Flags[flag.Name] = config.FlagValue{Flag: flag.Name, Value: flag.Value.String(), Source: source}
		}
	})
	if t, ok := s.Flags["template"]; ok {
		s.Template = &config.MirrorText{Template: ociaddr.HideLogin(t.Value), Source: t.Source}
		s.Template.Include, _ = cmd.Flags().GetStringArray("include")
		s.Template.Exclude, _ = cmd.Flags().GetStringArray("exclude")
	}
	return s
}

// cliSettings is what the CLI configuration has beside the configuration file,
// with the login that variables hold. One that is not valid is left out.
func cliSettings(cli *cliconfig.Config) config.CLI {
	var out config.CLI
	for _, m := range cli.OCIMirrors {
		out.Mirrors = append(out.Mirrors, config.MirrorText{Template: ociaddr.HideLogin(m.RepositoryTemplate), Include: m.Include, Exclude: m.Exclude, Source: m.Source})
	}
	out.Logins, out.Defaults = cli.OCICredentials()
	if l, err := authEnvironment().VariableLogin(); err == nil && l != nil &&
		!slices.ContainsFunc(out.Logins, func(o auth.Login) bool { return o.Prefix == l.Prefix }) {
		out.Logins = append(out.Logins, *l)
	}
	for host, services := range cli.Services() {
		out.Hosts = append(out.Hosts, config.Host{Name: host.ForDisplay(), Services: services, Source: strings.Join(cli.Files, " or ")})
	}
	for _, h := range cli.TokenHosts() {
		out.Credentials = append(out.Credentials, config.Host{Name: h.Host.ForDisplay(), Source: h.Source})
	}
	return out
}

// reportDiagnostics shows diagnostics with the lines that they are about.
func reportDiagnostics(w io.Writer, diags []config.Diagnostic) error {
	width, color := 78, isTerminal(w) && os.Getenv("NO_COLOR") == ""
	if n := terminalWidth(w); n > 0 {
		width = min(n, 120)
	}
	return config.Report(w, diags, width, color)
}
