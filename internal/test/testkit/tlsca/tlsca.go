// Package tlsca creates a temporary certificate authority, and certificates for servers on the loopback
// interface.
//
// The certificates are valid from one hour before their creation until 24 hours after it.
package tlsca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// A CA is a certificate authority.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A Cert is the certificate of a server or client, with the private key. Both are in PEM.
type Cert struct {
	CertPEM, KeyPEM []byte
}

// New creates an authority.
func New() (*CA, error) {
	template := template("ocibridge test authority")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	cert, key, err := create(template, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	return &CA{cert, key}, nil
}

// For is like [New], but fails the test if there is an error.
func For(tb testkit.TB) *CA {
	tb.Helper()
	ca, err := New()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return ca
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(24 * time.Hour),
	}
}

// create creates a key, and a certificate for it. The authority ca signs the certificate. If ca is nil, the
// certificate is self-signed.
func create(template *x509.Certificate, ca *CA) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if ca == nil {
		ca = &CA{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

// Issue creates a server certificate for localhost, 127.0.0.1, ::1 and the given names.
func (ca *CA) Issue(names ...string) (*Cert, error) {
	template := template("ocibridge test server")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = append([]string{"localhost"}, names...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return ca.issue(template)
}

// IssueClient creates a client certificate with the given common name.
func (ca *CA) IssueClient(name string) (*Cert, error) {
	template := template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.issue(template)
}

func (ca *CA) issue(template *x509.Certificate) (*Cert, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	cert, key, err := create(template, ca)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	return &Cert{
		CertPEM: encode("CERTIFICATE", cert.Raw),
		KeyPEM:  encode("PRIVATE KEY", der),
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// CertPEM returns the certificate of the authority. Clients must trust this certificate.
func (ca *CA) CertPEM() []byte { return encode("CERTIFICATE", ca.cert.Raw) }

// CertPool returns a pool that contains only this authority.
func (ca *CA) CertPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// WriteFile writes the authority's certificate into a file in dir, and returns the file's path.
func (ca *CA) WriteFile(dir string) (string, error) {
	path := filepath.Join(dir, "ca.pem")
	return path, os.WriteFile(path, ca.CertPEM(), 0o644)
}

// ServerConfig issues a server certificate for the names, as [CA.Issue] does. It returns a TLS configuration
// with this certificate.
func (ca *CA) ServerConfig(names ...string) (*tls.Config, error) {
	cert, err := ca.Issue(names...)
	if err != nil {
		return nil, err
	}
	return cert.Config()
}

// HTTPClient returns a client that trusts only this authority. The client shares no connections with other
// clients. The caller must close its idle connections.
func (ca *CA) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: ca.CertPool()},
		ForceAttemptHTTP2: true,
	}}
}

// Get returns the body of a successful response. The client trusts only the authorities in a PEM file.
func Get(ctx context.Context, caFile, url string) ([]byte, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// Config returns a TLS configuration for a server that uses the certificate.
func (c *Cert) Config() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(c.CertPEM, c.KeyPEM)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// WriteFiles writes the certificate and the key into files in dir, and returns the paths of the files.
func (c *Cert) WriteFiles(dir string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, "tls.pem"), filepath.Join(dir, "tls.key")
	if err := os.WriteFile(certFile, c.CertPEM, 0o644); err != nil {
		return "", "", err
	}
	return certFile, keyFile, os.WriteFile(keyFile, c.KeyPEM, 0o600)
}
