package e2e

import (
	"archive/zip"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// stack is a module that calls another module of the registry, with a version constraint, and a submodule of it.
const stack = world.Host + "/platform/stack/aws"

const stackFile = `module "vpc" {
  source  = "` + vpc + `"
  version = "~> 1.0"
  name    = "you"
}
module "child" {
  source  = "` + vpc + `//modules/child"
  version = "1.0.0"
  name    = "me"
}
output "all" { value = "${module.vpc.all}, ${module.child.greeting}" }
`

// wantAll is the output of the module stack.
const wantAll = "hello you false notes, hello me"

// stackFolder writes the module stack into a new folder.
func (s *scene) stackFolder() string {
	s.t.Helper()
	dir := s.t.TempDir()
	clients.Must(s.t, os.WriteFile(filepath.Join(dir, "main.tf"), []byte(stackFile), 0o644))
	return dir
}

// pushModules pushes the modules vpc and stack into the repositories that flags name.
func (s *scene) pushModules(flags ...string) {
	s.t.Helper()
	for address, folder := range map[string]string{vpc: s.moduleFolder(), stack: s.stackFolder()} {
		s.mustRun(append([]string{"module", "push", folder, "--as", address + "@1.0.0"}, flags...)...)
	}
}

// modulesBlock returns a CLI configuration that sends requests for the modules of world.Host to a gateway.
func modulesBlock(gateway *world.Gateway) string {
	return fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = %q\n  }\n}\n", world.Host, hostURL(gateway)+"/v1/modules/")
}

// stackUser creates a workspace whose configuration uses the module stack.
func (s *scene) stackUser(cliConfig string) *clients.Workspace {
	s.t.Helper()
	ws := s.workspace(cliConfig)
	clients.Must(s.t, ws.WriteConfig("module \"stack\" {\n  source  = \""+stack+"\"\n  version = \">= 1.0.0\"\n}\noutput \"all\" { value = module.stack.all }\n"))
	return ws
}

// appliesStack makes a client get, initialize and apply the configuration of a workspace. run runs the client.
func appliesStack(t *testing.T, ws *clients.Workspace, client clients.Client, run func(args ...string)) {
	t.Helper()
	run("get", "-no-color")
	run("init", "-no-color")
	run("apply", "-no-color", "-auto-approve")
	out, err := ws.Stdout(client, "output", "-raw", "all")
	if err != nil || string(out) != wantAll {
		t.Errorf("%s: %q, want %q, %v", client.Name, out, wantAll, err)
	}
}

// TestModuleCallsModules shows that both clients get, initialize and apply a module that calls other modules of the
// registry and their submodules. The modules are in the embedded registry, and the origin is down.
func TestModuleCallsModules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.pushModules("--data", s.data)
	s.World.Close()
	gateway := s.serve("--data", s.data)
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.stackUser(modulesBlock(gateway))
		appliesStack(t, ws, client, func(args ...string) { ws.MustRun(t, client, args...) })
	})
}

// moduleToken returns a token block for modules. The token is "marked-", followed by its name.
func moduleToken(name, include string) string {
	return fmt.Sprintf("  token %q {\n    sha256  = \"%x\"\n    include = [%q]\n  }\n", name, sha256.Sum256([]byte("marked-"+name)), include)
}

// TestPrivateModules shows that clients install modules with their token for the modules' host, and download the
// zips without it. A token for other modules, a token for providers and no token get nothing.
func TestPrivateModules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.pushModules("--data", s.data)
	s.World.Close()
	gateway := s.controlled(moduleToken("modules", world.Host+"/platform/*/*") + moduleToken("others", world.Host+"/network/*/*"))
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.stackUser("")
		as := func(token string) {
			t.Helper()
			clients.Must(t, ws.WriteCLIConfig(modulesBlock(gateway)+fmt.Sprintf("credentials %q {\n  token = %q\n}\n", world.Host, token)))
		}
		as("marked-modules")
		appliesStack(t, ws, client, func(args ...string) { ws.MustRun(t, client, args...) })
		for _, token := range []string{"", "marked-others", acmeToken} {
			as(token)
			clients.Must(t, ws.Clean())
			if out, err := ws.Run(client, "init", "-no-color"); err == nil || !strings.Contains(out, "registry.acme.example") {
				t.Errorf("%s with the token %q: %v\n%s", client.Name, token, err, out)
			}
		}
	})
	clients.Must(t, gateway.Stop()) // completes the log
	wantNoSecrets(t, gateway)
}

// TestModulesOfOwnHost shows that modules whose address has the gateway's own host name and port need no host block.
// Renovate's own code finds their versions, too.
func TestModulesOfOwnHost(t *testing.T) {
	t.Parallel()
	const own = "127.0.0.1/platform/vpc/aws" // the gateway leaves its own port out of addresses
	s := newScene(t)
	for _, version := range []string{"1.0.0", "1.1.0-rc.1", "1.10.0"} {
		s.mustRun("module", "push", s.moduleFolder(), "--as", own+"@"+version, "--data", s.data)
	}
	address := freeAddress(t)
	gateway := s.serve("--data", s.data, "--listen", address, s.settings(fmt.Sprintf("gateway {\n  public_url = %q\n}\n", "https://"+address)))
	config := "module \"vpc\" {\n  source  = \"" + address + "/platform/vpc/aws\"\n  version = \"1.0.0\"\n  name    = \"you\"\n}\noutput \"all\" { value = module.vpc.all }\n"
	for _, a := range []string{own, address + "/platform/vpc/aws"} {
		wantChecks(t, s.doctor(a, "--url", "https://"+address+"/"), map[string]string{"discovery": "ok", "versions": "ok", "download": "ok", "archive": "ok"})
	}
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig(config))
		ws.MustRun(t, client, "init", "-no-color")
		ws.MustRun(t, client, "apply", "-no-color", "-auto-approve")
	})
	ws := s.workspace("")
	clients.Must(t, ws.WriteConfig(config))
	if releases := s.renovate(t, ws, gateway, ""); !slices.Equal(releases, []string{"1.0.0", "1.1.0-rc.1", "1.10.0"}) {
		t.Errorf("Renovate reads the releases %q", releases)
	}
}

// TestModuleEverywhere shows that one artifact is the same module for all clients: from the embedded registry and from
// distribution, by the gateway and by oci://. The ORAS CLI copies the artifact between the registries. It is the one
// that module push has made, or the one that the ORAS CLI makes by OpenTofu's recipe, without h1: hash and under a tag
// with v.
func TestModuleEverywhere(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushModules("--data", s.data)
	oras := func(args ...string) { t.Helper(); s.ws.MustRun(t, clients.ORAS(t), args...) }
	embedded := s.serve("--data", s.data)
	at := authority(embedded) + "/modules/" + vpc
	s.installsModule(at, "tag=1.0.0")
	for _, a := range []string{vpc, stack} {
		oras("cp", "--from-plain-http=false", "--to-plain-http=false", authority(embedded)+"/modules/"+a+":1.0.0", r.Host+"/copies/"+a+":1.0.0")
	}
	copied := strings.TrimSpace(string(s.ws.MustRun(t, clients.ORAS(t), "resolve", "--plain-http=false", r.Host+"/copies/"+vpc+":1.0.0")))
	s.installsModule(r.Host+"/copies/"+vpc, "digest="+copied)
	s.installsModule(at, "digest="+copied)

	recipe := s.workspace("")
	for name, folder := range map[string]string{"vpc": s.moduleFolder(), "stack": s.stackFolder()} {
		clients.Must(t, zipFolder(filepath.Join(recipe.Dir, name+".zip"), folder))
		recipe.MustRun(t, clients.ORAS(t), "push", "--plain-http=false", "--artifact-type", "application/vnd.opentofu.modulepkg",
			r.Host+"/recipe/"+world.Host+"/platform/"+name+"/aws:v1.0.0", name+".zip:archive/zip")
	}
	s.installsModule(r.Host+"/recipe/"+vpc, "tag=v1.0.0")
	again := s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--template", strings.Replace(moduleTemplate(r), "/modules/", "/recipe/", 1))
	if !strings.Contains(again, "1.0.0: unchanged, ") {
		t.Errorf("a push of the files that the recipe has stored: %s", again)
	}

	for _, folder := range []string{"copies", "recipe"} {
		template := strings.Replace(moduleTemplate(r), "/modules/", "/"+folder+"/", 1)
		gateway := s.serve(s.settings(fmt.Sprintf("module_mirror {\n  repository_template = %q\n}\n", template)))
		both(t, func(t *testing.T, client clients.Client) {
			ws := s.stackUser(modulesBlock(gateway))
			appliesStack(t, ws, client, func(args ...string) { ws.MustRun(t, client, args...) })
		})
	}
}

// zipFolder writes a module, except .git, into a zip as zip -r does: it follows links, and it writes entries for folders.
func zipFolder(name, folder string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := zip.NewWriter(f)
	err = filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil || path == folder || strings.Contains(path, ".git") {
			return err
		}
		rel, _ := filepath.Rel(folder, path)
		rel = filepath.ToSlash(rel)
		if info.IsDir() {
			_, err := w.Create(rel + "/")
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to, err := w.Create(rel)
		if err == nil {
			_, err = to.Write(data)
		}
		return err
	})
	return errors.Join(err, w.Close())
}
