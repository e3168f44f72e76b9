// Package selfsigned makes the certificate of a gateway that is tried out: one
// that signs itself and nothing else, so that trusting it trusts no other host.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const (
	// validity stays below what macOS accepts of a certificate, 825 days.
	validity = 397 * 24 * time.Hour
	// renewal is how long before its end a certificate is made anew.
	renewal = 30 * 24 * time.Hour
)

// Certificate returns the certificate for the given host names and IP addresses,
// at least one, that is kept in dir, and the file that a client trusts it by. One
// that is missing, ends within a month or lacks a host is made anew.
func Certificate(dir string, hosts []string, now time.Time) (tls.Certificate, string, error) {
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if cert, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && usable(cert.Leaf, hosts, now) {
		return cert, certFile, nil
	}
	cert, err := renew(certFile, keyFile, hosts, now)
	if err != nil {
		return tls.Certificate{}, "", hint.Wrap(fmt.Errorf("self-signed certificate: %w", err), "--tls-cert and --tls-key name one of your own; --data, another folder to keep this one in")
	}
	return cert, certFile, nil
}

// renew makes a certificate and writes it and its key into their files.
func renew(certFile, keyFile string, hosts []string, now time.Time) (tls.Certificate, error) {
	certPEM, keyPEM, err := generate(hosts, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := os.MkdirAll(filepath.Dir(keyFile), 0o700); err != nil {
		return tls.Certificate{}, err
	}
	// The key first: a certificate without its key is made anew, too.
	if err := replace(keyFile, keyPEM, 0o600); err != nil {
		return tls.Certificate{}, err
	}
	if err := replace(certFile, certPEM, 0o644); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// replace puts a new file with the mode given in the place of an old one, whose
// mode and readers do not matter.
func replace(name string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // if it has not become the file
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), mode); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func usable(leaf *x509.Certificate, hosts []string, now time.Time) bool {
	if now.Add(renewal).After(leaf.NotAfter) || now.Before(leaf.NotBefore) {
		return false
	}
	for _, h := range hosts {
		if leaf.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

func generate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	if len(hosts) == 0 {
		return nil, nil, errors.New("no host to make it for")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: hosts[0], Organization: []string{"ocibridge self-signed"}},
		NotBefore:             now.Add(-time.Hour), // for clients whose clock is behind
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
