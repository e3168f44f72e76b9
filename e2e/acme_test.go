package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/dns"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	acmeDomain = "providers.acme.test"
	// refusedDomain is a domain for which the CA refuses to issue certificates.
	refusedDomain = "refused.acme.test"
)

// pebble is a running Pebble, a certificate authority that speaks ACME like Let's Encrypt.
type pebble struct {
	directory string
	roots     *x509.CertPool // the roots of the certificates that Pebble issues
	gateway   chan string    // delivers the gateway's address to port443
	log       *strings.Builder
}

// startPebble starts Pebble. Pebble validates the gateway's domain at the address that the test sends to
// p.gateway.
func startPebble(s *scene) *pebble {
	t := s.t
	t.Helper()
	p := &pebble{gateway: make(chan string, 1), log: &strings.Builder{}}
	cert, err := s.CA.Issue("localhost")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := cert.WriteFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listen, manage := freeAddress(t), freeAddress(t)
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": manage, "certificate": certFile, "privateKey": keyFile,
		"tlsPort": p.port443(t), "httpPort": 1, "domainBlocklist": []string{refusedDomain}, "keyAlgorithm": "ecdsa",
		"retryAfter": map[string]int{"authz": 1, "order": 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	program := clients.Program(t, "pebble")
	cmd := exec.CommandContext(t.Context(), program.Path, "-config", file, "-dnsserver", dns.For(t), "-strict")
	cmd.Env = []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0"}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("pebble:\n%s", p.log)
		}
	})
	p.directory = "https://" + strings.Replace(listen, "127.0.0.1", "localhost", 1) + "/dir"
	p.roots = x509.NewCertPool()
	p.roots.AppendCertsFromPEM(s.wait("https://" + strings.Replace(manage, "127.0.0.1", "localhost", 1) + "/roots/0"))
	return p
}

// port443 listens on a port, and returns the port. Pebble connects to this port instead of port 443 of the
// gateway's name. port443 forwards connections to the gateway when p.gateway has delivered the gateway's
// address.
func (p *pebble) port443(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		to := ""
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if to == "" {
				to = <-p.gateway
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// wait requests a URL until the server responds, and returns the body of the response.
func (s *scene) wait(url string) []byte {
	s.t.Helper()
	client := s.CA.HTTPClient()
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(clients.DefaultTimeout)
	for {
		resp, err := client.Get(url)
		if err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return body
			}
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %v", url, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// shakeHands returns the serial number of the certificate that a gateway presents for a name. If name is "",
// the handshake names no host.
func (p *pebble) shakeHands(g *world.Gateway, name string) (serial string, err error) {
	config := &tls.Config{ServerName: name, RootCAs: p.roots, NextProtos: []string{"h2"}}
	if name == "" { // probes by IP address name no host
		config.InsecureSkipVerify = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), clients.DefaultTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", g.Address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// TestACME shows that a gateway obtains certificates from an ACME authority. The authority validates the
// gateway's domain at the gateway's own port.
func TestACME(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := startPebble(s)
	dir := t.TempDir()
	config := filepath.Join(dir, "ocibridge.hcl")
	text := fmt.Sprintf(`gateway {
  public_url = "https://%s/"
  tls {
    acme {
      accept_terms  = true
      domains       = [%q, %q]
      email         = "ops@acme.test"
      directory_url = %q
      ca_file       = %q
      directory     = "certificates"
    }
  }
}
`, acmeDomain, acmeDomain, refusedDomain, p.directory, s.CAFile)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := world.ServeFor(t, s.ws, "--data", s.data, "--config", config)
	if _, err := p.shakeHands(g, acmeDomain); err == nil {
		t.Error("there is a certificate before the authority could ask back")
	}
	p.gateway <- g.Address
	waitFor(t, g, `msg="certificate for a domain is in force" domain=`+acmeDomain, 1)
	waitFor(t, g, `level=ERROR msg="no certificate for a domain" domain=`+refusedDomain, 1)
	serial, err := p.shakeHands(g, acmeDomain)
	if err != nil {
		t.Errorf("%v", err)
	}
	if byAddress, err := p.shakeHands(g, ""); err != nil || byAddress != serial {
		t.Errorf("without a name: %q, %v", byAddress, err)
	}
	for _, name := range []string{refusedDomain, "other.acme.test"} {
		if _, err := p.shakeHands(g, name); err == nil {
			t.Errorf("%s has a certificate", name)
		}
	}
	if !strings.Contains(g.Log(), `hint="the issuer refuses: are domains and email as it wants them?"`) {
		t.Error("the log lacks a hint")
	}
	certificates := filepath.Join(dir, "certificates")
	info, err := os.Stat(certificates)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of keys: %v, %v", info, err)
	}

	// The next gateway finds the certificate in the folder, and requests no new one.
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	both := text
	text = strings.Replace(text, fmt.Sprintf(", %q", refusedDomain), "", 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g = world.ServeFor(t, s.ws, "--data", s.data, "--config", config)
	waitFor(t, g, `msg="certificate for a domain is in force" domain=`+acmeDomain, 1)
	if again, err := p.shakeHands(g, acmeDomain); err != nil || again != serial {
		t.Errorf("after a restart: %s and then %s, %v", serial, again, err)
	}

	// After a reload, the gateway immediately uses the certificate in the folder, so no handshake fails.
	if err := os.WriteFile(config, []byte(both), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Hangup(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(waitForLog)
	for !strings.Contains(g.Log(), `level=ERROR msg="no certificate for a domain" domain=`+refusedDomain) {
		if time.Now().After(deadline) {
			t.Fatal("the gateway requests no certificate for the new domain")
		}
		if again, err := p.shakeHands(g, acmeDomain); err != nil || again != serial {
			t.Fatalf("while settings change: %s and then %s, %v", serial, again, err)
		}
	}

	// The gateway does not start if other users can read its keys.
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(certificates, 0o755); err != nil {
		t.Fatal(err)
	}
	r := s.run("serve", "--listen", "localhost:0", "--data", s.data, "--config", config)
	if r.status != 1 || !strings.Contains(r.stderr, "chmod 700") {
		t.Errorf("with a folder that others may look into: %+v", r)
	}
	r = s.run("serve", "--listen", "localhost:0", "--data", s.data, "--config", config, "--http")
	if r.status != 2 || !strings.Contains(r.stderr, "acme") {
		t.Errorf("over plain HTTP: %+v", r)
	}
}
