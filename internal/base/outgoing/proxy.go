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

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// ProxyError means that a proxy refused to connect to the host of a request.
type ProxyError struct {
	Proxy  string // HOST:PORT, without a user and password
	Status int
}

func (e *ProxyError) Error() string {
	return fmt.Sprintf("proxy %s answered %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
}

// Route says whether requests reach a host through a proxy.
type Route struct {
	Variable string // the variable that names a proxy for the URL's scheme; "" if there is none
	Proxy    string // HOST:PORT, without a user and password; "" if requests use no proxy
}

// RouteTo returns the route of requests for a URL. Like the requests themselves, it fails if the variable that names the
// proxy contains neither a URL nor HOST:PORT.
func RouteTo(to *url.URL) (Route, error) {
	name := variable(to)
	if os.Getenv(name) == "" {
		return Route{}, nil
	}
	proxy, err := checkVariable(http.ProxyFromEnvironment)(&http.Request{URL: to})
	if err != nil || proxy == nil {
		return Route{Variable: name}, err
	}
	return Route{name, proxy.Host}, nil
}

// checkVariable returns a function that first checks the proxy variable for a request, and then calls proxy, which reads
// the proxy from the environment. The function fails if the variable contains neither a URL nor HOST:PORT, because
// net/http would send the request without a proxy. The error does not contain the value of the variable, which may
// contain a password.
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

// isProxyURL reports whether net/http accepts the value of a proxy variable, a URL or HOST:PORT.
func isProxyURL(value string) bool {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		u, err = url.Parse("http://" + value)
	}
	return err == nil && u.Hostname() != "" && !strings.HasSuffix(u.Host, ":")
}

// wantsProxy reports whether NO_PROXY allows requests for a URL to use a proxy.
func wantsProxy(to *url.URL) bool {
	c := httpproxy.FromEnvironment()
	c.HTTPProxy, c.HTTPSProxy, c.CGI = "any.example", "any.example", false
	proxy, err := c.ProxyFunc()(to)
	return proxy != nil && err == nil
}

// connected returns a [ProxyError] with a hint if a proxy's response to a CONNECT request is not 200.
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

// ProxyHint returns a hint if err means that a request could not reach its proxy, or else "".
func ProxyHint(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "proxyconnect" {
		return ""
	}
	to := &url.URL{Scheme: "https"}
	if request, ok := errors.AsType[*url.Error](err); ok {
		if u, err := url.Parse(request.URL); err == nil {
			to = u
		}
	}
	proxy := named(to, environmentProxy(to))
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return fmt.Sprintf("%s does not speak TLS: write the variable as http://HOST:PORT, %s", proxy, bypass(to))
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Sprintf("%s has a certificate by an authority that is not known here: name the file with that in SSL_CERT_FILE, %s", proxy, bypass(to))
	}
	return fmt.Sprintf("%s is not reached: correct the variable, %s", proxy, bypass(to))
}

// InspectionHint returns the end of a hint for the case that a host has sent a certificate of an unknown authority. The
// host has the form HOST or HOST:PORT. InspectionHint returns "" if https requests to the host use no proxy.
func InspectionHint(host string) string {
	to := &url.URL{Scheme: "https", Host: host}
	if proxy := environmentProxy(to); proxy != nil {
		return fmt.Sprintf(". If %s inspects TLS, it is the CA of the proxy", named(to, proxy))
	}
	return ""
}

// ProxyLoginHint returns the hint for a plain HTTP request that a proxy answered with status 407.
func ProxyLoginHint(to *url.URL) string { return loginHint(to, environmentProxy(to)) }

func loginHint(to, proxy *url.URL) string {
	if proxy != nil && proxy.User != nil {
		return fmt.Sprintf("%s does not accept the user and password in the variable: correct them, %s", named(to, proxy), bypass(to))
	}
	return fmt.Sprintf("%s wants a login: write the variable as http://USER:PASSWORD@HOST:PORT, %s", named(to, proxy), bypass(to))
}

// named describes the proxy for a URL in a hint, by its host and its variable, without user name and password.
func named(to, proxy *url.URL) string {
	if proxy == nil {
		return "the proxy, which " + variable(to) + " names,"
	}
	return "the proxy " + proxy.Host + ", which " + variable(to) + " names,"
}

// bypass returns the end of a hint. It says how to send requests for a URL without a proxy.
func bypass(to *url.URL) string {
	return fmt.Sprintf("or add %s to NO_PROXY if it is reached without a proxy", cmp.Or(to.Hostname(), "the host"))
}

// environmentProxy returns the proxy that net/http uses for a URL, or nil.
func environmentProxy(to *url.URL) *url.URL {
	proxy, _ := http.ProxyFromEnvironment(&http.Request{URL: to}) // nil after an error
	return proxy
}

// variable returns the name of the variable from which net/http reads the proxy for a URL. The variable in capitals takes
// precedence over the one in lower case.
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
