package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/net/idna"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/base/panics"
	"github.com/ocibridge/ocibridge/internal/base/privatefolder"
)

const (
	// acmeRetry is the pause after the first failed request for a certificate. The pause doubles with each further failure,
	// up to acmeRetryMax, because issuers limit the failures of a client.
	acmeRetry    = 2 * time.Minute
	acmeRetryMax = time.Hour
	acmeCheck    = time.Hour        // how often an existing certificate is checked
	acmeTimeout  = 30 * time.Second // the maximum time of one request to the issuer
)

// issued holds certificates from an ACME issuer, and renews them. No handshake waits for the issuer. A handshake fails if
// there is no certificate for the requested host name.
type issued struct {
	manager *autocert.Manager
	domains []string // in ASCII; clients that send no name get the certificate of the first domain
	log     *slog.Logger

	once    sync.Once
	ended   context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	ready sync.Map // maps a domain with a certificate, in the manager or in its folder, to the time when the certificate expires
}

const acmeCAHint = "it is a PEM file with the authorities of the issuer's own certificate"

// issueCertificates prepares the certificates of an acme block, which are stored in the folder dir. [issued.begin] requests
// them from the issuer. To validate a domain, the issuer connects to port 443 of the domain over TLS. [issued.get] returns
// the certificate for this connection. ca is the content of ca_file, or nil without that argument.
func issueCertificates(c config.ACME, ca []byte, dir, userAgent string, log *slog.Logger) (*issued, error) {
	if err := ownFolder(dir); err != nil {
		return nil, err
	}
	transport := outgoing.Transport()
	if c.CAFile != "" {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if !outgoing.Trust(transport, ca) {
			return nil, hint.New(fmt.Sprintf("ca_file of the acme block: %s: %v", c.CAFile, errNoCertificate), acmeCAHint)
		}
	}
	i := &issued{log: log}
	i.ended, i.end = context.WithCancel(context.Background())
	for _, d := range c.Domains {
		name, err := idna.Lookup.ToASCII(d)
		if err != nil {
			return nil, hint.New(fmt.Sprintf("acme: %q is no name of a host", d), "write names as clients have them in URLs")
		}
		i.domains = append(i.domains, name)
		if expires, ok := storedCertificate(dir, name); ok {
			i.ready.Store(name, expires)
		}
	}
	i.manager = &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(dir), HostPolicy: autocert.HostWhitelist(i.domains...), Email: c.Email,
		Client: &acme.Client{
			DirectoryURL: c.DirectoryURL, UserAgent: userAgent,
			// The manager has no method that stops it. After [issued.Close], the transport refuses its requests.
			HTTPClient: &http.Client{Transport: newOrders(i.ended, transport), Timeout: acmeTimeout},
		},
	}
	return i, nil
}

// storedCertificate reports whether the folder contains a currently valid certificate for a domain, and when it expires. The
// manager reads this certificate from the folder, so handshakes succeed immediately after a start or a reload.
func storedCertificate(dir, domain string) (expires time.Time, ok bool) {
	data, err := files.Read(filepath.Join(dir, domain)) // key and chain, as the manager writes them
	if err != nil {
		return time.Time{}, false
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil {
		return time.Time{}, false
	}
	now := time.Now()
	return cert.Leaf.NotAfter, cert.Leaf.VerifyHostname(domain) == nil && !now.Before(cert.Leaf.NotBefore) && !now.After(cert.Leaf.NotAfter)
}

// expires returns when the first certificate expires, or the zero time if there is none.
func (i *issued) expires() (first time.Time) {
	i.ready.Range(func(_, expires any) bool {
		if t := expires.(time.Time); first.IsZero() || t.Before(first) {
			first = t
		}
		return true
	})
	return first
}

// begin requests missing certificates, and starts to renew all certificates. The gateway must already listen, because
// the issuer connects to it.
func (i *issued) begin() {
	i.once.Do(func() {
		for _, d := range i.domains {
			i.running.Go(func() { i.keep(d) })
		}
	})
}

// ownFolder creates a folder for the keys of certificates. It refuses an existing folder if other users have access to it,
// or could replace it. Windows has no permission bits.
func ownFolder(dir string) error {
	if err := privatefolder.MakeAsIs(dir); err != nil {
		return hint.Wrap(fmt.Errorf("acme: the folder for certificates: %w", err), "name a folder that the gateway's user may write to, as directory in the acme block")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return hint.New(fmt.Sprintf("other users can use %s: its mode is %04o", dir, mode), "it holds the keys of certificates: chmod 700 %s", dir)
	}
	return nil
}

// Close stops the renewal of certificates.
func (i *issued) Close() error {
	i.end()
	i.running.Wait()
	return nil
}

// keep obtains the certificate of a domain, and then checks it every hour.
func (i *issued) keep(domain string) {
	pause := acmeRetry
	logged := time.Time{} // the expiry time that was last logged
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
			if !leaf.NotAfter.Equal(logged) {
				i.log.Info("certificate for a domain is in force", "domain", domain, "until", leaf.NotAfter)
				logged = leaf.NotAfter
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

// obtain returns the certificate of a domain, from the issuer if necessary.
func (i *issued) obtain(domain string) (*tls.Certificate, error) {
	done := make(chan struct{})
	var cert *tls.Certificate
	var err error
	go func() {
		defer close(done)
		err = panics.Catch(i.ended, i.log, func() (err error) {
			cert, err = i.manager.GetCertificate(helloFor(domain))
			return err
		})
	}()
	select {
	case <-done:
	case <-i.ended.Done(): // GetCertificate takes no context, and cannot be cancelled
		return nil, i.ended.Err()
	}
	if err == nil {
		i.ready.Store(domain, cert.Leaf.NotAfter)
	}
	return cert, err
}

// helloFor returns a ClientHello for a domain. It makes the manager choose an ECDSA certificate, which every client of a
// gateway supports.
func helloFor(domain string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: domain, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
}

// acmeHint returns the hint for err, the error of a request for a certificate of the domain. err is nil if a certificate
// expires soon and has not been renewed.
func acmeHint(err error, domain string) string {
	refused, ok := errors.AsType[*acme.Error](err)
	switch {
	case errors.As(err, new(*acme.AuthorizationError)):
		return fmt.Sprintf("the issuer asks back over TLS on port 443 of %s: does the name lead here, and does nothing on the way end TLS?", domain)
	case ok && refused.StatusCode == http.StatusTooManyRequests:
		return "the issuer has been asked too often: it says when to try again"
	case ok:
		return "the issuer refuses: are domains and email as it wants them?"
	}
	return "can the issuer at directory_url be reached from here, and is its certificate trusted? ca_file in the acme block names its authorities"
}

// isChallenge reports whether the issuer started the handshake, to validate a domain.
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto})
}

// get returns the certificate for a handshake. A client that sends no host name, such as a probe that connects to an IP
// address, gets the certificate of the first domain.
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
	if _, ready := i.ready.Load(name); !ready {
		return nil, fmt.Errorf("there is no certificate for %q", name)
	}
	return i.manager.GetCertificate(helloFor(name))
}

// challengeConfig returns the configuration for handshakes with the issuer, which has no client certificate.
func (i *issued) challengeConfig() *tls.Config {
	return &tls.Config{GetCertificate: i.get, MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto}}
}

// openACME prepares the certificates of an acme block. If neither the block nor ca_file has changed, the site shares the
// certificates with the previous site.
func (s *site) openACME(c config.ACME) (*issued, error) {
	dir, err := s.acmeFolder(c)
	if err != nil {
		return nil, err
	}
	var ca []byte
	if c.CAFile != "" {
		if ca, err = s.settings.files.ReadFile(c.CAFile); err != nil {
			return nil, hint.Wrap(fmt.Errorf("ca_file of the acme block: %w", err), acmeCAHint)
		}
	}
	type key struct{ acme string }
	return shared(s, key{fmt.Sprintf("%q %+v %s", dir, c, ca)}, func() (*issued, error) {
		return issueCertificates(c, ca, dir, "ocibridge/"+s.version, s.log)
	})
}

// acmeFolder returns the folder for certificates. It removes the permissions of other users from the default folder.
// ownFolder refuses a folder that the configuration names if other users have access to it.
func (s *site) acmeFolder(c config.ACME) (string, error) {
	if c.Directory != "" {
		return c.Directory, nil
	}
	data, err := s.settings.dataFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(data, "acme")
	return dir, privatefolder.MakeBelow(data, dir, s.log)
}

// maxACMEDocument is the maximum size in bytes of an issuer's response. The longest responses are certificate chains.
const maxACMEDocument = 1 << 20

// orders sends requests to an ACME issuer until a context ends. If a response about a known order lacks the Location header,
// orders adds the header. RFC 8555, section 7.4, does not require this header in the response to a finalize request, but
// package acme does.
type orders struct {
	http.RoundTripper
	ended context.Context
	known *lru.Cache[string, string] // the URLs of orders, by their finalize URLs
}

// maxOrders is the maximum number of orders that are remembered. Each domain has one order.
const maxOrders = 1000

func newOrders(ended context.Context, transport http.RoundTripper) *orders {
	known, _ := lru.New[string, string](maxOrders) // returns an error only for sizes below 1
	return &orders{transport, ended, known}
}

func (o *orders) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := o.ended.Err(); err != nil {
		return nil, err
	}
	resp, err := o.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := document.ReadAll(resp.Body, maxACMEDocument)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL.Redacted(), err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var order struct {
		Finalize string `json:"finalize"`
	}
	if json.Unmarshal(body, &order) != nil || order.Finalize == "" {
		return resp, nil
	}
	if at := resp.Header.Get("Location"); at != "" {
		o.known.Add(order.Finalize, at)
	} else if at, ok := o.known.Get(order.Finalize); ok {
		resp.Header.Set("Location", at)
	}
	return resp, nil
}
