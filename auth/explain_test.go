package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/outgoing"
	"github.com/ocibridge/ocibridge/internal/test/testkit/challenger"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loginfiles"
)

func answerOf(status int, codes ...string) error {
	e := &errcode.ErrorResponse{Method: "GET", URL: &url.URL{Scheme: "https", Host: "ghcr.io", Path: "/v2/"}, StatusCode: status}
	for _, code := range codes {
		e.Errors = append(e.Errors, errcode.Error{Code: code})
	}
	return fmt.Errorf("push: %w", e)
}

// words returns oras-go's error for a response with the status, the code and the
// message.
func words(status int, code, message string) error {
	return &errcode.ErrorResponse{Method: "PUT", URL: &url.URL{Scheme: "https", Host: "ghcr.io", Path: "/v2/"}, StatusCode: status, Errors: errcode.Errors{{Code: code, Message: message}}}
}

func TestExplain(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://x/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	overHTTP := &errcode.ErrorResponse{Method: "GET", URL: &url.URL{Scheme: "http", Host: "x"}, StatusCode: http.StatusBadRequest}
	upload := &errcode.ErrorResponse{Method: "POST", URL: &url.URL{Scheme: "https", Host: "harbor.example.com", Path: "/v2/providers/null/blobs/uploads/"}, StatusCode: http.StatusNotFound}
	logins := map[string]string{"/home/u/.docker/config.json": loginfiles.JSON("ghcr.io=u:p", "docker.io=u:p")}
	const ecr = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/acme/null"

	tests := []struct {
		name       string
		repository string
		vars       map[string]string
		files      map[string]string
		goos       string
		plain      bool
		err        error
		want       string // a part of the hint; "" for no hint
	}{
		{name: "401 with logins for other projects", repository: "harbor.example.com/c/null", err: answerOf(401, "UNAUTHORIZED"),
			files: map[string]string{"/home/u/.docker/config.json": loginfiles.JSON("harbor.example.com/a=u:p", "harbor.example.com/b=u:p")},
			want:  "no login for harbor.example.com/c/null was found; those for harbor.example.com/a, harbor.example.com/b are for other repositories; run: ocibridge login harbor.example.com"},
		{name: "401 without a login", err: answerOf(401, "UNAUTHORIZED"), want: "no login for ghcr.io was found; run: ocibridge login ghcr.io, or docker login ghcr.io"},
		{name: "401 with a login", files: logins, err: answerOf(401), want: "used the login for ghcr.io in /home/u/.docker/config.json: not accepted"},
		{name: "403 without a login", err: answerOf(403, "DENIED"), want: "no login for ghcr.io was found"},
		{name: "403 with a login", files: logins, err: answerOf(403, "DENIED"), want: "used the login for ghcr.io in /home/u/.docker/config.json: it may lack the right to do this in acme/null, or there is no such repository; GHCR wants a token (classic) with read:packages"},
		{name: "Docker Hub", repository: "docker.io/acme/null", err: answerOf(401), want: "run: ocibridge login docker.io, or docker login"},
		{name: "nothing for a Basic challenge", err: fmt.Errorf("x: %w", auth.ErrBasicCredentialNotFound), want: "no login for ghcr.io was found"},
		{name: "404", err: answerOf(404, "MANIFEST_UNKNOWN")},
		{name: "404 of an unknown repository", repository: "harbor.example.com/providers/null", err: answerOf(404, "NAME_UNKNOWN"), want: `create "providers" on harbor.example.com, such as a Harbor project`},
		{name: "404 of an upload", repository: "harbor.example.com/providers/null", err: upload, want: `create "providers" on harbor.example.com`},
		{name: "404 of something else", repository: "harbor.example.com/providers/null", err: answerOf(404, "NOT_FOUND")},
		{name: "401 of an absent project", repository: "harbor.example.com/providers/null", err: words(401, "UNAUTHORIZED", "project providers not found: project providers not found"),
			want: `create the project "providers" on harbor.example.com, or correct the template, whose first part after the host names a project: a new login does not help`},
		{name: "404 of an absent project", repository: "harbor.example.com/providers/null", err: words(404, "NOT_FOUND", "project providers not found"), want: `create the project "providers"`},
		{name: "403 of a quota", files: logins, err: words(403, "DENIED", "adding 5.7 MiB of storage resource, which when updated to current usage of 7.0 MiB will exceed the configured upper limit of 12.0 MiB."),
			want: "ghcr.io has no room for more in acme/null: have the quota raised"},
		{name: "412 of a quota", err: words(412, "PRECONDITION", "Quota exceeded when processing the request of adding 1 of count resource"), want: "have the quota raised"},
		{name: "507", err: words(507, "UNKNOWN", "insufficient storage"), want: "have the quota raised"},
		{name: "507 without words", err: answerOf(507), want: "have the quota raised"},
		{name: "412", err: answerOf(412), want: "a rule of ghcr.io refuses this: in Harbor that is a quota, an immutable tag or a policy of the project"},
		{name: "400 of a name without a project", repository: "harbor.example.com/null", err: words(400, "BAD_REQUEST", "bad request: invalid repository name: null"),
			want: "a repository name begins with its project: correct the template, such as harbor.example.com/PROJECT/${namespace}/${type}"},
		{name: "403 of a proxy-cache project", files: logins, err: words(403, "DENIED", "denied: can not push artifact to a proxy project: acme"), want: `the project "acme" on ghcr.io is a proxy cache, which takes no pushes`},
		{name: "403 of read-only mode", files: logins, err: words(403, "DENIED", "The system is in read only mode. Any modification is prohibited."), want: "ghcr.io is in read-only mode, and takes no changes from any login"},
		{name: "412 of a policy", err: words(412, "PROJECTPOLICYVIOLATION", "The image is not signed by cosign."), want: `a policy of the project "acme" forbids everybody to read this artifact: switch the policy off`},
		{name: "412 of an immutable tag", err: words(412, "PRECONDITION", "the tag 1.0.0 configured as immutable, cannot be deleted"), want: "makes this tag immutable: change the rule"},
		{name: "401 of a right, no token seen", files: logins, err: words(401, "UNAUTHORIZED", "unauthorized to access repository: acme/null, action: push"), want: ": not accepted; it may have expired"},
		{name: "429 of a quota", err: words(429, "TOOMANYREQUESTS", "Quota exceeded for quota metric 'Requests'"), want: "limits requests"},
		{name: "407 of a proxy", plain: true, err: &errcode.ErrorResponse{Method: "GET", URL: &url.URL{Scheme: "http", Host: "ghcr.io"}, StatusCode: 407}, want: "wants a login"},
		{name: "407 over TLS, of the registry itself", err: answerOf(407)},
		{name: "404 of public ECR", repository: "public.ecr.aws/alias/acme/null", err: answerOf(404, "NAME_UNKNOWN"), want: "aws ecr-public create-repository --region us-east-1 --repository-name acme/null"},
		{name: "404 of GAR, too short", repository: "europe-west1-docker.pkg.dev/proj/null", err: answerOf(404, "NAME_UNKNOWN"), want: "/PROJECT/REPOSITORY/"},
		{name: "400 of a name", repository: "docker.io/acme/a/null", err: answerOf(400, "NAME_INVALID"), want: "docker.io/acme/${namespace}-${type}"},
		{name: "403 of GHCR", files: logins, err: answerOf(403, "DENIED"), want: "write:packages"},
		{name: "403 of Docker Hub", repository: "docker.io/acme/a/null", files: logins, err: answerOf(403, "DENIED"), want: "names on Docker Hub have two parts"},
		{name: "404 of ECR", repository: ecr, err: answerOf(404, "NAME_UNKNOWN"), want: "aws ecr create-repository --region eu-central-1 --repository-name acme/null"},
		{name: "404 of GAR", repository: "europe-west1-docker.pkg.dev/proj/repo/a/null", err: answerOf(404, "NAME_UNKNOWN"),
			want: "gcloud artifacts repositories create repo --repository-format=docker --location=europe-west1 --project=proj"},
		{name: "413", err: answerOf(413), want: "limits the size of uploads"},
		{name: "429 without a login", err: answerOf(429, "TOOMANYREQUESTS"), want: "docker login ghcr.io"},
		{name: "429 with a login", files: logins, err: answerOf(429), want: "ghcr.io limits requests: try again later"},
		{name: "503", err: answerOf(503), want: "ghcr.io reports a server error"},
		{name: "400", err: answerOf(400, "MANIFEST_INVALID")},
		{name: "TLS server asked in plain HTTP", plain: true, err: overHTTP, want: "leave out --plain-http"},
		{name: "TLS server that hangs up", plain: true, err: dial(io.EOF), want: "leave out --plain-http"},
		{name: "hung up", err: dial(io.EOF), want: "run it again"},
		{name: "silent", err: wire.ErrStalled, want: "run it again"},
		{name: "plain server asked over TLS", err: &url.Error{Err: http.ErrSchemeMismatch}, want: "--plain-http"},
		{name: "no TLS in the answer", err: &url.Error{Err: tls.RecordHeaderError{Msg: "x"}}, want: "--plain-http"},
		{name: "refused", err: dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), want: "nothing listens at that address"},
		{name: "no such host", err: dial(&net.DNSError{Name: "ghcr.oi", IsNotFound: true}), want: "there is no such host"},
		{name: "no DNS", err: dial(&net.DNSError{Name: "ghcr.io", IsTimeout: true}), want: "could not be looked up"},
		{name: "timeout", err: dial(os.ErrDeadlineExceeded), want: "did not answer in time"},
		{name: "deadline of the caller", err: &url.Error{Err: context.DeadlineExceeded}, want: "did not answer in time"},
		{name: "unknown CA", err: &url.Error{Err: x509.UnknownAuthorityError{}}, want: "or in SSL_CERT_FILE"},
		{name: "unknown CA, with a file of authorities", vars: map[string]string{"SSL_CERT_FILE": "/gateway.pem"}, err: &url.Error{Err: x509.UnknownAuthorityError{}},
			want: "or add the CA to /gateway.pem, which SSL_CERT_FILE names"},
		{name: "unknown CA on macOS", goos: "darwin", err: &url.Error{Err: x509.UnknownAuthorityError{}}, want: "system's trust store"},
		{name: "certificate for another name", err: &url.Error{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}, want: "for other names"},
		{name: "expired certificate", err: &url.Error{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, want: "the clock"},
		{name: "something else", err: errors.New("x")},
		{name: "a nearer hint", err: hint.New("x", "nearer"), want: "nearer"},
		{name: "given up", err: &url.Error{Err: context.Canceled}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.repository == "" {
				tt.repository = "ghcr.io/acme/null"
			}
			if tt.goos == "" {
				tt.goos = "linux"
			}
			c := New(Options{Login: login.Options{Environment: environment(tt.goos, tt.vars, tt.files)}, Wire: wire.Options{PlainHTTP: tt.plain}})
			err := c.Explain(tt.err, mustRepository(t, tt.repository))
			if err.Error() != tt.err.Error() || !errors.Is(err, tt.err) {
				t.Errorf("the error became %v", err)
			}
			if got := hint.Of(err); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("hint %q, want %q", got, tt.want)
			}
		})
	}
	if err := New(Options{}).Explain(nil, mustRepository(t, "ghcr.io/a/b")); err != nil {
		t.Errorf("nil became %v", err)
	}
}

// TestLoginCommandOfDockerHub shows that the hint has the same login command for every
// name of Docker Hub.
func TestLoginCommandOfDockerHub(t *testing.T) {
	for _, host := range []string{"docker.io", "index.docker.io", "registry-1.docker.io"} {
		c := New(Options{Login: login.Options{Environment: environment("linux", nil, nil)}})
		err := c.Explain(answerOf(401, "UNAUTHORIZED"), mustRepository(t, host+"/acme/null"))
		if got := hint.Of(err); !strings.HasSuffix(got, "run: ocibridge login docker.io, or docker login") {
			t.Errorf("%s: hint %q", host, got)
		}
	}
}

func TestExplainRealFailures(t *testing.T) {
	secure := challenger.New(t, true)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	trusting := func(t *http.Transport) *http.Transport {
		t.TLSClientConfig = nil
		return t
	}
	silent := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:1")
	}}
	through := func(proxy string) http.RoundTripper {
		transport := outgoing.Transport()
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})
		t.Cleanup(transport.CloseIdleConnections)
		return transport
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer proxy.Close()
	wantsLogin := proxy.Listener.Addr().String()
	for _, variable := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		t.Setenv(variable, "") // a proxy variable of the environment would appear in the hint
	}
	around := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusMovedPermanently)
	}))
	defer around.Close()
	tests := []struct {
		name, want string
		opts       Options
	}{
		{"proxy not there", "which HTTPS_PROXY names, is not reached: correct the variable, or add example.com to NO_PROXY", Options{Wire: wire.Options{Transport: through("127.0.0.1:1"), RetryDelay: time.Millisecond}}},
		{"proxy that wants a login", "which HTTPS_PROXY names, wants a login: write the variable as http://USER:PASSWORD@HOST:PORT, or add example.com to NO_PROXY", Options{Wire: wire.Options{Transport: through(wantsLogin)}}},
		{"proxy that wants a login for plain HTTP", "which HTTP_PROXY names, wants a login", Options{Wire: wire.Options{Transport: through(wantsLogin), PlainHTTP: true}}},
		{"circle of redirects", "example.com redirects in a circle", Options{Wire: wire.Options{Transport: challenger.DialTo(around)}}},
		{"unknown CA", "SSL_CERT_FILE", Options{Wire: wire.Options{Transport: trusting(challenger.DialTo(secure.Server))}}},
		{"plain HTTP to a TLS server", "leave out --plain-http", Options{Wire: wire.Options{PlainHTTP: true, Transport: challenger.DialTo(secure.Server)}}},
		{"nobody there", "nothing listens", Options{Wire: wire.Options{Transport: silent, RetryDelay: time.Millisecond}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Login.Environment.GOOS = "linux"
			c := New(tt.opts)
			r := mustRepository(t, "example.com/a/x") // the certificate of the test server is for example.com
			if err := c.Explain(listTags(t, c, r), r); !strings.Contains(hint.Of(err), tt.want) {
				t.Errorf("%v, hint %q, want %q", err, hint.Of(err), tt.want)
			}
		})
	}
}
