package outgoing

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestProxyVariablesThatHoldNoURL shows that a request fails if net/http would ignore
// the value of its proxy variable, or would read another host from the value. The error
// does not contain the value.
func TestProxyVariablesThatHoldNoURL(t *testing.T) {
	const secure, plain = "https://registry.example/v2/", "http://registry.example/v2/"
	ask := func(at string) (*url.URL, error) {
		req, err := http.NewRequest(http.MethodGet, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		return Transport().Proxy(req)
	}
	for name, tc := range map[string]struct{ variable, value, url string }{
		"a percent sign in the password":  {"HTTPS_PROXY", "http://user:s3cr3t%zz@proxy.example:3128", secure},
		"the same without a scheme":       {"HTTPS_PROXY", "user:s3cr3t%zz@proxy.example:3128", secure},
		"a number sign in the password":   {"https_proxy", "http://user:s3cr3t#x@proxy.example:3128", secure},
		"a slash in the password":         {"HTTPS_PROXY", "http://user:s3cr3t/x@proxy.example:3128", secure},
		"a space":                         {"HTTP_PROXY", "http://user:s3cr3t@proxy example:3128", plain},
		"one slash":                       {"http_proxy", "http:/user:s3cr3t@proxy.example:3128", plain},
		"no host":                         {"HTTPS_PROXY", "http://user:s3cr3t@:3128", secure},
		"a port that is no number":        {"HTTPS_PROXY", "http://user:s3cr3t@proxy.example:http", secure},
		"an address that is not closed":   {"HTTPS_PROXY", "http://user:s3cr3t@[::1", secure},
		"a control character in the name": {"HTTPS_PROXY", "s3cr3t\x7f:3128", secure},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"} {
				t.Setenv(v, "")
			}
			t.Setenv(tc.variable, tc.value)
			proxy, err := ask(tc.url)
			if err == nil || err.Error() != tc.variable+" does not hold the URL of a proxy" || proxy != nil ||
				!strings.HasPrefix(hint.Of(err), "write "+tc.variable+" as http://HOST:PORT or ") || !strings.HasSuffix(hint.Of(err), "or add registry.example to NO_PROXY if it is reached without a proxy") {
				t.Errorf("%v, %v (%s)", proxy, err, hint.Of(err))
			}
			if strings.Contains(fmt.Sprint(err, hint.Of(err)), "s3cr3t") {
				t.Errorf("the password shows: %v (%s)", err, hint.Of(err))
			}
			// Requests to hosts that need no proxy do not fail.
			if _, err := ask("https://localhost:8443/"); err != nil {
				t.Error(err)
			}
			t.Setenv("NO_PROXY", ".example")
			if _, err := ask(tc.url); err != nil {
				t.Error(err)
			}
		})
	}
	for _, v := range []string{"proxy.example", "proxy.example:3128", "10.0.0.1:3128", "[::1]:3128", "http://proxy.example", "https://user:p%40ss@proxy.example:3128/", "socks5://proxy.example:1080"} {
		t.Setenv("HTTPS_PROXY", v)
		t.Setenv("NO_PROXY", "")
		if _, err := ask(secure); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// TestProxies shows the results of requests through proxies, and the hints for
// failures. Each case runs in a separate process, because net/http reads the proxy
// variables only once. The host names need not resolve, because the proxy resolves
// them.
func TestProxies(t *testing.T) {
	if at := os.Getenv("OCIBRIDGE_TEST_URL"); at != "" {
		to, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		route, err := RouteTo(to)
		fmt.Printf("route: %+v, %v\n", route, err)
		resp, err := (&http.Client{Transport: Transport()}).Get(at)
		help := hint.Of(err)
		if err == nil {
			resp.Body.Close()
			help = ProxyLoginHint(resp.Request.URL)
		} else if help == "" {
			help = ProxyHint(err)
		}
		fmt.Printf("error: %v\nhint: %s\n", err, help)
		return
	}
	var login atomic.Value // the login that the proxy got with the last request
	login.Store("")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		login.Store(r.Header.Get("Proxy-Authorization"))
		status := http.StatusProxyAuthRequired
		if strings.HasPrefix(r.Host, "denied.") {
			status = http.StatusForbidden
		}
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		w.WriteHeader(status)
	}))
	defer proxy.Close()
	at := proxy.Listener.Addr().String()
	overTLS := httptest.NewUnstartedServer(http.NotFoundHandler())
	overTLS.Config.ErrorLog = log.New(io.Discard, "", 0) // clients abort the handshakes
	overTLS.StartTLS()
	defer overTLS.Close()
	const none = "127.0.0.1:1" // no server listens there
	const secure, plain = "https://registry.example/v2/", "http://registry.example/v2/"

	for name, tc := range map[string]struct {
		variable, proxy, url string
		says, hint           string
		login                bool
	}{
		"not there": {"HTTPS_PROXY", "http://user:s3cr3t@" + none, secure, "proxyconnect tcp: dial tcp " + none,
			"the proxy " + none + ", which HTTPS_PROXY names, is not reached: correct the variable, or add registry.example to NO_PROXY if it is reached without a proxy", false},
		"not there, in small letters": {"https_proxy", none, secure, "proxyconnect", "the proxy " + none + ", which https_proxy names, is not reached", false},
		"not there, for plain HTTP":   {"HTTP_PROXY", none, plain, "proxyconnect", "the proxy " + none + ", which HTTP_PROXY names, is not reached", false},
		"speaks no TLS":               {"HTTPS_PROXY", "https://" + at, secure, "proxyconnect", "the proxy " + at + ", which HTTPS_PROXY names, does not speak TLS: write the variable as http://HOST:PORT, or add", false},
		"of an unknown authority": {"HTTPS_PROXY", overTLS.URL, secure, "proxyconnect",
			"the proxy " + overTLS.Listener.Addr().String() + ", which HTTPS_PROXY names, has a certificate by an authority that is not known here: name the file with that in SSL_CERT_FILE, or add", false},
		"wants a login": {"HTTPS_PROXY", at, secure, "proxy " + at + " answered 407 Proxy Authentication Required",
			"the proxy " + at + ", which HTTPS_PROXY names, wants a login: write the variable as http://USER:PASSWORD@HOST:PORT, or add registry.example to NO_PROXY", false},
		"wants another login": {"HTTPS_PROXY", "http://user:s3cr3t@" + at, secure, "proxy " + at + " answered 407",
			"the proxy " + at + ", which HTTPS_PROXY names, does not accept the user and password in the variable: correct them, or add", true},
		"wants a login for plain HTTP":       {"http_proxy", at, plain, "<nil>", "the proxy " + at + ", which http_proxy names, wants a login", false},
		"wants another login for plain HTTP": {"HTTP_PROXY", "http://user:s3cr3t@" + at, plain, "<nil>", "the proxy " + at + ", which HTTP_PROXY names, does not accept the user and password", true},
		"a variable that holds no URL": {"HTTPS_PROXY", "http://user:s3cr3t%zz@" + at, secure, `Get "https://registry.example/v2/": HTTPS_PROXY does not hold the URL of a proxy`,
			"write HTTPS_PROXY as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT", false},
		"refuses the host": {"HTTPS_PROXY", at, "https://denied.example:8443/", "answered 403 Forbidden",
			"the proxy " + at + ", which HTTPS_PROXY names, does not connect to denied.example:8443: ask the operator of the proxy, or add denied.example to NO_PROXY", false},
	} {
		t.Run(name, func(t *testing.T) {
			login.Store("")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxies$")
			cmd.Env = []string{"OCIBRIDGE_TEST_URL=" + tc.url, tc.variable + "=" + tc.proxy}
			data, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			route := fmt.Sprintf("route: {Variable:%s Proxy:%s}, <nil>\n", tc.variable, tc.proxy[strings.LastIndexAny("/@"+tc.proxy, "/@")-1:])
			if strings.Contains(tc.proxy, "%zz") {
				route = fmt.Sprintf("route: {Variable:%s Proxy:}, %[1]s does not hold the URL of a proxy\n", tc.variable)
			}
			if !strings.HasPrefix(string(data), route) {
				t.Errorf("%s\nwant %s", data, route)
			}
			said, help, _ := strings.Cut(string(data), "\nhint: ")
			if !strings.Contains(said, tc.says) || !strings.HasPrefix(help, tc.hint) {
				t.Errorf("%s\nwant %q and %q", data, tc.says, tc.hint)
			}
			if strings.Contains(string(data), "s3cr3t") || strings.Contains(string(data), "user:") {
				t.Errorf("the login shows: %s", data)
			}
			if given := login.Load(); (given != "") != tc.login {
				t.Errorf("the proxy was given the login %q", given)
			}
		})
	}
}

func TestOtherErrorsAreNotTheProxys(t *testing.T) {
	transport := Transport()
	transport.Proxy = nil
	_, err := (&http.Client{Transport: transport}).Get("http://127.0.0.1:1/")
	if err == nil || ProxyHint(err) != "" || ProxyHint(nil) != "" {
		t.Errorf("%v: hint %q", err, ProxyHint(err))
	}
}
