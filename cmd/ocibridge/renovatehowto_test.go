package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/howto"
	testorigin "github.com/ocibridge/ocibridge/internal/test/testkit/origin"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
)

// TestRenovateHowTo runs docs/howto/renovate.md with the real Renovate.
func TestRenovateHowTo(t *testing.T) {
	testkit.WithoutRace(t)
	clients.Program(t, "node")
	home := t.TempDir()
	ca := tlsca.For(t)
	caFile, err := ca.WriteFile(home)
	if err != nil {
		t.Fatal(err)
	}
	origin := startTLS(t, ca, "localhost", testorigin.New(testorigin.Options{}, releasesOf(t, "random", "3.7.1", "3.7.2")...))
	howto.Run{
		Page:    "renovate",
		Replace: []string{"registry.example.com", registry.For(t, registry.Options{}).Host, "providers.example.com:8443", "localhost:" + freePort(t)},
		Before:  map[string]string{"cat renovate.json": tokenGateway(pushTwoModules)},
		Dir:     home,
		Env: []string{
			"OCIBRIDGE_TOKEN=renovate-t0ken", "SSL_CERT_FILE=" + caFile, "TF_CLI_CONFIG_FILE=" + originConfig(t, origin),
			"PATH=" + filepath.Join(clients.RenovateModules(t), ".bin") + string(os.PathListSeparator) + os.Getenv("PATH"),
		},
	}.Do(t)
}

// tokenGateway returns commands that start a gateway, which requires the token in OCIBRIDGE_TOKEN. It has two versions of
// hashicorp/random. The commands in before run before it starts, and can add to gateway/ocibridge.hcl.
func tokenGateway(before string) string {
	return `random() { head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1; }
mkdir gateway
(umask 077; random > gateway/keys)
cat ocibridge.hcl - > gateway/ocibridge.hcl <<END
gateway {
  capability_key_file = "keys"
  token "tool" {
    sha256  = "$(printf %s "$OCIBRIDGE_TOKEN" | sha256sum | cut -d ' ' -f 1)"
    include = ["*/*/*", "registry.acme.example/*/*/*"]
  }
}
END
` + before + `
ocibridge push registry.opentofu.org/hashicorp/random@3.7.1 registry.opentofu.org/hashicorp/random@3.7.2
ocibridge serve --config gateway/ocibridge.hcl --listen providers.example.com:8443 > serve.txt &
until grep -q ^Serving serve.txt; do sleep 0.1; done
cp ~/.local/share/ocibridge/ca/ca.pem .`
}

// pushTwoModules adds a module_mirror block to the gateway, and pushes two versions of a module.
const pushTwoModules = `cat >> gateway/ocibridge.hcl <<'END'
module_mirror {
  repository_template = "registry.example.com/modules/${hostname}/${namespace}/${name}/${system}"
}
END
mkdir vpc
echo 'output "id" { value = "vpc" }' > vpc/main.tf
for version in 1.0.0 1.1.0; do
  ocibridge module push vpc --config gateway/ocibridge.hcl --as registry.acme.example/platform/vpc/aws@$version
done`
