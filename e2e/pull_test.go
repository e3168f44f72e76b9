package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// pulled is a gateway that pulls through into an empty registry.
type pulled struct {
	*scene
	registry *registry.Registry
	cache    string
}

func newPulled(t *testing.T) *pulled {
	s := newScene(t)
	return &pulled{s, s.tlsRegistry(), filepath.Join(t.TempDir(), "cache")}
}

const hostPlatform = runtime.GOOS + "_" + runtime.GOARCH

// serve starts the gateway. The origin is on a loopback address, which the gateway accepts because a host block
// of the CLI configuration names it.
func (p *pulled) serve() *world.Gateway {
	p.t.Helper()
	return p.scene.serve(p.config(mirror(p.registry.Host) + fmt.Sprintf(`
pull_through {
  include   = ["%s/acme/*"]
  platforms = [%q]
}
gateway {
  tag_ttl = "0s"
  cache {
    directory = %q
  }
}
`, world.Host, hostPlatform, p.cache)))
}

// get requests a path of the null provider from a gateway, and returns the status and the body.
func (p *pulled) get(g *world.Gateway, path string) (status int, body string) {
	p.t.Helper()
	resp, err := p.CA.HTTPClient().Get(g.URL + world.Null + "/" + path)
	clients.Must(p.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	clients.Must(p.t, err)
	return resp.StatusCode, string(b)
}

// archive returns the path of a package at a gateway. The path is relative to the provider's URL.
func archive(r *release.Release, goos, goarch string) string {
	return fmt.Sprintf("%s/%s_%s/%s", r.Version, goos, goarch, r.Package(goos, goarch).Filename)
}

// tags lists the null provider's tags in the registry.
func (p *pulled) tags() []string {
	p.t.Helper()
	resp, err := p.CA.HTTPClient().Get("https://" + p.registry.Host + "/v2/providers/" + world.Null + "/tags/list")
	clients.Must(p.t, err)
	defer resp.Body.Close()
	var list struct{ Tags []string }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		p.t.Fatal(err)
	}
	return list.Tags
}

// stored waits until a version in the registry has the given number of platforms, and verifies the version.
func (p *pulled) stored(version string, platforms int) {
	p.t.Helper()
	deadline := time.Now().Add(clients.DefaultTimeout)
	for ; ; time.Sleep(100 * time.Millisecond) {
		if slices.Contains(p.tags(), version) {
			found := p.verify(0, "--packages", "--template", template(p.registry), world.Null+"@"+version)
			if v := found.Versions[0]; len(v.Platforms) == platforms {
				if v.Signature.Verdict != "signed" || v.Signature.Fingerprint != p.Signer.Fingerprint() {
					p.t.Errorf("stored as %+v", v)
				}
				return
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is not stored: tags %v", version, p.tags())
		}
	}
}

// downloads counts the requests for packages to the origin.
func (p *pulled) downloads() int {
	return p.Origin.Count(recorder.Method(http.MethodGet), recorder.PathSuffix(".zip"))
}

func (p *pulled) wantDownloads(when string, want int) {
	p.t.Helper()
	if got := p.downloads(); got != want {
		p.t.Errorf("%s: %d packages are downloaded, want %d", when, got, want)
	}
}

// installs installs the null provider with a client that can use only the gateway.
func (p *pulled) installs(g *world.Gateway, client clients.Client) {
	p.t.Helper()
	ws := p.user("", nullVersion)
	clients.Must(p.t, ws.WriteCLIConfig(world.NetworkMirror(g.URL)))
	ws.MustRun(p.t, client, "init", "-no-color")
	if client.Name == "tofu" {
		wantLocked(p.t, ws, nullVersion, 1, zipHash(p.t, p.null))
	}
}

// TestPullThrough shows that clients install a provider that nobody pushed. They install it with empty and with
// filled caches, directly from the registry, without the origin, and without the registry.
//
//testrun:scene
func TestPullThrough(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	gateway := p.serve()
	tofu, terraform := clients.Tofu(t), clients.Terraform(t)

	p.installs(gateway, tofu)
	p.wantDownloads("cold", 1)
	for _, pkg := range p.null.Packages {
		if hashes := servedHashes(t, p.scene, gateway.URL); !slices.Contains(hashes["zh:"], "zh:"+pkg.SHA256) {
			t.Errorf("%s is not offered: %v", pkg.Filename, hashes)
		}
	}
	p.stored(nullVersion, 1)
	p.installs(gateway, terraform)
	p.wantDownloads("warm", 1)

	// Clients with a host block get the publisher's signature.
	ws := p.user("", nullVersion)
	clients.Must(t, ws.WriteCLIConfig(hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")))
	if out := ws.MustRun(t, terraform, "init", "-no-color"); !strings.Contains(out, signedBy(terraform, p.scene)) {
		t.Errorf("by the host block:\n%s", out)
	}
	ws = p.user("", nullVersion)
	clients.Must(t, ws.WriteCLIConfig(world.OCIMirror(template(p.registry))))
	ws.MustRun(t, tofu, "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, p.null))

	// A request for another platform adds this platform to the stored version.
	other := slices.IndexFunc(p.null.Packages, func(pkg release.Package) bool { return pkg.OS+"_"+pkg.Arch != hostPlatform })
	pkg := p.null.Packages[other]
	if status, body := p.get(gateway, archive(p.null, pkg.OS, pkg.Arch)); status != http.StatusOK || release.Sum([]byte(body)) != pkg.SHA256 {
		t.Errorf("%s: status %d, %d bytes", pkg.Filename, status, len(body))
	}
	p.stored(nullVersion, 2)
	p.wantDownloads("with another platform", 2)

	clients.Must(t, p.World.Close()) // the origin
	clients.Must(t, gateway.Stop())
	gateway = p.serve()
	p.installs(gateway, tofu)
	if status, body := p.get(gateway, "index.json"); status != http.StatusOK || !strings.Contains(body, nullVersion) {
		t.Errorf("without its origin: %d %s", status, body)
	}
	p.registry.Stop()
	p.installs(gateway, terraform)
	ready, err := p.CA.HTTPClient().Get(strings.TrimSuffix(gateway.URL, "providers/") + "readyz")
	clients.Must(t, err)
	defer ready.Body.Close()
	if body, err := io.ReadAll(ready.Body); err != nil || ready.StatusCode != http.StatusOK || !strings.Contains(string(body), "stale answers are served") {
		t.Errorf("without the registry, from the cache: %s %s", ready.Status, body)
	}
	resp, err := p.CA.HTTPClient().Get(gateway.URL + world.Host + "/acme/never/index.json")
	clients.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode/100 != 5 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("without registry and origin, a provider that was never requested: %s", resp.Status)
	}
}

// TestPullThroughOfTheWrongSignature shows that a version with a wrong signature is neither served nor stored.
func TestPullThroughOfTheWrongSignature(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	mallory, err := pgp.NewSigner("Mallory")
	clients.Must(t, err)
	sign(p.scene, p.null, mallory)
	gateway := p.serve()
	ws := p.user("", nullVersion)
	clients.Must(t, ws.WriteCLIConfig(world.NetworkMirror(gateway.URL)))
	if out, err := ws.Run(clients.Tofu(t), "init", "-no-color"); err == nil {
		t.Errorf("the version is installed:\n%s", out)
	}
	for _, path := range []string{nullVersion + ".json", archive(p.null, runtime.GOOS, runtime.GOARCH)} {
		if status, body := p.get(gateway, path); status != http.StatusBadGateway {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	clients.Must(t, gateway.Stop()) // completes the log
	if log := gateway.Log(); !strings.Contains(log, "signature") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	p.wantDownloads("with the wrong signature", 0)
	if tags := tagsOnDisk(t, p.registry); len(tags) > 0 {
		t.Errorf("stored: %v", tags)
	}
	if found := filesUnder(t, p.cache, ".zip"); len(found) > 0 {
		t.Errorf("cached: %v", found)
	}
}

// TestPullThroughOfAWithdrawnVersion shows what happens when an origin withdraws a version. Packages that are
// already in the registry stay available. Other packages of the version disappear.
func TestPullThroughOfAWithdrawnVersion(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	kept := p.offer("3.2.2")
	gone := p.offer("3.2.3")
	gateway := p.serve()
	if status, _ := p.get(gateway, archive(kept, runtime.GOOS, runtime.GOARCH)); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	p.stored(kept.Version, 1)
	for _, r := range []*release.Release{kept, gone} {
		p.Origin.Remove(r.Namespace, r.Type, r.Version)
	}
	for _, path := range []string{gone.Version + ".json", archive(gone, runtime.GOOS, runtime.GOARCH)} {
		if status, body := p.get(gateway, path); status == http.StatusOK && !strings.Contains(body, `"archives":{}`) {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	for _, when := range []string{"at once", "after a restart"} {
		if status, body := p.get(gateway, archive(kept, runtime.GOOS, runtime.GOARCH)); status != http.StatusOK || release.Sum([]byte(body)) != hostPackage(t, kept).SHA256 {
			t.Errorf("%s: status %d", when, status)
		}
		if status, body := p.get(gateway, kept.Version+".json"); status != http.StatusOK || !strings.Contains(body, hostPackage(t, kept).SHA256) {
			t.Errorf("%s: %d %s", when, status, body)
		}
		clients.Must(t, gateway.Stop())
		gateway = p.serve()
	}
	if status, body := p.get(gateway, "index.json"); status != http.StatusOK || !strings.Contains(body, kept.Version) || strings.Contains(body, gone.Version) {
		t.Errorf("%d %s", status, body)
	}
}

// TestPullThroughPassesWarningsOn shows that the gateway passes the origin's warnings on to its users.
func TestPullThroughPassesWarningsOn(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	honest := origin.New(origin.Options{}, p.null)
	p.Origin.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/versions") {
			return false
		}
		answer := httptest.NewRecorder()
		honest.ServeHTTP(answer, r)
		var body map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil {
			t.Error(err)
		}
		body["warnings"] = []string{"this provider has moved to acme/void"}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(body)
		return true
	})
	gateway := p.serve()
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := p.user("", nullVersion)
		clients.Must(t, ws.WriteCLIConfig(hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")))
		if out := ws.MustRun(t, client, "init", "-no-color"); !strings.Contains(out, "this provider has moved to acme/void") {
			t.Errorf("%s:\n%s", client.Name, out)
		}
	}
}
