package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/transfer"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// noArgs returns a usage error if a command has arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(hint.New(fmt.Sprintf("unexpected argument %q", args[0]), "%s --help shows how to call it", cmd.CommandPath()))
	}
	return nil
}

// noCommand returns a usage error if a command that only groups subcommands has an argument. The argument is an unknown
// subcommand.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(hint.New(fmt.Sprintf("unknown command %q", cmd.Name()+" "+args[0]), "%s --help lists the commands", cmd.CommandPath()))
	}
	return nil
}

// formatFlag is the value of --output and of --log-format. It is text or json.
type formatFlag string

func (f *formatFlag) register(cmd *cobra.Command, name, shorthand, usage string) {
	*f = "text"
	cmd.Flags().VarP(f, name, shorthand, usage)
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *formatFlag) String() string { return string(*f) }
func (f *formatFlag) Type() string   { return "format" }
func (f *formatFlag) json() bool     { return *f == "json" }

func (f *formatFlag) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New("it is text or json")
	}
	*f = formatFlag(s)
	return nil
}

// parseAll parses each value with the function parse. It returns the first error.
func parseAll[T any](parse func(string) (T, error), values []string) ([]T, error) {
	var out []T
	for _, s := range values {
		v, err := parse(s)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// completePlatforms makes shell completion offer the usual platforms for --platform.
func completePlatforms(cmd *cobra.Command) {
	cmd.RegisterFlagCompletionFunc("platform", cobra.FixedCompletions(
		[]string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64"}, cobra.ShellCompDirectiveNoFileComp))
}

// jobsFlag is the value of --jobs, a number of concurrent jobs.
type jobsFlag int

func (j *jobsFlag) register(cmd *cobra.Command, usage string) {
	j.Set(config.FlagDefault("jobs"))
	cmd.Flags().Var(j, "jobs", usage)
}

func (j *jobsFlag) String() string { return strconv.Itoa(int(*j)) }
func (j *jobsFlag) Type() string   { return "int" }

func (j *jobsFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > config.MaxCount {
		return fmt.Errorf("it is a number from 1 to %d", config.MaxCount)
	}
	*j = jobsFlag(n)
	return nil
}

// logFlag holds --log-level, and --log-format for long-running commands.
type logFlag struct {
	level   slog.Level
	format  formatFlag
	current slog.LevelVar // the current level of the log that open returned
}

func (f *logFlag) registerFormat(cmd *cobra.Command) {
	f.format.register(cmd, "log-format", "", "`format` of the log: text or json, an object a line")
}

func (f *logFlag) register(cmd *cobra.Command, level slog.Level) {
	cmd.Flags().TextVar(&f.level, "log-level", level, "least `level` to log: debug, info, warn or error")
	cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
}

// open returns a log that writes to w, in the format and at the level that the flags select.
func (f *logFlag) open(w io.Writer) *slog.Logger {
	f.current.Set(f.level)
	if f.format.json() {
		return slog.New(slog.NewJSONHandler(jsonWriter{w}, &slog.HandlerOptions{Level: &f.current, ReplaceAttr: secondsInJSON}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: &f.current}))
}

// secondsInJSON converts the duration in a log attribute to seconds. By default, slog writes nanoseconds, without the unit.
func secondsInJSON(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// connectionFlags are the flags of commands that connect to registries.
type connectionFlags struct {
	configFlag
	plainHTTP bool
	caFile    string
}

func (f *connectionFlags) register(cmd *cobra.Command) {
	f.configFlag.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.plainHTTP, "plain-http", false, "speak plain HTTP to the registry; registries on loopback addresses do not need this")
	flags.StringVar(&f.caFile, "ca-file", "", "PEM `file` with CAs to trust in addition to the system's, for registries and origins")
	cmd.MarkFlagFilename("ca-file", "pem", "crt")
}

// registryFlags are the flags that select the registry.
type registryFlags struct {
	connectionFlags
	template         string
	kind             subject.Kind // the kind that --template is for, unless the arguments decide it
	ignoresVariables bool         // variables with templates do not count, because the user names a place, as in copy
	include, exclude []string
	data             string
	running          string // the address that serve listens on; "" before it listens
	reads            bool   // the command only reads, see [registry.Options]
}

func (f *registryFlags) register(cmd *cobra.Command) {
	f.connectionFlags.register(cmd)
	f.registerPlace(cmd, subject.Provider, "repository `template`, such as ghcr.io/acme/providers/${hostname}/${namespace}/${type} (default: the oci_mirror blocks of ocibridge.hcl, else of the CLI configuration, else the embedded registry)")
	flags := cmd.Flags()
	flags.StringArrayVar(&f.include, "include", nil, "provider `pattern` that --template is for, such as registry.opentofu.org/hashicorp/* (repeatable)")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "provider `pattern` that --template is not for (repeatable)")
}

// registerPlace adds --template and --data. kind is the kind that --template is for, and template is its usage text.
func (f *registryFlags) registerPlace(cmd *cobra.Command, kind subject.Kind, template string) {
	f.kind = kind
	variable := templateVariable(kind)
	cmd.Flags().Var(&givenText{text: &f.template, help: fmt.Sprintf(emptyTemplateHelp, cmp.Or(variable, variablePrefix+"TEMPLATE")), variable: variable}, "template", template)
	cmd.Flags().StringVar(&f.data, "data", "", "`folder` of the embedded registry (default "+defaultDataFolderText()+")")
	cmd.MarkFlagDirname("data")
}

const emptyTemplateHelp = "for the embedded registry, leave out --template and unset %s; a shell replaces ${type} in double quotes by nothing: use single quotes"

// givenText is the value of a flag that names a source or a destination. An empty value on the command line or in the flag's
// variable is an error, because it would select the default.
type givenText struct {
	text          *string
	help          string // the hint of the error about an empty value
	emptyVariable bool   // an empty variable counts as unset, and not as an error
	variable      string // the flag's environment variable; "" means the usual one, see variableOf
}

func (t *givenText) String() string {
	if t.text == nil {
		return "" // pflag reads the default from a zero value
	}
	return *t.text
}

// Type returns the placeholder for the value in help. Help uses this placeholder if the usage text contains no name in
// backquotes.
func (t *givenText) Type() string { return "text" }

func (t *givenText) Set(text string) error {
	if text == "" {
		return hint.New("it is empty", "%s", t.help)
	}
	*t.text = text
	return nil
}

// complete makes shell completion offer the providers in the configuration file.
func (f *registryFlags) complete(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeKinds(cmd, subject.Provider)
}

// completeKinds makes shell completion offer the addresses of the given kinds in the configuration file.
func (f *registryFlags) completeKinds(cmd *cobra.Command, kinds ...subject.Kind) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if c, err := f.read(cmd.Context()); err == nil { // a completion cannot show errors
		for _, a := range transfer.AllBlocks(c).Addresses() {
			if slices.Contains(kinds, a.Kind()) {
				out = append(out, a.String())
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// dataFolder returns the folder for the embedded registry and for the files that serve stores, or "" if there is none.
func (f *registryFlags) dataFolder() string { return cmp.Or(f.data, defaultDataFolder()) }

// defaultDataFolder returns the usual folder for the user's data on this operating system. It returns "" if this folder
// would be in the home folder and the user has no home folder.
func defaultDataFolder() string {
	home := homeDir()
	switch {
	case runtime.GOOS == "windows" && os.Getenv("LocalAppData") != "":
		return filepath.Join(os.Getenv("LocalAppData"), "ocibridge")
	case runtime.GOOS == "darwin" && home != "":
		return filepath.Join(home, "Library", "Application Support", "ocibridge")
	case filepath.IsAbs(os.Getenv("XDG_DATA_HOME")):
		return filepath.Join(os.Getenv("XDG_DATA_HOME"), "ocibridge")
	case home == "":
		return ""
	}
	return filepath.Join(home, ".local", "share", "ocibridge")
}

// defaultCacheFolder returns the cache folder that systemd has created for this service. Without such a folder, it
// returns the user's usual cache folder, or "" if there is none.
func defaultCacheFolder() string {
	if dirs := filepath.SplitList(os.Getenv("CACHE_DIRECTORY")); len(dirs) > 0 && filepath.IsAbs(dirs[0]) {
		return dirs[0]
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "ocibridge")
	}
	if home := homeDir(); home != "" {
		return filepath.Join(home, ".cache", "ocibridge")
	}
	return ""
}

// homeDir returns the user's home folder, or "" if the user has none. If HOME is not set, as in many services and
// containers, homeDir takes the folder from the user's account, as clients do.
func homeDir() string {
	if home, err := os.UserHomeDir(); err == nil {
		return home
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// defaultDataFolderText describes the default data folder without naming a particular user's home folder.
func defaultDataFolderText() string {
	switch runtime.GOOS {
	case "windows":
		return `%LocalAppData%\ocibridge`
	case "darwin":
		return "~/Library/Application Support/ocibridge"
	}
	return "$XDG_DATA_HOME/ocibridge, else ~/.local/share/ocibridge"
}

// fromEnvironment sets each flag that is not on the command line to the value of the flag's environment variable. The
// name of the variable is OCIBRIDGE_ and the flag's name in capitals, with underscores instead of dashes. Commas separate
// the values of a repeatable flag.
func fromEnvironment(cmd *cobra.Command, _ []string) error {
	warnUnknownVariables(cmd)
	return variables(cmd)
}

func variables(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, given := variableValue(f)
		if f.Changed || !given || err != nil {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := strings.Split(value, ",")
			for i, v := range values {
				values[i] = strings.TrimSpace(v)
			}
			err = list.Replace(values)
		} else {
			err = f.Value.Set(value)
		}
		if err != nil {
			err = usage(hint.Wrap(fmt.Errorf("%s=%q: %w", variableOf(f), value, err), "the variable is read as --%s: correct or unset it", f.Name))
		}
	})
	return err
}

// variableValue returns the value of a flag's environment variable, and whether the variable is set. An empty variable counts
// as set only if the flag refuses empty values.
func variableValue(f *pflag.Flag) (value string, given bool) {
	name := variableOf(f)
	if name == "" {
		return "", false
	}
	value, given = os.LookupEnv(name)
	text, ok := f.Value.(*givenText)
	refusesEmpty := ok && !text.emptyVariable
	return value, given && (value != "" || refusesEmpty)
}

// variablePrefix is the prefix of the environment variables that set flags.
const variablePrefix = "OCIBRIDGE_"

// templateVariable returns the variable of --template in the commands about one kind, such as OCIBRIDGE_MODULE_TEMPLATE.
// Each kind has its own variable, because users have templates of all kinds at once. For providers, the result is "", and
// the variable has the name of the flag.
func templateVariable(kind subject.Kind) string {
	if kind.Traits().Mirrors {
		return ""
	}
	return variablePrefix + strings.ToUpper(string(kind)) + "_TEMPLATE"
}

// variableOf returns the name of the environment variable that sets a flag, or "" for --help and --version.
func variableOf(f *pflag.Flag) string {
	if f.Name == "help" || f.Name == "version" {
		return ""
	}
	if text, ok := f.Value.(*givenText); ok && text.variable != "" {
		return text.variable
	}
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// warnUnknownVariables warns about variables that have the prefix but set no flag. Without the warning, a push with a
// misspelt OCIBRIDGE_TEMPLATE would go to the embedded registry unnoticed.
func warnUnknownVariables(cmd *cobra.Command) {
	known := map[string]bool{
		variablePrefix + "VERSION": true, // many installation scripts set it
		variablePrefix + "TOKEN":   true, // the secret of the CI jobs that config client prints
	}
	var learn func(*cobra.Command)
	learn = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[variableOf(f)] = true })
		for _, sub := range c.Commands() {
			learn(sub)
		}
	}
	learn(cmd.Root())
	for _, name := range login.Variables() {
		known[name] = true
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, variablePrefix) && !known[name] {
			warn(cmd.ErrOrStderr(), "the variable %s is none that ocibridge knows", name)
		}
	}
}
