package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	acmeToken  = "marked-acme-token"
	otherToken = "marked-other-token"
)

// controlled starts a gateway that requires tokens. One token allows the providers of acme, and another token
// allows other providers.
func (s *scene) controlled(more string) *world.Gateway {
	s.t.Helper()
	dir := s.t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte(strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	config := fmt.Sprintf(`gateway {
  capability_key_file = %q
  token "acme" {
    sha256  = "%x"
    include = ["%s/acme/*"]
  }
  token "other" {
    sha256  = "%x"
    include = ["registry.opentofu.org/*/*"]
  }
%s}
`, keys, sha256.Sum256([]byte(acmeToken)), world.Host, sha256.Sum256([]byte(otherToken)), more)
	file := filepath.Join(dir, "ocibridge.hcl")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return s.serve("--data", s.data, "--config", file)
}

// authority returns the host and port of a gateway.
func authority(g *world.Gateway) string {
	return strings.TrimSuffix(strings.TrimPrefix(g.URL, "https://"), "/providers/")
}

func credentials(g *world.Gateway, token string) string {
	return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", authority(g), token)
}

func wantNoSecrets(t *testing.T, g *world.Gateway, secrets ...string) {
	t.Helper()
	log := g.Log()
	for _, s := range append(secrets, "marked-", "/cap1.", "Bearer", "Basic ") {
		if strings.Contains(log, s) {
			t.Errorf("%q is in the log:\n%s", s, log)
		}
	}
}

func TestInstallWithToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.controlled("")
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(world.NetworkMirror(gateway.URL)+credentials(gateway, acmeToken), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
		// The token comes from a variable. No shell can set a variable whose name contains a colon.
		ws = s.user(world.NetworkMirror(gateway.URL), nullVersion)
		ws.Env["TF_TOKEN_"+authority(gateway)] = acmeToken
		ws.MustRun(t, client, "init", "-no-color")
		ws.MustRun(t, client, "providers", "lock", "-no-color", "-net-mirror="+gateway.URL, "-platform=darwin_arm64")
	}
	waitFor(t, gateway, `capability=REDACTED subject="token acme"`, 4) // downloads of archives
	wantNoSecrets(t, gateway)
}

// TestInstallWithoutToken shows that clients without a valid token fail. They try no other installation method,
// although the direct method could install the version from the origin.
func TestInstallWithoutToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.controlled("")
	mirrorAndDirect := fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n  direct {}\n}\n", gateway.URL)
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		for name, credentials := range map[string]string{
			"none": "", "unknown": credentials(gateway, "marked-unknown"), "of another provider": credentials(gateway, otherToken),
		} {
			ws := s.user(mirrorAndDirect+credentials, nullVersion)
			out := strings.Join(strings.Fields(ws.MustFail(t, client, "init", "-no-color")), " ")
			if !strings.Contains(out, "rejected the given authentication credentials") {
				t.Errorf("%s, token: %s: %s", client.Name, name, out)
			}
		}
	}
	clients.Must(t, gateway.Stop()) // completes the log
	if log := gateway.Log(); !strings.Contains(log, "status=401") || !strings.Contains(log, "status=403") || strings.Contains(log, "status=200") {
		t.Errorf("the log:\n%s", log)
	}
	wantNoSecrets(t, gateway)
}

func TestOCIMirrorWithToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.controlled("")
	login := func(password string) string {
		return fmt.Sprintf("oci_credentials %q {\n  username = \"token\"\n  password = %q\n}\n", authority(gateway), password)
	}
	mirror := world.OCIMirror(gateway.RepositoryTemplate)
	ws := s.user(mirror+login(acmeToken), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
	for name, config := range map[string]string{"none": mirror, "unknown": mirror + login("marked-unknown"), "of another provider": mirror + login(otherToken)} {
		ws := s.user(config, nullVersion)
		if out := ws.MustFail(t, clients.Tofu(t), "init", "-no-color"); strings.Contains(out, "successfully initialized") {
			t.Errorf("%s: %s", name, out)
		}
	}
	wantNoSecrets(t, gateway)
}

// TestHostBlockWithToken shows that clients send the origin's token to the gateway. They download the archive,
// the checksums and the signature without a token.
func TestHostBlockWithToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	gateway := s.controlled("")
	filed := func(token string) string {
		return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", world.Host, token)
	}
	block := hostBlock(world.Host, "https://"+authority(gateway)+"/hosts/"+world.Host+"/v1/providers/")
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		for token, ok := range map[string]bool{acmeToken: true, otherToken: false, "marked-of-the-origin": false} {
			ws := s.user("", nullVersion)
			clients.Must(t, ws.WriteCLIConfig(block+filed(token)))
			if ok {
				if out := ws.MustRun(t, client, "init", "-no-color"); !strings.Contains(out, signedBy(client, s)) {
					t.Errorf("%s: %s", client.Name, out)
				}
				continue
			}
			ws.MustFail(t, client, "init", "-no-color")
		}
	}
	log := gateway.Log()
	for _, file := range []string{"_" + runtime.GOOS + "_" + runtime.GOARCH + ".zip", "_SHA256SUMS", "_SHA256SUMS.sig"} {
		found := false
		for line := range strings.SplitSeq(log, "\n") {
			found = found || strings.Contains(line, file+" status=200") && strings.Contains(line, "capability=REDACTED")
		}
		if !found {
			t.Errorf("%s was not fetched by capability:\n%s", file, log)
		}
	}
	wantNoSecrets(t, gateway)
}

// TestInstallWithWorkloadToken shows that clients install with the tokens of a CI service. This works even if
// the service's issuer was down when the gateway started.
func TestInstallWithWorkloadToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"})
		case "/keys":
			json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Use: "sig"}}})
		default:
			http.NotFound(w, r)
		}
	}))
	if issuer.TLS, err = s.CA.ServerConfig("localhost"); err != nil {
		t.Fatal(err)
	}
	url := "https://" + issuer.Listener.Addr().String() // the issuer does not serve yet
	gateway := s.controlled(fmt.Sprintf("  oidc \"ci\" {\n    issuer   = %q\n    audience = \"providers\"\n    rule {\n      claims  = { repository_owner = \"acme\" }\n      include = [\"%s/acme/*\"]\n    }\n  }\n", url, world.Host))
	ws := s.user(world.NetworkMirror(gateway.URL)+credentials(gateway, acmeToken), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")

	issuer.StartTLS()
	defer issuer.Close()
	token := func(owner string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := json.Marshal(map[string]any{
			"iss": url, "aud": "providers", "sub": "repo:acme/app", "repository_owner": owner, "exp": time.Now().Add(time.Hour).Unix(),
		})
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		out, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	good, other := token("acme"), token("mallory")
	for _, client := range []clients.Client{clients.Tofu(t), clients.Terraform(t)} {
		ws := s.user(world.NetworkMirror(gateway.URL)+credentials(gateway, good), nullVersion)
		ws.MustRun(t, client, "init", "-no-color")
		ws = s.user(world.NetworkMirror(gateway.URL)+credentials(gateway, other), nullVersion)
		ws.MustFail(t, client, "init", "-no-color")
	}
	ws = s.user(world.OCIMirror(gateway.RepositoryTemplate)+fmt.Sprintf("oci_credentials %q {\n  username = \"token\"\n  password = %q\n}\n", authority(gateway), good), nullVersion)
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantNoSecrets(t, gateway, good[:60], strings.Split(good, ".")[1], strings.Split(other, ".")[2])
}

// TestCertificateIsReplaced shows what happens when the gateway's certificate is replaced. New connections get
// the new certificate, and an older connection continues.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dir := t.TempDir()
	install := func() []byte {
		t.Helper()
		cert, err := s.CA.Issue("localhost")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := cert.WriteFiles(dir); err != nil {
			t.Fatal(err)
		}
		return cert.CertPEM
	}
	install()
	gateway := world.ServeFor(t, s.ws, "--data", s.data, "--tls-cert", filepath.Join(dir, "tls.pem"), "--tls-key", filepath.Join(dir, "tls.key"))
	url := "https://" + authority(gateway) + "/healthz"
	get := func(c *http.Client) *tls.ConnectionState {
		t.Helper()
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK || resp.Proto != "HTTP/1.1" {
			t.Errorf("%s %s", resp.Proto, resp.Status)
		}
		return resp.TLS
	}
	live := s.CA.HTTPClient()
	defer live.CloseIdleConnections()
	before := get(live).PeerCertificates[0].SerialNumber
	install()
	// The gateway checks its files at most once a second.
	deadline := time.Now().Add(clients.DefaultTimeout)
	for {
		fresh := s.CA.HTTPClient()
		now := get(fresh).PeerCertificates[0].SerialNumber
		fresh.CloseIdleConnections()
		if now.Cmp(before) != 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway still serves the old certificate:\n%s", gateway.Log())
		}
	}
	if after := get(live).PeerCertificates[0].SerialNumber; after.Cmp(before) != 0 {
		t.Error("the connection from before was not kept")
	}
}
