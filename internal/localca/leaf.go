package localca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
)

const leafValidity = 90 * 24 * time.Hour

// Leaf makes server certificates for host names and IP addresses, signed by its CA. Each
// handshake gets a new certificate with a new key, which exist only in memory. So no
// certificate expires while a gateway runs, even if the clock is changed. Methods may be
// called concurrently.
type Leaf struct {
	ca    *CA
	hosts []string
}

// Issue returns the leaf for host names and IP addresses, at least one. It signs a first
// certificate, so that an invalid name is an error.
func (ca *CA) Issue(hosts []string) (*Leaf, error) {
	if len(hosts) == 0 {
		return nil, hint.New("there is no host to sign a certificate for", "name one by --listen")
	}
	l := &Leaf{ca, hosts}
	_, err := l.Get(nil)
	return l, err
}

// CA returns the CA that signs the certificates.
func (l *Leaf) CA() *CA { return l.ca }

// Get creates a key and signs a certificate for it, for [tls.Config]. The certificate
// expires no later than the CA.
func (l *Leaf) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "ocibridge gateway", Organization: []string{"ocibridge"}},
		NotBefore:             now.Add(-margin),
		NotAfter:              slices.MinFunc([]time.Time{now.Add(leafValidity), l.ca.cert.NotAfter}, time.Time.Compare),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range l.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, l.ca.cert, key.Public(), l.ca.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
