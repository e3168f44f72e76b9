package serve

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/clientsetup"
	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// page returns the page for people, for a gateway with the options o.
func (s *site) page(o gateway.Options) http.Handler {
	running, stop := context.WithCancel(context.Background())
	s.onClose(func() error { stop(); return nil })
	about := pageSetup{s.repositories, s.settings.gateway().AsksForTokens()}
	p := page.Options{
		Catalog: o.Catalog, Access: o.Access, H1: o.H1, Policy: s.settings.Config.Trust.For, PublicURL: o.PublicURL, Address: o.Address, Log: s.log, Pulls: s.pulls, Fetches: o.Fetches,
		Snippets: about.snippets, Reference: about.reference,
		List: func(ctx context.Context) ([]provider.Address, bool) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(running, cancel)()
			found, unlisted, err := s.repositories.Providers(ctx)
			for _, u := range unlisted {
				s.log.Debug("the page cannot list", "what", u.Where, "err", hint.OneLine(u.Err.Error()))
			}
			return found, err == nil && len(unlisted) == 0
		},
	}
	for _, c := range s.settings.Config.Providers {
		p.Configured = append(p.Configured, c.Address)
	}
	if s.repositories.Embedded != nil {
		p.ListTTL = time.Second // a push shows at once
	}
	return page.New(p)
}

// pageSetup writes the page's instructions for clients.
type pageSetup struct {
	repositories *registry.Repositories
	tokens       bool // the gateway asks for a token
}

// snippets returns what "config client" prints, for the gateway at a URL. Without private
// they name neither registries nor providers.
func (p pageSetup) snippets(at string, private bool) []page.Snippet {
	setup := &clientsetup.Setup{URL: at, Tokens: p.tokens}
	readable := *setup
	if private {
		setup.Mirrors, readable.Mirrors = p.mirrors(at)
	}
	var out []page.Snippet
	add := func(text func() (string, error), s page.Snippet) {
		var err error
		if s.Text, err = text(); err == nil && s.Text != "" {
			out = append(out, s)
		}
	}
	add(setup.Terraform, page.Snippet{
		ID: "terraform", Title: "Terraform", Where: "~/.terraformrc, or the file that TF_CLI_CONFIG_FILE names",
		About: "Every provider then comes from this gateway, by the network mirror protocol.",
		Notes: []string{"To let other sources have what is not here, add direct {} below network_mirror."},
	})
	add(setup.OpenTofu, page.Snippet{
		ID: "opentofu", Title: "OpenTofu", Where: "~/.tofurc, or the file that TF_CLI_CONFIG_FILE names",
		About: "The same for OpenTofu. From 1.12 on, trust_all_hashes lets one init lock the hashes of every platform.",
	})
	if p.repositories.Embedded != nil || len(readable.Mirrors) > 0 {
		add(readable.OCI, page.Snippet{
			ID: "oci-mirror", Title: "OpenTofu oci_mirror", Where: "~/.tofurc",
			About: "OpenTofu 1.10 and later can read the OCI registry itself. That does not retry, and is not checked by this gateway.",
		})
	}
	add(setup.Hosts, page.Snippet{
		ID: "host", Title: "In place of the origins", Where: "~/.terraformrc or ~/.tofurc",
		About: "With host blocks this gateway answers for the registries themselves: clients check the publisher’s signature end to end, lock every platform, and providers lock and providers mirror work behind an air gap. There is what is signed, and nothing else.",
	})
	add(terragrunt, page.Snippet{
		ID: "terragrunt", Title: "Terragrunt", Where: "the shell, or a job",
		About: "Terragrunt runs Terraform or OpenTofu, which read the configuration above.",
		Notes: []string{"Its provider cache server (--provider-cache) reads that file, too. It takes network_mirror and host blocks, and not oci_mirror; older versions of it look for ~/.terraformrc alone, or the file that TF_CLI_CONFIG_FILE names."},
	})
	if p.tokens {
		add(setup.Credentials, page.Snippet{
			ID: "token", Title: "Tokens", Where: "~/.terraformrc or ~/.tofurc, beside what is above", About: aboutTokens, Notes: tokenNotes(setup),
		})
	}
	return out
}

const aboutTokens = "This gateway asks for a token, which its operator gives out. Put yours in the place of TOKEN."

func tokenNotes(setup *clientsetup.Setup) []string {
	var out []string
	if v, err := setup.TokenVariable(); err == nil {
		out = append(out, "In place of the block, a variable: env '"+v+"=TOKEN' tofu init")
	}
	return append(out, "With host blocks, clients send the token that they have for the origin’s name.",
		"Browsers, docker login and oras login take it as password, with any user name.")
}

func terragrunt() (string, error) {
	return "terragrunt run --all init\n", nil
}

// mirrors returns the oci_mirror blocks for all repositories, and those for the repositories
// that clients of the gateway at a URL can read.
func (p pageSetup) mirrors(at string) (all, readable []config.MirrorText) {
	if p.repositories.Embedded != nil {
		return nil, nil
	}
	for _, t := range p.repositories.Templates {
		m := config.TextOf(t, "")
		all = append(all, m)
		if registry, ok := t.Registry(); !ok || p.readable(at, registry) {
			readable = append(readable, m)
		}
	}
	return all, readable
}

// readable reports whether clients of the gateway at a URL can read a registry. Clients speak
// TLS only, and reach a loopback address only on their own machine.
func (p pageSetup) readable(at string, registry ociaddr.Registry) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	u, err := url.Parse(at)
	if err != nil || registry.IsLoopback() && !ociaddr.Registry(u.Host).IsLoopback() {
		return false
	}
	plain, err := p.repositories.Client.PlainHTTP(ctx, registry)
	return err == nil && !plain
}

// reference returns the OCI reference of a version for clients of the gateway at a URL; "" if
// they cannot read its registry.
func (p pageSetup) reference(at string, a provider.Address, v provider.Version) string {
	repo, err := p.repositories.Templates.Repository(a)
	if err != nil {
		return ""
	}
	tag, err := ociaddr.VersionTag(v)
	if err != nil {
		return ""
	}
	if p.repositories.Embedded == nil {
		if !p.readable(at, repo.Registry) {
			return ""
		}
		return repo.String() + ":" + string(tag)
	}
	u, err := url.Parse(at)
	if err != nil || u.Path != "/" {
		return ""
	}
	return u.Host + "/" + repo.Name + ":" + string(tag)
}
