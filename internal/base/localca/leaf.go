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
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

const (
	leafValidity = 90 * 24 * time.Hour
	// leafAge is the age at which a leaf is renewed. The difference to leafValidity is
	// for clients with a fast clock.
	leafAge = 60 * 24 * time.Hour
)

// Leaf is a server certificate that is signed by a [CA]. [Leaf.Get] renews the
// certificate before it expires. Each renewal creates a new key, which exists only in
// memory. Methods may be called concurrently.
type Leaf struct {
	ca    *CA
	hosts []string

	mu      sync.Mutex
	current *tls.Certificate
}

// Issue signs a certificate for the given host names and IP addresses. There must be at
// least one.
func (ca *CA) Issue(hosts []string) (*Leaf, error) {
	if len(hosts) == 0 {
		return nil, hint.New("there is no host to sign a certificate for", "name one by --listen")
	}
	l := &Leaf{ca: ca, hosts: hosts}
	_, err := l.Get(nil)
	return l, err
}

// CA returns the CA that signs the certificate.
func (l *Leaf) CA() *CA { return l.ca }

// Get returns the certificate, and can be the GetCertificate function of a [tls.Config].
// It renews the certificate after 60 days. It also renews a certificate that is not valid
// yet, which happens if the clock was set back.
func (l *Leaf) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.current != nil && fresh(l.current.Leaf, now) {
		return l.current, nil
	}
	made, err := l.ca.sign(l.hosts, now)
	if err != nil {
		return nil, err
	}
	l.current = made
	return made, nil
}

func fresh(leaf *x509.Certificate, now time.Time) bool {
	return !now.Before(leaf.NotBefore) && now.Before(leaf.NotBefore.Add(margin+leafAge))
}

// sign creates a key and signs a certificate for the key. The certificate expires no
// later than the CA.
func (ca *CA) sign(hosts []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "ocibridge gateway", Organization: []string{"ocibridge"}},
		NotBefore:             now.Add(-margin),
		NotAfter:              slices.MinFunc([]time.Time{now.Add(leafValidity), ca.cert.NotAfter}, time.Time.Compare),
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
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
