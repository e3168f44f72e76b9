package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/embedded"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// repositoriesOf returns the repositories that a template names. If plain is not "", the registry with this name
// speaks plain HTTP.
func repositoriesOf(t *testing.T, template string, plain ociaddr.Registry) *registry.Repositories {
	t.Helper()
	parsed, err := templates.Parse(template, provider.Selector{Include: []provider.Pattern{provider.MustParsePattern("registry.acme.example/*/*")}})
	if err != nil {
		t.Fatal(err)
	}
	o := auth.Options{Wire: wire.Options{Registries: map[ociaddr.Registry]wire.Settings{plain: {PlainHTTP: true}}}}
	modules, err := templates.Parse(strings.Replace(template, "${type}", "${name}/${system}", 1), module.Selector{Include: []module.Pattern{module.MustParsePattern("registry.acme.example/*/*/*")}})
	if err != nil {
		t.Fatal(err)
	}
	return &registry.Repositories{Templates: templates.Set{parsed, modules}, Client: auth.New(o)}
}

// TestPageSaysWhatClientsCanRead shows that the page describes direct access to the registry only if clients can read
// the registry. Anonymous users do not see the names of registries and providers.
func TestPageSaysWhatClientsCanRead(t *testing.T) {
	const at = "https://gateway.example/"
	a, v := provider.MustParseAddress("registry.acme.example/acme/null"), provider.MustParseVersion("1.0.0+build.5")
	const parts = "/providers/${hostname}/${namespace}/${type}"
	inProcess := repositoriesOf(t, string(embedded.Host)+"/"+embedded.Template, "")
	inProcess.Embedded = &embedded.Registry{}
	for name, tc := range map[string]struct {
		back      *registry.Repositories
		at        string
		mirror    string // the template of the oci_mirror block; "" without an oci_mirror block
		reference string
	}{
		"a registry":              {repositoriesOf(t, "harbor.example"+parts, ""), at, `"harbor.example` + parts + `"`, "harbor.example/providers/" + a.Path() + ":1.0.0_build.5"},
		"without TLS":             {repositoriesOf(t, "harbor.example"+parts, "harbor.example"), at, "", ""},
		"on a loopback interface": {repositoriesOf(t, "localhost:5000"+parts, ""), at, "", ""},
		"embedded":                {inProcess, at, `"gateway.example/` + embedded.Template + `"`, "gateway.example/" + a.Path() + ":1.0.0_build.5"},
		"embedded, below a path":  {inProcess, at + "below/", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var modules []config.ModuleText
			if tc.back.Embedded == nil { // its modules need no module_mirror block
				modules = []config.ModuleText{{Include: []subject.Pattern{module.MustParsePattern("registry.modules.example/acme/*/*")}}}
			}
			p := pageSetup{tc.back, modules, nil, true}
			stored, providers := []svchost.Hostname{"registry.stored.example"}, []svchost.Hostname{"registry.mine.example"}
			all := p.texts(tc.at, true, providers, stored)
			if got := all.OCI; tc.mirror == "" && got != "" || !strings.Contains(got, tc.mirror) {
				t.Errorf("oci_mirror:\n%s\nwant %s", got, tc.mirror)
			}
			if got := p.reference(tc.at, a, v); got != tc.reference {
				t.Errorf("reference %q, want %q", got, tc.reference)
			}
			net := module.MustParseAddress("registry.acme.example/acme/null/aws")
			want, _, _ := strings.Cut(tc.reference, ":")
			if want != "" {
				want += "/aws"
			}
			if got := p.moduleRepository(tc.at, net); got != want {
				t.Errorf("repository of a module %q, want %q", got, want)
			}
			if tc.back.Embedded == nil && !strings.Contains(all.Hosts, "/hosts/registry.modules.example/v1/modules/") {
				t.Errorf("host blocks:\n%s", all.Hosts)
			}
			if got := strings.Contains(all.Hosts, "/hosts/registry.stored.example/v1/modules/"); got != (tc.back.Embedded != nil) {
				t.Errorf("host blocks for stored modules: %t\n%s", got, all.Hosts)
			}
			if got := strings.Contains(all.Hosts, "/hosts/registry.mine.example/v1/providers/"); got != (tc.back.Embedded != nil) {
				t.Errorf("host blocks for stored providers: %t\n%s", got, all.Hosts)
			}
			want = fmt.Sprintf("host \"registry.other.example\" {\n  services = {\n    \"modules.v1\" = \"%shosts/registry.other.example/v1/modules/\"\n  }\n}\ncredentials", tc.at)
			if got := p.moduleHost(tc.at, "registry.other.example", false); !strings.HasPrefix(got, want) {
				t.Errorf("host block of a module:\n%s", got)
			}
			want = fmt.Sprintf("host \"registry.other.example\" {\n  services = {\n    \"modules.v1\"   = \"%[1]shosts/registry.other.example/v1/modules/\"\n    \"providers.v1\" = \"%[1]shosts/registry.other.example/v1/providers/\"\n  }\n}\ncredentials", tc.at)
			if got := p.moduleHost(tc.at, "registry.other.example", true); !strings.HasPrefix(got, want) {
				t.Errorf("host block of a module, and of providers:\n%s", got)
			}
			if got := all.Terraform; !strings.Contains(got, `"`+tc.at+`providers/"`) {
				t.Errorf("terraform:\n%s", got)
			}
			if tc.back.Embedded == nil && !strings.Contains(all.Hosts, `host "registry.acme.example"`) {
				t.Errorf("host blocks:\n%s", all.Hosts)
			}
			if got := fmt.Sprintf("%+v", p.texts(tc.at, false, providers, stored)); strings.Contains(got, "harbor") || strings.Contains(got, "acme") || strings.Contains(got, "modules.example") || strings.Contains(got, "stored.example") || strings.Contains(got, "mine.example") {
				t.Errorf("strangers see the registry or its content:\n%s", got)
			}
			if got := all.Credentials; !strings.Contains(got, `credentials "gateway.example"`) {
				t.Errorf("tokens:\n%s", got)
			}
			if got := (pageSetup{tc.back, nil, nil, false}).texts(tc.at, true, nil, nil).Credentials; got != "" {
				t.Errorf("a token, although none is required:\n%s", got)
			}
		})
	}
}
