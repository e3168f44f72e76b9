package main

import (
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/approval/signing"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const serveExamples = `  # try it: embedded registry, certificate of a local CA, localhost:8443
  ocibridge serve

  # in front of Harbor, for everybody
  ocibridge serve --listen :8443 --tls-cert tls.pem --tls-key tls.key \
    --template 'harbor.example.com/providers/${hostname}/${namespace}/${type}'

  # behind a proxy that speaks TLS to clients
  ocibridge serve --listen 10.0.0.5:8080 --http --config ocibridge.hcl`

type serveFlags struct {
	registryFlags
	output     outputFlag
	listen     string
	cert, key  string
	selfSigned bool
	http       bool
	noPull     bool
	noCache    bool
	metrics    string // the address of the separate listener for metrics
	log        logFlag
}

func newServeCommand() *cobra.Command { return (&serveFlags{}).command() }

// command returns the serve command. The command stores the values of its flags in f.
func (f *serveFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the providers and modules in an OCI registry to every client",
		Long: `serve answers the provider network mirror protocol under /providers/ from the
repositories that the template names, and the provider registry protocol under
/hosts/HOST/v1/providers/ for the signed versions among them. Without a template it serves
the embedded registry, which OpenTofu can also read directly, as an oci_mirror.
At / is a web page, which shows how to set up clients, and lists the providers and modules.

It answers the module registry protocol under /hosts/HOST/v1/modules/ from the
repositories of the module_mirror blocks. Without templates and such blocks, it serves
the modules in the embedded registry. Clients need a host block for each host, which
ocibridge config client --for host prints.

Clients speak TLS only, so serve needs a certificate:

  - --tls-cert and --tls-key name the files of your own certificate.
  - On a loopback address, or with --tls-self-signed, serve creates a CA in the data
    folder, once. That CA signs a new certificate at each start.
  - An acme block in the configuration file obtains a certificate for a public name.
  - With --http, serve speaks plain HTTP, behind a proxy that speaks TLS to clients.

Certificates and settings are read again when their files change, and on SIGHUP.

With a pull_through block in the configuration file, serve fetches a provider that
the registry lacks from its origin at the first request, verifies and stores it.
Patterns of four parts in that block let it do the same for modules.
Without a configuration file and without a template, serve does so for all
providers if it listens on a loopback address. --no-pull-through turns it off.

Packages and the registry's answers are cached on disk, unless the registry is
the embedded one: in the folder that the cache block names, else in the user's
cache folder. --no-cache turns it off.

The token and oidc blocks of the configuration file say which clients may read
which providers and modules. Without these blocks, everybody may read everything.`,
		Example: serveExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.registryFlags.register(cmd)
	f.use = config.Serve
	f.output.register(cmd)
	f.log.register(cmd, slog.LevelInfo)
	f.log.registerFormat(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", config.FlagDefault("listen"), "`address` to listen on")
	flags.StringVar(&f.metrics, "metrics-listen", "", "`address` on which plain HTTP answers /metrics, /healthz and /readyz, such as localhost:9090 (default: where all else is answered)")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` with the certificate and its chain, in PEM")
	flags.StringVar(&f.key, "tls-key", "", "`file` with the certificate's key, in PEM")
	flags.BoolVar(&f.selfSigned, "tls-self-signed", false, "have a CA in the data folder sign the certificate, and print how clients trust that CA")
	flags.BoolVar(&f.http, "http", false, "speak plain HTTP, behind a proxy that speaks TLS to clients")
	flags.BoolVar(&f.noPull, "no-pull-through", false, "fetch nothing from origins: serve what is in the registry alone")
	flags.BoolVar(&f.noCache, "no-cache", false, noCacheUsage)
	cmd.MarkFlagFilename("tls-cert", "pem", "crt")
	cmd.MarkFlagFilename("tls-key", "pem", "key")
	return cmd
}

// run serves until the command's context is cancelled.
func (f *serveFlags) run(cmd *cobra.Command) error {
	seen := &files.Snapshot{}
	s, err := f.load(cmd, seen)
	if err != nil {
		return err
	}
	asked := make(chan os.Signal, 1) // one pending signal is enough, because a reload reads all settings
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	log, flush := f.log.openBuffered(cmd.ErrOrStderr())
	defer flush()
	stdout, asJSON := cmd.OutOrStdout(), f.output.json()
	cmd.SetErr(warnings{log})
	f.running = f.listen
	err = serve.Run(cmd.Context(), serve.Options{
		Settings: s,
		Files:    seen,
		Load:     func(seen *files.Snapshot) (serve.Settings, error) { return f.load(cmd, seen) },
		Reload:   asked,
		Started:  func(a serve.Address) error { return announce(stdout, a, s, asJSON) },
		Log:      log,
		LogLevel: &f.log.current,
		Version:  version,
		Getenv:   os.Getenv,
	})
	if errors.As(err, new(serve.UsageError)) {
		return usage(err)
	}
	return err
}

// load reads all settings, and merges the flags into them. A reload calls load again. In a reload, only the flags that
// the command line or a variable has set keep their values.
func (f *serveFlags) load(cmd *cobra.Command, seen *files.Snapshot) (serve.Settings, error) {
	f.files = seen
	s, err := f.settings(cmd)
	if err != nil {
		return serve.Settings{}, err
	}
	g := &s.file.Gateway
	g.Listen, g.MetricsListen, g.HTTP = f.listen, f.metrics, f.http
	g.TLS.CertFile, g.TLS.KeyFile, g.TLS.SelfSigned = f.cert, f.key, f.selfSigned
	if f.noPull {
		s.file.PullThrough = &config.PullThrough{}
	}
	setCache(cmd, g, f.noCache)
	repositories, err := f.repositories(s, nil)
	if err != nil {
		return serve.Settings{}, err
	}
	var sign *signing.Key
	if b := s.file.Sign; b != nil && b.PullThrough {
		if sign, err = readSigningKey(cmd.Context(), s.files, "the sign block", b.Key, cmd.ErrOrStderr()); err != nil {
			return serve.Settings{}, err
		}
	}
	return serve.Settings{
		Config: s.file, Sign: sign, Repositories: repositories, CacheFolder: defaultCacheFolder(), Origins: s.origins(), LogLevel: f.log.level,
		Effective: s.file.Effective(surroundings(cmd, s.cli)),
	}, nil
}

const noCacheUsage = "keep no packages and no answers on disk: stream every package from the registry"

// setCache merges --no-cache into the gateway block. off is the value of the flag.
func setCache(cmd *cobra.Command, g *config.Gateway, off bool) {
	if g.Cache == nil && flagSource(cmd.Flags().Lookup("no-cache")) != "" {
		g.Cache = &config.Cache{}
	}
	if g.Cache != nil {
		g.Cache.Enabled = !off
	}
}

// warnings is an [io.Writer] that logs the warnings of a running command.
type warnings struct{ log *slog.Logger }

func (w warnings) Write(p []byte) (int, error) {
	w.log.Warn(hint.OneLine(strings.TrimPrefix(string(p), "warning: ")))
	return len(p), nil
}
