package serve

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestIssuedBefore shows that a valid certificate in the folder is used before the first request to the issuer.
// Therefore no handshake fails when one acme block replaces another.
func TestIssuedBefore(t *testing.T) { synctest.Test(t, testIssuedBefore) }

func testIssuedBefore(t *testing.T) {
	ca := tlsca.For(t)
	dir := filepath.Join(t.TempDir(), "acme")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	keep := func(name string, cert *tlsca.Cert) {
		write(t, filepath.Join(dir, name), slices.Concat(cert.KeyPEM, cert.CertPEM))
	}
	good, err := ca.Issue("good.acme.example")
	if err != nil {
		t.Fatal(err)
	}
	keep("good.acme.example", good)
	keep("other.acme.example", good) // the certificate of another name
	write(t, filepath.Join(dir, "broken.acme.example"), good.CertPEM)
	domains := []string{"good.acme.example", "other.acme.example", "broken.acme.example", "new.acme.example"}
	c := config.ACME{Domains: domains, DirectoryURL: "https://127.0.0.1:1/"}
	i, err := issueCertificates(c, nil, dir, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	want, err := tls.X509KeyPair(good.CertPEM, good.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	if got := i.expires(); !got.Equal(want.Leaf.NotAfter) {
		t.Errorf("the first certificate expires at %s", got)
	}
	for _, name := range []string{"good.acme.example", "GOOD.acme.example.", ""} {
		if cert, err := i.get(helloFor(name)); err != nil || !cert.Leaf.Equal(want.Leaf) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range domains[1:] {
		if _, err := i.get(helloFor(name)); err == nil {
			t.Errorf("%s has a certificate", name)
		}
	}
	time.Sleep(time.Until(want.Leaf.NotAfter) + time.Second)
	late, err := issueCertificates(c, nil, dir, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if _, err := late.get(helloFor("good.acme.example")); err == nil {
		t.Error("an expired certificate is used")
	}
	if got := late.expires(); !got.IsZero() {
		t.Errorf("without a certificate, one expires at %s", got)
	}
}
