package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/localca"
)

// certificates are the certificates with which a gateway speaks TLS, from files, an ACME issuer, or the local CA.
type certificates struct {
	acme     *issued       // nil unless the certificates come from an ACME issuer
	own      *localca.Leaf // nil unless the local CA signs the certificate
	settings config.TLS    // names the certificate files
	log      *slog.Logger

	current *files.Watched[*tls.Config]
}

// newCertificates begins to watch the files of the certificate, and the file with the authorities for client certificates.
func newCertificates(c certificates) (*certificates, error) {
	var names []string
	if c.settings.CertFile != "" {
		names = []string{c.settings.CertFile, c.settings.KeyFile}
	}
	if c.settings.ClientCAFile != "" {
		names = append(names, c.settings.ClientCAFile)
	}
	var err error
	if c.current, err = files.Watch(c.log, c.compile, names...); err != nil {
		return nil, explainFiles(err, c.settings.ClientCAFile)
	}
	return &c, nil
}

// compile creates a TLS configuration from the contents of the watched files.
func (c *certificates) compile(contents [][]byte) (*tls.Config, error) {
	out := serverConfig()
	switch {
	case c.settings.CertFile != "":
		cert, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, err
		}
		if ends := cert.Leaf.NotAfter; time.Now().After(ends) {
			c.log.Warn("the certificate has expired, so clients refuse it", "file", c.settings.CertFile, "expired", ends, "hint", "renew it: the gateway reads the files again when they change")
		}
		out.Certificates, contents = []tls.Certificate{cert}, contents[2:]
	case c.acme != nil:
		out.GetCertificate = c.acme.get
	default:
		out.GetCertificate = c.own.Get
	}
	if len(contents) == 0 {
		return out, nil
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(contents[0]) {
		return nil, fmt.Errorf("%s: %w", c.settings.ClientCAFile, errNoCertificate)
	}
	out.ClientCAs, out.ClientAuth = clients, tls.RequireAndVerifyClientCert
	return out, nil
}

// configFor returns the TLS configuration for a handshake.
func (c *certificates) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c.acme != nil && isChallenge(hello) {
		return c.acme.challengeConfig(), nil
	}
	return c.current.Get(), nil
}

// expires returns when the certificate in force expires. If there are several, it returns the earliest time, and if there
// is none, the zero time.
func (c *certificates) expires() time.Time {
	current := c.current.Get()
	if c.acme != nil {
		return c.acme.expires()
	}
	if c.own == nil {
		return current.Certificates[0].Leaf.NotAfter
	}
	cert, err := c.own.Get(nil)
	if err != nil {
		return time.Time{}
	}
	return cert.Leaf.NotAfter
}

var errNoCertificate = errors.New("there is no certificate in it")

// explainFiles adds to err a hint, and the names of the settings that name the unusable files.
func explainFiles(err error, clientCAFile string) error {
	missing, ok := errors.AsType[*fs.PathError](err)
	if errors.Is(err, errNoCertificate) || ok && missing.Path == clientCAFile {
		return hint.Wrap(fmt.Errorf("client_ca_file: %w", err), "it is a PEM file with the authorities of clients' certificates")
	}
	return hint.Wrap(fmt.Errorf("--tls-cert and --tls-key: %w", err), "both are PEM files, the certificate with its chain, the key without a passphrase")
}

// serverConfig returns a TLS configuration without certificates. The server prefers HTTP/1.1, over which net/http needs only
// half the CPU time to send an archive. If the gateway and its clients run on the same machine, HTTP/2 would delay the
// clients' init.
func serverConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1", "h2"}}
}

// speakTLS opens the certificates with which the site speaks TLS, unless it speaks plain HTTP.
func (s *site) speakTLS() error {
	t := s.settings.gateway().TLS
	c := certificates{settings: t, log: s.log}
	var err error
	switch {
	case s.settings.gateway().HTTP:
		return nil
	case t.CertFile != "":
	case t.ACME != nil && !t.SelfSigned:
		if c.acme, err = s.openACME(*t.ACME); err != nil {
			return err
		}
	default:
		data, err := s.settings.dataFolder()
		if err != nil {
			return err
		}
		if c.own, err = localCertificate(data, s.settings.hosts(s.address.URL.Hostname()), s.log); err != nil {
			return err
		}
		s.address.CAFile = c.own.CA().File()
	}
	s.certificates, err = newCertificates(c)
	return err
}

// localCertificate opens the local CA in the data folder, and returns a certificate that the CA signs for the given hosts.
func localCertificate(data string, hosts []string, log *slog.Logger) (*localca.Leaf, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(data, "ca")
	_, missing := os.Stat(dir)
	ca, err := localca.Open(dir, log)
	if err != nil {
		return nil, err
	}
	// Earlier versions kept a self-signed certificate, which clients trusted.
	selfSigned := filepath.Join(data, "tls", "cert.pem")
	if _, err := os.Stat(selfSigned); err == nil && missing != nil {
		log.Warn("the gateway no longer uses its self-signed certificate: clients have to trust the local CA instead",
			"file", selfSigned, "ca_file", ca.File(), "hint", "on clients, set SSL_CERT_FILE to "+ca.File()+" where it names the old file")
	}
	return ca.Issue(hosts)
}
