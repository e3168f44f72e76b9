package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// announced is the output of "ocibridge serve". It contains everything that a user needs to set up clients.
type announced struct {
	text  string
	block string // the first block to paste
	ca    string
	url   string
}

var (
	pasted  = regexp.MustCompile(`(?ms)^  provider_installation \{\n.*?^  \}\n`)
	trusted = regexp.MustCompile(`(?m)^  export SSL_CERT_FILE=(.*)$`)
	served  = regexp.MustCompile(`(?m)^Serving providers at (.*)$`)
)

// serveBare runs "ocibridge serve" on a free port without other settings. It returns when the program has
// printed its instructions.
func (s *scene) serveBare(args ...string) announced {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.ws.Command(ctx, s.bridge, append([]string{"serve", "--listen", "localhost:0"}, args...)...)
	var log strings.Builder
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	clients.Must(s.t, err)
	clients.Must(s.t, cmd.Start())
	s.t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || s.t.Failed() {
			s.t.Logf("ocibridge serve: %v\n%s", err, log.String())
		}
		cancel()
	})
	var a announced
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		a.text += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "On macOS and Windows") { // the last line
			break
		}
	}
	block, ca, url := pasted.FindString(a.text), trusted.FindStringSubmatch(a.text), served.FindStringSubmatch(a.text)
	if block == "" || ca == nil || url == nil {
		s.t.Fatalf("it prints\n%s", a.text)
	}
	a.block, a.ca, a.url = block, ca[1], url[1]
	return a
}

// status requests a provider's index.json with a header, and returns the HTTP status.
func (s *scene) status(a announced, provider, header string) int {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, a.url+provider+"/index.json", nil)
	clients.Must(s.t, err)
	if header != "" {
		req.Header.Set(header, "192.0.2.1")
	}
	resp, err := trusting(s.t, a.ca).Do(req)
	clients.Must(s.t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// trusting returns an HTTP client that trusts the CAs in a file. SSL_CERT_FILE has the same effect on clients.
func trusting(t *testing.T, file string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(file)
	clients.Must(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("%s holds no certificate", file)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestNothingConfigured runs ocibridge serve without configuration. It shows that tofu init works with the
// instructions that the program prints. The CLI configuration of the gateway's user leads to the origin.
//
//testrun:scene
func TestNothingConfigured(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.serveBare()
	if !strings.Contains(a.text, "--no-pull-through") || !strings.Contains(a.text, "which serves the providers that it already has") {
		t.Errorf("it prints\n%s", a.text)
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "Via", "X-Real-IP"} {
		if status := s.status(a, world.Null, header); status != http.StatusNotFound {
			t.Errorf("with %s: status %d", header, status)
		}
	}
	if status := s.status(a, "terraform-aws-modules/vpc/aws", ""); status != http.StatusNotFound { // a module without its host name
		t.Errorf("without a host name: status %d", status)
	}
	ws := s.user("", nullVersion)
	clients.Must(t, ws.WriteCLIConfig(a.block))
	ws.TrustCA(s.downloadedCA(a))
	ws.MustRun(t, clients.Tofu(t), "init", "-no-color")
	wantLocked(t, ws, nullVersion, 1, zipHash(t, s.null))
	s.awaitStored(a, world.Null)
}

// downloadedCA returns a file with the CA that the page offers.
func (s *scene) downloadedCA(a announced) string {
	s.t.Helper()
	resp, err := trusting(s.t, a.ca).Get(strings.TrimSuffix(a.url, "providers/") + "assets/ca.pem")
	clients.Must(s.t, err)
	defer resp.Body.Close()
	pem, err := io.ReadAll(resp.Body)
	clients.Must(s.t, err)
	file := filepath.Join(s.t.TempDir(), "ca.pem")
	clients.Must(s.t, os.WriteFile(file, pem, 0o600))
	return file
}

// awaitStored waits until the registry has a provider. The gateway answers requests through a proxy from the registry
// alone.
func (s *scene) awaitStored(a announced, provider string) {
	s.t.Helper()
	deadline := time.Now().Add(clients.DefaultTimeout)
	for s.status(a, provider, "Via") != http.StatusOK {
		if time.Now().After(deadline) {
			s.t.Fatal("a stored package is not served through a proxy")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestNoPullThrough shows that both the flag and the variable turn pull-through off.
func TestNoPullThrough(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	byFlag := s.serveBare("--no-pull-through")
	s.ws.Env["OCIBRIDGE_NO_PULL_THROUGH"] = "true"
	byVariable := s.serveBare("--data", t.TempDir())
	for how, a := range map[string]announced{"the flag": byFlag, "the variable": byVariable} {
		if status := s.status(a, world.Null, ""); status != http.StatusNotFound || strings.Contains(a.text, "pull-through") {
			t.Errorf("with %s: status %d, and it prints\n%s", how, status, a.text)
		}
	}
	if n := s.Origin.Count(); n != 0 {
		t.Errorf("the origin got requests: %v", s.Origin.Requests())
	}
}

// TestOriginsOnThisMachineAreNamed shows that a gateway connects to a loopback address only if the
// configuration names this address. A redirect of an origin to a loopback address has no effect.
func TestOriginsOnThisMachineAreNamed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	seen, host := s.seenOrigin()
	clients.Must(t, s.ws.WriteCLIConfig(host))
	// The packages of the origin are on another port of this machine.
	seen.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ".zip") {
			http.Redirect(w, r, fmt.Sprintf("%s%s", s.OriginURL, r.URL.Path), http.StatusFound)
			return true
		}
		return false
	})
	gateway := s.serve("--data", s.data, "--no-pull-through=false")
	p := &pulled{scene: s}
	if status, body := p.get(gateway, nullVersion+".json"); status != http.StatusOK || !strings.Contains(body, zipHash(t, s.null)) {
		t.Errorf("metadata from the named address: %d %s", status, body)
	}
	pkg := hostPackage(t, s.null)
	if status, body := p.get(gateway, archive(s.null, pkg.OS, pkg.Arch)); status != http.StatusBadGateway {
		t.Errorf("a package from an unnamed address: %d, %d bytes", status, len(body))
	}
	clients.Must(t, gateway.Stop()) // completes the log
	if log := gateway.Log(); !strings.Contains(log, "its address is not public") || !strings.Contains(log, "host block of the CLI configuration") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	zip := recorder.PathSuffix(".zip")
	if seen.Count(zip) == 0 || s.Origin.Count(zip) != 0 {
		t.Errorf("the origin got %d requests for packages, and the address that it redirects to got %d", seen.Count(zip), s.Origin.Count(zip))
	}
}

// TestGatewayAsItsOwnOrigin shows that a gateway does not forward requests to itself. The gateway reads a CLI
// configuration that sends requests for an origin to the gateway itself. The gateway recognises its own
// requests.
func TestGatewayAsItsOwnOrigin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	_, port, err := net.SplitHostPort(freeAddress(t))
	clients.Must(t, err)
	clients.Must(t, s.ws.WriteCLIConfig(hostBlock(world.Host, "https://localhost:"+port+"/hosts/"+world.Host+"/v1/providers/")))
	gateway := s.serve("--data", s.data, "--no-pull-through=false", "--listen", "localhost:"+port)
	p := &pulled{scene: s}
	if status, body := p.get(gateway, "index.json"); status != http.StatusNotFound {
		t.Errorf("what nobody has: %d %s", status, body)
	}
	clients.Must(t, gateway.Stop()) // completes the log
	log := gateway.Log()
	if n := strings.Count(log, "path=/hosts/"+world.Host+"/v1/providers/acme/null/versions"); n != 1 {
		t.Errorf("the gateway sent itself %d requests, want 1:\n%s", n, log)
	}
}
