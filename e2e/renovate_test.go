package e2e

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// hostURL is the gateway's URL for tools that need the registry of world.Host.
func hostURL(gateway *world.Gateway) string {
	return strings.TrimSuffix(gateway.URL, "providers/") + "hosts/" + world.Host
}

// renovation is what Renovate updates: a workspace with the texts of "config client" for the repository and for the bot. Only
// the bot has the token: the repository's text is committed as it is printed.
type renovation struct {
	ws                 *clients.Workspace
	config, bot, token string
}

// renovate runs Renovate in a workspace, with the configuration that "config client" prints. It returns the releases
// that Renovate has found.
func (s *scene) renovate(t *testing.T, ws *clients.Workspace, gateway *world.Gateway, token string) []string {
	t.Helper()
	return s.renovateAll(t, s.renovation(ws, gateway, token))[0]
}

// renovation returns a workspace's renovation with the configuration that "config client" prints for the gateway.
func (s *scene) renovation(ws *clients.Workspace, gateway *world.Gateway, token string) renovation {
	s.t.Helper()
	return renovation{ws, s.clientConfig("renovate", root(gateway), token != ""), s.clientConfig("renovate-bot", root(gateway), token != ""), token}
}

// renovateAll runs Renovate in several workspaces, in one process, because Renovate's code takes long to load. It returns the
// releases that Renovate has found in each of them.
func (s *scene) renovateAll(t *testing.T, all ...renovation) [][]string {
	t.Helper()
	script, err := filepath.Abs("testdata/renovate.js")
	clients.Must(t, err)
	_, err = os.Stat(script) // so that go test runs the test again when the script has changed
	clients.Must(t, err)
	args := []string{script}
	for _, r := range all {
		rules, ok := strings.CutPrefix(strings.TrimSuffix(strings.ReplaceAll(r.bot, "TOKEN", r.token), "'\n"), "export RENOVATE_HOST_RULES='")
		if !ok {
			t.Fatalf("no host rules of the bot: %s", r.bot)
		}
		clients.Must(t, os.WriteFile(filepath.Join(r.ws.Home, "host-rules.json"), []byte(rules), 0o600))
		clients.Must(t, os.WriteFile(filepath.Join(r.ws.Dir, "renovate.json"), []byte(r.config), 0o644))
		args = append(args, r.ws.Dir, r.ws.Home)
	}
	ws := s.workspace("")
	ws.Env["NODE_PATH"] = clients.RenovateModules(t)
	ws.Env["NODE_EXTRA_CA_CERTS"] = s.CAFile
	out, err := ws.Stdout(clients.Program(t, "node"), args...)
	clients.Must(t, err)
	var releases [][]string
	if err := json.Unmarshal(out, &releases); err != nil || len(releases) != len(all) {
		t.Fatalf("%v in %s", err, out)
	}
	return releases
}

// TestRenovateLocksAsTofu lets Renovate's own code update a lock file through the gateway. Byte for byte, the
// file is the one that "tofu providers lock" writes for all platforms of the release. Both programs sort the
// hashes, and Renovate keeps the comments and the layout.
//
// Renovate knows neither signatures nor relative URLs:
//   - It appends ".well-known/terraform.json" to the registry's URL.
//   - It appends "NAMESPACE/TYPE/versions" to providers.v1, which it appends to the
//     registry's URL unless it is a URL itself.
//   - It requests the list of versions twice: for the releases, and for the platforms.
//   - It requests the download document of every platform, every URL of SHA256SUMS as
//     text, and every zip. It computes the h1: hashes, and takes a zh: hash from each
//     line of SHA256SUMS. It does not compare the zips with these hashes.
//   - It fails with "Invalid URL" where a document's URL is relative.
//   - It sends the token of a host rule with every request below the rule's URL, also
//     where the path has a capability.
func TestRenovateLocksAsTofu(t *testing.T) {
	t.Parallel()
	const newer = "3.2.5"
	s := newScene(t)
	s.offer(newer)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	locked := func(constraint string) *clients.Workspace {
		ws := s.user("", constraint)
		clients.Must(t, ws.WriteCLIConfig(hostBlock(world.Host, hostURL(gateway)+"/v1/providers/")))
		lock := []string{"providers", "lock", "-no-color"}
		for _, p := range s.null.Packages {
			lock = append(lock, "-platform="+p.OS+"_"+p.Arch)
		}
		ws.MustRun(t, clients.Tofu(t), lock...)
		return ws
	}
	one, several := locked(nullVersion), locked("~> 3.2.0")
	s.push(world.Null + "@" + newer)
	s.World.Close()

	rows := []struct {
		name    string
		ws      *clients.Workspace
		gateway *world.Gateway // only Renovate uses it
		token   string
		updated string // the constraint after the update
	}{
		{"one version", one, s.serve("--data", s.data), "", newer},
		{"a range, and a token", several, s.controlled(""), acmeToken, "~> 3.2.0"},
	}
	var all []renovation
	var before []string
	for _, row := range rows {
		before = append(before, lockFile(t, row.ws))
		all = append(all, s.renovation(row.ws, row.gateway, row.token))
	}
	releases := s.renovateAll(t, all...)
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if want := []string{nullVersion, newer}; !slices.Equal(releases[i], want) {
				t.Errorf("Renovate reads the releases %q, want %q", releases[i], want)
			}
			got, want := lockFile(t, row.ws), lockFile(t, locked(row.updated))
			if got != want || got == before[i] {
				t.Errorf("from\n%s\nRenovate writes\n%s\nand tofu providers lock\n%s", before[i], got, want)
			}
			clients.Must(t, row.gateway.Stop()) // completes the log
			s.wantRenovateRequests(t, row.gateway, newer)
		})
	}
}

// TestRenovateReadsModules shows that Renovate's own code reads the versions of modules from the gateway, by the rules
// that "config client" prints for the hosts in module_mirror blocks. The origin is down. The modules' addresses have the
// host, or no host for the public registry. Providers may also have repositories, and the gateway may require a token.
func TestRenovateReadsModules(t *testing.T) {
	t.Parallel()
	const public = "terraform-aws-modules/vpc/aws"
	s := newScene(t)
	for _, version := range []string{"1.0.0", "1.10.0"} {
		s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@"+version, "--data", s.data)
	}
	s.mustRun("module", "push", s.moduleFolder(), "--as", "registry.terraform.io/"+public+"@2.0.0", "--data", s.data)
	s.World.Close()
	const (
		providers = "oci_mirror {\n  repository_template = \"ghcr.io/acme/${hostname}/${namespace}/${type}\"\n}\n"
		modules   = "module_mirror {\n  repository_template = \"ghcr.io/acme/${hostname}/${namespace}/${name}/${system}\"\n" +
			"  include = [\"" + world.Host + "/*/*/*\", \"registry.terraform.io/*/*/*\"]\n}\n"
		token = "gateway {\n  token \"ci\" {\n    sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n  }\n}\n"
	)
	rows := []struct {
		name     string
		gateway  *world.Gateway // only Renovate uses it
		config   string         // of ocibridge
		token    string
		source   string
		releases []string
		path     string // of the list of versions
	}{
		{"a mirrored host", s.serve("--data", s.data), modules, "", vpc, []string{"1.0.0", "1.10.0"}, "/hosts/" + world.Host + "/v1/modules/platform/vpc/aws/versions"},
		{"a submodule, beside providers", s.serve("--data", s.data), providers + modules, "", vpc + "//modules/child", []string{"1.0.0", "1.10.0"}, "/hosts/" + world.Host + "/v1/modules/platform/vpc/aws/versions"},
		{"a token", s.controlled(moduleToken("modules", vpc)), modules + token, "marked-modules", vpc, []string{"1.0.0", "1.10.0"}, "/hosts/" + world.Host + "/v1/modules/platform/vpc/aws/versions"},
		{"the public registry", s.serve("--data", s.data), modules, "", "registry.terraform.io/" + public, []string{"2.0.0"}, "/hosts/registry.terraform.io/v1/modules/" + public + "/versions"},
		{"no host", s.serve("--data", s.data), modules, "", public, []string{"2.0.0"}, "/hosts/registry.terraform.io/v1/modules/" + public + "/versions"},
	}
	var all []renovation
	for _, row := range rows {
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig("module \"vpc\" {\n  source  = \""+row.source+"\"\n  version = \"1.0.0\"\n}\n"))
		printed := map[string]string{}
		for _, text := range []string{"renovate", "renovate-bot"} {
			r := s.run("config", "client", "--config", s.configured(row.config), "--for", text, "--url", root(row.gateway))
			if r.status != 0 {
				t.Fatalf("%s: %+v", row.name, r)
			}
			printed[text] = r.stdout
		}
		all = append(all, renovation{ws, printed["renovate"], printed["renovate-bot"], row.token})
	}
	releases := s.renovateAll(t, all...)
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if !slices.Equal(releases[i], row.releases) {
				t.Errorf("Renovate reads the releases %q, want %q", releases[i], row.releases)
			}
			clients.Must(t, row.gateway.Stop()) // completes the log
			var got []string
			for _, m := range renovateRequest.FindAllStringSubmatch(row.gateway.Log(), -1) {
				got = append(got, m[2]+" "+m[1])
			}
			slices.Sort(got)
			host, _, _ := strings.Cut(row.path, "/v1/")
			if want := []string{"200 " + host + "/.well-known/terraform.json", "200 " + row.path}; !slices.Equal(slices.Compact(got), want) {
				t.Errorf("Renovate asked for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// renovateRequest matches a line of the gateway's log about a request from Renovate.
var renovateRequest = regexp.MustCompile(`msg=request method=GET path=(\S+) status=(\d+) .*agent="RenovateBot/`)

// wantRenovateRequests checks that a gateway's log contains the requests that Renovate sends to lock a version.
func (s *scene) wantRenovateRequests(t *testing.T, gateway *world.Gateway, version string) {
	t.Helper()
	release := path.Join("/v1/providers/acme/null", version)
	want := []string{
		"200 /.well-known/terraform.json",
		"200 /v1/providers/acme/null/versions",
		"200 " + release + "/checksums/terraform-provider-null_" + version + "_SHA256SUMS",
	}
	for _, p := range s.null.Packages {
		platform := p.OS + "_" + p.Arch
		want = append(want,
			"200 "+release+"/download/"+p.OS+"/"+p.Arch,
			"200 "+release+"/"+platform+"/terraform-provider-null_"+version+"_"+platform+".zip")
	}
	slices.Sort(want)
	var got []string
	for _, m := range renovateRequest.FindAllStringSubmatch(gateway.Log(), -1) {
		got = append(got, m[2]+" "+strings.TrimPrefix(m[1], "/hosts/"+world.Host))
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("Renovate asked for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
