// Package localca manages the CA of a gateway that has no configured certificate.
//
// A folder holds one CA: its certificate, which clients trust, and its key, which only its owner can read. [Open] creates
// the CA if the folder does not exist. A crash never leaves an incomplete CA in the folder. If several processes start
// concurrently, one creates the CA and all use it. No process ever replaces a CA. If it is damaged or has expired, Open
// fails.
//
// The CA signs only server certificates. It has no name constraints, because the names of the gateway may change with each
// start. [CA.Issue] signs a [Leaf], which stays in memory.
package localca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

const (
	certName = "ca.pem"
	keyName  = "ca-key.pem"
	// tempPrefix begins the name of the temporary folder for an unfinished CA, next to the CA's folder.
	tempPrefix = ".ca-"

	years  = 10        // the lifetime of a CA
	margin = time.Hour // how much earlier than its creation a certificate is valid, for clients with a slow clock
)

var (
	errNoCA    = errors.New("its certificate is not that of a CA")
	errChain   = errors.New("it holds more than one certificate")
	errNotYet  = errors.New("it is not valid yet")
	errExpired = errors.New("it has expired")
)

// CA is the CA in a folder. Methods may be called concurrently.
type CA struct {
	cert *x509.Certificate
	key  crypto.PrivateKey
	file string
}

// Open returns the CA in a folder. It creates the CA if the folder does not exist.
//
// If other users have access to the folder or to the file with the key, Open removes their access and logs a warning,
// unless log is nil.
func Open(dir string, log *slog.Logger) (*CA, error) {
	if err := makeOnce(dir); err != nil {
		return nil, hint.Wrap(fmt.Errorf("make a local CA: %w", err), "name another data folder by --data, or a certificate of your own by --tls-cert and --tls-key")
	}
	ca, err := open(dir, log)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("local CA in %s: %w", dir, err), "%s", help(err, dir))
	}
	sweep(filepath.Dir(dir))
	return ca, nil
}

// File returns the path of the PEM file with the CA's certificate, for clients.
func (ca *CA) File() string { return ca.file }

// Certificate returns the CA's certificate, in PEM.
func (ca *CA) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// makeOnce creates the folder of a CA if the folder does not exist.
func makeOnce(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	failed := create(dir)
	if _, err := os.Stat(dir); err == nil {
		return nil // this process or another process has created the CA
	}
	return failed
}

// create creates a CA in a temporary folder, and renames that folder to dir. It fails if another process was faster.
func create(dir string) error {
	parent := filepath.Dir(dir)
	if err := privatefolder.MakeAsIs(parent); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, tempPrefix+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // has no effect if the folder was renamed
	certPEM, keyPEM, err := generate(time.Now())
	if err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o700); err != nil { // MkdirTemp applies the umask
		return err
	}
	if err := write(filepath.Join(temp, keyName), keyPEM, 0o600); err != nil {
		return err
	}
	if err := write(filepath.Join(temp, certName), certPEM, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, dir)
}

// write creates a file with exactly the given mode, independently of the umask. It syncs the file to disk.
func write(name string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// sweep removes the temporary folders of processes that crashed. It is called when the CA exists, so a process that is
// still creating another CA no longer needs its temporary folder.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent) // after an error, the next start tries again
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), tempPrefix) {
			os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

// generate creates a CA that signs only server certificates.
func generate(now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		// The random text distinguishes the CAs of several data folders in a client's trust store.
		Subject:               pkix.Name{CommonName: "ocibridge local CA " + rand.Text()[:8], Organization: []string{"ocibridge"}},
		NotBefore:             now.Add(-margin),
		NotAfter:              now.AddDate(years, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
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

// open removes the access of other users to the folder, reads the CA, and checks the CA.
func open(dir string, log *slog.Logger) (*CA, error) {
	ca := &CA{file: filepath.Join(dir, certName)}
	keyFile := filepath.Join(dir, keyName)
	if err := privatefolder.Make(dir, log); err != nil {
		return nil, err
	}
	if err := privatefolder.NarrowFile(keyFile, log); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(ca.file, keyFile)
	if err != nil {
		return nil, err
	}
	ca.cert, ca.key = pair.Leaf, pair.PrivateKey
	switch now := time.Now(); {
	case len(pair.Certificate) > 1:
		return nil, errChain
	case !ca.cert.IsCA || ca.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errNoCA
	case now.Before(ca.cert.NotBefore):
		return nil, fmt.Errorf("%w: it begins at %s", errNotYet, ca.cert.NotBefore.Format(time.RFC3339))
	case now.After(ca.cert.NotAfter):
		return nil, fmt.Errorf("%w: it ended at %s", errExpired, ca.cert.NotAfter.Format(time.RFC3339))
	}
	return ca, nil
}

// help returns the hint for an error of open.
func help(err error, dir string) string {
	const again = "serve then makes another CA, which clients have to trust"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "run serve as the user that this folder belongs to"
	case errors.Is(err, errNotYet), errors.Is(err, errExpired):
		return "check this machine's clock. If it is right, remove " + dir + ": " + again
	}
	return "restore " + dir + " from a backup, or remove it: " + again
}

const (
	leafValidity = 90 * 24 * time.Hour
	// leafAge is the age at which a leaf is renewed. The rest of leafValidity is for clients with a fast clock.
	leafAge = 60 * 24 * time.Hour
)

// Leaf is a server certificate that is signed by a [CA]. [Leaf.Get] renews it before it expires, with a new key, which
// exists only in memory. Methods may be called concurrently.
type Leaf struct {
	ca    *CA
	hosts []string

	mu      sync.Mutex
	current *tls.Certificate
}

// Issue signs a certificate for the given host names and IP addresses. There must be at least one.
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

// Get returns the certificate, and can be the GetCertificate function of a [tls.Config]. It renews the certificate after 60
// days, and if it is not valid yet, because the clock was set back.
func (l *Leaf) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.current != nil && fresh(l.current.Leaf, now) {
		return l.current, nil
	}
	made, err := l.ca.sign(l.hosts, now)
	if err == nil {
		l.current = made
	}
	return made, err
}

func fresh(leaf *x509.Certificate, now time.Time) bool {
	return !now.Before(leaf.NotBefore) && now.Before(leaf.NotBefore.Add(margin+leafAge))
}

// sign creates a key and signs a certificate for the key. The certificate expires no later than the CA.
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
