package registry_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

func template(t *testing.T, source string, include ...string) *templates.Template {
	t.Helper()
	var sel provider.Selector
	for _, s := range include {
		sel.Include = append(sel.Include, provider.MustParsePattern(s))
	}
	out, err := templates.Parse(source, sel)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOpen shows that the embedded registry holds the providers if there are no
// templates. Otherwise, the registries in the templates hold them.
func TestOpen(t *testing.T) {
	a := provider.MustParseAddress("registry.acme.example/acme/widget")
	log := slog.New(slog.DiscardHandler)
	if _, err := registry.Open(registry.Options{Log: log}); !errors.Is(err, registry.ErrNoDataFolder) {
		t.Errorf("without templates and a data folder: %v", err)
	}
	dir := t.TempDir()
	own, err := registry.Open(registry.Options{DataFolder: dir, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if addr, repo, err := own.Repository(t.Context(), a); err != nil || repo == nil || addr.Registry != embedded.Host {
		t.Errorf("in the embedded registry: %s, %v", addr, err)
	}
	net := module.MustParseAddress("registry.acme.example/acme/net/aws")
	if addr, repo, err := own.Repository(t.Context(), net); err != nil || repo == nil || addr.String() != "embedded/modules/registry.acme.example/acme/net/aws" {
		t.Errorf("a module in the embedded registry: %s, %v", addr, err)
	}
	if reachable, asked, err := own.Reachable(t.Context()); reachable != 1 || asked != 1 || err != nil {
		t.Errorf("the embedded registry: %d of %d, %v", reachable, asked, err)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}

	remote, err := registry.Open(registry.Options{Log: log, Templates: templates.Set{
		template(t, "harbor.example/p/${namespace}/${type}", "registry.acme.example/*/*"),
		template(t, "harbor.example/q/${hostname}/${namespace}/${type}", "registry.other.example/*/*"),
		template(t, "${hostname}/${namespace}/${type}", "registry.third.example/*/*"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	if addr, _, err := remote.Repository(t.Context(), a); err != nil || addr.String() != "harbor.example/p/acme/widget" {
		t.Errorf("by a template: %s, %v", addr, err)
	}
	if got := remote.Registries(); len(got) != 1 || got[0] != ociaddr.Registry("harbor.example") {
		t.Errorf("the registries are %v", got)
	}
	addr, repo, err := remote.Repository(t.Context(), provider.MustParseAddress("registry.fourth.example/acme/widget"))
	if addr != (ociaddr.Repository{}) || repo != nil || !registry.NoRepository(err) {
		t.Errorf("without a template: %s, %v", addr, err)
	}
}

// TestOpenModules shows that module templates name the repositories of modules, and that
// modules have no repository if only providers have templates.
func TestOpenModules(t *testing.T) {
	net := module.MustParseAddress("registry.acme.example/acme/net/aws")
	log := slog.New(slog.DiscardHandler)
	modules, err := templates.Parse("ghcr.io/m/${hostname}/${namespace}/${name}/${system}", module.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	both, err := registry.Open(registry.Options{Log: log, Templates: templates.Set{template(t, "harbor.example/${hostname}/${namespace}/${type}"), modules}})
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	if addr, _, err := both.Repository(t.Context(), net); err != nil || addr.String() != "ghcr.io/m/registry.acme.example/acme/net/aws" {
		t.Errorf("by a template: %s, %v", addr, err)
	}
	if got := fmt.Sprint(both.Registries()); got != "[harbor.example ghcr.io]" {
		t.Errorf("the registries are %s", got)
	}
	providers, err := registry.Open(registry.Options{Log: log, Templates: both.Templates.Of(subject.Provider)})
	if err != nil {
		t.Fatal(err)
	}
	defer providers.Close()
	if addr, repo, err := providers.Repository(t.Context(), net); addr != (ociaddr.Repository{}) || repo != nil || !registry.NoRepository(err) || !strings.Contains(hint.Of(err), "module_mirror") {
		t.Errorf("without a template: %s, %v", addr, err)
	}
}

// TestExplainNamesThePush shows that the hint for a refusal names the command that pushes the provider or module, if
// the registry may refuse an absent repository in the same way.
func TestExplainNamesThePush(t *testing.T) {
	modules, err := templates.Parse("ghcr.io/m/${hostname}/${namespace}/${name}/${system}", module.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open(registry.Options{Log: slog.New(slog.DiscardHandler), Templates: templates.Set{template(t, "ghcr.io/p/${hostname}/${namespace}/${type}"), modules}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a, net := provider.MustParseAddress("registry.acme.example/acme/widget"), module.MustParseAddress("registry.acme.example/acme/net/aws")
	for status, want := range map[int]bool{403: true, 401: false, 404: false} {
		refused := fmt.Errorf("list tags: %w", &errcode.ErrorResponse{Method: "GET", URL: &url.URL{Scheme: "https", Host: "ghcr.io", Path: "/v2/x/tags/list"}, StatusCode: status})
		if h := hint.Of(r.ExplainFor(a, refused)); strings.HasPrefix(h, "if nobody has pushed it yet: ocibridge push 'registry.acme.example/acme/widget@>= 0'. Otherwise: ") != want {
			t.Errorf("status %d of a provider: %s", status, h)
		}
		if h := hint.Of(r.ExplainFor(net, refused)); strings.HasPrefix(h, "if nobody has pushed it yet: ocibridge module push FOLDER --as registry.acme.example/acme/net/aws@VERSION. Otherwise: ") != want {
			t.Errorf("status %d of a module: %s", status, h)
		}
	}
}
