package e2e

import (
	"fmt"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// TestModuleByGateway shows that both clients install a module with a submodule through the gateway, from a registry in
// which module push has stored it, and also the submodule alone.
//
//testrun:scene
func TestModuleByGateway(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistryOf(registry.Distribution3)
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--template", moduleTemplate(r))
	gateway := s.serve("--data", s.data, s.settings(fmt.Sprintf("module_mirror {\n  repository_template = %q\n}\n", moduleTemplate(r))))
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.workspace("")
		clients.Must(t, ws.WriteCLIConfig(fmt.Sprintf("host \"registry.acme.example\" {\n  services = {\n    \"modules.v1\" = \"https://%s/hosts/registry.acme.example/v1/modules/\"\n  }\n}\n", authority(gateway))))
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = \"~> 1.0\"\n  name    = \"you\"\n}\nmodule \"child\" {\n  source  = %q\n  version = \"1.0.0\"\n  name    = \"me\"\n}\n"+
			"output \"all\" { value = \"${module.vpc.all}, ${module.child.greeting}\" }\n", vpc, vpc+"//modules/child")))
		ws.MustRun(t, client, "init", "-no-color")
		ws.MustRun(t, client, "apply", "-no-color", "-auto-approve")
		out, err := ws.Stdout(client, "output", "-raw", "all")
		if want := "hello you false notes, hello me"; err != nil || string(out) != want {
			t.Errorf("%q, want %q, %v", out, want, err)
		}
	})
}
