package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
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
	if err != nil {
		t.Fatal(err)
	}
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
