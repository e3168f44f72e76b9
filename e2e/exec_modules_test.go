package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// TestModuleDirect shows that OpenTofu downloads a module from its repository by oci:// if the module_mirror block has
// direct, and that serve refuses direct for a registry without TLS.
func TestModuleDirect(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--template", moduleTemplate(r))
	block := fmt.Sprintf("module_mirror {\n  repository_template = %q\n  direct = true\n}\n", moduleTemplate(r))
	gateway := s.serve("--data", s.data, s.settings(block))
	ws := s.workspace(fmt.Sprintf("host \"registry.acme.example\" {\n  services = {\n    \"modules.v1\" = \"https://%s/hosts/registry.acme.example/v1/modules/\"\n  }\n}\n", authority(gateway)))
	clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = \"~> 1.0\"\n  name    = \"you\"\n}\nmodule \"child\" {\n  source  = %q\n  version = \"1.0.0\"\n  name    = \"me\"\n}\n"+
		"output \"all\" { value = \"${module.vpc.all}, ${module.child.greeting}\" }\n", vpc, vpc+"//modules/child")))
	tofu := clients.Tofu(t)
	ws.MustRun(t, tofu, "init", "-no-color")
	ws.MustRun(t, tofu, "apply", "-no-color", "-auto-approve")
	out, err := ws.Stdout(tofu, "output", "-raw", "all")
	if want := "hello you false notes, hello me"; err != nil || string(out) != want {
		t.Errorf("%q, want %q, %v", out, want, err)
	}
	plain := s.run("serve", "--listen", "localhost:0", "--tls-self-signed", "--data", s.data, s.settings(block+fmt.Sprintf("registry %q {\n  plain_http = true\n}\n", r.Host)))
	if plain.status != 2 || !strings.Contains(plain.stderr, "direct = true in a module_mirror block is for registries with TLS") || !strings.Contains(plain.stderr, "hint: leave out direct") {
		t.Errorf("without TLS: %+v", plain)
	}
}

// TestExecModules shows that both clients install modules by exec: from the repository of a module_mirror block and from
// the embedded registry, and from the origin if the registry lacks the module or no block is for it.
func TestExecModules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	const dns, private = "registry.acme.example/platform/dns/aws", "registry.acme.example/other/net/aws"
	elsewhere := t.TempDir()
	for _, a := range []string{dns, private} {
		s.mustRun("module", "push", s.moduleFolder(), "--as", a+"@2.0.0", "--data", elsewhere)
	}
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--template", moduleTemplate(r))
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--data", s.data)
	// Another gateway is the origin.
	origin := fmt.Sprintf("host \"registry.acme.example\" {\n  services = {\n    \"modules.v1\" = \"https://%s/hosts/registry.acme.example/v1/modules/\"\n  }\n}\n", authority(s.serve("--data", elsewhere)))
	mirror := s.settings(fmt.Sprintf("module_mirror {\n  repository_template = %q\n  include = [\"registry.acme.example/platform/*/*\"]\n  fall_through = true\n}\n", moduleTemplate(r)))
	for name, flags := range map[string][]string{"module_mirror": {mirror}, "embedded": {"--data", s.data}} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, client clients.Client) {
				ws := s.workspace(origin)
				clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = \"~> 1.0\"\n  name    = \"you\"\n}\nmodule \"child\" {\n  source  = %q\n  version = \"1.0.0\"\n  name    = \"me\"\n}\n"+
					"module \"dns\" {\n  source = %q\n  name   = \"dns\"\n}\nmodule \"net\" {\n  source = %q\n  name   = \"net\"\n}\n"+
					"output \"all\" { value = \"${module.vpc.all}, ${module.child.greeting}, ${module.dns.all}, ${module.net.all}\" }\n", vpc, vpc+"//modules/child", dns, private)))
				exec := append(append([]string{"exec"}, flags...), "--", client.Path)
				ws.MustRun(t, s.bridge, append(exec, "init", "-no-color")...)
				ws.MustRun(t, s.bridge, append(exec, "apply", "-no-color", "-auto-approve")...)
				out, err := ws.Stdout(client, "output", "-raw", "all")
				if want := "hello you false notes, hello me, hello dns false notes, hello net false notes"; err != nil || strings.TrimSpace(string(out)) != want {
					t.Errorf("%q, want %q, %v", out, want, err)
				}
				wantNoFile(t, ws)
			})
		})
	}
	// The hint names the push of a module that neither the registry nor the origin has to offer.
	ours := s.settings(fmt.Sprintf("module_mirror {\n  repository_template = %q\n  include = [\"registry.acme.example/platform/*/*\"]\n}\n", moduleTemplate(r)))
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"dns\" {\n  source = %q\n  name   = \"dns\"\n}\n", dns)))
		got := s.execIn(ws, ours, "--", client.Path, "init", "-no-color")
		want := " has no version of the module " + dns + "\nhint: check the address; to add a version: ocibridge module push FOLDER --as " + dns + "@VERSION, with the same --config\n"
		if got.status == 0 || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("status %d\n%s, want %s", got.status, got.stderr, want)
		}
	})
	// A module whose versions are all denied is stored.
	denied := s.settings(fmt.Sprintf("module_mirror {\n  repository_template = %q\n}\ngateway {\n  deny = [{ match = %q }]\n}\n", moduleTemplate(r), vpc+"@1.0.0"))
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source = %q\n  name   = \"vpc\"\n}\n", vpc)))
		if got := s.execIn(ws, denied, "--", client.Path, "init", "-no-color"); got.status == 0 || strings.Contains(got.stderr, "has no version of the module") {
			t.Errorf("status %d\n%s", got.status, got.stderr)
		}
	})
}
