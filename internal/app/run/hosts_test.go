package run

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/calls"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/cliconfig"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// workspace writes files, and returns their folder.
func workspace(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pair is the include and the exclude patterns of a template.
type pair struct {
	include, exclude []string
	source           string // "" means the one for all providers
}

func templateSet(t *testing.T, pairs []pair) (set templates.Set) {
	t.Helper()
	for _, p := range pairs {
		var sel provider.Selector
		for _, s := range p.include {
			sel.Include = append(sel.Include, provider.MustParsePattern(s))
		}
		for _, s := range p.exclude {
			sel.Exclude = append(sel.Exclude, provider.MustParsePattern(s))
		}
		parsed, err := templates.Parse(cmp.Or(p.source, "ghcr.io/acme/${hostname}/${namespace}/${type}"), sel)
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, parsed)
	}
	return set
}

func TestServedHosts(t *testing.T) {
	others := []svchost.Hostname{"b.example", "registry.opentofu.org", "a.example", "b.example", "d.example:8443"}
	for name, tc := range map[string]struct {
		templates []pair
		want      string
	}{
		"embedded registry":           {nil, "[a.example b.example registry.opentofu.org]"},
		"every provider":              {[]pair{{}}, "[a.example b.example registry.opentofu.org]"},
		"every provider, in a word":   {[]pair{{include: []string{"*/*/*"}}}, "[a.example b.example registry.opentofu.org]"},
		"one host":                    {[]pair{{include: []string{"c.example/*/*"}}}, "[c.example]"},
		"one namespace":               {[]pair{{include: []string{"b.example/acme/*"}}}, "[b.example]"},
		"one host and every provider": {[]pair{{include: []string{"c.example/*/*"}}, {}}, "[a.example b.example c.example registry.opentofu.org]"},
		"without a host":              {[]pair{{exclude: []string{"a.example/*/*"}}}, "[b.example registry.opentofu.org]"},
		"without a namespace":         {[]pair{{exclude: []string{"a.example/acme/*"}}}, "[a.example b.example registry.opentofu.org]"},
		"excluded, but elsewhere not": {[]pair{{exclude: []string{"a.example/*/*"}}, {include: []string{"a.example/acme/*"}}}, "[a.example b.example registry.opentofu.org]"},
		"a port":                      {[]pair{{include: []string{"c.example:8443/*/*"}}}, "[]"},
		"a port, but not in the name": {[]pair{{include: []string{"c.example:8443/*/*"}, source: "ghcr.io/acme/${namespace}/${type}"}}, "[c.example:8443]"},
		"in and out":                  {[]pair{{include: []string{"a.example/*/*"}, exclude: []string{"a.example/*/*"}}}, "[]"},
		"nothing":                     {[]pair{{exclude: []string{"*/*/*"}}}, "[]"},
	} {
		if got := fmt.Sprint(servedHosts(rulesOf(subject.Provider, templateSet(t, tc.templates)), others)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

const lockText = `provider "registry.locked.example/acme/widget" {
  version = "1.0.0"
}
`

// TestHostsOfCommands shows from which places hosts come, and that -chdir names the folder.
func TestHostsOfCommands(t *testing.T) {
	dir := workspace(t, map[string]string{
		".terraform.lock.hcl": lockText,
		"main.tf": `terraform {
  required_providers {
    widget = { source = "registry.native.example/acme/widget", version = "1.0.0" }
    quoted = { "source" = "REGISTRY.quoted.example/acme/widget" }
    old    = "1.0.0"
    short  = { source = "acme/widget" }
    wrong  = { source = "a b/acme/widget" }
    odd    = { source = var.x, other = "registry.other.example/acme/widget" }
  }
}
module "child" { source = "./modules/child" }
module "beside" { source = "../beside" }
module "far" { source = "registry.far.example/acme/module/aws" }
module "circle" { source = "./." }
`,
		"more.tf.json":                `{"terraform": {"required_providers": {"widget": {"source": "registry.json.example/acme/widget"}}}, "module": {"x": {"source": "./modules/json"}}}`,
		"broken.tf":                   "terraform {\n required_providers {\n w = { source = \"registry.broken.example/acme/widget\" }\n }\n}\nresource {{{",
		".hidden.tf":                  required("registry.hidden.example"),
		"backup.tf~":                  required("registry.backup.example"),
		"modules/child/main.tofu":     required("registry.child.example"),
		"modules/json/main.tofu.json": `{"terraform": [{"required_providers": [{"widget": {"source": "registry.jsonchild.example/acme/widget"}}]}]}`,
		"modules/unused/main.tf":      required("registry.unused.example"),
	})
	o := Options{Command: []string{"terraform", "-chdir=" + dir, "init"}, Hosts: []svchost.Hostname{"registry.named.example"}, Settings: serve.Settings{Config: &config.Config{}}}
	got, err := o.hosts()
	want := "[registry.broken.example registry.child.example registry.json.example registry.jsonchild.example registry.locked.example registry.named.example registry.native.example registry.opentofu.org registry.quoted.example registry.terraform.io]"
	if err != nil || fmt.Sprint(got.providers) != want {
		t.Fatalf("%v, %v, want %s", got, err, want)
	}
	if want = strings.Replace(want, " registry.opentofu.org", "", 1); fmt.Sprint(got.named) != want {
		t.Errorf("named are %v, want %s", got.named, want)
	}
	for _, command := range [][]string{{"terraform", "init"}, {"terraform", "init", dir}, {"terraform"}} {
		o := Options{Command: command, Settings: serve.Settings{Config: &config.Config{}}}
		if got, err := o.hosts(); err != nil || len(got.named) > 0 || fmt.Sprint(got.providers) != "[registry.opentofu.org registry.terraform.io]" {
			t.Errorf("%q: %v, %v", command, got, err)
		}
	}
	o.Settings = serve.Settings{Config: &config.Config{}, Repositories: registry.Options{Templates: templateSet(t, []pair{{include: []string{"a.example/*/*"}}})}}
	if _, err := o.hosts(); err == nil || hint.Of(err) == "" {
		t.Errorf("a host without a template: %v", err)
	}
}

func required(host string) string {
	return fmt.Sprintf("terraform {\n  required_providers {\n    widget = {\n      source = %q\n    }\n  }\n}\n", host+"/acme/widget")
}

// TestModuleHosts shows the hosts whose modules the gateway serves, and that templates for modules alone are for no
// providers.
func TestModuleHosts(t *testing.T) {
	dir := workspace(t, map[string]string{"main.tf": `module "far" { source = "registry.far.example/acme/module/aws//sub" }
module "git" { source = "git::https://git.example/acme/module/aws" }
module "web" { source = "https://web.example/acme/module/aws" }
module "oci" { source = "oci://oci.example/acme/module/aws" }
module "child" { source = "./child" }
`, "child/main.tf": `module "short" { source = "acme/module/aws" }`})
	for name, tc := range map[string]struct {
		include, exclude string
		providers        []pair
		want             string
	}{
		"every module":          {want: "[registry.far.example registry.named.example registry.opentofu.org registry.terraform.io]"},
		"one host":              {include: "registry.acme.example/*/*/*", want: "[registry.acme.example]"},
		"one module":            {include: "registry.far.example/acme/module/aws", want: "[registry.far.example]"},
		"a host excluded":       {exclude: "registry.far.example/*/*/*", want: "[registry.named.example registry.opentofu.org registry.terraform.io]"},
		"a namespace excluded":  {exclude: "registry.far.example/acme/*/*", want: "[registry.far.example registry.named.example registry.opentofu.org registry.terraform.io]"},
		"beside providers":      {include: "registry.acme.example/*/*/*", providers: []pair{{}}, want: "[registry.acme.example]"},
		"beside providers, all": {providers: []pair{{}}, want: "[registry.far.example registry.named.example registry.opentofu.org registry.terraform.io]"},
	} {
		var sel module.Selector
		if tc.include != "" {
			sel.Include = []module.Pattern{module.MustParsePattern(tc.include)}
		}
		if tc.exclude != "" {
			sel.Exclude = []module.Pattern{module.MustParsePattern(tc.exclude)}
		}
		parsed, err := templates.Parse("ghcr.io/acme/${hostname}/${namespace}/${name}/${system}", sel)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Command: []string{"terraform", "-chdir=" + dir, "init"}, Settings: serve.Settings{Config: &config.Config{}}}
		if tc.include == "" {
			o.Hosts = []svchost.Hostname{"registry.named.example"}
		}
		o.Settings.Repositories = registry.Options{Templates: append(templateSet(t, tc.providers), parsed)}
		got, err := o.hosts()
		if err != nil || fmt.Sprint(got.modules) != tc.want || (len(got.providers) > 0) != (tc.providers != nil) {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, tc.want)
		}
	}
	short := Options{Command: []string{"tofu", "-chdir=" + filepath.Join(dir, "child")}, Settings: serve.Settings{Config: &config.Config{}}}
	if got := readNeeds(folderOf(short.Command[1:])).moduleHosts(defaultHosts("tofu")); fmt.Sprint(got) != "[registry.opentofu.org]" {
		t.Errorf("a short source: %v", got)
	}
}

// TestDefaultHosts shows which hosts a source without a host names.
func TestDefaultHosts(t *testing.T) {
	dir := workspace(t, map[string]string{"main.tf": "terraform {\n required_providers {\n short = { source = \"acme/widget\" }\n }\n}"})
	for command, want := range map[string]string{
		"terraform":         "[registry.terraform.io]",
		"/opt/Tofu.exe":     "[registry.opentofu.org]",
		"terragrunt":        "[registry.opentofu.org registry.terraform.io]",
		"./terraform-1.5.7": "[registry.opentofu.org registry.terraform.io]",
	} {
		o := Options{Command: []string{command, "-chdir=" + dir}, Settings: serve.Settings{Config: &config.Config{}}}
		if got, err := o.hosts(); err != nil || fmt.Sprint(got.named) != want {
			t.Errorf("%s: %v, %v, want %s", command, got, err, want)
		}
	}
}

// TestWithoutBlocked shows which hosts stay if a provider_installation block keeps clients from asking for their providers.
func TestWithoutBlocked(t *testing.T) {
	hosts := []svchost.Hostname{"a.example", terraformHost, openTofuHost}
	block := func(mirrored, direct string) string {
		return "provider_installation {\n network_mirror {\n url = \"https://mirror.example/\"\n include = [" + mirrored + "]\n }\n direct {\n exclude = [" + direct + "]\n }\n}\n"
	}
	for name, tc := range map[string]struct {
		config string
		named  []svchost.Hostname
		want   string
		blocks bool // whether WithHosts refuses the hosts
		logged bool
	}{
		"nothing blocked":       {"", nil, "[a.example registry.terraform.io registry.opentofu.org]", false, false},
		"a default host":        {block(`"registry.terraform.io/*/*"`, `"registry.terraform.io/*/*"`), []svchost.Hostname{"a.example"}, "[a.example registry.opentofu.org]", false, true},
		"both default hosts":    {block(`"registry.*/*/*", "registry.terraform.io/*/*", "registry.opentofu.org/*/*"`, `"registry.terraform.io/*/*", "registry.opentofu.org/*/*"`), []svchost.Hostname{"a.example"}, "[a.example]", false, true},
		"a named host":          {block(`"a.example/*/*"`, `"a.example/*/*"`), []svchost.Hostname{"a.example"}, "[a.example registry.terraform.io registry.opentofu.org]", true, false},
		"a default, named host": {block(`"registry.terraform.io/*/*"`, `"registry.terraform.io/*/*"`), []svchost.Hostname{terraformHost}, "[a.example registry.terraform.io registry.opentofu.org]", true, false},
		"every host":            {"provider_installation {\n network_mirror {\n url = \"https://mirror.example/\"\n }\n}\n", nil, "[a.example registry.terraform.io registry.opentofu.org]", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tfrc")
			if err := os.WriteFile(file, []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			merged, err := cliconfig.ReadMerged(cliconfig.Environment{ReadFile: os.ReadFile, Getenv: func(name string) string {
				return map[string]string{"TF_CLI_CONFIG_FILE": file}[name]
			}}, cliconfig.Terraform)
			if err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			o := Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
			got := o.withoutBlocked(merged, hosts, tc.named)
			if fmt.Sprint(got) != tc.want || strings.Contains(log.String(), "level=WARN") != tc.logged {
				t.Errorf("%v, want %s; log %q", got, tc.want, log.String())
			}
			blocks := map[svchost.Hostname]services{}
			for _, host := range got {
				blocks[host] = services{providersID: "http://127.0.0.1:1/"}
			}
			if _, err := merged.WithHosts(blocks, got); (err != nil) != tc.blocks {
				t.Errorf("a configuration with the hosts: %v", err)
			}
		})
	}
}

// TestHostsOfTests shows that the hosts of what a module's tests call are found, and of local modules that they call.
func TestHostsOfTests(t *testing.T) {
	dir := workspace(t, map[string]string{
		"main.tf":                   "",
		"a.tftest.hcl":              "run \"setup\" {\n  module {\n    source = \"a.example/acme/vpc/aws\"\n  }\n}\n",
		"tests/b.tofutest.hcl":      "run \"setup\" {\n  module {\n    source = \"./helper\"\n  }\n}\n",
		"tests/c.tftest.json":       `{"run": {"setup": {"module": {"source": "c.example/acme/vpc/aws"}}}}`,
		"tests/d.tofutest.json":     `{"run": {"setup": {"module": {"source": "d.example/acme/vpc/aws"}}}}`,
		"helper/main.tf":            required("helper.example"),
		"helper/x.tftest.hcl":       "run \"x\" {\n  module {\n    source = \"unused.example/acme/vpc/aws\"\n  }\n}\n",
		"tests/deeper/y.tftest.hcl": "run \"x\" {\n  module {\n    source = \"unused.example/acme/vpc/aws\"\n  }\n}\n",
	})
	found := searchModules(dir)
	if got := fmt.Sprint(found.hosts); got != "[a.example c.example d.example]" {
		t.Errorf("modules: %s", got)
	}
	if len(found.required) != 1 || found.required[0].provider.Hostname() != "helper.example" {
		t.Errorf("providers: %v", found.required)
	}
}

// TestModulesAreBounded shows that a search ends, however many modules and files there are.
func TestModulesAreBounded(t *testing.T) {
	files := map[string]string{"main.tf": ""}
	for i := range maxModules + 10 {
		name := fmt.Sprintf("m%03d", i)
		files["main.tf"] += fmt.Sprintf("module %q { source = \"./%s\" }\n", name, name)
		files[name+"/main.tf"] = required(name + ".example")
	}
	dir := workspace(t, files)
	if got := len(searchModules(dir).required); got != maxModules-1 {
		t.Errorf("%d hosts, want %d", got, maxModules-1)
	}
	large := workspace(t, map[string]string{"main.tf": required("a.example") + string(make([]byte, calls.MaxFile))})
	if got := searchModules(large).required; len(got) != 0 {
		t.Errorf("a large file: %v", got)
	}
	if got := searchModules(filepath.Join(dir, "missing")).required; len(got) != 0 {
		t.Errorf("a missing folder: %v", got)
	}
}
