package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/gitserver"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// publicRegistries are the hosts of sources without a host.
var publicRegistries = []string{"registry.terraform.io", "registry.opentofu.org"}

// publics is a world in which the public registries have modules and providers.
type publics struct {
	*publicModules
	at      string // HOST:PORT of the providers' origin
	outside *httptest.Server
	strays  atomic.Int64 // requests to other hosts, or to an origin that is gone
}

func newPublics(t *testing.T) *publics {
	t.Helper()
	s := newScene(t)
	x := &publics{publicModules: s.publicModules()}
	x.at = s.https(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x.gone.Load() {
			x.strays.Add(1)
			panic(http.ErrAbortHandler)
		}
		s.Origin.ServeHTTP(w, r)
	}))
	// A proxy gets each request that does not go to this machine.
	x.outside = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a request to %s", r.Host)
		x.strays.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(x.outside.Close)
	clients.Must(t, s.ws.WriteCLIConfig(x.hosts("https://"+x.at+origin.ServicePath, func(string) string { return "https://" + x.publicModules.at + "/v1/modules/" })))
	s.offerIn("hashicorp", "3.1.0")
	s.offerIn("hashicorp", "3.2.4")
	s.offerIn("hashicorp", "4.0.0")
	for _, v := range []string{"3.5.0", "3.6.3", "4.0.0"} {
		x.offerAs("hashicorp", "random", v)
	}
	x.offerAs("acme", "widget", "0.9.0")
	x.offerAs("acme", "widget", "1.4.0")
	return x
}

// offerAs adds a provider that is the program of the null provider.
func (x *publics) offerAs(namespace, typ, version string) {
	x.t.Helper()
	binaries, err := clients.NullProvider()
	clients.Must(x.t, err)
	spec := release.Spec{Host: world.Host, Namespace: namespace, Type: typ, Version: version, Protocols: []string{"5.0"}, Signer: x.Signer}
	for _, b := range binaries {
		if b.OS == runtime.GOOS && b.Arch == runtime.GOARCH {
			spec.Contents = append(spec.Contents, release.Content{OS: b.OS, Arch: b.Arch, Binary: b.Path})
		}
	}
	r, err := release.Build(spec)
	clients.Must(x.t, err)
	x.Origin.Add(r)
}

// hosts returns a CLI configuration that leads the public registries, and those of the publisher, to the given URLs. No provider
// URL means that a network mirror has the providers.
func (x *publics) hosts(providers string, modules func(host string) string) string {
	var out strings.Builder
	for _, host := range append([]string{world.Host, publicHost}, publicRegistries...) {
		fmt.Fprintf(&out, "host %q {\n  services = {\n    \"modules.v1\" = %q\n", host, modules(host))
		if providers != "" {
			fmt.Fprintf(&out, "    \"providers.v1\" = %q\n", providers)
		}
		out.WriteString("  }\n}\n")
	}
	return out.String()
}

// module adds a version of a module to all registries.
func (x *publics) module(address, version, folder string, tree gitserver.Tree) {
	x.t.Helper()
	repository := strings.NewReplacer("/", "-").Replace(address)
	x.git.Commit(x.t, repository, tree)
	x.git.Git(x.t, repository, "tag", "v"+version, "main")
	if x.locations[address] == nil {
		x.locations[address] = map[string]string{}
	}
	x.locations[address][version] = "git::https://HOST/git/" + repository + folder + "?ref=v" + version
}

// folder writes a configuration, and returns a workspace with it.
func (x *publics) folder(cliConfig string, files map[string]string) *clients.Workspace {
	x.t.Helper()
	ws := x.workspace("")
	clients.Must(x.t, ws.WriteCLIConfig(cliConfig))
	for name, text := range files {
		name = filepath.Join(ws.Dir, filepath.FromSlash(name))
		clients.Must(x.t, os.MkdirAll(filepath.Dir(name), 0o700))
		clients.Must(x.t, os.WriteFile(name, []byte(text), 0o600))
	}
	ws.Env["HTTPS_PROXY"], ws.Env["HTTP_PROXY"] = x.outside.URL, x.outside.URL
	ws.Env["GIT_SSL_CAINFO"] = x.CAFile
	return ws
}

// initializes pushes what a configuration needs, and checks that a client then initializes it through a gateway alone. It returns
// the output of the push, and the files of the modules.
func (x *publics) initializes(t *testing.T, client clients.Client, files map[string]string, args ...string) (pushed string, got map[string]string) {
	t.Helper()
	x.gone.Store(false)
	data := t.TempDir()
	dir := x.folder("", files).Dir
	pushed = x.mustRun("push", "--data", data, "--needed-by", dir, "--strict", "--platform", runtime.GOOS+"_"+runtime.GOARCH)
	if again := x.mustRun("push", "--data", data, "--needed-by", dir, "--platform", runtime.GOOS+"_"+runtime.GOARCH); strings.Contains(again, ": pushed, ") {
		t.Errorf("a second push stored something:\n%s", again)
	}
	x.gone.Store(true)
	before := x.requests.Load()
	gateway := x.serve("--data", data)
	ws := x.folder(world.NetworkMirror(gateway.URL)+x.hosts("", func(host string) string {
		return "https://" + authority(gateway) + "/hosts/" + host + "/v1/modules/"
	}), files)
	ws.MustRun(t, client, append([]string{"init", "-no-color", "-backend=false"}, args...)...)
	if n := x.requests.Load() - before + x.strays.Load(); n > 0 {
		t.Errorf("%s: %d requests elsewhere", client.Name, n)
	}
	locked := ws.MustLock(t)
	for address := range locked {
		if _, err := os.Stat(filepath.Join(ws.Dir, ".terraform", "providers", filepath.FromSlash(address))); err != nil {
			t.Error(err)
		}
	}
	return pushed, filesBelow(t, filepath.Join(ws.Dir, ".terraform", "modules"))
}

// says checks which texts are in an output.
func says(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if absent, not := strings.CutPrefix(want, "! "); not == strings.Contains(out, strings.TrimSpace(absent)) {
			t.Errorf("%q: found %v in\n%s", want, !not, out)
		}
	}
}

// TestNeededByNetwork has the shape of a root that calls a network module of a registry: the module calls submodules of its own,
// of which one calls another module of the registry, and root and modules have requirements with >= for two providers. There is
// a lock file, and init must not change it.
func TestNeededByNetwork(t *testing.T) {
	t.Parallel()
	x := newPublics(t)
	versions := "terraform {\n  required_version = \">= 1.3\"\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \">= 3.0\"\n    }\n    random = {\n      source  = \"hashicorp/random\"\n      version = \">= 3.5, < 4.0\"\n    }\n  }\n}\n"
	x.module("acme-modules/network/aws", "5.1.0", "", gitserver.Tree{
		"main.tf":                          "module \"endpoints\" {\n  count  = 2\n  source = \"./modules/endpoints\"\n}\nresource \"random_pet\" \"name\" {}\n",
		"versions.tf":                      versions,
		"outputs.tf":                       "output \"id\" {\n  value = 1\n}\n",
		"modules/logs/main.tf":             "module \"label\" {\n  source  = \"acme-modules/label/null\"\n  version = \"0.24.1\"\n}\n",
		"modules/endpoints/main.tf":        "module \"label\" {\n  source  = \"acme-modules/label/null\"\n  version = \"~> 0.25\"\n}\n",
		"examples/complete/main.tf":        "module \"never\" {\n  source = \"acme-modules/never/aws\"\n}\n",
		"examples/complete/versions.tf":    versions,
		"wrappers/main.tf":                 "module \"wrapper\" {\n  for_each = var.items\n  source   = \"../\"\n}\n",
		".github/workflows/release.yml":    "on: push\n",
		"modules/endpoints/versions.tf":    versions,
		"modules/endpoints/.gitattributes": "*.md export-ignore\n",
	})
	for _, v := range []string{"0.24.1", "0.25.0"} {
		x.module("acme-modules/label/null", v, "", gitserver.Tree{"main.tf": "# label " + v + "\nresource \"null_resource\" \"x\" {}\n", "versions.tf": "terraform {\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \">= 2.0\"\n    }\n  }\n}\n"})
	}
	files := map[string]string{
		"versions.tf": "terraform {\n  required_version = \">= 1.5\"\n  backend \"local\" {}\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \">= 3.1, < 4.0\"\n    }\n    random = {\n      source  = \"hashicorp/random\"\n      version = \">= 3.5\"\n    }\n  }\n}\n",
		"main.tf":     "provider \"null\" {}\n\nlocals {\n  name = \"ex-${basename(path.cwd)}\"\n}\n\nmodule \"network\" {\n  source  = \"acme-modules/network/aws\"\n  version = \"~> 5.0\"\n}\n\nmodule \"logs\" {\n  source  = \"acme-modules/network/aws//modules/logs\"\n  version = \"~> 5.0\"\n}\n",
	}
	both(t, func(t *testing.T, client clients.Client) {
		// The configuration is locked when older versions of the providers are the newest.
		x.gone.Store(false)
		direct := x.folder(x.hosts("https://"+x.at+origin.ServicePath, func(string) string { return "https://" + x.publicModules.at + "/v1/modules/" }), files)
		direct.Env["HTTPS_PROXY"], direct.Env["HTTP_PROXY"] = "", ""
		direct.MustRun(t, client, "init", "-no-color")
		lock, err := os.ReadFile(filepath.Join(direct.Dir, ".terraform.lock.hcl"))
		clients.Must(t, err)
		locked := maps.Clone(files)
		locked[".terraform.lock.hcl"] = string(lock)
		pushed, got := x.initializes(t, client, locked, "-lockfile=readonly")
		host := map[string]string{"tofu": "registry.opentofu.org", "terraform": "registry.terraform.io"}[client.Name]
		says(t, pushed, host+"/hashicorp/null 3.2.4: pushed", host+"/hashicorp/random 3.6.3: pushed", host+"/acme-modules/network/aws 5.1.0: pushed",
			host+"/acme-modules/label/null 0.25.0: pushed", host+"/acme-modules/label/null 0.24.1: pushed", "! never")
		if strings.Count(pushed, ": pushed, ") != 5 {
			t.Errorf("%s: pushed\n%s", client.Name, pushed)
		}
		for name, want := range filesBelow(t, filepath.Join(direct.Dir, ".terraform", "modules")) {
			if got[name] != want {
				t.Errorf("%s: %s is %q, and %q directly", client.Name, name, got[name], want)
			}
		}
	})
}

// TestNeededByNested has the shape of a root with nested local modules: some files are JSON, and there are moved, import and
// check blocks. The providers come from two hosts. A module of a registry requires a provider that the root does not name. There
// is no lock file.
func TestNeededByNested(t *testing.T) {
	t.Parallel()
	x := newPublics(t)
	x.module("platform/app/aws", "1.2.0", "//module", gitserver.Tree{
		"module/main.tf":     "module \"shared\" {\n  source = \"../shared\"\n}\n",
		"module/versions.tf": "terraform {\n  required_providers {\n    gadget = {\n      source  = \"" + world.Host + "/acme/widget\"\n      version = \"~> 1.0\"\n    }\n  }\n}\n",
		"shared/main.tf":     "resource \"null_resource\" \"shared\" {}\n",
	})
	files := map[string]string{
		"main.tf.json":              `{"terraform": {"required_version": ">= 1.5", "required_providers": {"mine": {"source": "` + world.Host + `/acme/null", "version": "3.2.4"}}}, "module": {"env": {"source": "./env"}}, "resource": {"random_pet": {"p": {}}}}`,
		"changes.tf":                "moved {\n  from = null_resource.old\n  to   = module.env.null_resource.new\n}\nimport {\n  to = null_resource.root\n  id = \"x\"\n}\ncheck \"health\" {\n  assert {\n    condition     = null_resource.root.id != \"\"\n    error_message = \"no root\"\n  }\n}\nresource \"null_resource\" \"root\" {\n  provisioner \"local-exec\" {\n    command = <<-EOT\n      module \"not\" { source = \"acme/none/aws\" }\n    EOT\n  }\n}\n",
		"env/main.tf":               "resource \"null_resource\" \"new\" {}\nmodule \"app\" {\n  source = \"./parts/app\"\n}\nmodule \"again\" {\n  source = \"../env/parts/app\"\n}\n",
		"env/parts/app/main.tf":     "module \"app\" {\n  source  = \"" + publicHost + "/platform/app/aws\"\n  version = \">= 1.0.0\"\n}\n",
		"env/parts/app/versions.tf": "terraform {\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \"< 4.0.0\"\n    }\n  }\n}\n",
		"unused/main.tf":            "module \"never\" {\n  source = \"acme/never/aws\"\n}\n",
	}
	both(t, func(t *testing.T, client clients.Client) {
		pushed, got := x.initializes(t, client, files)
		says(t, pushed, world.Host+"/acme/widget 1.4.0: pushed", world.Host+"/acme/null 3.2.4: pushed", "registry.terraform.io/hashicorp/random 4.0.0: pushed",
			"registry.opentofu.org/hashicorp/null 3.2.4: pushed", publicHost+"/platform/app/aws 1.2.0: pushed", "! never", "! none")
		if text := fmt.Sprint(got); !strings.Contains(text, "null_resource\" \"shared\"") {
			t.Errorf("%s: %q", client.Name, got)
		}
	})
}

// TestNeededByOverrides has the shape of a configuration for both clients: files for OpenTofu hide others, override files change
// constraints and sources, tests call modules of the registry and other providers, and modules are called with //FOLDER and
// for_each.
func TestNeededByOverrides(t *testing.T) {
	t.Parallel()
	x := newPublics(t)
	for _, name := range []string{"base", "only-tofu", "only-terraform", "fixture"} {
		for _, v := range []string{"1.0.0", "1.9.0", "2.0.0"} {
			x.module("acme/"+name+"/aws", v, "", gitserver.Tree{"main.tf": "# " + name + " " + v + "\n", "modules/part/main.tf": "# part of " + name + " " + v + "\n"})
		}
	}
	call := func(name, source, version, more string) string {
		return fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n%s}\n", name, source, version, more)
	}
	files := map[string]string{
		"terraform.tf":          "terraform {\n  required_version = \">= 1.5.0\"\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \"~> 4.0\"\n    }\n  }\n}\n",
		"versions_override.tf":  "terraform {\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \"~> 3.0\"\n    }\n  }\n}\n",
		"main.tf":               call("client", "acme/only-terraform/aws", "~> 1.0", "") + "resource \"null_resource\" \"x\" {}\n",
		"main.tofu":             call("client", "acme/only-tofu/aws", "~> 1.0", "") + "resource \"null_resource\" \"x\" {}\n",
		"parts.tf":              call("parts", "acme/base/aws//modules/part", "1.0.0", "  for_each = toset([\"a\", \"b\"])\n"),
		"override.tf":           "module \"parts\" {\n  version = \"< 2.0.0\"\n}\n",
		"tests/main.tftest.hcl": "provider \"random\" {}\n\nrun \"setup\" {\n  command = plan\n  module {\n    source  = \"acme/fixture/aws\"\n    version = \"1.0.0\"\n  }\n}\n\nrun \"local\" {\n  command = plan\n  module {\n    source = \"./tests/setup\"\n  }\n}\n",
		"tests/setup/main.tf":   "terraform {\n  required_providers {\n    widget = {\n      source  = \"" + world.Host + "/acme/widget\"\n      version = \"< 1.0\"\n    }\n  }\n}\n",
	}
	both(t, func(t *testing.T, client clients.Client) {
		pushed, got := x.initializes(t, client, files)
		text := fmt.Sprint(got)
		says(t, text, "# part of base 1.9.0", "! part of base 1.0.0")
		if client.Name == "tofu" {
			says(t, text, "# only-tofu 1.9.0", "! only-terraform", "# fixture 1.0.0")
		} else {
			says(t, text, "# only-terraform 1.9.0", "! only-tofu")
		}
		says(t, pushed, "/hashicorp/null 3.2.4: pushed", "! /hashicorp/null 4.0.0", "/hashicorp/random 4.0.0: pushed", world.Host+"/acme/widget 0.9.0: pushed")
	})
}
