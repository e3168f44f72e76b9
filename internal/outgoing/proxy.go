package outgoing

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/ocibridge/ocibridge/internal/hint"
)

// ProxyError is a proxy's refusal to connect a request to its host.
type ProxyError struct {
	Proxy  string // HOST:PORT, without a user and password
	Status int
}

func (e *ProxyError) Error() string {
	return fmt.Sprintf("proxy %s answered %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
}

// checkVariable wraps [http.ProxyFromEnvironment]. It fails if the variable holds no URL; net/http would then
// send the request without a proxy. The error does not reveal the value, which may contain a password.
func checkVariable(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(req *http.Request) (*url.URL, error) {
		name := variable(req.URL)
		if value := os.Getenv(name); value != "" && !isProxyURL(value) && wantsProxy(req.URL) {
			return nil, hint.New(name+" does not hold the URL of a proxy",
				"write %s as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, with %%XX for each special character of the password, %s", name, bypass(req.URL))
		}
		return proxy(req)
	}
}

// isProxyURL reports whether net/http can read a variable's value: a URL, or HOST:PORT.
func isProxyURL(value string) bool {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		u, err = url.Parse("http://" + value)
	}
	return err == nil && u.Hostname() != "" && !strings.HasSuffix(u.Host, ":")
}

// wantsProxy reports whether requests for a URL use a proxy: NO_PROXY can exclude the
// URL.
func wantsProxy(to *url.URL) bool {
	c := httpproxy.FromEnvironment()
	c.HTTPProxy, c.HTTPSProxy, c.CGI = "any.example", "any.example", false
	proxy, err := c.ProxyFunc()(to)
	return proxy != nil && err == nil
}

// connected checks a proxy's answer to a CONNECT request.
func connected(_ context.Context, proxy *url.URL, req *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	to := &url.URL{Scheme: "https", Host: req.Host}
	err := &ProxyError{proxy.Host, resp.StatusCode}
	if resp.StatusCode == http.StatusProxyAuthRequired {
		return hint.Wrap(err, "%s", loginHint(to, proxy))
	}
	return hint.Wrap(err, "%s does not connect to %s: ask the operator of the proxy, %s", named(to, proxy), to.Host, bypass(to))
}

// ProxyHint says what to do about an error of a request that did not reach its proxy.
// It returns "" for any other error.
func ProxyHint(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "proxyconnect" {
		return ""
	}
	to := &url.URL{Scheme: "https"}
	var request *url.Error
	if errors.As(err, &request) {
		if u, err := url.Parse(request.URL); err == nil {
			to = u
		}
	}
	proxy := named(to, environmentProxy(to))
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &record):
		return fmt.Sprintf("%s does not speak TLS: write the variable as http://HOST:PORT, %s", proxy, bypass(to))
	case errors.As(err, &authority):
		return fmt.Sprintf("%s has a certificate by an authority that is not known here: name the file with that in SSL_CERT_FILE, %s", proxy, bypass(to))
	}
	return fmt.Sprintf("%s is not reached: correct the variable, %s", proxy, bypass(to))
}

// ProxyLoginHint says what to do if a proxy answered a plain HTTP request with 407.
func ProxyLoginHint(to *url.URL) string { return loginHint(to, environmentProxy(to)) }

func loginHint(to, proxy *url.URL) string {
	if proxy != nil && proxy.User != nil {
		return fmt.Sprintf("%s does not accept the user and password in the variable: correct them, %s", named(to, proxy), bypass(to))
	}
	return fmt.Sprintf("%s wants a login: write the variable as http://USER:PASSWORD@HOST:PORT, %s", named(to, proxy), bypass(to))
}

// named describes the proxy for a URL, without its user and password, and names its
// variable.
func named(to, proxy *url.URL) string {
	if proxy == nil {
		return "the proxy, which " + variable(to) + " names,"
	}
	return "the proxy " + proxy.Host + ", which " + variable(to) + " names,"
}

// bypass returns the end of a hint: what to do if the host needs no proxy.
func bypass(to *url.URL) string {
	return fmt.Sprintf("or add %s to NO_PROXY if it is reached without a proxy", cmp.Or(to.Hostname(), "the host"))
}

// environmentProxy returns the proxy that net/http takes from the environment, or nil.
func environmentProxy(to *url.URL) *url.URL {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: to})
	if err != nil {
		return nil
	}
	return proxy
}

// variable returns the name of the variable from which net/http takes the proxy for a
// URL. The spelling in capitals takes precedence.
func variable(to *url.URL) string {
	name := "HTTPS_PROXY"
	if to.Scheme == "http" {
		name = "HTTP_PROXY"
	}
	if lower := strings.ToLower(name); os.Getenv(name) == "" && os.Getenv(lower) != "" {
		return lower
	}
	return name
}
