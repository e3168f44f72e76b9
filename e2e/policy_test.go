package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// seenOrigin puts a recorder in front of the origin. It returns the recorder, and a CLI configuration that
// sends clients to the recorder.
func (s *scene) seenOrigin() (*recorder.Recorder, string) {
	s.t.Helper()
	config, err := s.CA.ServerConfig("localhost")
	if err != nil {
		s.t.Fatal(err)
	}
	seen := recorder.New(s.Origin)
	server := httptest.NewUnstartedServer(seen)
	server.TLS = config
	server.StartTLS()
	s.t.Cleanup(server.Close)
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	return seen, fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", world.Host, url+origin.ServicePath)
}

// configured writes a configuration file for the program, and returns its path.
func (s *scene) configured(text string) string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "ocibridge.hcl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// TestWhatTheMethodAfterTheMirrorIsAskedFor shows when clients try their next installation method after the
// mirror. They do after status 404. They must not during an outage or for denied versions, because a provider
// would then come from elsewhere without permission.
func TestWhatTheMethodAfterTheMirrorIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pushed, stopped bool
		config          string
		installs        bool
	}{
		"absent":                  {installs: true},
		"registry stopped":        {pushed: true, stopped: true},
		"absent, and stopped":     {stopped: true},
		"version denied":          {pushed: true, config: `gateway { deny = ["` + world.Null + `@` + nullVersion + `"] }`},
		"provider denied":         {pushed: true, config: `gateway { deny = ["` + world.Null + `"] }`},
		"absent provider, denied": {config: `gateway { deny = ["` + world.Null + `"] }`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			r := s.tlsRegistry()
			if tc.pushed {
				s.pushTo(r, world.Null+"@"+nullVersion)
			}
			gateway := s.serve("--template", template(r), "--config", s.configured(tc.config))
			if tc.stopped {
				r.Stop()
			}
			for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
				seen, host := s.seenOrigin()
				ws := s.user("", nullVersion)
				if err := ws.WriteCLIConfig(host + fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n  direct {}\n}\n", gateway.URL)); err != nil {
					t.Fatal(err)
				}
				if tc.installs {
					ws.MustRun(t, client, "init", "-no-color")
				} else if out := ws.MustFail(t, client, "init", "-no-color"); tc.config != "" && !strings.Contains(out, "451") {
					t.Errorf("%s does not say why:\n%s", client.Name, out)
				}
				if n := seen.Count(recorder.PathContains("/download/")); (n > 0) != tc.installs {
					t.Errorf("%s: the origin got %d requests for packages: %v", client.Name, n, seen.Requests())
				}
			}
		})
	}
}

// TestDeniedForOCIMirrors shows that a client cannot install denied versions directly from the embedded
// registry, not even with an older lock file.
func TestDeniedForOCIMirrors(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offer("3.2.3")
	s.push(world.Null+"@3.2.3", world.Null+"@"+nullVersion)
	gateway := s.serve("--data", s.data, "--config", s.configured(`gateway { deny = ["`+world.Null+`@`+nullVersion+`"] }`))
	mirror := world.OCIMirror(gateway.RepositoryTemplate)
	s.user(mirror, nullVersion).MustFail(t, clients.Tofu(t), "init", "-no-color")
	ws := s.user(mirror, "3.2.3")
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	// The lock file names a version that is denied later.
	ws = s.user(mirror, nullVersion)
	clients.Must(t, gateway.Stop())
	before := s.serve("--data", s.data)
	clients.Must(t, ws.WriteCLIConfig(s.HostBlock()+world.OCIMirror(before.RepositoryTemplate)))
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	clients.Must(t, before.Stop())
	gateway = s.serve("--data", s.data, "--config", s.configured(`gateway { deny = ["`+world.Null+`@`+nullVersion+`"] }`))
	clients.Must(t, os.RemoveAll(filepath.Join(ws.Dir, ".terraform")))
	clients.Must(t, ws.WriteCLIConfig(s.HostBlock()+world.OCIMirror(gateway.RepositoryTemplate)))
	ws.MustFail(t, clients.Tofu(t), "init", "-no-color")
}

// TestRegistryStoppedMetadata shows that the gateway still serves its cached answers after the registry has
// stopped. The gateway does so even after a restart.
func TestRegistryStoppedMetadata(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	args := []string{"--template", template(r), "--config", s.configured(fmt.Sprintf("gateway {\n  tag_ttl = \"0s\"\n  cache {\n    directory = %q\n  }\n}\n", t.TempDir()))}
	gateway := s.serve(args...)
	read := func(document string) string {
		t.Helper()
		resp, err := s.CA.HTTPClient().Get(gateway.URL + world.Null + "/" + document)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
	index, version := read("index.json"), read(nullVersion+".json")
	if !strings.HasPrefix(index, fmt.Sprint(http.StatusOK)) || !strings.Contains(version, "zh:") {
		t.Fatalf("%s\n%s", index, version)
	}
	r.Stop()
	for _, when := range []string{"stopped", "stopped, and the gateway restarted"} {
		if got := read("index.json"); got != index {
			t.Errorf("%s: %s", when, got)
		}
		if got := read(nullVersion + ".json"); got != version {
			t.Errorf("%s: %s", when, got)
		}
		if err := gateway.Stop(); err != nil {
			t.Errorf("%v", err)
		}
		gateway = s.serve(args...)
	}
}
