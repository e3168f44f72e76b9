package localca_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/localca"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const day = 24 * time.Hour

var hosts = []string{"gateway.example.com", "localhost", "127.0.0.1", "::1"}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *localca.CA {
	t.Helper()
	ca, err := localca.Open(dir, nil)
	must(t, err)
	return ca
}

func issue(t *testing.T, ca *localca.CA, hosts []string) *localca.Leaf {
	t.Helper()
	leaf, err := ca.Issue(hosts)
	must(t, err)
	return leaf
}

func current(t *testing.T, leaf *localca.Leaf) *x509.Certificate {
	t.Helper()
	cert, err := leaf.Get(nil)
	must(t, err)
	return cert.Leaf
}

// read returns the certificate and the key of the CA in the folder dir.
func read(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem"))
	must(t, err)
	return pair
}

func poolOf(cert *x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// trusted returns nil if a client that trusts ca accepts cert as the certificate of a host,
// and otherwise the client's error.
func trusted(cert *x509.Certificate, ca *x509.Certificate, host string) error {
	_, err := cert.Verify(x509.VerifyOptions{DNSName: host, Roots: poolOf(ca)})
	return err
}

// wantNames fails the test unless the names of the files in the folder are want.
func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, want %q", dir, names, want)
	}
}

func TestMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := filepath.Join(t.TempDir(), "made", "if missing")
		dir := filepath.Join(data, "ca")
		ca := open(t, dir)
		if want := filepath.Join(dir, "ca.pem"); ca.File() != want {
			t.Errorf("file %s, want %s", ca.File(), want)
		}
		if file, err := os.ReadFile(ca.File()); err != nil || !bytes.Equal(ca.Certificate(), file) {
			t.Errorf("certificate %q, and in the file %q, %v", ca.Certificate(), file, err)
		}
		before := read(t, dir).Leaf
		first := issue(t, ca, hosts)
		time.Sleep(9 * 365 * day) // virtual time
		second := issue(t, open(t, dir), []string{"other.example.com", "192.0.2.1"})
		if after := read(t, dir).Leaf; !after.Equal(before) {
			t.Error("the second start uses another CA")
		}
		for _, h := range hosts {
			if err := trusted(current(t, first), before, h); err != nil {
				t.Error(err)
			}
		}
		for _, h := range []string{"other.example.com", "192.0.2.1"} {
			if err := trusted(current(t, second), before, h); err != nil {
				t.Error(err)
			}
		}
		wantNames(t, data, "ca")
		wantNames(t, dir, "ca-key.pem", "ca.pem")
	})
}

// TestFirstStartsAtOnce shows that concurrent calls of Open return the same CA. The calls
// share no state, as if they were in separate processes. A concurrent reader of the folder
// finds a complete CA or no CA.
func TestFirstStartsAtOnce(t *testing.T) {
	for range 20 {
		data := t.TempDir()
		dir := filepath.Join(data, "ca")
		var starts, watch sync.WaitGroup
		done := make(chan struct{})
		watch.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := os.Stat(dir); err == nil {
					if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")); err != nil {
						t.Errorf("half a CA: %v", err)
						return
					}
				}
			}
		})
		leaves := make([]*localca.Leaf, 8)
		for i := range leaves {
			starts.Go(func() {
				ca, err := localca.Open(dir, nil)
				if err == nil {
					leaves[i], err = ca.Issue(hosts)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		starts.Wait()
		close(done)
		watch.Wait()
		if t.Failed() {
			return
		}
		for _, leaf := range leaves {
			if err := trusted(current(t, leaf), read(t, dir).Leaf, "localhost"); err != nil {
				t.Error(err)
			}
		}
		wantNames(t, data, "ca")
	}
}

// TestCrashWhileMaking shows that Open removes the temporary folder of a process that
// crashed while it was creating a CA.
func TestCrashWhileMaking(t *testing.T) {
	data := t.TempDir()
	for _, files := range [][]string{{}, {"ca-key.pem"}, {"ca-key.pem", "ca.pem"}} {
		half, err := os.MkdirTemp(data, ".ca-*")
		must(t, err)
		for _, name := range files {
			must(t, os.WriteFile(filepath.Join(half, name), []byte("-----BEGIN"), 0o600))
		}
	}
	open(t, filepath.Join(data, "ca"))
	wantNames(t, data, "ca")
	wantNames(t, filepath.Join(data, "ca"), "ca-key.pem", "ca.pem")
}

// TestSignsServersOnly shows which certificates clients of the CA accept. They accept server
// certificates that the CA signed. They accept no certificate of another CA, even if the CA
// signed the other CA.
func TestSignsServersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ca")
		open(t, dir)
		pair := read(t, dir)
		ca := pair.Leaf
		if !ca.BasicConstraintsValid || !ca.IsCA || ca.MaxPathLen != 0 || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign {
			t.Errorf("CA: %v, path length %d, key usage %b", ca.IsCA, ca.MaxPathLen, ca.KeyUsage)
		}
		if years := time.Until(ca.NotAfter).Hours() / 24 / 365; years < 9.9 || years > 10.1 {
			t.Errorf("it is valid for %.1f years", years)
		}
		signed := func(template, parent *x509.Certificate, by any) (*x509.Certificate, *ecdsa.PrivateKey) {
			t.Helper()
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			must(t, err)
			template.SerialNumber, template.BasicConstraintsValid = big.NewInt(2), true
			template.NotBefore, template.NotAfter = time.Now(), time.Now().Add(day)
			der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
			must(t, err)
			cert, err := x509.ParseCertificate(der)
			must(t, err)
			return cert, key
		}
		for name, tt := range map[string]struct {
			usage x509.ExtKeyUsage
			ok    bool
		}{"server": {x509.ExtKeyUsageServerAuth, true}, "client": {x509.ExtKeyUsageClientAuth, false}, "code": {x509.ExtKeyUsageCodeSigning, false}} {
			cert, _ := signed(&x509.Certificate{DNSNames: []string{"a.example"}, ExtKeyUsage: []x509.ExtKeyUsage{tt.usage}}, ca, pair.PrivateKey)
			_, err := cert.Verify(x509.VerifyOptions{Roots: poolOf(ca), KeyUsages: []x509.ExtKeyUsage{tt.usage}})
			if (err == nil) != tt.ok {
				t.Errorf("a certificate for %s: %v", name, err)
			}
		}
		between, key := signed(&x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, ca, pair.PrivateKey)
		leaf, _ := signed(&x509.Certificate{DNSNames: []string{"a.example"}}, between, key)
		_, err := leaf.Verify(x509.VerifyOptions{Roots: poolOf(ca), Intermediates: poolOf(between)})
		if invalid := new(x509.CertificateInvalidError); !errors.As(err, invalid) || invalid.Reason != x509.TooManyIntermediates {
			t.Errorf("a certificate by another CA that it signed: %v", err)
		}
	})
}

func TestLeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ca")
		leaf := current(t, issue(t, open(t, dir), append(hosts, "0:0::2")))
		ca := read(t, dir).Leaf
		for _, h := range append(hosts, "::2") {
			if err := trusted(leaf, ca, h); err != nil {
				t.Error(err)
			}
		}
		for _, h := range []string{"example.com", "sub.gateway.example.com", "127.0.0.2", "registry.opentofu.org"} {
			if trusted(leaf, ca, h) == nil {
				t.Errorf("it is valid for %s", h)
			}
		}
		if leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
			t.Error("it is a CA")
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: poolOf(ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
			t.Error("it is valid for clients")
		}
		if lasts := time.Until(leaf.NotAfter); lasts != 90*day {
			t.Errorf("it is valid for %s", lasts)
		}
	})
}

// TestLeafIsRenewed shows in virtual time that a leaf is renewed before it expires.
func TestLeafIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ca")
		leaf := issue(t, open(t, dir), hosts)
		ca := read(t, dir).Leaf
		first := current(t, leaf)
		time.Sleep(60*day - time.Minute)
		if !current(t, leaf).Equal(first) {
			t.Error("it is renewed too early")
		}
		time.Sleep(time.Minute)
		second := current(t, leaf)
		if second.Equal(first) || time.Until(second.NotAfter) != 90*day || second.PublicKey.(*ecdsa.PublicKey).Equal(first.PublicKey) {
			t.Errorf("after 60 days it ends in %s", time.Until(second.NotAfter))
		}
		for range 9 * 12 { // nine years, month by month
			time.Sleep(30 * day)
			cert := current(t, leaf)
			if err := trusted(cert, ca, "localhost"); err != nil || time.Until(cert.NotAfter) < 30*day {
				t.Fatalf("at %s: ends at %s, %v", time.Now(), cert.NotAfter, err)
			}
		}
		// Near its own end, the CA signs only certificates that expire before the CA.
		time.Sleep(time.Until(ca.NotAfter.Add(-70 * day)))
		last := current(t, issue(t, open(t, dir), hosts))
		if !last.NotAfter.Equal(ca.NotAfter) {
			t.Errorf("it ends at %s, the CA at %s", last.NotAfter, ca.NotAfter)
		}
		wantNames(t, dir, "ca-key.pem", "ca.pem") // the leaf is not on disk
	})
}

// TestServes shows that a client that trusts only the CA's file can connect to a server with
// the leaf.
func TestServes(t *testing.T) {
	ca := open(t, filepath.Join(t.TempDir(), "ca"))
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	config := &tls.Config{GetCertificate: issue(t, ca, hosts).Get}
	// httptest adds its own certificate, which the server would otherwise use for
	// connections without SNI.
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return config, nil }}
	server.StartTLS()
	defer server.Close()
	pem, err := os.ReadFile(ca.File())
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(server.URL)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestNeverReplaced shows that Open never replaces a damaged or expired CA. Its error names
// the problem, its hint names the next step, and the files in the folder are unchanged.
func TestNeverReplaced(t *testing.T) {
	const remove = "clients have to trust"
	other, err := tlsca.New()
	must(t, err)
	server, err := other.Issue("localhost")
	must(t, err)
	later := filepath.Join(t.TempDir(), "ca") // the virtual time below begins in the year 2000
	open(t, later)
	for name, tt := range map[string]struct {
		damage func(t *testing.T, cert, key string)
		after  time.Duration
		want   string
		hint   string
	}{
		"key is missing":         {func(t *testing.T, _, key string) { must(t, os.Remove(key)) }, 0, "ca-key.pem", remove},
		"certificate is missing": {func(t *testing.T, cert, _ string) { must(t, os.Remove(cert)) }, 0, "ca.pem", remove},
		"both are missing":       {func(t *testing.T, cert, key string) { must(t, errors.Join(os.Remove(cert), os.Remove(key))) }, 0, "ca-key.pem", remove},
		"key is empty":           {func(t *testing.T, _, key string) { must(t, os.Truncate(key, 0)) }, 0, "PEM", remove},
		"certificate is cut off": {func(t *testing.T, cert, _ string) { must(t, os.Truncate(cert, 100)) }, 0, "PEM", remove},
		"key of another CA": {func(t *testing.T, _, key string) {
			elsewhere := filepath.Join(t.TempDir(), "ca")
			open(t, elsewhere)
			must(t, os.Rename(filepath.Join(elsewhere, "ca-key.pem"), key))
		}, 0, "does not match", remove},
		"two certificates": {func(t *testing.T, cert, _ string) {
			pem, err := os.ReadFile(cert)
			must(t, err)
			must(t, os.WriteFile(cert, append(pem, other.CertPEM()...), 0o600))
		}, 0, "more than one certificate", remove},
		"no CA": {func(t *testing.T, cert, key string) {
			must(t, errors.Join(os.WriteFile(cert, server.CertPEM, 0o600), os.WriteFile(key, server.KeyPEM, 0o600)))
		}, 0, "not that of a CA", remove},
		"not valid yet": {func(t *testing.T, cert, _ string) {
			must(t, errors.Join(os.RemoveAll(filepath.Dir(cert)), os.CopyFS(filepath.Dir(cert), os.DirFS(later))))
		}, 0, "not valid yet", "clock"},
		"expired":        {nil, 3660 * day, "it has expired", "clock"},
		"the day before": {nil, 3640 * day, "", ""},
		"a file in its place": {func(t *testing.T, cert, _ string) {
			must(t, errors.Join(os.RemoveAll(filepath.Dir(cert)), os.WriteFile(filepath.Dir(cert), nil, 0o600)))
		}, 0, "not a directory", remove},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "ca")
				open(t, dir)
				cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")
				if tt.damage != nil {
					tt.damage(t, cert, key)
				}
				content := func() (all []byte) {
					for _, name := range []string{cert, key} {
						b, err := os.ReadFile(name)
						all = append(all, fmt.Sprintf("%v %s", err, b)...)
					}
					return all
				}
				before := content()
				time.Sleep(tt.after) // virtual time
				_, err := localca.Open(dir, nil)
				if tt.want == "" {
					must(t, err)
				} else if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) || !strings.Contains(hint.Of(err), tt.hint) {
					t.Errorf("error %v, hint %q", err, hint.Of(err))
				}
				if !bytes.Equal(content(), before) {
					t.Error("the files have changed")
				}
			})
		})
	}
}

// TestCannotBeMade shows that Open fails for a path below a file.
func TestCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := localca.Open(filepath.Join(file, "ca"), nil); err == nil || !strings.Contains(hint.Of(err), "--data") {
		t.Errorf("error %v, hint %q", err, hint.Of(err))
	}
	ca := open(t, filepath.Join(t.TempDir(), "ca"))
	if _, err := ca.Issue(nil); err == nil || hint.Of(err) == "" {
		t.Errorf("a leaf for no host: %v", err)
	}
}
