package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	tofuHost = "registry.opentofu.org"
	tofuNull = tofuHost + "/acme/null"
)

// newKeyless returns a scene whose origin is registry.opentofu.org, and has no key of the publisher.
func newKeyless(t *testing.T) *scene {
	s := newScene(t)
	s.null.Keys = nil
	clients.Must(t, s.ws.WriteCLIConfig(s.tofuOrigin()))
	return s
}

// tofuOrigin returns a CLI configuration with the scene's origin as registry.opentofu.org.
func (s *scene) tofuOrigin() string {
	return s.HostBlock() + fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", tofuHost, s.OriginURL+origin.ServicePath)
}

// TestProviderWithoutKey shows that tofu init installs a provider without a key at registry.opentofu.org through a
// gateway without configuration. The gateway says that it accepts such providers, and records that only checksums
// verify them. It refuses the same provider of another host.
func TestProviderWithoutKey(t *testing.T) {
	t.Parallel()
	s := newKeyless(t)
	a := s.serveBare("--data", s.data)
	if n := strings.Count(a.text, "If registry.opentofu.org has no key of a publisher, checksums alone verify the provider, as in OpenTofu."); n != 1 {
		t.Errorf("it prints\n%s", a.text)
	}
	ws := s.workspace("")
	clients.Must(t, ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, tofuNull)))
	clients.Must(t, ws.WriteCLIConfig(a.block))
	ws.TrustCA(a.ca)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	if got := ws.MustLock(t)[tofuNull]; got.Version != nullVersion {
		t.Errorf("locked: %+v", got)
	}
	resp, err := trusting(t, a.ca).Get(a.url + world.Null + "/" + nullVersion + ".json")
	clients.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("a provider without a key at another host: status %d", resp.StatusCode)
	}
	s.awaitStored(a, tofuNull)
	if r := s.run("inspect", "--data", s.data, tofuNull+"@"+nullVersion); r.status != 0 || !strings.Contains(r.stdout, "checksum only") {
		t.Errorf("inspect: %+v", r)
	}
}

// TestProviderWithoutKeyIsRefused shows that a gateway with a configuration refuses a provider without a key by
// default. Its log says why, and names the setting that OpenTofu's rule needs. With this setting, push and the gateway
// accept the provider.
func TestProviderWithoutKeyIsRefused(t *testing.T) {
	t.Parallel()
	s := newKeyless(t)
	const pulls = "pull_through {\n}\n"
	p := &pulled{scene: s}
	for _, trusts := range []string{"", "trust \"*/*/*\" {\n  allow_unsigned = \"where-clients-do\"\n}\n"} {
		config := s.configured(pulls + trusts)
		gateway := s.serve("--data", t.TempDir(), "--config", config)
		resp, err := p.CA.HTTPClient().Get(gateway.URL + tofuNull + "/" + nullVersion + ".json")
		clients.Must(t, err)
		resp.Body.Close()
		clients.Must(t, gateway.Stop()) // completes the log
		r := s.run("push", "--data", t.TempDir(), "--config", config, tofuNull+"@"+nullVersion)
		if trusts != "" {
			if resp.StatusCode != http.StatusOK || r.status != 0 || !strings.Contains(r.stdout, "checksum only") {
				t.Errorf("status %d, %s, push: %+v", resp.StatusCode, gateway.Log(), r)
			}
			continue
		}
		if resp.StatusCode != http.StatusBadGateway || r.status != 1 || !strings.Contains(r.stderr, `hint: registry.opentofu.org has no key of this publisher`) {
			t.Errorf("status %d, push: %+v", resp.StatusCode, r)
		}
		line := regexp.MustCompile(`(?m)^.*msg="cannot answer".*$`).FindString(gateway.Log())
		if strings.Count(line, tofuNull+" "+nullVersion) != 1 || !strings.Contains(line, "not signed: no public key") || !strings.Contains(line, "where-clients-do") {
			t.Errorf("it logs %s", line)
		}
	}
}

// TestExecProviderWithoutKey shows that tofu init in exec installs a provider without a key at registry.opentofu.org,
// pulled through, stored and pushed, with the hashes of all platforms and OpenTofu's warning. Terraform refuses the
// provider. With verify = "required", and once a signed version is stored, exec does not serve it.
func TestExecProviderWithoutKey(t *testing.T) {
	t.Parallel()
	s := newKeyless(t)
	exec := func(client clients.Client, flags ...string) (*clients.Workspace, result) {
		t.Helper()
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, tofuNull)))
		clients.Must(t, ws.WriteCLIConfig(s.tofuOrigin()))
		return ws, s.execIn(ws, append(flags, "--", client.Path, "init", "-no-color")...)
	}
	installs := func(what string, flags ...string) {
		t.Helper()
		ws, r := exec(clients.Tofu(t), flags...)
		if r.status != 0 || !strings.Contains(r.stdout, "Signature validation was skipped") || strings.Contains(r.stderr, "ocibridge") {
			t.Errorf("%s: %+v", what, r)
			return
		}
		locked := strings.Join(ws.MustLock(t)[tofuNull].Hashes, " ")
		for _, p := range s.null.Packages {
			if !strings.Contains(locked, "zh:"+p.SHA256) {
				t.Errorf("%s: the lock file has %s, and not the hash for %s", what, locked, p.Filename)
			}
		}
	}
	installs("pulled through", "--data", s.data)
	const offline = "pull_through {\n  enabled = false\n}\n"
	config := s.configured(offline)
	installs("stored", "--data", s.data, "--config", config)
	pushed := t.TempDir()
	s.ws.MustRun(t, s.bridge, "push", "--data", pushed, "--allow-unsigned", tofuNull+"@"+nullVersion)
	installs("pushed", "--data", pushed, "--config", config)
	if _, r := exec(clients.Terraform(t), "--data", s.data, "--config", config); r.status == 0 {
		t.Errorf("Terraform: %+v", r)
	}
	required := s.configured(offline + "gateway {\n  verify = \"required\"\n}\n")
	if _, r := exec(clients.Tofu(t), "--data", s.data, "--config", required); r.status == 0 {
		t.Errorf("verify = required: %+v", r)
	}
	s.offer("3.2.5")
	s.ws.MustRun(t, s.bridge, "push", "--data", s.data, tofuNull+"@3.2.5")
	if _, r := exec(clients.Tofu(t), "--data", s.data, "--config", config); r.status == 0 {
		t.Errorf("a signed version is stored: %+v", r)
	}
}
