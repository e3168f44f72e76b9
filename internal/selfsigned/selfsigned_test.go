package selfsigned_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/selfsigned"
)

const day = 24 * time.Hour

var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hosts = []string{"gateway.example.com", "localhost", "127.0.0.1", "::1"}
)

// certificate calls Certificate and checks what holds of every answer.
func certificate(t *testing.T, dir string, hosts []string, now time.Time) tls.Certificate {
	t.Helper()
	cert, file, err := selfsigned.Certificate(dir, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) || !pool.Equal(poolOf(cert.Leaf)) {
		t.Errorf("%s does not hold the certificate that is served", file)
	}
	for _, name := range []string{"cert.pem", "key.pem"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	return cert
}

func poolOf(cert *x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

func TestReusedOrMadeAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts  []string
		after  time.Duration
		damage func(t *testing.T, dir string)
		reused bool
	}{
		"next day":               {hosts: hosts, after: day, reused: true},
		"fewer hosts":            {hosts: hosts[1:2], reused: true},
		"IPv6 in other words":    {hosts: []string{"0:0::1"}, reused: true},
		"a month before the end": {hosts: hosts, after: (397-31)*day + time.Hour, reused: true},
		"within that month":      {hosts: hosts, after: (397-30)*day + time.Hour},
		"after the end":          {hosts: hosts, after: 400 * day},
		"clock was set back":     {hosts: hosts, after: -2 * time.Hour},
		"another host":           {hosts: append([]string{"other.example.com"}, hosts...)},
		"another address":        {hosts: append([]string{"192.0.2.1"}, hosts...)},
		"no key": {hosts: hosts, damage: func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "key.pem")))
		}},
		"key of another certificate": {hosts: hosts, damage: func(t *testing.T, dir string) {
			other := t.TempDir()
			certificate(t, other, hosts, start)
			must(t, os.Rename(filepath.Join(other, "key.pem"), filepath.Join(dir, "key.pem")))
		}},
		"certificate cut off": {hosts: hosts, damage: func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "cert.pem"), 100))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "made", "if missing")
			first := certificate(t, dir, hosts, start)
			if tc.damage != nil {
				tc.damage(t, dir)
			}
			second := certificate(t, dir, tc.hosts, start.Add(tc.after))
			if reused := bytes.Equal(first.Leaf.Raw, second.Leaf.Raw); reused != tc.reused {
				t.Errorf("reused: %v", reused)
			}
			for _, h := range tc.hosts {
				if err := second.Leaf.VerifyHostname(h); err != nil {
					t.Error(err)
				}
			}
			if again := certificate(t, dir, tc.hosts, start.Add(tc.after)); !bytes.Equal(second.Leaf.Raw, again.Leaf.Raw) {
				t.Error("made anew for the same hosts at the same time")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyTheOwnerReadsTheKey shows it for a new file, and for one that takes the
// place of one that others could read.
func TestOnlyTheOwnerReadsTheKey(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key.pem")
	mode := func() os.FileMode {
		t.Helper()
		info, err := os.Stat(key)
		must(t, err)
		return info.Mode().Perm()
	}
	certificate(t, dir, hosts, start)
	if got := mode(); got != 0o600 {
		t.Errorf("mode %o", got)
	}
	must(t, os.Chmod(key, 0o644))
	certificate(t, dir, hosts, start.Add(400*day))
	if got := mode(); got != 0o600 {
		t.Errorf("mode %o once renewed", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestIsItsOwnRoot(t *testing.T) {
	leaf := certificate(t, t.TempDir(), hosts, start).Leaf
	for _, h := range hosts {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: poolOf(leaf), CurrentTime: start}); err != nil {
			t.Errorf("%s: %v", h, err)
		}
	}
	for _, h := range []string{"example.com", "sub.gateway.example.com", "127.0.0.2", "registry.opentofu.org"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: h, Roots: poolOf(leaf), CurrentTime: start}); err == nil {
			t.Errorf("it is valid for %s", h)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: poolOf(leaf), CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("it is valid for clients")
	}
}

// TestSignsNoOther shows that who trusts the certificate trusts nothing that its
// key signs.
func TestSignsNoOther(t *testing.T) {
	cert := certificate(t, t.TempDir(), hosts, start)
	if cert.Leaf.IsCA || cert.Leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("it is an authority")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		DNSNames:     []string{"registry.opentofu.org"},
		NotBefore:    start, NotAfter: start.Add(day),
	}, cert.Leaf, key.Public(), cert.PrivateKey)
	must(t, err)
	other, err := x509.ParseCertificate(der)
	must(t, err)
	if _, err := other.Verify(x509.VerifyOptions{DNSName: "registry.opentofu.org", Roots: poolOf(cert.Leaf), CurrentTime: start}); err == nil {
		t.Error("a certificate that it signed is valid")
	}
}

// TestServes shows that a server can use it and a client trusts it by the file.
func TestServes(t *testing.T) {
	cert := certificate(t, t.TempDir(), hosts, time.Now())
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.StartTLS()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: poolOf(cert.Leaf)}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, tc := range map[string]struct {
		dir   string
		hosts []string
	}{
		"no host":                 {t.TempDir(), nil},
		"a file where the dir is": {file, hosts},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := selfsigned.Certificate(tc.dir, tc.hosts, start)
			if err == nil || hint.Of(err) == "" {
				t.Errorf("error %v, hint %q", err, hint.Of(err))
			}
		})
	}
}
