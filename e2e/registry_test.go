package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tunnel"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// hostBlock returns a CLI configuration that sends requests for the providers of host to url.
func hostBlock(host, url string) string {
	return fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", host, url)
}

// direct closes the origin, and creates a workspace that uses the gateway through a host block.
func (s *scene) direct(gateway *world.Gateway) *clients.Workspace {
	s.t.Helper()
	s.World.Close()
	ws := s.user("", nullVersion)
	if err := ws.WriteCLIConfig(hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/")); err != nil {
		s.t.Fatal(err)
	}
	return ws
}

// signedBy returns a client's message about a package whose signature it has checked.
func signedBy(client clients.Client, s *scene) string {
	if client.Name == "terraform" {
		return "(self-signed, key ID " + s.Signer.KeyID() + ")"
	}
	return "(signed, key ID " + s.Signer.KeyID() + ")"
}

// wantAllZips checks that a lock file contains the zh: hashes of every platform, and the given number of h1:
// hashes.
func (s *scene) wantAllZips(ws *clients.Workspace, client clients.Client, h1s int) {
	s.t.Helper()
	locked := hashesOf(s.t, ws, "zh:")
	for _, p := range s.null.Packages { // the signed document can list more
		if !slices.Contains(locked, "zh:"+p.SHA256) {
			s.t.Errorf("%s locked %v, without the hash of %s", client.Name, locked, p.Filename)
		}
	}
	if got := hashesOf(s.t, ws, "h1:"); len(got) != h1s {
		s.t.Errorf("%s locked %v, want %d h1", client.Name, got, h1s)
	}
}

// TestHostBlock shows that clients install signed packages through the provider registry protocol, and check
// the signature.
func TestHostBlock(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.direct(gateway)
		if out := ws.MustRun(t, client, "init", "-no-color"); !strings.Contains(out, signedBy(client, s)) {
			t.Errorf("%s does not say %q:\n%s", client.Name, signedBy(client, s), out)
		}
		s.wantAllZips(ws, client, 1)
		if out := ws.MustRun(t, client, "apply", "-auto-approve", "-no-color"); !strings.Contains(out, "1 added") {
			t.Errorf("apply: %s", out)
		}
	}
}

// TestHostBlockOffersWhatIsSigned shows that clients with a host block get the newest signed version, even if
// there is a newer unsigned version. Clients with a host block cannot install unsigned versions.
func TestHostBlockOffersWhatIsSigned(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	unsigned, err := s.NullRelease("3.3.0")
	clients.Must(t, err)
	unsigned.Signature, unsigned.Keys = nil, nil
	s.Origin.Add(unsigned)
	s.push(world.Null + "@" + nullVersion)
	s.push("--allow-unsigned", world.Null+"@3.3.0")
	gateway := s.serve("--data", s.data)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.direct(gateway)
		clients.Must(t, ws.WriteConfig(world.UseNull(">= 3.0.0")))
		ws.MustRun(t, client, "init", "-no-color")
		s.wantAllZips(ws, client, 1)
		if got := ws.MustLock(t)[world.Null].Version; got != nullVersion {
			t.Errorf("%s chose %s", client.Name, got)
		}
		clients.Must(t, ws.Clean())
		clients.Must(t, ws.WriteConfig(world.UseNull("3.3.0")))
		ws.MustFail(t, client, "init", "-no-color")
	}
}

// TestHostBlockBesidesMirror shows that a lock file from a host block is also valid for a network mirror.
func TestHostBlockBesidesMirror(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.direct(gateway)
		ws.MustRun(t, client, "init", "-no-color")
		if err := os.RemoveAll(filepath.Join(ws.Dir, ".terraform")); err != nil {
			t.Fatal(err)
		}
		if err := ws.WriteCLIConfig(world.NetworkMirror(gateway.URL)); err != nil {
			t.Fatal(err)
		}
		ws.MustRun(t, client, "init", "-no-color", "-lockfile=readonly")
	}
}

// TestProvidersLockAndMirrorThroughHostBlock shows that "providers lock" and "providers mirror" work through a
// host block. Both commands ignore mirrors.
func TestProvidersLockAndMirrorThroughHostBlock(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.serve("--data", s.data)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.direct(gateway)
		platforms := []string{"-platform=linux_amd64", "-platform=darwin_arm64", "-platform=windows_amd64"}
		ws.MustRun(t, client, append([]string{"providers", "lock", "-no-color"}, platforms...)...)
		s.wantAllZips(ws, client, 3)
		dir := filepath.Join(ws.Home, "mirror")
		ws.MustRun(t, client, append(append([]string{"providers", "mirror"}, platforms...), dir)...)
		for _, p := range s.null.Packages {
			got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(world.Null), p.Filename))
			if err != nil {
				t.Fatal(err)
			}
			if body, err := p.Content(); err != nil {
				t.Fatal(err)
			} else if want, err := io.ReadAll(body); err != nil || string(got) != string(want) {
				t.Errorf("%s mirrored another %s (%v)", client.Name, p.Filename, err)
			}
		}
	}
}

// TestOwnHostName shows that clients install a provider whose address contains the gateway's own host name. The
// clients find the gateway by service discovery on port 443. A proxy forwards their connections to the gateway.
func TestOwnHostName(t *testing.T) {
	t.Parallel()
	const own = "providers.acme.example"
	s := newScene(t)
	s.ws = s.workspace(hostBlock(own, s.OriginURL+origin.ServicePath))
	s.push(own + "/acme/null@" + nullVersion)
	s.World.Close()
	cert, err := s.CA.Issue(own, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := cert.WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "ocibridge.hcl")
	if err := os.WriteFile(config, []byte("gateway {\n  public_url = \"https://"+own+"/\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := world.ServeFor(t, s.ws, "--config", config, "--data", s.data, "--tls-cert", certFile, "--tls-key", keyFile)
	_, port, err := net.SplitHostPort(gateway.Address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := proxyTo(t, own+":443", "127.0.0.1:"+port)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user("", nullVersion)
		clients.Must(t, ws.WriteCLIConfig(""))
		clients.Must(t, ws.WriteConfig(strings.ReplaceAll(world.UseNull(nullVersion), world.Null, own+"/acme/null")))
		ws.Env["HTTPS_PROXY"] = proxy
		if out := ws.MustRun(t, client, "init", "-no-color"); !strings.Contains(out, signedBy(client, s)) {
			t.Errorf("%s does not say %q:\n%s", client.Name, signedBy(client, s), out)
		}
		if locked := ws.MustLock(t)[own+"/acme/null"]; locked.Version != nullVersion {
			t.Errorf("locked %+v", locked)
		}
	}
}

// proxyTo starts a proxy, and returns the URL of the proxy. The proxy forwards connections for one address to
// another address, and refuses all other connections.
func proxyTo(t *testing.T, from, to string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != from {
			t.Errorf("the proxy got the request %s %s", r.Method, r.Host)
			http.Error(w, "not here", http.StatusForbidden)
			return
		}
		tunnel.Connect(w, to)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
