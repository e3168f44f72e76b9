package e2e

import (
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
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

// TestHostBlockOfModulePage shows that the block on a module's page hides no providers: with it alone, both clients install the
// module, and a provider of the same host.
func TestHostBlockOfModulePage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--data", s.data)
	s.World.Close() // the origin of the host
	a := s.serveBare("--data", s.data, "--no-pull-through")
	resp, err := trusting(t, a.ca).Get(strings.TrimSuffix(a.url, "providers/") + "m/" + vpc)
	clients.Must(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	clients.Must(t, err)
	block := regexp.MustCompile(`(?s)data-copy="host block"><pre[^>]*><code>(.*?)</code>`).FindSubmatch(page)
	if block == nil {
		t.Fatalf("no host block in\n%s", page)
	}
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.workspace("")
		clients.Must(t, ws.WriteCLIConfig(html.UnescapeString(string(block[1]))))
		ws.TrustCA(a.ca)
		clients.Must(t, ws.WriteConfig(world.UseNull(nullVersion)+fmt.Sprintf("module \"vpc\" {\n  source  = %q\n  version = \"~> 1.0\"\n  name    = \"you\"\n}\n", vpc)))
		ws.MustRun(t, client, "init", "-no-color")
		if got := ws.MustLock(t)[world.Null].Version; got != nullVersion {
			t.Errorf("%s locks %q", client.Name, got)
		}
	})
}
