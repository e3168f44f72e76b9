package serve

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/app/clientsetup"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// page returns the handler of the web page of a gateway with the options o.
func (s *site) page(o gateway.Options) http.Handler {
	running, stop := context.WithCancel(context.Background())
	s.onClose(func() error { stop(); return nil })
	about := pageSetup{s.repositories, s.settings.Config.ModuleTexts(), s.settings.Config.PulledModuleHosts(), s.settings.gateway().AsksForTokens()}
	var ca []byte
	if s.certificates != nil && s.certificates.own != nil {
		ca = s.certificates.own.CA().Certificate()
	}
	p := page.Options{
		Options: o, Policy: s.policy, Pulls: s.pulls, Setup: about.texts, Reference: about.reference,
		ModuleRepository: about.moduleRepository, ModuleHost: about.moduleHost, CA: ca,
		List: func(ctx context.Context) page.Names {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(running, cancel)()
			return s.names(ctx)
		},
	}
	for _, c := range s.settings.Config.Providers {
		p.Configured = append(p.Configured, c.Address)
	}
	for _, c := range s.settings.Config.Modules {
		p.Configured = append(p.Configured, c.Address)
	}
	if s.repositories.Embedded != nil {
		p.Recorded = s.recordedUse
		p.ListTTL = time.Second // so that the page soon shows a pushed provider
	}
	return page.New(p)
}

// names lists the providers and modules in the registries' catalogs.
func (s *site) names(ctx context.Context) page.Names {
	names := page.Names{Complete: true}
	for _, kind := range subject.Kinds {
		found, unlisted, err := s.repositories.All(ctx, kind)
		for _, u := range unlisted {
			s.log.Debug("the page cannot list", "what", u.Where, "err", hint.OneLine(u.Err.Error()))
			names.Failed = names.Failed || u.Failed()
		}
		names.All = append(names.All, found...)
		names.Complete = names.Complete && err == nil && len(unlisted) == 0
	}
	return names
}

// changed returns when a version in the embedded registry was last pushed or, for the zero version, when the versions of a
// provider or a module last changed.
func (s *site) changed(a subject.Address, v provider.Version) (at time.Time) {
	repo, err := s.repositories.Templates.Repository(a)
	if err != nil {
		return at
	}
	if v.IsZero() {
		return s.repositories.Embedded.Changed(repo.Name, "")
	}
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return at
	}
	if at = s.repositories.Embedded.Changed(repo.Name, tag); at.IsZero() && subject.TraitsOf(a).LeadingV {
		at = s.repositories.Embedded.Changed(repo.Name, "v"+tag)
	}
	return at
}

// recordedUse returns the time of a use of a version in the embedded registry that earlier processes may have recorded, see
// [embedded.Registry.LastUsed].
func (s *site) recordedUse(a subject.Address, v provider.Version) time.Time {
	repository, tag, err := s.markOf(a, v)
	if err != nil {
		return time.Time{}
	}
	return s.repositories.Embedded.LastUsed(repository, tag)
}

// pageSetup creates the page's instructions for clients.
type pageSetup struct {
	repositories *registry.Repositories
	modules      []config.ModuleText
	pulled       []config.PulledHost // the hosts whose modules are pulled through
	tokens       bool                // whether the gateway requires a token
}

// texts returns the output of "config client" for the gateway with the given URL. The texts name registries, providers
// and hosts of modules only if the parameter private is true. The parameters providers and modules list the hosts of the providers and
// modules that the client may read. They matter only for the embedded registry, which has no oci_mirror and module_mirror blocks.
func (p pageSetup) texts(at string, private bool, providers, modules []svchost.Hostname) page.Setup {
	setup := &clientsetup.Setup{URL: at, Tokens: p.tokens}
	readable := *setup
	if private {
		setup.Mirrors, readable.Mirrors = p.mirrors(at)
		setup.Modules, readable.Modules = p.modules, p.modules
		setup.Pulled = p.pulled
		if p.repositories.Embedded != nil {
			setup.StoredProviders, setup.Stored = providers, modules
		}
	}
	out := page.Setup{Terraform: written(setup.Terraform()), OpenTofu: written(setup.OpenTofu()), Hosts: written(setup.Hosts()), Module: written(setup.Module())}
	for _, t := range setup.Tools() {
		out.Tools = append(out.Tools, page.Tool(t))
	}
	if p.repositories.Embedded != nil || len(readable.Mirrors) > 0 {
		out.OCI = written(readable.OCI())
	}
	if p.tokens {
		out.Credentials, out.TokenVariable = written(setup.Credentials()), written(setup.TokenVariable())
	}
	return out
}

// moduleHost returns the host block for the modules of a host and, if providers is true, for its providers.
func (p pageSetup) moduleHost(at string, host svchost.Hostname, providers bool) string {
	mirrors, _ := p.mirrors(at)
	setup := &clientsetup.Setup{URL: at, Tokens: p.tokens, Mirrors: mirrors, Modules: p.modules, Pulled: p.pulled}
	if providers {
		setup.StoredProviders = []svchost.Hostname{host}
	}
	return written(setup.ModuleHost(host))
}

// written returns text, or "" if err is not nil.
func written(text string, err error) string {
	if err != nil {
		return ""
	}
	return text
}

// mirrors returns the oci_mirror blocks for all repositories, and those for the repositories that clients of the gateway with
// the given URL can read. Both results are nil with the embedded registry.
func (p pageSetup) mirrors(at string) (all, readable []config.MirrorText) {
	if p.repositories.Embedded != nil {
		return nil, nil
	}
	for _, t := range p.repositories.Templates.Of(subject.Provider) {
		m := config.TextOf(t, "")
		all = append(all, m)
		if registry, ok := t.Registry(); !ok || p.readable(at, registry) {
			readable = append(readable, m)
		}
	}
	return all, readable
}

// readable reports whether clients of the gateway with the given URL can read a registry. Clients require TLS. They can
// read a registry on a loopback address only if the gateway's URL has a loopback address, too.
func (p pageSetup) readable(at string, registry ociaddr.Registry) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	u, err := url.Parse(at)
	if err != nil || registry.IsLoopback() && !ociaddr.Registry(u.Host).IsLoopback() {
		return false
	}
	plain, err := p.repositories.Client.Connections.PlainHTTP(ctx, registry)
	return err == nil && !plain
}

// reference returns the OCI reference of a version for clients of the gateway with the given URL, or "" if they cannot read
// the registry.
func (p pageSetup) reference(at string, a provider.Address, v provider.Version) string {
	repo, err := p.repositories.Templates.Repository(a)
	if err != nil {
		return ""
	}
	tag, err := ociaddr.VersionTag(v)
	name := p.repository(at, repo)
	if err != nil || name == "" {
		return ""
	}
	return name + ":" + string(tag)
}

// moduleRepository is like repository, for the repository of a module.
func (p pageSetup) moduleRepository(at string, a module.Address) string {
	repo, err := p.repositories.Templates.Repository(a)
	if err != nil {
		return ""
	}
	return p.repository(at, repo)
}

// repository returns the name of a repository for clients of the gateway with the given URL, or "" if they cannot read the
// registry.
func (p pageSetup) repository(at string, repo ociaddr.Repository) string {
	if p.repositories.Embedded == nil {
		if !p.readable(at, repo.Registry) {
			return ""
		}
		return repo.String()
	}
	u, err := url.Parse(at)
	if err != nil || u.Path != "/" {
		return ""
	}
	return u.Host + "/" + repo.Name
}
