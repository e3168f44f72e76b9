package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/origins/originclient"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// settings are the settings of a command that come from configuration files.
type settings struct {
	file  *config.Config // ocibridge.hcl
	cli   *cliconfig.Config
	cas   []byte          // the content of --ca-file, or nil
	files *files.Snapshot // records the files that were read, to detect changes; nil if they are not recorded
}

// settings reads the configuration file and the user's CLI configuration.
func (f *configFlag) settings(cmd *cobra.Command) (settings, error) {
	file, err := f.load(cmd)
	if err != nil {
		return settings{}, err
	}
	cli, err := loadCLIConfig(cmd.Context(), cmd.ErrOrStderr(), f.files)
	return settings{file: file, cli: cli, files: f.files}, err
}

// settings reads the configuration files and the file of --ca-file.
func (f *connectionFlags) settings(cmd *cobra.Command) (settings, error) {
	s, err := f.configFlag.settings(cmd)
	if err == nil && f.caFile != "" {
		s.cas, err = readCAs(cmd.Context(), s.files, f.caFile)
	}
	return s, err
}

// readCAs reads a PEM file with at least one certificate.
func readCAs(ctx context.Context, seen *files.Snapshot, name string) ([]byte, error) {
	const help = "--ca-file and ca_file name a PEM file with BEGIN CERTIFICATE lines"
	pem, err := seen.ReadGiven(ctx, name)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("the file %s with certificate authorities: %w", name, files.Cause(err)), help)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, hint.New(fmt.Sprintf("the file %s has no certificate of an authority", name), help)
	}
	return pem, nil
}

// policyBy returns a function that returns a provider's policy according to the trust rules.
// If allowUnsigned is set, each policy also allows unsigned releases. This has no effect on
// providers with pinned keys.
func policyBy(rules trust.Rules, allowUnsigned bool) func(provider.Address) trust.Policy {
	return func(a provider.Address) trust.Policy {
		policy := rules.For(a)
		policy.AllowUnsigned = policy.AllowUnsigned || allowUnsigned
		return policy
	}
}

// templatesOf returns the templates of one kind, from the first source that has any. The sources are the given text, the
// configuration file and, for providers, the CLI configuration, in this order. Without --include, the text applies only
// to the given addresses, or to all addresses if none are given.
func (f *registryFlags) templatesOf(s settings, kind subject.Kind, text string, of []subject.Address) (templates.Set, error) {
	var include, exclude []string
	if kind.Traits().Mirrors {
		include, exclude = f.include, f.exclude
	}
	if text != "" {
		if err := checkTemplate(text); err != nil {
			return nil, err
		}
		patterns, err := selector(provider.ParsePattern, include, exclude)
		if err != nil {
			return nil, usage(err)
		}
		sel := patterns.Any()
		if len(include) == 0 {
			for _, a := range of {
				sel.Include = append(sel.Include, a.Pattern())
			}
		}
		t, err := templates.New(kind, text, sel)
		return templates.Set{t}, usage(err)
	}
	if len(include)+len(exclude) > 0 {
		return nil, usage(hint.New("--include and --exclude go with --template", "give --template, or write them into the oci_mirror block"))
	}
	set := s.file.Templates().Of(kind)
	if len(set) > 0 || !kind.Traits().Mirrors {
		return set, nil
	}
	for _, m := range s.cli.OCIMirrors {
		if m.Template == f.ownTemplate(s) {
			continue
		}
		sel, err := selector(provider.ParsePatternAsOpenTofu, m.Include, m.Exclude)
		if err == nil {
			var t *templates.Template
			t, err = templates.Parse(m.Template, sel)
			set = append(set, t)
		}
		if err != nil {
			return nil, fmt.Errorf("oci_mirror block at %s: %w", m.Source, err)
		}
	}
	return set, nil
}

// checkTemplate returns an error if a shell seems to have removed the placeholders of --template.
func checkTemplate(template string) error {
	if strings.ContainsAny(template, "$@") || strings.Contains(template, "://") || !strings.Contains(template+"/", "//") {
		return nil
	}
	return usage(hint.New(fmt.Sprintf("invalid --template %q: it has an empty part", template),
		"in double quotes a shell puts nothing in the place of ${type} and the like: give the template in single quotes"))
}

// ownTemplate returns the template that serve prints for clients. If the CLI configuration
// contains this template, ocibridge opens the embedded registry itself instead of sending
// requests to the gateway.
func (f *registryFlags) ownTemplate(s settings) string {
	return cmp.Or(f.running, s.file.Gateway.Listen, config.FlagDefault("listen")) + "/" + embedded.Template
}

func selector(parse func(string) (provider.Pattern, error), include, exclude []string) (sel provider.Selector, err error) {
	if sel.Include, err = parseAll(parse, include); err == nil {
		sel.Exclude, err = parseAll(parse, exclude)
	}
	return sel, err
}

// open opens the configured repositories. The caller must close them.
func (f *registryFlags) open(s settings, of []subject.Address, log *slog.Logger) (*registry.Repositories, error) {
	o, err := f.repositories(s, of)
	if err != nil {
		return nil, err
	}
	o.Log = log
	return registry.Open(o)
}

// repositories returns the options that open the configured repositories. --template applies only to the given addresses.
// If none are given, it applies to all addresses of the command's kind.
func (f *registryFlags) repositories(s settings, of []subject.Address) (registry.Options, error) {
	o := f.options(s)
	for _, kind := range subject.Kinds {
		text := f.template
		if kind != f.kind {
			if f.kind != subject.Provider && text != "" {
				continue // the command is about one kind alone
			}
			text = ""
		}
		set, err := f.templatesOf(s, kind, text, of)
		if err != nil {
			return o, err
		}
		o.Templates = append(o.Templates, set...)
	}
	return o, nil
}

// options returns the options that open repositories, without templates.
func (f *registryFlags) options(s settings) registry.Options {
	o := registry.Options{Auth: s.authOptions(), DataFolder: f.dataFolder(), Reads: f.reads}
	o.Auth.Wire.PlainHTTP = f.plainHTTP
	return o
}

// authOptions returns the configured logins and registries. The logins of the configuration
// file precede the logins of the CLI configuration.
func (s settings) authOptions() auth.Options {
	o := auth.Options{
		Login: login.Options{Environment: authEnvironment(), Explicit: slices.Clone(s.file.Logins), Defaults: s.file.Defaults},
		Wire:  wire.Options{UserAgent: userAgent(), CAs: s.cas, Registries: s.file.RegistrySettings()},
	}
	o.Login.Environment.ReadFile = s.files.ReadFile
	logins, defaults := s.cli.OCICredentials()
	o.Login.Explicit = append(o.Login.Explicit, logins...)
	if o.Login.Defaults == nil {
		o.Login.Defaults = defaults
	}
	return o
}

// origins returns the user's settings for requests to the origins of providers.
func (s settings) origins() originclient.User {
	return originclient.User{CLI: s.cli, UserAgent: userAgent(), CAs: s.cas, Netrc: origin.Netrc{
		Getenv: os.Getenv, ReadFile: files.Read, Home: homeDir(), GOOS: runtime.GOOS,
	}}
}

func userAgent() string { return "ocibridge/" + version }

func authEnvironment() login.Environment {
	return login.Environment{Getenv: os.Getenv, ReadFile: files.Read, Home: homeDir(), GOOS: runtime.GOOS, UID: strconv.Itoa(os.Getuid())}
}

// loadCLIConfig reads the user's CLI configuration, and prints its warnings.
func loadCLIConfig(ctx context.Context, stderr io.Writer, seen *files.Snapshot) (*cliconfig.Config, error) {
	read := func(name string) ([]byte, error) { return seen.ReadGiven(ctx, name) }
	c, err := cliconfig.Load(cliconfig.Environment{
		Getenv: os.Getenv, Environ: os.Environ, ReadFile: read, ReadDir: seen.ReadDir, Home: homeDir(), GOOS: runtime.GOOS,
	})
	if err != nil {
		return nil, err
	}
	warnAll(stderr, c.Warnings)
	return c, nil
}
