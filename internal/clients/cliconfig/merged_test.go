package cliconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

func TestReadMergedFiles(t *testing.T) {
	unix := machine{goos: "linux", files: map[string]string{
		"/home/u/.tofurc": "", "/home/u/.terraformrc": "",
		"/home/u/.terraform.d/b.tfrc": "", "/home/u/.terraform.d/credentials.tfrc.json": "{}", "/home/u/.terraform.d/README": "=",
	}}
	xdg := machine{goos: "darwin", vars: map[string]string{"XDG_CONFIG_HOME": "/xdg"}, files: map[string]string{
		"/xdg/opentofu/tofurc": "", "/xdg/opentofu/a.tfrc": "",
	}}
	legacy := machine{goos: "linux", files: map[string]string{"/home/u/.terraformrc": ""}}
	windows := machine{goos: "windows", home: `C:\Users\u`, vars: map[string]string{"APPDATA": `D:\data`}, files: map[string]string{
		`D:\data\tofu.rc`: "", `D:\data\terraform.rc`: "", `D:\data\terraform.d\a.tfrc`: "",
	}}
	override := machine{goos: "linux", vars: map[string]string{"TF_CLI_CONFIG_FILE": "ci.rc"}, files: map[string]string{
		"ci.rc": "", "/home/u/.terraformrc": "", "/home/u/.terraform.d/a.tfrc": "",
	}}
	older := machine{goos: "linux", vars: map[string]string{"TERRAFORM_CONFIG": "/old"}, files: map[string]string{"/old": "", "/home/u/.terraformrc": ""}}
	missing := machine{goos: "linux", vars: map[string]string{"TF_CLI_CONFIG_FILE": "/gone"}, files: map[string]string{"/home/u/.terraform.d/a.tfrc": ""}}
	unreadable := machine{goos: "linux", unreadable: map[string]error{"/home/u/.terraformrc": fs.ErrPermission}}
	tests := []struct {
		name    string
		machine machine
		client  Client
		want    []string
		warn    string
	}{
		{name: "OpenTofu", machine: unix, client: OpenTofu, want: []string{"/home/u/.tofurc", "/home/u/.terraform.d/b.tfrc", "/home/u/.terraform.d/credentials.tfrc.json"}},
		{name: "Terraform", machine: unix, client: Terraform, want: []string{"/home/u/.terraformrc", "/home/u/.terraform.d/b.tfrc", "/home/u/.terraform.d/credentials.tfrc.json"}},
		{name: "OpenTofu without a main file of its own", machine: legacy, client: OpenTofu, want: []string{"/home/u/.terraformrc"}},
		{name: "OpenTofu with XDG", machine: xdg, client: OpenTofu, want: []string{"/xdg/opentofu/tofurc", "/xdg/opentofu/a.tfrc"}},
		{name: "Terraform ignores XDG", machine: xdg, client: Terraform},
		{name: "OpenTofu on Windows", machine: windows, client: OpenTofu, want: []string{`D:\data\tofu.rc`, `D:\data\terraform.d\a.tfrc`}},
		{name: "Terraform on Windows", machine: windows, client: Terraform, want: []string{`D:\data\terraform.rc`, `D:\data\terraform.d\a.tfrc`}},
		{name: "an override switches the folder off", machine: override, client: Terraform, want: []string{"ci.rc"}},
		{name: "the older override", machine: older, client: Terraform, want: []string{"/old"}},
		{name: "an override without a file", machine: missing, client: Terraform, warn: "the CLI configuration file /gone does not exist"},
		{name: "a main file without permission", machine: unreadable, client: Terraform, warn: "the CLI configuration file /home/u/.terraformrc was not read: permission denied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := ReadMerged(tt.machine.environment(), tt.client)
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range m.Files {
				m.Files[i] = path.Clean(f)
			}
			if !slices.Equal(m.Files, tt.want) || strings.Join(m.Warnings, "\n") != tt.warn {
				t.Errorf("files %q, warnings %q, want %q, %q", m.Files, m.Warnings, tt.want, tt.warn)
			}
		})
	}
	for _, goos := range []string{"linux", "windows"} {
		env := machine{goos: goos}.environment()
		env.Home = ""
		if m, err := ReadMerged(env, Terraform); err != nil || len(m.Files)+len(m.Warnings) > 0 {
			t.Errorf("%s without a home folder: %+v, %v", goos, m, err)
		}
	}
}

// clientConfig is the configuration as the clients decode it, with the names of their fields.
type clientConfig struct {
	PluginCacheDir     string                    `hcl:"plugin_cache_dir"`
	MayBreakLock       bool                      `hcl:"plugin_cache_may_break_dependency_lock_file"`
	DisableCheckpoint  bool                      `hcl:"disable_checkpoint"`
	Hosts              map[string]*hostBlock     `hcl:"host"`
	Credentials        map[string]map[string]any `hcl:"credentials"`
	CredentialsHelpers map[string]*helperBlock   `hcl:"credentials_helper"`
	RegistryProtocols  protocolsBlock            `hcl:"-"`
	Blocks             map[string][]labelledBody `hcl:"-"` // the blocks that the clients decode one by one
}

type protocolsBlock struct {
	RetryCount     *int `hcl:"retry_count"`
	RequestTimeout *int `hcl:"request_timeout_seconds"`
}

type labelledBody struct {
	Labels []string
	Body   map[string]any
}

// decodeAsClient decodes a file, as the function loadConfigFile of the clients does.
func decodeAsClient(src string) (c *clientConfig, err error) {
	defer invalidLiteral("test", &err)
	root, err := hcl.Parse(src)
	if err != nil {
		return nil, err
	}
	c = &clientConfig{Blocks: map[string][]labelledBody{}}
	if err := hcl.DecodeObject(c, root); err != nil {
		return nil, err
	}
	list, ok := root.Node.(*ast.ObjectList)
	if !ok {
		return c, nil
	}
	for _, item := range list.Items {
		var b labelledBody
		for _, k := range item.Keys[1:] {
			b.Labels = append(b.Labels, keyText(k))
		}
		switch name := keyText(item.Keys[0]); name {
		case "registry_protocols":
			err = hcl.DecodeObject(&c.RegistryProtocols, item.Val)
		case "oci_credentials", "oci_default_credentials", "provider_installation":
			err = hcl.DecodeObject(&b.Body, item.Val)
			c.Blocks[name] = append(c.Blocks[name], b)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// merge merges the configurations of two files, as the method Merge of the clients does.
func (c *clientConfig) merge(c2 *clientConfig) *clientConfig {
	out := &clientConfig{
		PluginCacheDir: cmp.Or(c.PluginCacheDir, c2.PluginCacheDir),
		MayBreakLock:   c.MayBreakLock || c2.MayBreakLock, DisableCheckpoint: c.DisableCheckpoint || c2.DisableCheckpoint,
		Hosts: map[string]*hostBlock{}, Credentials: map[string]map[string]any{}, CredentialsHelpers: map[string]*helperBlock{},
		RegistryProtocols: protocolsBlock{
			RetryCount:     cmp.Or(c.RegistryProtocols.RetryCount, c2.RegistryProtocols.RetryCount),
			RequestTimeout: cmp.Or(c.RegistryProtocols.RequestTimeout, c2.RegistryProtocols.RequestTimeout),
		},
		Blocks: map[string][]labelledBody{},
	}
	for _, from := range []*clientConfig{c, c2} {
		maps.Copy(out.Hosts, from.Hosts)
		maps.Copy(out.Credentials, from.Credentials)
		maps.Copy(out.CredentialsHelpers, from.CredentialsHelpers)
		for name, blocks := range from.Blocks {
			out.Blocks[name] = append(out.Blocks[name], blocks...)
		}
	}
	return out
}

// asClients returns the configuration that a client has from several files.
func asClients(files ...string) (*clientConfig, error) {
	merged := &clientConfig{}
	for _, src := range files {
		c, err := decodeAsClient(src)
		if err != nil {
			return nil, err
		}
		merged = merged.merge(c)
	}
	return merged, nil
}

// home returns a machine with the given files: the main file, and those in the folder.
func home(main string, folder ...string) machine {
	m := machine{goos: "linux", files: map[string]string{"/home/u/.tofurc": main, "/home/u/.terraformrc": main}}
	for i, src := range folder {
		m.files[fmt.Sprintf("/home/u/.terraform.d/%d.tfrc", i)] = src
	}
	return m
}

func mustMerge(t *testing.T, m machine, client Client) *Merged {
	t.Helper()
	merged, err := ReadMerged(m.environment(), client)
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func textOf(t *testing.T, m *Merged, services map[svchost.Hostname]map[string]any) string {
	t.Helper()
	text, err := m.WithHosts(services, sortedKeys(services))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// everything has a setting of each kind.
const everything = `
# A comment.
plugin_cache_dir   = "$HOME/.cache/${USER}"
disable_checkpoint = true
unknown_argument   = [1, "two", { three = 3.5 }]
host "main.example" { services = { "providers.v1" = "https://main.example/v1/", "login.v1" = { client = "cli", ports = [10000, 10010] } } }
host "both.example" { services = { "providers.v1" = "https://first.example/" } }
credentials "both.example" { token = "main" }
credentials "main.example" { token = <<EOT
a "quoted" ${token}\\
EOT
}
credentials { "map.example" = { token = "map" } }
credentials_helper "pass" { args = ["--verbose", "main"] }
registry_protocols { retry_count = 3 }
oci_credentials "ghcr.io/acme" { username = "robot$a", password = "p" }
oci_default_credentials { docker_style_config_files = ["docker.json", "/abs.json"] }
oci_mirror { repository_template = "ghcr.io/acme/${namespace}-${type}" }
unknown_block "label" { direct {} }
provider_installation {
  dev_overrides { "acme/x" = "/tmp/x" }
  filesystem_mirror { path = "/usr/share/providers", include = ["example.com/*/*"] }
  direct {}
  direct { include = ["example.com/*/*"] }
}
`

const everythingInJSON = `{
"plugin_cache_dir": "/not/used", "plugin_cache_may_break_dependency_lock_file": true, "disable_checkpoint": false,
"host": {"both.example": {"services": {"providers.v1": "https://second.example/", "login.v1": {"client": "${cli}"}}}, "nested.example": {"services": {"login.v1": {"client": "x"}}}},
"credentials": {"BOTH.example": {"token": "json"}, "json.example": {"token": "\u0000\"${\"\\${a}"}},
"credentials_helper": {"pass": {"args": ["json"]}},
"registry_protocols": {"retry_count": 5, "request_timeout_seconds": 20},
"oci_credentials": {"quay.io": {"access_token": "t", "refresh_token": "r"}},
"unknown_block": {"a": {"b": null}}
}`

// TestMergedAsClients shows that a client has the same configuration from the text as from the files.
func TestMergedAsClients(t *testing.T) {
	for name, files := range map[string][]string{
		"nothing":               {""},
		"one file":              {everything},
		"one file in JSON":      {everythingInJSON},
		"native and JSON":       {strings.ReplaceAll(everything, `credentials "both.example"`, `credentials "BOTH.example"`), everythingInJSON},
		"JSON and native":       {strings.ReplaceAll(everythingInJSON, "BOTH", "both"), everything},
		"the first value":       {`plugin_cache_dir = ""`, `plugin_cache_dir = "/a"`, `plugin_cache_dir = "/b"`},
		"true wins":             {`disable_checkpoint = false`, `disable_checkpoint = true`, `disable_checkpoint = false`},
		"credentials replace":   {`credentials "a.example" { token = "x" }`, `credentials "a.example" { other = "y" }`},
		"blocks of one file":    {`credentials "a.example" { token = "x" }` + "\n" + `credentials "a.example" { other = "y" }`},
		"another name":          {`plugin_cache_dir = ""`, `Plugin_Cache_Dir = "/a"`, `Registry_Protocols { retry_count = 1 }`, `registry_protocols { retry_count = 2 }`},
		"two installations":     {`provider_installation { direct {} }`, `provider_installation { direct {} }`},
		"methods in JSON":       {`{"provider_installation": {"direct": [{"exclude": ["a.example/*/*"]}], "network_mirror": [{"url": "https://m.example/"}]}}`},
		"Windows' line endings": {"disable_checkpoint = true\r\nplugin_cache_dir = \"C:\\\\cache\"\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var absolute []string
			for i, src := range files {
				folder := []string{"/home/u/", "/home/u/.terraform.d/"}[min(i, 1)]
				absolute = append(absolute, strings.ReplaceAll(src, `"docker.json"`, `"`+folder+`docker.json"`))
			}
			want, err := asClients(absolute...)
			if err != nil {
				t.Fatal(err)
			}
			text := textOf(t, mustMerge(t, home(files[0], files[1:]...), OpenTofu), nil)
			got, err := asClients(text)
			if err != nil {
				t.Fatalf("%v in:\n%s", err, text)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the client has\n%+v, want\n%+v, from\n%s", got, want, text)
			}
		})
	}
}

// TestMergedText shows what the text keeps: settings that no client knows, the order of methods, and values as they are.
func TestMergedText(t *testing.T) {
	text := textOf(t, mustMerge(t, home(everything, everythingInJSON), OpenTofu), nil)
	for _, want := range []string{
		"plugin_cache_dir = \"$HOME/.cache/${USER}\"\n",
		"unknown_argument = [1, \"two\", {\n",
		"unknown_block \"label\" {\n  direct {\n  }\n}\n",
		"repository_template = \"ghcr.io/acme/${namespace}-${type}\"\n",
		"  direct {\n  }\n  direct {\n    include = [\"example.com/*/*\"]\n  }\n}\n",
		"\"unknown_block\" \"a\" {\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not contain %q:\n%s", want, text)
		}
	}
	if i, j := strings.Index(text, "dev_overrides"), strings.Index(text, "filesystem_mirror"); i < 0 || j < i {
		t.Errorf("dev_overrides is not the first method:\n%s", text)
	}
}

func TestWithHosts(t *testing.T) {
	var discovered map[string]any
	err := json.Unmarshal([]byte(`{
		"providers.v1": "http://127.0.0.1:8080/${x}/v1/providers/",
		"login.v1": {"client": "cli", "authz": "https://origin.example/authz", "token": "/token", "ports": [10000, 10010], "grant_types": ["authz_code"]},
		"empty.v1": {}, "null.v1": null, "list.v1": [null, true, {"a": -0.5}]
	}`), &discovered)
	if err != nil {
		t.Fatal(err)
	}
	m := mustMerge(t, home(everything, everythingInJSON), OpenTofu)
	given := maps.Clone(m.Hosts())
	given["both.example"], given["new.example:8443"], given["café.example"] = discovered, discovered, discovered
	delete(given, "nested.example")

	again := mustMerge(t, home(textOf(t, m, given)), OpenTofu)
	got := again.Hosts()
	if want := m.Hosts()["nested.example"]; !reflect.DeepEqual(got["nested.example"], want) || want == nil {
		t.Errorf("a host that is not given has %v, want %v", got["nested.example"], want)
	}
	if want := m.Hosts()["main.example"]; !reflect.DeepEqual(got["main.example"], want) || want == nil {
		t.Errorf("a host with its own services has %v, want %v", got["main.example"], want)
	}
	if n := len(got); n != 5 {
		t.Errorf("%d hosts, want 5: %v", n, got)
	}
	d := disco.New()
	for host, services := range got {
		d.ForceHostServices(host, services)
	}
	for _, host := range []svchost.Hostname{"both.example", "new.example:8443", "xn--caf-dma.example"} {
		found, err := d.Discover(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := found.ServiceURL("providers.v1"); err != nil || u.String() != "http://127.0.0.1:8080/$%7Bx%7D/v1/providers/" {
			t.Errorf("%s: providers.v1 is %v, %v", host, u, err)
		}
		login, err := found.ServiceOAuthClient("login.v1")
		if err != nil || login.ID != "cli" || login.MinPort != 10000 || login.MaxPort != 10010 {
			t.Errorf("%s: login.v1 is %+v, %v", host, login, err)
		}
	}
}

func TestCheckInstallation(t *testing.T) {
	const host = "registry.opentofu.org"
	const absent = "/home/u/.tofurc:2: the provider_installation block keeps clients from asking registry.opentofu.org for providers: it has no direct block for them"
	const mirrored = "/home/u/.tofurc:2: the provider_installation block installs providers of registry.opentofu.org from elsewhere too: see its network_mirror block at /home/u/.tofurc:3"
	block := func(methods string) string { return "\nprovider_installation {\n" + methods + "\n}\n" }
	mirror := func(more string) string { return `network_mirror { url = "https://m.example/", ` + more + " }\n" }
	for name, tt := range map[string]struct{ config, want string }{
		"no block":                             {"", ""},
		"direct alone":                         {block("direct {}"), ""},
		"an empty block":                       {block(""), absent},
		"overrides alone":                      {block(`dev_overrides { "acme/x" = "/tmp/x" }`), absent},
		"overrides beside direct":              {block(`dev_overrides { "acme/x" = "/tmp/x" }` + "\ndirect {}"), ""},
		"a mirror alone":                       {block(mirror("")), absent},
		"direct excludes the host":             {block(`direct { exclude = ["registry.opentofu.org/*/*"] }`), absent},
		"direct excludes all":                  {block(`direct { exclude = ["*/*/*"] }`), absent},
		"direct excludes a namespace":          {block(`direct { exclude = ["registry.opentofu.org/acme/*"] }`), ""},
		"direct includes another host":         {block(`direct { include = ["example.com/*/*"] }`), absent},
		"direct includes a namespace":          {block(`direct { include = ["Registry.OpenTofu.org/acme/*"] }`), ""},
		"direct includes what it excludes":     {block(`direct { include = ["acme/x"], exclude = ["acme/*"] }`), absent},
		"two direct blocks":                    {block(`direct { include = ["example.com/*/*"] }` + "\n" + `direct { include = ["acme/x"] }`), ""},
		"a mirror before direct":               {block(mirror("") + "direct {}"), mirrored},
		"a mirror after direct":                {strings.Replace(block("direct {}\n"+mirror("")), "direct {}\n", "direct {} ", 1), mirrored},
		"a mirror of the host":                 {block(mirror(`include = ["registry.opentofu.org/*/*"]`) + "direct {}"), mirrored},
		"a mirror of another host":             {block(mirror(`include = ["example.com/*/*"]`) + "direct {}"), ""},
		"a mirror without the host":            {block(mirror(`exclude = ["*/*"]`) + "direct {}"), ""},
		"a mirror of a namespace":              {block(mirror(`include = ["acme/*"]`) + "direct {}"), ""},
		"a mirror of all that direct includes": {block(mirror(`include = ["acme/*"]`) + `direct { include = ["acme/x", "acme/y"] }`), mirrored},
		"a mirror without one provider":        {block(mirror(`exclude = ["acme/x"]`) + "direct {}"), ""},
		"an invalid pattern":                   {block(`direct { include = ["a/b/c/d", "acme/x"] }`), ""},
		"a method that clients refuse":         {block("network_mirror = 5\ndirect {}"), ""},
		"JSON":                                 {`{"provider_installation": {"network_mirror": [{"url": "https://m.example/"}], "direct": [{}]}}`, "/home/u/.tofurc: the provider_installation block installs providers of registry.opentofu.org from elsewhere too: see its network_mirror block at /home/u/.tofurc"},
		"JSON of objects":                      {`{"provider_installation": {"direct": {}, "network_mirror": {"url": "https://m.example/", "exclude": ["*/*"]}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustMerge(t, home(tt.config), OpenTofu)
			_, err := m.WithHosts(map[svchost.Hostname]map[string]any{host: {"providers.v1": "https://g.example/"}}, []svchost.Hostname{host})
			if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
				t.Errorf("error %q, want %q", got, tt.want)
			}
			if tt.want != "" && !strings.Contains(hint.Of(err), `["registry.opentofu.org/*/*"]`) {
				t.Errorf("the hint is %q", hint.Of(err))
			}
		})
	}

	// A pattern without a host is for the public registry of the client.
	config := home(block(`direct { include = ["acme/*"] }`))
	if err := mustMerge(t, config, Terraform).CheckInstallation("registry.terraform.io"); err != nil {
		t.Errorf("Terraform: %v", err)
	}
	if err := mustMerge(t, config, Terraform).CheckInstallation(host); err == nil {
		t.Error("Terraform: no error for a host that no method includes")
	}
}

// TestInstallationHint shows that one hint names all hosts, and that the error is gone once it is followed.
func TestInstallationHint(t *testing.T) {
	const patterns = `["registry.opentofu.org/*/*", "registry.terraform.io/*/*"]`
	mirror := func(more string) string {
		return "provider_installation {\n network_mirror {\n url = \"https://m.example/\"\n" + more + "\n }\n"
	}
	services := map[svchost.Hostname]map[string]any{"registry.terraform.io": {}, "registry.opentofu.org": {}}
	for name, tt := range map[string]struct{ config, hint, followed string }{
		"a mirror alone": {
			mirror("") + "}",
			"leave this file out, as with TF_CLI_CONFIG_FILE=/dev/null, or write into the provider_installation block: direct { include = " + patterns + " }, and into its network_mirror block: exclude = " + patterns,
			mirror("exclude = "+patterns) + "direct { include = " + patterns + " }\n}",
		},
		"an oci_mirror alone": {
			"provider_installation {\n oci_mirror {\n repository_template = \"r.example/$${namespace}/$${type}\"\n }\n}",
			"leave this file out, as with TF_CLI_CONFIG_FILE=/dev/null, or write into the provider_installation block: direct { include = " + patterns + " }, and into its oci_mirror block: exclude = " + patterns + "; or run OpenTofu without exec: by this block, it reads the registry itself",
			"provider_installation {\n oci_mirror {\n repository_template = \"r.example/$${namespace}/$${type}\"\nexclude = " + patterns + "\n }\ndirect { include = " + patterns + " }\n}",
		},
		"a mirror beside direct": {
			mirror("") + "direct {}\n}",
			"write into the network_mirror block: exclude = " + patterns,
			mirror("exclude = "+patterns) + "direct {}\n}",
		},
		"direct for others": {
			"provider_installation {\n direct { include = [\"example.com/*/*\"] }\n}",
			"leave this file out, as with TF_CLI_CONFIG_FILE=/dev/null, or write into the provider_installation block: direct { include = " + patterns + " }",
			"provider_installation {\n direct { include = [\"example.com/*/*\"] }\n direct { include = " + patterns + " }\n}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mustMerge(t, home(tt.config), Terraform).WithHosts(services, sortedKeys(services))
			if err == nil || hint.Of(err) != tt.hint {
				t.Errorf("error %v, hint %q, want %q", err, hint.Of(err), tt.hint)
			}
			if _, err := mustMerge(t, home(tt.followed), Terraform).WithHosts(services, sortedKeys(services)); err != nil {
				t.Errorf("after the hint was followed: %v", err)
			}
		})
	}
}

func TestReadMergedErrors(t *testing.T) {
	const secret = "s3cr3t"
	for name, tt := range map[string]struct{ src, want string }{
		"not HCL":        {`credentials "a" { token = s3cr3t }`, "CLI configuration: /home/u/.tofurc:1:27 does not parse"},
		"a huge literal": {"credentials \"a\" {\n token = 99999999999999999999999\n}", "CLI configuration: /home/u/.tofurc does not parse"},
		"a host as URL":  {`host "https://a.example" {}`, `/home/u/.tofurc: the host block "https://a.example" has an invalid host name`},
		"a token's host": {`credentials "xn--a" { token = "s3cr3t" }`, `/home/u/.tofurc: the credentials block "xn--a" has an invalid host name`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadMerged(home(tt.src).environment(), OpenTofu)
			if err == nil || !strings.Contains(err.Error(), tt.want) || hint.Of(err) == "" {
				t.Fatalf("error %v, hint %q, want %q", err, hint.Of(err), tt.want)
			}
			if strings.Contains(err.Error()+hint.Of(err), secret) {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
	unreadable := home("", "")
	unreadable.unreadable = map[string]error{"/home/u/.terraform.d/0.tfrc": fs.ErrPermission}
	if _, err := ReadMerged(unreadable.environment(), OpenTofu); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file in the folder: %v", err)
	}
}

// TestDockerFilesBesideRelativeOverride shows that a name relative to a relative file becomes absolute.
func TestDockerFilesBesideRelativeOverride(t *testing.T) {
	env := machine{
		goos: "linux", vars: map[string]string{"TF_CLI_CONFIG_FILE": "ci/cli.rc"},
		files: map[string]string{"ci/cli.rc": `oci_default_credentials { docker_style_config_files = ["docker.json"] }`},
	}.environment()
	env.Dir = "/work"
	m, err := ReadMerged(env, OpenTofu)
	if err != nil {
		t.Fatal(err)
	}
	if text := textOf(t, m, nil); !strings.Contains(text, `["/work/ci/docker.json"]`) {
		t.Errorf("the text is\n%s", text)
	}
}

func TestMergedStaysSecret(t *testing.T) {
	m := mustMerge(t, home(`credentials "a.example" { token = "s3cr3t-t0k3n" }`), OpenTofu)
	if shown := fmt.Sprintf("%v %+v %#v %+v", m, m, m, *m); strings.Contains(shown, "s3cr3t") {
		t.Errorf("a token is shown: %s", shown)
	}
	if text := textOf(t, m, nil); !strings.Contains(text, "s3cr3t-t0k3n") {
		t.Errorf("the text has no token:\n%s", text)
	}
}

func FuzzMerged(f *testing.F) {
	for setting := range strings.SplitSeq(everything, "\n") {
		f.Add(setting, setting)
	}
	f.Add(`{"credentials": {"a": {"token": "\u0000${\"\\"}}}`, `credentials "A" { token = "x" }`)
	f.Add(`{"provider_installation": {"direct": [{}]}}`, `registry_protocols { retry_count = 3 }`)
	f.Add(`registry_protocols { retry_count = 3 }`, `{"registry_protocols": {"retry_count": 5, "request_timeout_seconds": 20}}`)
	f.Add("x = <<-E\n  a\n  E\n", `{"host": null, "credentials": [{"a": {"token": 1e5}}, {"b": {}}]}`)
	f.Add(`host { "a" = {} "b" = { services = {} } }`, `{"x": {"y": [{"z": [true, null]}, {}]}, "plugin_cache_dir": null}`)
	f.Fuzz(func(t *testing.T, main, inFolder string) {
		want, err := asClients(main, inFolder)
		if err != nil {
			return
		}
		m, err := ReadMerged(home(main, inFolder).environment(), OpenTofu)
		if err != nil {
			if hint.Of(err) == "" {
				t.Errorf("an error without a hint: %v", err)
			}
			return
		}
		if len(m.services) != len(want.Hosts) {
			return // hosts that differ only in case: the clients use any of them
		}
		text := textOf(t, m, nil)
		got, err := asClients(text)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if !reflect.DeepEqual(got.Hosts, want.Hosts) || !reflect.DeepEqual(got.RegistryProtocols, want.RegistryProtocols) || got.PluginCacheDir != want.PluginCacheDir {
			t.Errorf("the client has\n%+v, want\n%+v, from\n%s", got, want, text)
		}
	})
}
