package originclient

import (
	"net"
	"os"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
	"github.com/ocibridge/ocibridge/provider"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func patterns(list ...string) (out []subject.Pattern) {
	for _, s := range list {
		out = append(out, provider.MustParsePattern(s))
	}
	return out
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNames(t *testing.T) {
	u := User{CLI: hostBlock(t, "block", "https://registry.acme.example/v1/providers/")}
	for host, want := range map[svchost.Hostname]bool{"mirror": true, "a.example": true, "mirror:8443": false, "block": true, "other": false, "*": false} {
		if got := u.Names(patterns("mirror/*/*", "a.example/acme/*", "*/*/*"), host); got != want {
			t.Errorf("%s is named: %t", host, got)
		}
	}
}

func TestNamedHosts(t *testing.T) {
	named := namedHosts(patterns("registry.acme.internal/*/*", "a.example:8443/acme/*", "*/*/*"), map[svchost.Hostname]map[string]any{
		"one.example":   {"providers.v1": "https://localhost:9443/v1/providers/"},
		"two.example":   {"providers.v1": "https://Mirror.Internal/providers/"},
		"three.example": {"modules.v1": "https://modules.internal/", "providers.v1": "/relative/"},
	}, "providers.v1")
	for hostPort, want := range map[string]bool{
		"registry.acme.internal:443": true, "REGISTRY.acme.internal.:443": true, "x.registry.acme.internal:443": false,
		"registry.acme.internal:8443": false, "registry.acme.internal:6443": false, "registry.acme.internal:80": false,
		"a.example:8443": true, "a.example:443": false,
		"localhost:9443": true, "localhost:443": false, "127.0.0.1:9443": false,
		"mirror.internal:443": true, "mirror.internal:80": false,
		"modules.internal:443": false, "one.example:443": false, "169.254.169.254:80": false, ":443": false,
	} {
		host, port, err := net.SplitHostPort(hostPort)
		if err != nil {
			t.Fatal(err)
		}
		if got := named(host, port); got != want {
			t.Errorf("%s is named: %t", hostPort, got)
		}
	}
}
