package e2e

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestMissingManifest shows what clients and commands do if the registry has lost the manifest of one platform.
// The ORAS CLI has pushed the index.
func TestMissingManifest(t *testing.T) {
	t.Parallel()
	host := runtime.GOOS + "_" + runtime.GOARCH
	lost := func(t *testing.T, own bool) (s *scene, place string, platform string) {
		s = newScene(t)
		r := s.tlsRegistry()
		_, repo, index := s.orasRecipe(r)
		for _, m := range index["manifests"].([]map[string]any) {
			p := m["platform"].(map[string]string)
			if name := p["os"] + "_" + p["architecture"]; (name == host) == own {
				s.deleteManifest(repo, m["digest"].(string))
				return s, template(r), name
			}
		}
		t.Fatal("no such platform")
		return nil, "", ""
	}
	// The second installation method is the origin, which has all platforms.
	fallingThrough := func(url string) string {
		return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n  direct {}\n}\n", url)
	}

	t.Run("another platform's", func(t *testing.T) {
		t.Parallel()
		s, place, platform := lost(t, false)
		gateway := s.serve("--template", place)
		for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
			s.user(world.NetworkMirror(gateway.URL), nullVersion).MustRun(t, client, "init", "-no-color")
		}
		s.user(world.OCIMirror(place), nullVersion).MustRun(t, clients.Tofu(t), "init", "-no-color")
		// The commands report the missing manifest.
		v := s.verify(1, "--template", place, world.Null)
		wantFinding(t, v.Versions[0].Findings, "error", platform, "the registry lacks content that it refers to")
		got := s.run("inspect", "--template", place, world.Null+"@"+nullVersion)
		if got.status != 1 || !strings.Contains(got.stderr, "the registry lacks the manifest of "+platform+"\n") || !strings.Contains(got.stderr, "hint: ") {
			t.Errorf("inspect: status %d: %s", got.status, got.stderr)
		}
		for _, want := range []string{hostPackage(t, s.null).SHA256, "\n  " + platform + "\n    manifest  sha256:"} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("inspect does not say %q:\n%s", want, got.stdout)
			}
		}
		if got = s.run("inspect", "--output", "json", "--template", place, world.Null+"@"+nullVersion); got.status != 1 || !strings.Contains(got.stdout, `"missing": [
    {
      "platform": "`+platform+`",`) {
			t.Errorf("inspect: status %d: %s", got.status, got.stdout)
		}
	})
	t.Run("the client's own", func(t *testing.T) {
		t.Parallel()
		s, place, platform := lost(t, true)
		gateway := s.serve("--template", place)
		for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
			s.Origin.Reset()
			out := s.user(fallingThrough(gateway.URL), nullVersion).MustFail(t, client, "init", "-no-color")
			if !strings.Contains(out, "502") && !strings.Contains(out, "giving up after 3 attempt(s)") {
				t.Errorf("%s fails for another reason:\n%s", client.Name, out)
			}
			for _, r := range s.Origin.Requests() {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.Path, "/versions") {
					t.Errorf("%s asks the origin: %s %s", client.Name, r.Method, r.Path)
				}
			}
		}
		if !strings.Contains(gateway.Log(), platform+": not a provider index: the registry lacks content that it refers to") {
			t.Errorf("the log does not say why")
		}
		s.user(world.OCIMirror(place), nullVersion).MustFail(t, clients.Tofu(t), "init", "-no-color")
	})
}
