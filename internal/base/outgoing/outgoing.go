// Package outgoing creates the HTTP transports for the program's requests, and returns hints for the failures of
// proxies. It reads the proxy variables as net/http does. A test in internal/test/depcheck ensures that no other package of
// the product creates transports.
package outgoing

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
)

// FirstByte is the value of the Range header in a GET that checks whether a blob
// exists.
const FirstByte = "bytes=0-0"

// maxHeader is the maximum size in bytes of the headers of one response. The default of
// net/http is 10 MiB. The longest headers of registries contain the URL of a redirect and
// have less than 16 KiB.
const maxHeader = 64 << 10

// Transport returns a copy of [http.DefaultTransport] with its own connections. A request
// fails if the headers of its response have more than 64 KiB, in HTTP/1 and in HTTP/2. If a
// proxy refuses a connection, the error is a [ProxyError] with a hint. A request also fails
// if the variable that names its proxy does not contain a URL. Clones of the transport
// behave in the same way. The caller may change the transport before the first request.
func Transport() *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if ok {
		t = t.Clone()
	} else {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	if t.Proxy != nil {
		t.Proxy = checkVariable(t.Proxy)
	}
	t.OnProxyConnectResponse = connected
	t.MaxResponseHeaderBytes = maxHeader
	return t
}

// Trust makes the transport t trust the certificates in a PEM bundle, in addition to the
// authorities that t trusts already. These are the system's authorities if t names none. It
// does nothing if pem is nil, and reports whether pem contains a certificate otherwise. It must
// be called before the first request.
func Trust(t *http.Transport, pem []byte) bool {
	if pem == nil {
		return true
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{}
	}
	pool := t.TLSClientConfig.RootCAs
	if pool != nil {
		pool = pool.Clone()
	} else if system, err := x509.SystemCertPool(); err == nil {
		pool = system
	} else {
		pool = x509.NewCertPool() // the system has no trust store
	}
	t.TLSClientConfig.RootCAs = pool
	return pool.AppendCertsFromPEM(pem)
}
