package wire

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// Settings are the settings of one registry, from a registry block. The zero value changes
// nothing.
//
// PlainHTTP, InsecureSkipVerify, ClientCert, Timeout and the limits apply to the
// registry's own host and port. CAs also apply to the hosts that the registry refers to,
// such as token servers and storage, unless they have settings of their own.
type Settings struct {
	PlainHTTP          bool             // send requests and credentials over plain HTTP
	InsecureSkipVerify bool             // accept any certificate of the registry, and log a warning
	CAs                []byte           // a PEM bundle of certificate authorities to trust in addition to the system's
	ClientCert         *tls.Certificate // presented if the registry requests a client certificate

	// RequestsPerSecond limits the rate of requests, including retries. A burst may
	// contain the requests of one second. 0 means no limit.
	RequestsPerSecond float64
	// MaxConcurrent limits the number of concurrent requests. A request counts until the
	// body of its response is closed. 0 means no limit.
	MaxConcurrent int
	// Timeout limits the time for connecting, and the time until a response begins. 0
	// means 10 s for connecting, and [DefaultTimeout] until a response begins.
	Timeout time.Duration

	// The next two settings are for callers, which get them from [Connections.Settings].
	// DeniedMeansAbsent says that the registry also responds "denied" for a repository that
	// does not exist. RedirectsBlobs says that the registry's redirects for blobs may be passed
	// on to clients; see [Connections.BlobRedirect].
	DeniedMeansAbsent, RedirectsBlobs bool

	Origin string // "FILE:LINE", for messages
}

// DefaultTimeout is the default limit of the time until a response begins.
const DefaultTimeout = 60 * time.Second

// Validate returns an error if the name of the registry or one of its settings is invalid.
func (s Settings) Validate(r ociaddr.Registry) error {
	block := fmt.Sprintf("the registry block %q%s", r, s.At())
	switch _, err := ociaddr.ParseRegistry(string(r)); {
	case err != nil:
		return hint.Wrap(fmt.Errorf("%s: %w", block, err), "label it with the registry's host, such as harbor.example.com:8443")
	case s.CAs != nil && !x509.NewCertPool().AppendCertsFromPEM(s.CAs):
		return hint.New(block+": ca_file holds no certificate", "it is a PEM file with BEGIN CERTIFICATE lines")
	case s.ClientCert != nil && len(s.ClientCert.Certificate) == 0:
		return hint.New(block+": client_cert_file holds no certificate", "it is a PEM file with BEGIN CERTIFICATE lines")
	case !(s.RequestsPerSecond >= 0) || math.IsInf(s.RequestsPerSecond, 0) || s.MaxConcurrent < 0 || s.Timeout < 0:
		return hint.New(block+": requests_per_second, max_concurrent or timeout is negative or no number", "leave it out for no bound of your own")
	}
	return nil
}

// At returns " at FILE:LINE", or "" if the origin is unknown.
func (s Settings) At() string {
	if s.Origin == "" {
		return ""
	}
	return " at " + s.Origin
}

// changesTransport reports whether the settings require a separate transport.
func (s Settings) changesTransport() bool {
	return s.InsecureSkipVerify || s.CAs != nil || s.ClientCert != nil || s.Timeout > 0
}
