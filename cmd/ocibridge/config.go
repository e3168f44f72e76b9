package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ocibridge/ocibridge/gateway/archives"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
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

const configShowExamples = `  ocibridge config show

  # what would serve do with this flag?
  ocibridge config show --listen :9443

  # where does the address come from?
  ocibridge config show --output json \
    | jq '.settings[] | select(.path == "gateway.listen")'`

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
			c, err := f.read(cmd.Context())
			if err != nil {
				return err
			}
			cli, err := loadCLIConfig(cmd.Context(), cmd.ErrOrStderr(), nil)
			if err != nil {
				return err
			}
			s := surroundings(cmd, cli)
			addCacheDefaults(s, c)
			return showConfig(cmd.OutOrStdout(), c.File, c.Effective(s), output.json())
		},
	}
	f.register(cmd)
	output.register(cmd)
	surroundingFlags(cmd, append(config.Flags(), "template", "include", "exclude")...)
	return cmd
}

// addCacheDefaults adds the defaults of the cache block to s.
func addCacheDefaults(s config.Surroundings, c *config.Config) {
	embedded := len(c.EffectiveMirrors(s)) == 0
	cache := c.Gateway.EffectiveCache(embedded, defaultCacheFolder())
	s.Defaults["no-cache"] = strconv.FormatBool(!cache.Enabled)
	if f, ok := s.Flags["no-cache"]; ok {
		cache.Enabled = f.Value == "false"
	}
	if !cache.Enabled || cache.Directory == "" {
		return
	}
	s.Defaults["cache.directory"] = cache.Directory
	if size, err := archives.DefaultSize(cache.Directory); err == nil {
		s.Defaults["cache.max_size"] = fmt.Sprintf("%dMiB", size>>20)
	}
}

func showConfig(w io.Writer, file string, effective *config.Effective, asJSON bool) error {
	if asJSON {
		return printJSON(w, map[string]any{"file": file, "settings": effective})
	}
	if file == "" {
		file = "no configuration file"
	}
	_, err := fmt.Fprintf(w, "# %s\n%s", hint.OneLine(file), effective.HCL())
	return err
}

// configFlag is --config, the flag of every command that reads the configuration file.
type configFlag struct {
	file  string
	use   config.Use
	files *files.Snapshot // records the files that load reads, to detect changes; load records nothing if files is nil
}

// register adds the flag to a command, and sets f.use to its value for commands that run no gateway. Other commands
// change f.use afterwards.
func (f *configFlag) register(cmd *cobra.Command) {
	f.use = config.NoGateway
	given := &givenText{text: &f.file, help: "leave out --config for the file that is found without it", emptyVariable: true}
	cmd.Flags().Var(given, "config", "configuration `file` (default: ocibridge.hcl here or in a folder above, in the user's configuration folder or in /etc/ocibridge)")
	cmd.MarkFlagFilename("config", "hcl")
}

// load reads the configuration file. It then sets each flag of cmd that neither the command
// line nor an environment variable has set.
func (f *configFlag) load(cmd *cobra.Command) (*config.Config, error) {
	c, err := f.read(cmd.Context())
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		warn(cmd.ErrOrStderr(), "%s:%d: %s", w.File, w.Line, w.Detail)
	}
	given := func(name string) bool {
		flag := cmd.Flags().Lookup(name)
		return flag != nil && flagSource(flag) != ""
	}
	fromFile := map[string]config.FlagValue{}
	for _, v := range c.FlagValues(given) {
		fromFile[v.Flag] = v
	}
	// A reload runs this loop again. A flag that the file no longer sets then returns to its
	// default.
	for _, name := range config.Flags() {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || given(name) {
			continue
		}
		v, ok := fromFile[name]
		if !ok {
			v = config.FlagValue{Value: flag.DefValue, Source: "default"}
		}
		if err := flag.Value.Set(v.Value); err != nil {
			return nil, fmt.Errorf("%s: --%s: %w", v.Source, name, err)
		}
	}
	return c, nil
}

// read reads the configuration file. It sets no flags.
func (f *configFlag) read(ctx context.Context) (*config.Config, error) {
	env := configEnvironment(ctx, f.files)
	env.Use = f.use
	c, err := config.Load(env, f.file)
	return c, explainConfig(err)
}

// explainConfig adds a hint to err if err is about an invalid configuration file. The hint
// names the command that shows the error with the lines of the file.
func explainConfig(err error) error {
	var invalid *config.Error
	if errors.As(err, &invalid) {
		return hint.Wrap(err, "ocibridge config check %s shows it in its place", invalid.File)
	}
	return err
}

// flagSource returns where the value of a flag comes from: "flag" for the command line, or the
// name of an environment variable. It returns "" if neither sets the flag.
func flagSource(flag *pflag.Flag) string {
	if flag.Changed {
		return "flag"
	}
	if _, given := variableValue(flag); given {
		return variableOf(flag)
	}
	return ""
}

// configEnvironment returns the environment of the configuration file. seen records the files that
// are read; nil records nothing.
func configEnvironment(ctx context.Context, seen *files.Snapshot) config.Environment {
	read := func(name string) ([]byte, error) { return seen.ReadGiven(ctx, name) }
	return config.Environment{
		LookupEnv: os.LookupEnv, ReadFile: read, Mode: fileMode, Above: files.Above("."), IsOwn: files.IsOwn, Home: homeDir(), GOOS: runtime.GOOS,
	}
}

// fileMode returns the permission bits of a file. Windows has none.
func fileMode(name string) (fs.FileMode, error) {
	if runtime.GOOS == "windows" {
		return 0, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), nil
}

// surroundingFlags adds the named flags of serve and push to cmd, which only shows settings.
// These flags override the configuration file.
func surroundingFlags(cmd *cobra.Command, names ...string) {
	for _, like := range []*cobra.Command{newServeCommand(), newPushCommand()} {
		for _, name := range names {
			if flag := like.Flags().Lookup(name); flag != nil && cmd.Flags().Lookup(name) == nil {
				cmd.Flags().AddFlag(flag)
			}
		}
	}
}

// surroundings returns the settings from outside the configuration file. Flags and variables
// override the file. The file overrides the CLI configuration.
func surroundings(cmd *cobra.Command, cli *cliconfig.Config) config.Surroundings {
	s := config.Surroundings{Flags: map[string]config.FlagValue{}, CLI: cli, Defaults: map[string]string{}}
	if dir := defaultDataFolder(); dir != "" {
		s.Defaults["data"] = dir
	}
	s.VariableLogin, _ = authEnvironment().VariableLogin() // config check reports an invalid login
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

// reportDiagnostics prints each diagnostic with the lines of the file that the diagnostic is
// about.
func reportDiagnostics(w io.Writer, diags []config.Diagnostic) error {
	width, color := 78, isTerminal(w) && os.Getenv("NO_COLOR") == ""
	if n := terminalWidth(w); n > 0 {
		width = min(n, 120)
	}
	return config.Report(w, diags, width, color)
}
