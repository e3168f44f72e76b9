package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// fixture is a repository in OpenTofu's own tests.
type fixture struct {
	provider string
	layout   string // the folder of its OCI layout
	versions []string
	chosen   string // the version that OpenTofu's test selects
}

var fixtures = []fixture{
	{"example.com/test/foo", "foo", []string{"1.0.0"}, "1.0.0"},
	{"example.com/test/bar", "bar", []string{"2.0.0", "1.0.0"}, "1.0.0"},
}

// useFixtures is the configuration in OpenTofu's test.
const useFixtures = `terraform {
  required_providers {
    foo = {
      source = "example.com/test/foo"
    }
    bar = {
      source  = "example.com/test/bar"
      version = "~> 1.0.0"
    }
  }
}
`

// fixturePlatforms are the platforms of every version in the fixtures.
var fixturePlatforms = []string{"darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"}

// TestFixturesOfOpenTofu shows that the gateway serves the OCI layouts of OpenTofu's own oci_mirror tests.
// These layouts show what OpenTofu's developers consider right. The registry contains the layouts byte for
// byte.
func TestFixturesOfOpenTofu(t *testing.T) {
	t.Parallel()
	dir, err := clients.TofuFixtures()
	clients.Must(t, err)
	s := newScene(t)
	r := s.tlsRegistry()
	for _, f := range fixtures {
		for _, v := range f.versions {
			s.ws.MustRun(t, clients.ORAS(t), "cp", "--from-oci-layout", "--to-plain-http=false",
				filepath.Join(dir, f.layout)+":"+v, r.Host+"/providers/"+f.provider+":"+v)
		}
	}
	for _, f := range fixtures {
		v := s.verify(0, "--packages", "--template", template(r), f.provider)
		if len(v.Findings) != 0 || len(v.Versions) != len(f.versions) {
			t.Fatalf("%s: %+v", f.provider, v)
		}
		for i, version := range v.Versions {
			if version.Version != f.versions[i] || !slices.Equal(version.Platforms, fixturePlatforms) {
				t.Errorf("%s %s on %v", f.provider, version.Version, version.Platforms)
			}
			for _, found := range version.Findings {
				if found.Severity != "warning" {
					t.Errorf("%s %s: %+v", f.provider, version.Version, found)
				}
			}
			got := s.run("inspect", "--template", template(r), f.provider+"@"+version.Version)
			if got.status != 0 {
				t.Errorf("%s: status %d: %s", f.provider, got.status, got.stderr)
			}
			for _, platform := range fixturePlatforms {
				if want := fmt.Sprintf("terraform-provider-%s_%s_%s.zip", f.layout, version.Version, platform); !strings.Contains(got.stdout, want) {
					t.Errorf("inspect names no %s:\n%s", want, got.stdout)
				}
			}
		}
	}

	// want contains the locks that OpenTofu writes without the gateway.
	direct := s.fixtureUser(world.OCIMirror(template(r)))
	direct.MustRun(t, clients.Tofu(t), "init", "-no-color")
	want := direct.MustLock(t)
	gateway := s.serve("--template", template(r))
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.fixtureUser(world.NetworkMirror(gateway.URL))
		ws.MustRun(t, client, "init", "-no-color")
		locked := ws.MustLock(t)
		for _, f := range fixtures {
			got := locked[f.provider]
			if got.Version != f.chosen || got.Version != want[f.provider].Version {
				t.Errorf("%s locks %s %s", client.Name, f.provider, got.Version)
			}
			if client.Name == "tofu" && !slices.Equal(got.Hashes, want[f.provider].Hashes) {
				t.Errorf("%s locks %v of %s, by oci_mirror %v", client.Name, got.Hashes, f.provider, want[f.provider].Hashes)
			}
		}
	}
}

// fixtureUser creates a workspace whose configuration uses the fixtures.
func (s *scene) fixtureUser(cliConfig string) *clients.Workspace {
	s.t.Helper()
	ws := s.workspace(cliConfig)
	clients.Must(s.t, ws.WriteConfig(useFixtures))
	return ws
}

// fixtureModule is the address of the module in OpenTofu's own tests. These tests only have a repository, so the address
// is ours.
const fixtureModule = world.Host + "/test/foo/fake"

// TestModuleFixturesOfOpenTofu is like [TestFixturesOfOpenTofu], for OpenTofu's own tests of modules. The layout has the
// tag latest alone. The registry also has a tag with a version, and more tags that are no versions.
func TestModuleFixturesOfOpenTofu(t *testing.T) {
	t.Parallel()
	dir, err := clients.TofuModuleFixtures()
	clients.Must(t, err)
	s := newScene(t)
	r := s.tlsRegistry()
	layout, repo := filepath.Join(dir, "foo")+":latest", r.Host+"/modules/"+fixtureModule
	resolve := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(s.ws.MustRun(t, clients.ORAS(t), append([]string{"resolve"}, args...)...))
	}
	s.ws.MustRun(t, clients.ORAS(t), "cp", "--from-oci-layout", "--to-plain-http=false", layout, repo+":latest,1.0.0,stable,9.0,v9")
	digest := resolve("--oci-layout", layout)
	for _, tag := range []string{"latest", "1.0.0"} {
		if got := resolve("--plain-http=false", repo+":"+tag); got != digest {
			t.Errorf("%s has the digest %s in the registry, and %s in the layout", tag, got, digest)
		}
	}
	s.verifiesFixtureModule(r, digest)

	installs := func(t *testing.T, client clients.Client, cliConfig, source, version string) {
		t.Helper()
		ws := s.workspace(cliConfig)
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"test\" {\n  source = %q\n}\n", source)))
		ws.MustRun(t, client, "init", "-backend=false", "-no-color")
		modules := filepath.Join(ws.Dir, ".terraform", "modules")
		wantFixtureModule(t, filepath.Join(dir, "fake-module-pkg"), filepath.Join(modules, "test"))
		if data, err := os.ReadFile(filepath.Join(modules, "modules.json")); err != nil || !strings.Contains(string(data), version) {
			t.Errorf("not %s: %s, %v", version, data, err)
		}
	}
	// These are the addresses in OpenTofu's test.
	for _, reference := range []string{"", "?tag=latest", "?digest=" + digest} {
		installs(t, clients.Tofu(t), "", "oci://"+repo+reference, "")
	}
	gateway := s.serve(s.settings(fmt.Sprintf("module_mirror {\n  repository_template = %q\n}\n", moduleTemplate(r))))
	both(t, func(t *testing.T, client clients.Client) {
		installs(t, client, modulesBlock(gateway), fixtureModule, `"Version":"1.0.0"`)
	})
}

// verifiesFixtureModule checks that ocibridge module verify finds version 1.0.0 alone, and no error.
func (s *scene) verifiesFixtureModule(r *registry.Registry, digest string) {
	s.t.Helper()
	got := s.run("module", "verify", "--output", "json", "--template", moduleTemplate(r), fixtureModule)
	var doc struct {
		Modules []struct {
			Versions []struct {
				Version, Digest string
				Files           int
				Findings        []finding
			}
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || got.status != 0 || len(doc.Modules) != 1 || len(doc.Modules[0].Versions) != 1 {
		s.t.Fatalf("%v: status %d: %s%s", err, got.status, got.stdout, got.stderr)
	}
	v := doc.Modules[0].Versions[0]
	if v.Version != "1.0.0" || v.Digest != digest || v.Files != 1 {
		s.t.Errorf("%+v", v)
	}
	for _, found := range v.Findings {
		if found.Severity != "warning" {
			s.t.Errorf("%+v", found)
		}
	}
}

// wantFixtureModule checks that a client has installed the files of the module, and nothing else.
func wantFixtureModule(t *testing.T, want, installed string) {
	t.Helper()
	files, err := os.ReadDir(want)
	clients.Must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(want, f.Name()))
		clients.Must(t, err)
		if got, err := os.ReadFile(filepath.Join(installed, f.Name())); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %q, want %q, %v", f.Name(), got, data, err)
		}
	}
	if got, err := os.ReadDir(installed); err != nil || len(got) != len(files) {
		t.Errorf("%v instead of %v, %v", got, files, err)
	}
}
