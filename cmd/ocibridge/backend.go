package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opentofu/svchost/disco"
	"github.com/spf13/cobra"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/cliconfig"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/internal/registry/embedded"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/origin"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
	"github.com/ocibridge/ocibridge/trust"
)

// backend is where providers are kept: the repositories that templates name, or
// the embedded registry.
type backend struct {
	templates templates.Set
	auth      *auth.Client
	embedded  *embedded.Registry // nil if templates name other registries
	close     func() error       // what was opened; nil for nothing
}

// settings are what configures a command beside its flags.
type settings struct {
	file  *config.Config // ours
	cli   *cliconfig.Config
	files *readings // that they were made of; nil: nobody wants to know
	// inForce is for telling what changes when serve reads settings again.
	inForce *config.InForce
	ops     *operations // of serve; nil: nobody watches
}

// settings reads the configuration file for a command, and the user's CLI
// configuration.
func (f *configFlag) settings(cmd *cobra.Command) (settings, error) {
	file, err := f.load(cmd)
	if err != nil {
		return settings{}, err
	}
	cli, err := loadCLIConfig(cmd.ErrOrStderr(), f.files)
	if err != nil {
		return settings{}, err
	}
	s := settings{file: file, cli: cli, files: f.files}
	if f.files != nil {
		s.inForce = s.inForceFor(cmd)
	}
	return s, nil
}

// trustRules are the trust blocks of the configuration file.
func (s settings) trustRules() trust.Rules {
	if s.file == nil {
		return nil
	}
	var rules trust.Rules
	for _, t := range s.file.Trust {
		rules = append(rules, trust.Rule{Pattern: t.Pattern, Policy: trust.Policy{
			AllowUnsigned: t.AllowUnsigned, Keys: t.Keys, StrictExpiry: t.StrictExpiry,
		}})
	}
	return rules
}

// policyBy is what rules say of a provider, and --allow-unsigned of all that have no
// pinned keys.
func policyBy(rules trust.Rules, allowUnsigned bool) func(provider.Address) trust.Policy {
	return func(a provider.Address) trust.Policy {
		policy := rules.For(a)
		policy.AllowUnsigned = policy.AllowUnsigned || allowUnsigned
		return policy
	}
}

// templateSet returns the templates that flags, configuration file or CLI
// configuration give, the first of them that gives any, and none if none does.
// providers, if any, stand for --include where that is not given.
func (f *registryFlags) templateSet(s settings, providers []provider.Address) (templates.Set, error) {
	if f.template != "" {
		if !strings.ContainsAny(f.template, "$@") && !strings.Contains(f.template, "://") && strings.Contains(f.template+"/", "//") {
			return nil, usage(hint.New(fmt.Sprintf("invalid --template %q: it has an empty part", f.template),
				"in double quotes a shell puts nothing in the place of ${type} and the like: give the template in single quotes"))
		}
		sel, err := selector(provider.ParsePattern, f.include, f.exclude)
		if err != nil {
			return nil, usage(err)
		}
		if len(f.include) == 0 {
			for _, a := range providers {
				sel.Include = append(sel.Include, provider.PatternFor(a))
			}
		}
		t, err := templates.Parse(f.template, sel)
		return templates.Set{t}, usage(err)
	}
	if len(f.include)+len(f.exclude) > 0 {
		return nil, usage(hint.New("--include and --exclude go with --template", "give --template, or write them into the oci_mirror block"))
	}
	if set := s.file.Templates(); len(set) > 0 {
		return set, nil
	}
	var set templates.Set
	for _, m := range s.cli.OCIMirrors {
		if m.RepositoryTemplate == f.ownTemplate(s) {
			continue
		}
		sel, err := selector(provider.ParsePatternAsOpenTofu, m.Include, m.Exclude)
		if err == nil {
			var t *templates.Template
			t, err = templates.Parse(m.RepositoryTemplate, sel)
			set = append(set, t)
		}
		if err != nil {
			return nil, fmt.Errorf("oci_mirror block at %s: %w", m.Source, err)
		}
	}
	return set, nil
}

// ownTemplate is the one that serve prints for clients, for the CLI configuration
// that it reads, too: it means the embedded registry, which is not reached by way
// of the gateway here.
func (f *registryFlags) ownTemplate(s settings) string {
	return cmp.Or(f.listens, s.file.Gateway.Listen, defaultListen) + "/" + embedded.Template
}

func selector(parse func(string) (provider.Pattern, error), include, exclude []string) (sel provider.Selector, err error) {
	for _, list := range []struct {
		from []string
		to   *[]provider.Pattern
	}{{include, &sel.Include}, {exclude, &sel.Exclude}} {
		for _, s := range list.from {
			p, err := parse(s)
			if err != nil {
				return sel, err
			}
			*list.to = append(*list.to, p)
		}
	}
	return sel, nil
}

// open opens the backend. The caller closes it.
func (f *registryFlags) open(s settings, providers []provider.Address, log *slog.Logger) (*backend, error) {
	return f.openWith(s, providers, log, func(dir string) (*embedded.Registry, func() error, error) {
		r, err := embedded.Open(dir, log)
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	})
}

// openWith is [registryFlags.open] with another way to open the embedded registry.
func (f *registryFlags) openWith(s settings, providers []provider.Address, log *slog.Logger, openEmbedded func(dir string) (r *embedded.Registry, done func() error, err error)) (*backend, error) {
	set, err := f.templateSet(s, providers)
	if err != nil {
		return nil, err
	}
	b := &backend{templates: set}
	if len(set) > 0 {
		o := s.authOptions()
		o.PlainHTTP, o.Log = f.plainHTTP, log
		if err := o.Validate(); err != nil {
			return nil, err
		}
		b.auth = auth.New(o)
		return b, nil
	}
	t, err := templates.Parse(string(embedded.Host)+"/"+embedded.Template, provider.Selector{})
	if err != nil {
		return nil, err
	}
	dir, err := f.dataDir()
	if err != nil {
		return nil, err
	}
	b.templates = templates.Set{t}
	b.embedded, b.close, err = openEmbedded(dir)
	return b, err
}

func (b *backend) Close() error {
	if b.close != nil {
		return b.close()
	}
	return nil
}

// repository returns the repository that a provider belongs to, and a client of it.
func (b *backend) repository(ctx context.Context, a provider.Address) (ociaddr.Repository, *remote.Repository, error) {
	addr, err := b.templates.Repository(a)
	if err != nil {
		return addr, nil, err
	}
	var repo *remote.Repository
	if b.embedded != nil {
		repo, err = b.embedded.Repository(addr.Name)
	} else {
		repo, err = b.auth.Repository(ctx, addr)
	}
	return addr, repo, err
}

// repositoryWithReferrers is repository for a client that copies referrers.
func (b *backend) repositoryWithReferrers(ctx context.Context, a provider.Address) (ociaddr.Repository, *remote.Repository, error) {
	if b.embedded != nil {
		return b.repository(ctx, a)
	}
	addr, err := b.templates.Repository(a)
	if err != nil {
		return addr, nil, err
	}
	repo, err := b.auth.RepositoryWithReferrers(ctx, addr)
	return addr, repo, err
}

// blobRedirect returns where the registry of a provider sends those who ask for a
// blob, if it is one that is known to; "" otherwise.
func (b *backend) blobRedirect(ctx context.Context, a provider.Address, blob ocispec.Descriptor) (string, error) {
	addr, err := b.templates.Repository(a)
	if err != nil || b.auth == nil || !b.auth.RedirectsBlobs(addr) {
		return "", err
	}
	return b.auth.BlobRedirect(ctx, addr, blob)
}

// store returns the repository of a provider as the catalog reads it.
func (b *backend) store(ctx context.Context, a provider.Address) (catalog.Store, error) {
	_, repo, err := b.repository(ctx, a)
	switch {
	case notServed(err):
		return nil, fmt.Errorf("%w: %w", catalog.ErrNotServed, err)
	case err != nil:
		return nil, err
	}
	repo.Client = catalog.Conditional(repo.Client)
	return registry.ReadOnly{Repository: repo}, nil
}

// place names the repository of a provider.
func (b *backend) place(a provider.Address) string {
	repo, err := b.templates.Repository(a)
	if err != nil {
		return ""
	}
	return repo.String()
}

// account returns how the repository of a provider is spoken to.
func (b *backend) account(a provider.Address) catalog.Account {
	repo, err := b.templates.Repository(a)
	if err != nil || b.auth == nil {
		return catalog.Account{}
	}
	return catalog.Account{Name: b.auth.Account(repo), DeniedMeansAbsent: b.auth.DeniedMeansAbsent(repo)}
}

// explain adds to a registry's refusal what to do about it.
func (b *backend) explain(err error, repo ociaddr.Repository) error {
	if b.auth == nil {
		return b.embedded.Explain(err)
	}
	return b.auth.Explain(err, repo)
}

// explainFor is explain for the repository of a provider.
func (b *backend) explainFor(a provider.Address, err error) error {
	repo, rerr := b.templates.Repository(a)
	if rerr != nil {
		return err
	}
	return b.explain(err, repo)
}

// authOptions are the logins and registries that are configured: ours before
// those of the CLI configuration.
func (s settings) authOptions() auth.Options {
	o := auth.Options{
		Environment: authEnvironment(), UserAgent: userAgent(),
		Explicit: slices.Clone(s.file.Logins), Defaults: s.file.Defaults, Registries: s.file.RegistrySettings(), Sent: s.ops.sent(),
	}
	o.Environment.ReadFile = s.files.readFile
	logins, defaults := s.cli.OCICredentials()
	o.Explicit = append(o.Explicit, logins...)
	if o.Defaults == nil {
		o.Defaults = defaults
	}
	return o
}

func userAgent() string { return "ocibridge/" + version }

func authEnvironment() auth.Environment {
	return auth.Environment{Getenv: os.Getenv, ReadFile: readBounded, Home: homeDir(), GOOS: runtime.GOOS, UID: strconv.Itoa(os.Getuid())}
}

// loadCLIConfig reads the user's CLI configuration, and shows its warnings.
func loadCLIConfig(stderr io.Writer, files *readings) (*cliconfig.Config, error) {
	c, err := cliconfig.Load(cliconfig.Environment{
		Getenv: os.Getenv, Environ: os.Environ, ReadFile: files.readFile, ReadDir: files.readDir, Home: homeDir(), GOOS: runtime.GOOS,
	})
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(stderr, "warning: %s\n", w)
	}
	return c, nil
}

// newOrigin returns the client of origin registries, with the services and
// credentials of the CLI configuration.
func newOrigin(cli *cliconfig.Config) *origin.Registry {
	guard := origin.NewLenientGuard(namedHosts(nil, cli.Services()))
	return newOriginOver(cli, guard, guard.Transport(outgoing.Transport()), "")
}

// newOriginOver is newOrigin by a transport that a guard watches; via says who asks
// on behalf of others, "" for the user.
func newOriginOver(cli *cliconfig.Config, guard *origin.Guard, transport http.RoundTripper, via string) *origin.Registry {
	services := origin.NewDiscovery(transport, disco.WithCredentials(cli.CredentialsSource()))
	for host, s := range cli.Services() {
		services.ForceHostServices(host, s)
	}
	return origin.NewRegistry(origin.RegistryOptions{
		Transport: transport, Guard: guard, Services: services, UserAgent: userAgent(), Via: via,
		Netrc: origin.NewNetrc(origin.NetrcEnvironment{Getenv: os.Getenv, ReadFile: readBounded, Home: homeDir(), GOOS: runtime.GOOS, NoDefault: via != ""}),
	})
}

// notServed reports whether a provider cannot have a repository at all.
func notServed(err error) bool {
	return errors.Is(err, templates.ErrNotSelected) || errors.Is(err, templates.ErrNoRepository)
}
