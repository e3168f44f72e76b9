package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestReplicasHowTo runs docs/howto/replicas.md with nginx. While the page restarts the gateways, clients install
// again and again.
func TestReplicasHowTo(t *testing.T) {
	home := t.TempDir()
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.pem": cert.CertPEM, "tls.key": cert.KeyPEM} {
		if err := os.WriteFile(filepath.Join(home, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, nullReleases(t)...))
	local := func(port string) string { return net.JoinHostPort("127.0.0.1", port) }
	howto.Run{
		Page: "replicas",
		Replace: []string{
			"registry.example.com", registry.For(t, registry.Options{}).Host,
			"gateway-a.example.com:8080", local(freePort(t)), "gateway-b.example.com:8080", local(freePort(t)),
			"providers.example.com:8443", "localhost:" + freePort(t),
		},
		Before: map[string]string{"wait $a": installing, "-s stop": installed},
		Dir:    home,
		Env:    []string{"SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin)},
	}.Do(t)
}

// installing starts a loop that installs in a new folder each time. The loop has installed once when the block
// begins.
const installing = `(
	export TF_CLI_CONFIG_FILE="$PWD/client.tfrc"
	n=0
	until [ -e stop ]; do
		n=$((n + 1))
		mkdir -p load/$n
		cp main.tf load/$n
		tofu -chdir=load/$n init -no-color > load/$n/output 2>&1 || cp load/$n/output failed
		echo $n > count
	done
) & load=$!
until [ -e count ]; do sleep 0.1; done`

const installed = `touch stop
wait $load
echo "installed $(cat count) times"
[ "$(cat count)" -ge 3 ]
if [ -e failed ]; then cat failed; exit 1; fi`
