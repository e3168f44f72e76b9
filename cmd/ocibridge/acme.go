package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/net/idna"

	"github.com/ocibridge/ocibridge/internal/config"
	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/internal/outgoing"
)

const (
	// acmeRetry is how long after a first failure an issuer is asked again; it
	// doubles up to acmeRetryMax. Issuers stop listening to those who fail often.
	acmeRetry    = 2 * time.Minute
	acmeRetryMax = time.Hour
	// acmeCheck is how often certificates are looked at that are there.
	acmeCheck = time.Hour
	// acmeTimeout bounds one request to the issuer.
	acmeTimeout = 30 * time.Second
)

// issued has the certificates that an ACME issuer gives, and keeps them current. No
// handshake waits for the issuer: a name whose certificate is not there yet has
// none.
type issued struct {
	manager *autocert.Manager
	domains []string // in ASCII; the first one is for clients that name none
	log     *slog.Logger

	once    sync.Once
	ended   context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	// kept are those of before the issuer is asked, by domain.
	kept map[string]*tls.Certificate

	mu    sync.Mutex
	there map[string]bool // by domain: the manager has it
}

const acmeCAHint = "it is a PEM file with the authorities of the issuer's own certificate"

// issueCertificates is for certificates that are kept in a folder, and issued from
// begin on. The issuer asks back over TLS on port 443 of the domains, and is
// answered through get. ca is what ca_file holds, if it is given.
func issueCertificates(c config.ACME, ca []byte, dir string, log *slog.Logger) (*issued, error) {
	if err := ownFolder(dir); err != nil {
		return nil, err
	}
	transport := outgoing.Transport()
	if c.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, hint.New(fmt.Sprintf("ca_file of the acme block: %s: %v", c.CAFile, errNoCertificate), acmeCAHint)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	i := &issued{log: log, there: map[string]bool{}, kept: map[string]*tls.Certificate{}}
	i.ended, i.end = context.WithCancel(context.Background())
	for _, d := range c.Domains {
		name, err := idna.Lookup.ToASCII(d)
		if err != nil {
			return nil, hint.New(fmt.Sprintf("acme: %q is no name of a host", d), "write names as clients have them in URLs")
		}
		i.domains = append(i.domains, name)
		if cert := keptCertificate(dir, name); cert != nil {
			i.kept[name] = cert
		}
	}
	i.manager = &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(dir), HostPolicy: autocert.HostWhitelist(i.domains...), Email: c.Email,
		Client: &acme.Client{
			DirectoryURL: c.DirectoryURL, UserAgent: userAgent(),
			// The manager goes on renewing for as long as the process runs; this ends it.
			HTTPClient: &http.Client{Transport: &orders{RoundTripper: transport, ended: i.ended, known: map[string]string{}}, Timeout: acmeTimeout},
		},
	}
	return i, nil
}

// keptCertificate returns the certificate of a domain that is in the folder, nil if
// none is that is good now. With it, who comes right after a start or a change of
// settings is answered.
func keptCertificate(dir, domain string) *tls.Certificate {
	data, err := readBounded(filepath.Join(dir, domain)) // key and chain, as the manager writes them
	if err != nil {
		return nil
	}
	cert, err := tls.X509KeyPair(data, data)
	if now := time.Now(); err != nil || cert.Leaf.VerifyHostname(domain) != nil || now.Before(cert.Leaf.NotBefore) || now.After(cert.Leaf.NotAfter) {
		return nil
	}
	return &cert
}

// begin asks the issuer for what is not there, from now on, when it can ask back.
func (i *issued) begin() {
	i.once.Do(func() {
		for _, d := range i.domains {
			i.running.Go(func() { i.keep(d) })
		}
	})
}

// ownFolder makes a folder for the keys of certificates, or refuses one that others
// may look into.
func ownFolder(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(dir)
	}
	if err != nil {
		return hint.Wrap(fmt.Errorf("acme: the folder for certificates: %w", err), "name one that the user who runs this may write to, as directory in the acme block")
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return hint.New(fmt.Sprintf("acme: others may use %s, its mode being %04o", dir, mode), "it holds the keys of certificates: chmod 700 %s", dir)
	}
	return nil
}

// Close ends the renewal of certificates.
func (i *issued) Close() error {
	i.end()
	i.running.Wait()
	return nil
}

// keep has the certificate of a domain issued, and looks after it.
func (i *issued) keep(domain string) {
	pause := acmeRetry
	told := time.Time{} // until when that certificate is good
	for {
		wait := acmeCheck
		cert, err := i.obtain(domain)
		switch {
		case i.ended.Err() != nil:
			return
		case err != nil:
			i.log.Error("no certificate for a domain", "domain", domain, "err", hint.OneLine(err.Error()), "hint", acmeHint(err, domain), "again_in", pause)
			wait, pause = pause, min(2*pause, acmeRetryMax)
		default:
			pause = acmeRetry
			leaf := cert.Leaf
			if !leaf.NotAfter.Equal(told) {
				i.log.Info("certificate for a domain is in force", "domain", domain, "until", leaf.NotAfter)
				told = leaf.NotAfter
			}
			if left := time.Until(leaf.NotAfter); left < leaf.NotAfter.Sub(leaf.NotBefore)/5 {
				i.log.Warn("the certificate for a domain ends soon, and could not be renewed yet", "domain", domain, "in", left.Round(time.Minute), "hint", acmeHint(nil, domain))
			}
		}
		select {
		case <-i.ended.Done():
			return
		case <-time.After(wait):
		}
	}
}

// obtain returns the certificate of a domain, which may take the issuer.
func (i *issued) obtain(domain string) (*tls.Certificate, error) {
	done := make(chan struct{})
	var cert *tls.Certificate
	var err error
	go func() {
		defer close(done)
		cert, err = i.manager.GetCertificate(helloFor(domain))
	}()
	select {
	case <-done:
	case <-i.ended.Done(): // it has no context of its own
		return nil, i.ended.Err()
	}
	if err == nil {
		i.mu.Lock()
		i.there[domain] = true
		i.mu.Unlock()
	}
	return cert, err
}

// helloFor is that of a client for which the manager has an ECDSA certificate, as
// all have that speak to a gateway.
func helloFor(domain string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: domain, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
}

// acmeHint says what to look at.
func acmeHint(err error, domain string) string {
	var refused *acme.Error
	var challenge *acme.AuthorizationError
	switch {
	case errors.As(err, &challenge):
		return fmt.Sprintf("the issuer asks back over TLS on port 443 of %s: does the name lead here, and does nothing on the way end TLS?", domain)
	case errors.As(err, &refused) && refused.StatusCode == http.StatusTooManyRequests:
		return "the issuer has been asked too often: it says when to try again"
	case errors.As(err, &refused):
		return "the issuer refuses: are domains and email as it wants them?"
	}
	return "can the issuer at directory_url be reached from here, and is its certificate trusted? ca_file in the acme block names its authorities"
}

// isChallenge reports whether it is the issuer that asks back.
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto})
}

// get returns the certificate for a handshake. A client that names no
// host, such as a probe by address, gets the certificate of the first domain.
func (i *issued) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if isChallenge(hello) {
		return i.manager.GetCertificate(hello)
	}
	name := i.domains[0]
	if hello.ServerName != "" {
		var err error
		if name, err = idna.Lookup.ToASCII(strings.TrimSuffix(hello.ServerName, ".")); err != nil {
			return nil, errors.New("the name of the host is none")
		}
	}
	i.mu.Lock()
	there := i.there[name]
	i.mu.Unlock()
	switch kept := i.kept[name]; {
	case !there && kept != nil:
		return kept, nil
	case !there:
		return nil, fmt.Errorf("there is no certificate for %q", name)
	}
	return i.manager.GetCertificate(helloFor(name))
}

// challengeConfig is how TLS is spoken to the issuer that asks back, which has no
// certificate of its own to show.
func (i *issued) challengeConfig() *tls.Config {
	return &tls.Config{GetCertificate: i.get, MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto}}
}

// acmeFolder returns the folder for certificates. It narrows the default folder if
// other users can use it. The folder that the configuration names is the user's own:
// ownFolder refuses it instead.
func (f *serveFlags) acmeFolder(c *config.ACME, log *slog.Logger) (string, error) {
	if c.Directory != "" {
		return c.Directory, nil
	}
	dir, err := f.dataDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "acme")
	return dir, f.keepPrivate(dir, log)
}
