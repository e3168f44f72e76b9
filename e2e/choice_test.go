package e2e

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// offerSmall offers a version of the null provider with a small file in place of its program.
func (s *scene) offerSmall(version string, platforms ...string) {
	s.t.Helper()
	spec := release.Spec{Host: world.Host, Namespace: "acme", Type: "null", Version: version, Signer: s.Signer}
	for _, p := range platforms {
		goos, arch, _ := strings.Cut(p, "_")
		spec.Contents = append(spec.Contents, release.Content{OS: goos, Arch: arch, Files: map[string][]byte{"terraform-provider-null_v" + version: []byte(version + p)}})
	}
	s.Origin.Add(release.For(s.t, spec))
}

// TestVersionsThatClientsChoose compares the version that a push selects for a constraint with the version that clients
// install, from the origin and through a gateway. Clients take a prerelease only by its exact name.
func TestVersionsThatClientsChoose(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, v := range []string{"4.0.0-alpha.1", "4.0.0-beta", "4.0.0-rc1", "4.1.0-dev.20260101", "4.1.0-rc1"} {
		s.offerSmall(v, runtime.GOOS+"_"+runtime.GOARCH)
	}
	s.offerSmall("3.0.0", runtime.GOOS+"_"+runtime.GOARCH)
	s.push("--all", world.Null+"@>= 3.0.0")
	for _, v := range []string{"4.0.0-alpha.1", "4.0.0-beta", "4.0.0-rc1", "4.1.0-dev.20260101", "4.1.0-rc1"} {
		s.push(world.Null + "@" + v)
	}
	gateway := s.serve("--data", s.data)
	for _, tc := range []struct{ constraint, want string }{ // want "": nothing matches
		{">= 3.0.0", nullVersion},
		{"~> 3.0", nullVersion},
		{"~> 3", nullVersion},
		{"< 3.2", "3.0.0"},
		{"!= 3.2.4", "3.0.0"},
		{"4.0.0-beta", "4.0.0-beta"},
		{"= 4.1.0-dev.20260101", "4.1.0-dev.20260101"},
		{">= 4.0.0-beta", ""},
		{"~> 4.0.0-alpha.1", ""},
		{">= 4.0.0-alpha.1, < 4.1.0", ""},
		{"> 3.2.4", ""},
		{"4.0.0", ""},
	} {
		t.Run(tc.constraint, func(t *testing.T) {
			got := s.run("push", "--data", t.TempDir(), world.Null+"@"+tc.constraint)
			if pushed := got.status == 0; pushed != (tc.want != "") || pushed && !strings.Contains(got.stdout, world.Null+" "+tc.want+": pushed") {
				t.Errorf("push: status %d: %s%s", got.status, got.stdout, got.stderr)
			}
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				for from, config := range map[string]string{"origin": "", "gateway": world.NetworkMirror(gateway.URL)} {
					ws := s.user(config, tc.constraint)
					if tc.want == "" {
						ws.MustFail(t, client, "init", "-no-color")
						continue
					}
					ws.MustRun(t, client, "init", "-no-color")
					if lock := lockFile(t, ws); !strings.Contains(lock, fmt.Sprintf("version     = %q", tc.want)) {
						t.Errorf("%s from the %s chooses\n%s", client.Name, from, lock)
					}
				}
			}
		})
	}
}

// TestPlatformsThatClientsRequest shows that push warns of a package that clients do not find, because its platform is not
// written as they write theirs.
func TestPlatformsThatClientsRequest(t *testing.T) {
	t.Parallel()
	host := runtime.GOOS + "_" + runtime.GOARCH
	s := newScene(t)
	for i, tc := range []struct {
		platform string
		found    bool
	}{
		{host, true},
		{host + "v1", false},
		{runtime.GOOS + "_all", false},
	} {
		t.Run(tc.platform, func(t *testing.T) {
			version := fmt.Sprintf("1.0.%d", i)
			s.offerSmall(version, tc.platform)
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				if out, err := s.user("", version).Run(client, "init", "-no-color"); (err == nil) != tc.found {
					t.Errorf("%s: %v\n%s", client.Name, err, out)
				}
			}
			got := s.run("push", "--data", t.TempDir(), world.Null+"@"+version)
			if warned := strings.Contains(got.stderr, "no client requests"); warned == tc.found {
				t.Errorf("push: status %d: %s%s", got.status, got.stdout, got.stderr)
			}
		})
	}
}
