package tlsca_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

func TestServerIsTrustedByItsAuthorityAlone(t *testing.T) {
	ca := tlsca.For(t)
	config, err := ca.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.TLS = config
	srv.StartTLS()
	defer srv.Close()

	for _, url := range []string{srv.URL, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)} {
		client := ca.HTTPClient()
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		client.CloseIdleConnections()
	}
	if _, err := tlsca.For(t).HTTPClient().Get(srv.URL); err == nil {
		t.Error("a client that trusts only another authority accepts the server")
	}
}

func TestIssuedNames(t *testing.T) {
	ca := tlsca.For(t)
	cert, err := ca.Issue("providers.example.com")
	if err != nil {
		t.Fatal(err)
	}
	config, err := cert.Config()
	if err != nil {
		t.Fatal(err)
	}
	leaf := config.Certificates[0].Leaf
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "providers.example.com"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: ca.CertPool(), DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := leaf.VerifyHostname("other.example.com"); err == nil {
		t.Error("the certificate is valid for a name that was not requested")
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	ca := tlsca.For(t)
	cert, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := cert.WriteFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Error(err)
	}
	caFile, err := ca.WriteFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		t.Error("the authority's file contains no certificate")
	}
}
