package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opentofu/svchost"
	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/run"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/provider"
)

const execExamples = `  # install from GHCR, with the login that docker has
  export OCIBRIDGE_TEMPLATE='ghcr.io/acme/${hostname}/${namespace}/${type}'
  ocibridge exec -- tofu init

  # lock the hashes of two platforms
  ocibridge exec -- tofu providers lock -platform=linux_amd64 \
    -platform=darwin_arm64

  # several commands, with one gateway
  ocibridge exec -- sh -c 'tofu init && tofu apply -auto-approve'

  # a private registry that only modules from other places name
  ocibridge exec --host registry.acme.example -- terragrunt run --all init`

type execFlags struct {
	registryFlags
	hosts   []string
	noCache bool
	noStore bool
	log     logFlag
}

func newExecCommand() *cobra.Command {
	f := &execFlags{}
	cmd := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG...]",
		Short: "Run terraform, tofu or another command with a gateway of its own",
		Long: `exec runs a command with a gateway that lives as long as the command. Terraform and
OpenTofu then install providers from the OCI registry, signed and fully locked,
without a server and without a certificate.

The gateway listens on a loopback port. Other users of the machine cannot use it,
because its URL contains a secret. The command gets the URL in host blocks of a CLI
configuration, which TF_CLI_CONFIG_FILE names. All other settings are those that the
client would have read. There is a host block for each host that an include pattern of
the templates names. If a template has no such pattern, there is one for each of

  - registry.terraform.io and registry.opentofu.org
  - the hosts in the lock file
  - the hosts in required_providers, also of local child modules
  - the hosts that --host names

Other hosts are left alone. Providers that no template is for come from their origin,
as they do without exec. Modules come from the repositories of module_mirror blocks, or
from the embedded registry, and else from their origin.

If the command's folder has a lock file, exec first copies the packages that it names
into .terraform/providers, if the client would get the same packages from the gateway
and leave the lock file as it is. The client then downloads nothing. Each package is
unpacked once on this machine; --no-store turns this off.

exec passes signals on, and exits with the status of the command: 128 and the number
of the signal if a signal ended the command, 127 if there is no such command, and 126
if it does not run.

` + run.IfKilled(runtime.GOOS) + `

exec prints warnings about the user's own files in any case, such as a CLI
configuration that cannot be read. All other warnings and errors of the gateway are
printed only if the command fails, after the command has ended. exec then also prints
which providers, versions, packages and modules the registry lacks. It says if it has
found no configuration. With --log-level, the log is printed at once.`,
		Example: execExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(hint.New("no command is named", "write it after --, such as: ocibridge exec -- tofu init"))
			}
			return nil
		},
		RunE:              f.run,
		ValidArgsFunction: completePrograms,
	}
	f.registryFlags.register(cmd)
	f.use = config.OwnGateway
	f.log.register(cmd, slog.LevelWarn)
	flags := cmd.Flags()
	flags.Lookup("log-level").Usage = "least `level` to log while the command runs: debug, info, warn or error; without it, errors are printed if the command fails"
	flags.SetInterspersed(false) // the flags after the command belong to the command
	flags.StringArrayVar(&f.hosts, "host", nil, "`host` whose providers to serve as well, such as registry.acme.example (repeatable)")
	flags.BoolVar(&f.noCache, "no-cache", false, noCacheUsage)
	flags.BoolVar(&f.noStore, "no-store", false, "lay no packages that the lock file names: the client downloads and unpacks them itself")
	cmd.RegisterFlagCompletionFunc("host", cobra.NoFileCompletions)
	return cmd
}

// completePrograms completes the command with the programs in the folders of PATH. It completes a command that contains a
// slash, and the arguments of the command, with file names.
func completePrograms(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || strings.ContainsRune(filepath.ToSlash(toComplete), '/') {
		return nil, cobra.ShellCompDirectiveDefault
	}
	found := map[cobra.Completion]bool{}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // PATH often names folders that do not exist
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), toComplete) || found[e.Name()] {
				continue
			}
			if _, err := exec.LookPath(filepath.Join(dir, e.Name())); err == nil {
				found[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), cobra.ShellCompDirectiveDefault
}

// run runs the command. If the command fails, run reports what the gateway lacked.
func (f *execFlags) run(cmd *cobra.Command, args []string) error {
	stderr := cmd.ErrOrStderr()
	log, notices, held := f.openLogs(cmd, stderr)
	cmd.SetErr(warnings{log})
	o, err := f.options(cmd, args)
	if err != nil {
		held.print(stderr)
		return err
	}
	if len(o.Settings.Repositories.Templates) == 0 && o.Settings.Config.File == "" && flagSource(cmd.Flags().Lookup("data")) == "" {
		note(stderr, "there is no ocibridge.hcl in %s or above it in its Git repository, and no template: exec uses the embedded registry in %s, and fetches from origins what is not there", o.Environment.Dir, f.dataFolder())
	}
	o.Log, o.Notices = log, notices
	o.Waiting = func(packages int, atMost time.Duration) {
		note(stderr, "bringing %s into the cache before the command begins, for at most %v", count(packages, "package"), atMost)
	}
	result, err := run.Run(cmd.Context(), o)
	switch {
	case errors.As(err, new(serve.UsageError)):
		return usage(err)
	case err != nil:
		held.print(stderr)
		return err
	case result.Status == 0:
		return nil
	}
	held.print(stderr)
	for _, m := range result.Missing {
		reportMissing(cmd, stderr, o, m)
	}
	for _, m := range result.MissingModules {
		in := "the embedded registry"
		if repo, err := o.Settings.Repositories.Templates.Repository(m); err == nil {
			in = repo.String()
		}
		printError(stderr, fmt.Sprintf("%s has no version of the module %s", in, m),
			fmt.Sprintf("check the address; to add a version: ocibridge module push FOLDER --as %s@VERSION%s", m, withSameModuleFlags(cmd)))
	}
	if len(result.Unasked) > 0 {
		var names []string
		for _, host := range result.Unasked {
			names = append(names, host.ForDisplay())
		}
		note(stderr, "the command requested nothing from exec, which serves the providers and modules of %s: --host HOSTNAME adds a host", strings.Join(names, ", "))
	}
	return exitStatus(result.Status)
}

// openLogs returns the gateway's log, and a log of notices for the user. With --log-level, both logs write to stderr.
// Otherwise, notices are printed at once, and held holds the gateway's warnings and errors until the command has failed.
func (f *execFlags) openLogs(cmd *cobra.Command, stderr io.Writer) (log, notices *slog.Logger, held *heldErrors) {
	held = &heldErrors{}
	if flagSource(cmd.Flags().Lookup("log-level")) != "" {
		log = f.log.open(stderr)
		return log, log, held
	}
	show := func(text string) { held.show(stderr, text) }
	return slog.New(errorHandler{add: held.add}), slog.New(errorHandler{add: show}), held
}

func (f *execFlags) options(cmd *cobra.Command, args []string) (run.Options, error) {
	s, err := f.settings(cmd)
	if err != nil {
		return run.Options{}, err
	}
	hosts, err := parseAll(svchost.ForComparison, f.hosts)
	if err != nil {
		return run.Options{}, usage(hint.Wrap(fmt.Errorf("--host: %w", err), "give a host as in a provider's address, such as registry.acme.example"))
	}
	repositories, err := f.repositories(s, nil)
	if err != nil {
		return run.Options{}, err
	}
	setCache(cmd, &s.file.Gateway, f.noCache)
	dir, err := os.Getwd()
	if err != nil {
		return run.Options{}, err
	}
	o := run.Options{
		Command:  args,
		Settings: serve.Settings{Config: s.file, Repositories: repositories, CacheFolder: defaultCacheFolder(), Origins: s.origins()},
		Environment: cliconfig.Environment{
			Getenv: os.Getenv, Environ: os.Environ, ReadFile: s.files.ReadFile, ReadDir: s.files.ReadDir, Home: homeDir(), Dir: dir, GOOS: runtime.GOOS,
		},
		NoStore: f.noStore, Hosts: hosts, Credentials: s.cli.CredentialsSource(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version, UserAgent: userAgent(),
	}
	if runtimeDir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(runtimeDir) {
		o.Folders = append(o.Folders, filepath.Join(runtimeDir, "ocibridge-exec"))
	}
	if cache := defaultCacheFolder(); cache != "" {
		o.Folders = append(o.Folders, filepath.Join(cache, "exec"))
		o.Cache = filepath.Join(cache, "discovery")
	}
	if runtime.GOOS != "windows" { // in a GitHub job that runs in a container, the home folder belongs to another user
		o.Folders = append(o.Folders, filepath.Join(os.TempDir(), fmt.Sprintf("ocibridge-exec-%d", os.Geteuid())))
	}
	return o, nil
}

// reportMissing prints what the gateway does not have, and how to add it.
func reportMissing(cmd *cobra.Command, stderr io.Writer, o run.Options, m run.Missing) {
	in := "the embedded registry"
	if repo, err := o.Settings.Repositories.Templates.Repository(m.Provider); err == nil {
		in = repo.String()
	}
	what, help := describeMissing(m)
	text := fmt.Sprintf("%s has no signed %s", in, what)
	if !m.Unsigned.IsZero() {
		help = fmt.Sprintf("%s is stored without a valid signature. If the registry accepts no signatures, use oci_mirror, or network_mirror through a gateway. Otherwise, add the signature: ocibridge push --refresh-evidence %s@%s", m.Unsigned, m.Provider, m.Unsigned)
	}
	switch {
	case errors.Is(m.Denied, approval.ErrNotApproved):
		lacks := &approval.NotApproved{}
		errors.As(m.Denied, &lacks)
		text, help = m.Denied.Error(), cmp.Or(lacks.Hint(), fmt.Sprintf("the trust block of the provider requires the approval: whoever reviews versions approves it with ocibridge approve %s@%s, or choose an approved version", m.Provider, m.Version))
	case m.Denied != nil:
		text, help = m.Denied.Error(), "the gateway block of the configuration denies this version: see its deny"
	case m.Pulled && m.Unsigned.IsZero():
		help = "pull-through cannot get it from " + m.Provider.Hostname() + " either: check the name and the version, unless a warning above says that the origin is unavailable"
	default:
		help += withSameFlags(cmd)
	}
	printError(stderr, text, help)
}

// describeMissing returns what is missing, and the hint that says how to push it.
func describeMissing(m run.Missing) (what, add string) {
	a := m.Provider
	switch {
	case m.Platform != provider.Platform{}:
		return fmt.Sprintf("package of %s %s for %s", a, m.Version, m.Platform), fmt.Sprintf("to add it: ocibridge push %s@%s --platform %s", a, m.Version, m.Platform)
	case !m.Version.IsZero():
		return fmt.Sprintf("version %s of %s, which the lock file names", m.Version, a), fmt.Sprintf("to add it: ocibridge push %s@%s", a, m.Version)
	case !m.Versions.IsZero():
		text := hint.OneLine(m.Versions.String())
		return fmt.Sprintf("version of %s that matches %q", a, text), fmt.Sprintf("to add one: ocibridge push '%s@%s'", a, text)
	}
	return "version of " + a.String(), fmt.Sprintf("check the names of the repository and the provider; to add the newest version: ocibridge push '%s@>= 0'", a)
}
