package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestUsersSeeTheDeprecation shows that both clients install a deprecated version, and print the reason of a provider's
// deprecation through a host block and in exec. Exec prints the reason of a module's once.
func TestUsersSeeTheDeprecation(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--data", s.data)
	const reason = "use 4.x from June on"
	flags := []string{"--data", s.data, "--config", s.configured(fmt.Sprintf(
		"gateway {\n  deprecate = [{ match = \"%s@< 4.0.0\", reason = %q }, { match = \"registry.acme.example/*/*/*\", reason = \"it moved\" }]\n}\npull_through {\n  enabled = false\n}\n", world.Null, reason))}
	gateway := s.serve(flags...)
	flat := func(out string) string {
		return strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' || r == '\n' || r == '│' }), " ")
	}
	both(t, func(t *testing.T, client clients.Client) {
		warning := "- " + nullVersion + " is deprecated here: " + reason
		out := s.user(hostBlock(world.Host, strings.TrimSuffix(gateway.URL, "providers/")+"hosts/"+world.Host+"/v1/providers/"), nullVersion).MustRun(t, client, "init", "-no-color")
		if !strings.Contains(flat(out), warning) {
			t.Errorf("host block: no %q in\n%s", warning, out)
		}
		got := s.execIn(s.user("", nullVersion), append(flags, "--", client.Path, "init", "-no-color")...)
		if got.status != 0 || !strings.Contains(flat(got.stdout+got.stderr), warning) {
			t.Errorf("exec: %d, no %q in\n%s%s", got.status, warning, got.stdout, got.stderr)
		}
		ws := s.workspace("")
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"a\" {\n  source  = %q\n  version = \"1.0.0\"\n  name    = \"a\"\n}\nmodule \"b\" {\n  source  = %[1]q\n  version = \"~> 1.0\"\n  name    = \"b\"\n}\n", vpc)))
		got = s.execIn(ws, append(flags, "--", client.Path, "get", "-no-color")...)
		if want := vpc + " 1.0.0 is deprecated here: it moved"; got.status != 0 || strings.Count(got.stderr, want) != 1 {
			t.Errorf("exec of a module: %d, not one %q in\n%s", got.status, want, got.stderr)
		}
		if out := s.user(world.NetworkMirror(gateway.URL), nullVersion).MustRun(t, client, "init", "-no-color"); strings.Contains(out, reason) {
			t.Errorf("the network mirror protocol has warnings now:\n%s", out)
		}
	})
}
