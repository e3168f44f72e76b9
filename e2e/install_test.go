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

	"github.com/ocibridge/ocibridge/internal/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/testkit/release"
	"github.com/ocibridge/ocibridge/internal/testkit/tlsca"
	"github.com/ocibridge/ocibridge/internal/testkit/world"
)

func hostPackage(t *testing.T, r *release.Release) *release.Package {
	t.Helper()
	p := r.Package(runtime.GOOS, runtime.GOARCH)
	if p == nil {
		t.Fatalf("the release has no package for %s_%s", runtime.GOOS, runtime.GOARCH)
	}
	return p
}

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
	// A second init, with the lock file and nothing installed, accepts the same.
	if err := os.RemoveAll(filepath.Join(ws.Dir, ".terraform")); err != nil {
		t.Fatal(err)
	}
	ws.MustRun(t, tofu, "init", "-no-color", "-lockfile=readonly")
}

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

// TestLockEveryPlatform shows that the h1 hashes served for other platforms are
// the ones that clients compute: a lock of another platform checks them.
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

// servedHashes returns all hashes in the gateway's VERSION.json by scheme.
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

func TestTofuByOCIMirrorFromStandaloneRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
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
	// Pushed by another process while the gateway runs, and seen at once.
	s.push(world.Null + "@" + nullVersion)
	tofu, ws := clients.Tofu(t), s.user(world.OCIMirror(gateway.RepositoryTemplate), nullVersion)
	ws.MustRun(t, tofu, "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
}

// TestGatewayInFrontOfRegistry serves a stand-alone registry, over plain HTTP on
// the loopback interface, to both clients.
func TestGatewayInFrontOfRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	gateway := s.serve("--template", template(r))
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
	}
	if gateway.RepositoryTemplate != "" {
		t.Errorf("it offers an embedded registry at %s", gateway.RepositoryTemplate)
	}
}

// TestTheUsersOwnConfiguration drives client and program by one CLI configuration.
func TestTheUsersOwnConfiguration(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	ws := s.user(world.OCIMirror(template(r)), nullVersion)
	ws.MustRun(t, s.bridge, "push", world.Null+"@"+nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
}

// TestSelfSigned is the first try: nothing configured, loopback only.
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

// TestFoldersOfCAsStayTrusted shows that SSL_CERT_FILE does not replace folders of CAs:
// clients trust the gateway's CA in a folder although the file holds another CA.
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

// TestTwoOnOneDataFolder starts a second gateway on the data folder of the first. Clients
// of the first still install from it, and clients of both trust one file.
func TestTwoOnOneDataFolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	first := world.ServeFor(t, s.ws, "--data", s.data)
	second := world.ServeFor(t, s.ws, "--data", s.data, "--listen", "127.0.0.2:0") // another name
	if first.CAFile != second.CAFile {
		t.Errorf("the first prints %s, the second %s", first.CAFile, second.CAFile)
	}
	for _, gateway := range []*world.Gateway{first, second} {
		ws := s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.TrustCA(gateway.CAFile)
		ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	}
}

// TestTwoFirstStartsAtOnce on a new data folder make one CA.
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
			continue // its error is reported
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

// orasRecipe pushes the release with the ORAS CLI by OpenTofu's documented recipe,
// and returns the workspace, the repository and the index.
func (s *scene) orasRecipe(r *registry.Registry) (ws *clients.Workspace, repo string, index map[string]any) {
	s.t.Helper()
	oras := clients.ORAS(s.t)
	ws = s.workspace("")
	repo = r.Host + "/providers/" + world.Null
	if err := s.null.WriteDir(ws.Dir); err != nil {
		s.t.Fatal(err)
	}
	index = map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "artifactType": "application/vnd.opentofu.provider"}
	var manifests []map[string]any
	for _, p := range s.null.Packages {
		out, err := ws.Stdout(oras, "push", "--plain-http=false", "--format", "json", "--artifact-type", "application/vnd.opentofu.provider-target",
			repo, p.Filename+":archive/zip")
		if err != nil {
			s.t.Fatal(err)
		}
		var pushed struct {
			Digest string
			Size   int64
		}
		if err := json.Unmarshal(out, &pushed); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		size := pushed.Size
		if size == 0 {
			manifest, err := ws.Stdout(oras, "manifest", "fetch", "--plain-http=false", repo+"@"+pushed.Digest)
			if err != nil {
				s.t.Fatal(err)
			}
			size = int64(len(manifest))
		}
		manifests = append(manifests, map[string]any{
			"mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": "application/vnd.opentofu.provider-target",
			"digest": pushed.Digest, "size": size, "platform": map[string]string{"os": p.OS, "architecture": p.Arch},
		})
	}
	index["manifests"] = manifests
	s.orasIndex(ws, repo+":"+nullVersion, index)
	return ws, repo, index
}

// TestForceOverORASArtifact: a forced push computes the h1: hashes that the index lacks,
// and says for which platforms.
func TestForceOverORASArtifact(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	ws, repo, index := s.orasRecipe(r)
	push := func(args ...string) string {
		t.Helper()
		return s.pushTo(r, append(args, world.Null+"@"+nullVersion)...)
	}
	var platforms []string
	for _, p := range s.null.Packages {
		platforms = append(platforms, p.OS+"_"+p.Arch)
	}
	slices.Sort(platforms)
	if out := push(); strings.Contains(out, "h1:") {
		t.Errorf("without --force:\n%s", out)
	}
	if out := push("--force"); !strings.Contains(out, " rehashed, ") || !strings.Contains(out, "\n  computed h1: for "+strings.Join(platforms, ", ")+"\n") {
		t.Errorf("with --force:\n%s", out)
	}
	v := s.verify(0, "--packages", "--template", template(r), world.Null+"@"+nullVersion)
	if len(v.Versions[0].Findings) != 0 {
		t.Errorf("%+v", v.Versions[0].Findings)
	}
	s.orasIndex(ws, repo+":"+nullVersion, index)
	var out struct {
		Results []struct {
			Packages []struct {
				H1         string
				H1Recorded bool `json:"h1_recorded"`
			}
		}
	}
	if err := json.Unmarshal([]byte(push("--force", "--output", "json")), &out); err != nil {
		t.Fatal(err)
	}
	for _, p := range out.Results[0].Packages {
		if !p.H1Recorded || p.H1 == "" {
			t.Errorf("%+v", p)
		}
	}
}

// orasIndex pushes an index with the ORAS CLI.
func (s *scene) orasIndex(ws *clients.Workspace, ref string, index map[string]any) {
	s.t.Helper()
	data, err := json.Marshal(index)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws.Dir, "index.json"), data, 0o600); err != nil {
		s.t.Fatal(err)
	}
	ws.MustRun(s.t, clients.ORAS(s.t), "manifest", "push", "--plain-http=false", "--media-type", "application/vnd.oci.image.index.v1+json", ref, "index.json")
}

// TestORASArtifact serves a version that the ORAS CLI pushed, with none of our
// annotations.
func TestORASArtifact(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.orasRecipe(r)
	gateway := s.serve("--template", template(r))
	user := s.user(world.NetworkMirror(gateway.URL), nullVersion)
	user.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantLocked(t, user, nullVersion, 1, zipHash(t, s.null))
	user = s.user(world.NetworkMirror(gateway.URL), nullVersion)
	user.MustRun(t, clients.Terraform(t), "init", "-no-color")
	user = s.user(world.OCIMirror(template(r)), nullVersion)
	user.MustRun(t, clients.Tofu(t), "init", "-no-color")
	if served := servedHashes(t, s, gateway.URL); len(served["zh:"]) != len(s.null.Packages) {
		t.Errorf("served %v", served)
	}
	// Pushing the same release finds every package in place, and adds the evidence.
	if out := s.pushTo(r, world.Null+"@"+nullVersion); !strings.Contains(out, ": completed, ") || !strings.Contains(out, "signed by") || strings.Contains(out, ": stored") {
		t.Errorf("push: %s", out)
	}
	if out := s.pushTo(r, world.Null+"@"+nullVersion); !strings.Contains(out, ": unchanged, ") || !strings.Contains(out, "signed by") {
		t.Errorf("second push: %s", out)
	}
}

// TestMissingVersionFallsThrough has a mirror without the version that is asked
// for: the client goes on to its next method.
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

// TestReadOnlyRegistry shows that nobody can push through the gateway's /v2/.
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
