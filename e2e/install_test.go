package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

func hostPackage(t *testing.T, r *release.Release) *release.Package {
	t.Helper()
	p := r.Package(runtime.GOOS, runtime.GOARCH)
	if p == nil {
		t.Fatalf("the release has no package for %s_%s", runtime.GOOS, runtime.GOARCH)
	}
	return p
}

//testrun:scene
func TestTofuByNetworkMirror(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	tofu, ws := clients.Tofu(t), s.user(world.NetworkMirror(gateway.URL), nullVersion)
	ws.MustRun(t, tofu, "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
	if out := ws.MustRun(t, tofu, "apply", "-auto-approve", "-no-color"); !strings.Contains(out, "1 added") {
		t.Errorf("apply: %s", out)
	}
	// A second init with the lock file, but without installed providers, accepts the same packages.
	if err := os.RemoveAll(filepath.Join(ws.Dir, ".terraform")); err != nil {
		t.Fatal(err)
	}
	ws.MustRun(t, tofu, "init", "-no-color", "-lockfile=readonly")
}

//testrun:scene
func TestTerraformByNetworkMirror(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	terraform, ws := clients.Terraform(t), s.user(world.NetworkMirror(gateway.URL), nullVersion)
	ws.MustRun(t, terraform, "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1)
	if out := ws.MustRun(t, terraform, "apply", "-auto-approve", "-no-color"); !strings.Contains(out, "1 added") {
		t.Errorf("apply: %s", out)
	}
	if err := os.RemoveAll(filepath.Join(ws.Dir, ".terraform")); err != nil {
		t.Fatal(err)
	}
	ws.MustRun(t, terraform, "init", "-no-color", "-lockfile=readonly")
}

// TestLockEveryPlatform shows that, for other platforms, the gateway's h1: hashes are the hashes that clients
// compute. Clients check these hashes when they lock another platform.
func TestLockEveryPlatform(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user("", nullVersion)
		ws.MustRun(t, client, "providers", "lock", "-no-color", "-net-mirror="+gateway.URL,
			"-platform=linux_amd64", "-platform=darwin_arm64", "-platform=windows_amd64")
		served := servedHashes(t, s, gateway.URL)
		got := hashesOf(t, ws, "h1:")
		if len(got) != 3 || !slices.Equal(got, served["h1:"]) {
			t.Errorf("%s locks %v, served are %v", client.Name, got, served["h1:"])
		}
	}
}

// servedHashes returns all hashes in the gateway's VERSION.json. It groups the hashes by their scheme.
func servedHashes(t *testing.T, s *scene, mirror string) map[string][]string {
	t.Helper()
	return servedHashesOf(t, s, mirror, nullVersion)
}

func servedHashesOf(t *testing.T, s *scene, mirror, version string) map[string][]string {
	t.Helper()
	resp, err := s.CA.HTTPClient().Get(mirror + world.Null + "/" + version + ".json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Archives map[string]struct{ Hashes []string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, a := range doc.Archives {
		for _, h := range a.Hashes {
			out[h[:3]] = append(out[h[:3]], h)
		}
	}
	for _, hashes := range out {
		slices.Sort(hashes)
	}
	return out
}

//testrun:scene
func TestTofuByOCIMirrorFromStandaloneRegistry(t *testing.T) {
	forEachProgram(t, testTofuByOCIMirrorFromStandaloneRegistry)
}

func testTofuByOCIMirrorFromStandaloneRegistry(t *testing.T, program registry.Program) {
	s := newScene(t)
	r := s.tlsRegistryOf(program)
	s.pushTo(r, world.Null+"@"+nullVersion)
	tofu, ws := clients.Tofu(t), s.user(world.OCIMirror(template(r)), nullVersion)
	ws.MustRun(t, tofu, "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
	if out := ws.MustRun(t, tofu, "apply", "-auto-approve", "-no-color"); !strings.Contains(out, "1 added") {
		t.Errorf("apply: %s", out)
	}
}

func TestTofuByOCIMirrorFromEmbeddedRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	gateway := s.serve("--data", s.data)
	// Another process pushes while the gateway runs, and the version is visible immediately.
	s.push(world.Null + "@" + nullVersion)
	tofu, ws := clients.Tofu(t), s.user(world.OCIMirror(gateway.RepositoryTemplate), nullVersion)
	ws.MustRun(t, tofu, "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
}

// TestGatewayInFrontOfRegistry shows that both clients install from a gateway in front of a stand-alone
// registry.
//
//testrun:scene
func TestGatewayInFrontOfRegistry(t *testing.T) { forEachProgram(t, testGatewayInFrontOfRegistry) }

func testGatewayInFrontOfRegistry(t *testing.T, program registry.Program) {
	s := newScene(t)
	r := s.tlsRegistryOf(program)
	s.pushTo(r, world.Null+"@"+nullVersion)
	gateway := s.serve("--template", template(r))
	both(t, func(t *testing.T, client clients.Client) {
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
	})
	if gateway.RepositoryTemplate != "" {
		t.Errorf("the gateway offers an embedded registry at %s", gateway.RepositoryTemplate)
	}
}

// TestTheUsersOwnConfiguration shows that a client and the program can use the same CLI configuration.
func TestTheUsersOwnConfiguration(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	ws := s.user(world.OCIMirror(template(r)), nullVersion)
	ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
}

// TestSelfSigned shows that clients install from a gateway that has no configuration. This gateway listens on
// loopback and uses its own certificate.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := world.ServeFor(t, s.ws, "--data", s.data)
	if gateway.CAFile == "" {
		t.Fatal("it does not say which certificate to trust")
	}
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.TrustCA(gateway.CAFile)
		ws.MustRun(t, client, "init", "-no-color")
	}
}

// TestFoldersOfCAsStayTrusted shows that SSL_CERT_FILE does not replace folders of CAs. Clients trust the
// gateway's CA in a folder, even if the file contains another CA.
func TestFoldersOfCAsStayTrusted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := world.ServeFor(t, s.ws, "--data", s.data)
	other, err := tlsca.For(t).WriteFile(t.TempDir())
	clients.Must(t, err)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.TrustCA(other)
		ws.Env["SSL_CERT_DIR"] = filepath.Dir(gateway.CAFile)
		ws.MustRun(t, client, "init", "-no-color")
	}
}

// TestTwoOnOneDataFolder shows what happens when a second gateway starts on the data folder of a running
// gateway. Clients can still install from the first gateway, and clients of both gateways trust the same CA
// file.
func TestTwoOnOneDataFolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	first := world.ServeFor(t, s.ws, "--data", s.data)
	second := world.ServeFor(t, s.ws, "--data", s.data, "--listen", "127.0.0.2:0") // another host name than the first gateway's
	if first.CAFile != second.CAFile {
		t.Errorf("the first prints %s, the second %s", first.CAFile, second.CAFile)
	}
	for _, gateway := range []*world.Gateway{first, second} {
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.TrustCA(gateway.CAFile)
		ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	}
}

// TestTwoFirstStartsAtOnce shows that two gateways that start concurrently on a new data folder create only one
// CA.
func TestTwoFirstStartsAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	gateways := make([]*world.Gateway, 2)
	var starts sync.WaitGroup
	for i := range gateways {
		starts.Go(func() {
			var err error
			if gateways[i], err = world.Serve(s.ws, "--data", s.data); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	for _, gateway := range gateways {
		if gateway == nil {
			continue // the gateway has reported its error
		}
		resp, err := trusting(t, gateways[0].CAFile).Get(gateway.URL)
		if err != nil {
			t.Error(err)
		} else {
			resp.Body.Close()
		}
		if err := gateway.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestBuildMetadata(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const version = "3.2.5+build.7"
	built := s.offer(version)
	s.push(world.Null + "@" + version)
	gateway := s.serve("--data", s.data)
	for _, cliConfig := range []string{world.NetworkMirror(gateway.URL), world.OCIMirror(gateway.RepositoryTemplate)} {
		ws := s.user(cliConfig, version)
		ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
		wantLocked(t, ws, version, 1, zipHash(t, built))
	}
	ws := s.user(world.NetworkMirror(gateway.URL), version)
	ws.MustRun(t, clients.Terraform(t), "init", "-no-color")
	wantLocked(t, ws, version, 1)
}

// TestMissingVersionFallsThrough shows that, if the mirror does not have the requested version, a client tries
// its next installation method.
func TestMissingVersionFallsThrough(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	s.offer("3.3.0")
	gateway := s.serve("--data", s.data)
	config := fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n  direct {}\n}\n", gateway.URL)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(config, "3.3.0")
		ws.MustRun(t, client, "init", "-no-color")
	}
}

// TestReadOnlyRegistry shows that the gateway's /v2/ refuses pushes.
func TestReadOnlyRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	gateway := s.serve("--data", s.data)
	url := strings.TrimSuffix(gateway.URL, "providers/") + "v2/a/blobs/uploads/"
	resp, err := s.CA.HTTPClient().Post(url, "application/octet-stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(string(body), "UNSUPPORTED") {
		t.Errorf("POST: %s %s", resp.Status, body)
	}
}
