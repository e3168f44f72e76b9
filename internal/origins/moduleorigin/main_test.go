package moduleorigin_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/closure"
	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
	"github.com/ocibridge/ocibridge/internal/origins/modulezip"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/origin"
)

func TestMain(m *testing.M) {
	cost.InChild(fetchAndPack)
	leaks.Main(m)
}

// fetchAndPack fetches the archive at the location in the first argument, with the certificate authority in the second, into the
// folder in the third. It packs the folder, and reads what its files call.
func fetchAndPack(args []string) error {
	pem, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	ctx := context.Background()
	o := &moduleorigin.Origin{Registry: origin.NewRegistry(origin.RegistryOptions{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}})}
	l, err := moduleorigin.ParseLocation(args[0])
	if err == nil {
		_, err = o.Fetch(ctx, l, args[2])
	}
	if err != nil {
		return err
	}
	z, err := modulezip.PackFetched(ctx, args[2])
	if err != nil {
		return err
	}
	defer z.Close()
	files, err := z.FS()
	if err != nil {
		return err
	}
	_, err = closure.Read(ctx, files, "")
	return err
}
