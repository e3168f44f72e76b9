package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestUsersSeeTheDeprecation shows that both clients install a deprecated version, and print the reason of a provider's
// deprecation through a host block and in exec. Exec prints the reason of a module's once. The web page shows the reasons as text,
// and when a client last used a version.
func TestUsersSeeTheDeprecation(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.offer("3.2.3")
	s.push(world.Null+"@"+nullVersion, world.Null+"@3.2.3")
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--data", s.data)
	const reason = "use <b>4.x</b> from June on <script>document.title = 'injected'</script>"
	flags := []string{"--data", s.data, "--config", s.configured(fmt.Sprintf(
		"gateway {\n  deprecate = [{ match = \"%s@< 4.0.0\", reason = %q }, { match = \"registry.acme.example/*/*/*\", reason = \"it moved to <i>acme</i>\" }]\n}\npull_through {\n  enabled = false\n}\n", world.Null, reason))}
	gateway := s.serve(flags...)
	flat := func(out string) string {
		return strings.Join(strings.FieldsFunc(out, func(r rune) bool { return r == ' ' || r == '\n' || r == '│' }), " ")
	}
	both(t, func(t *testing.T, client clients.Client) {
		warning := "- 3.2.3, " + nullVersion + " are deprecated here: " + reason
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
		if want := vpc + " 1.0.0 is deprecated here: it moved to <i>acme</i>"; got.status != 0 || strings.Count(got.stderr, want) != 1 {
			t.Errorf("exec of a module: %d, not one %q in\n%s", got.status, want, got.stderr)
		}
		if out := s.user(world.NetworkMirror(gateway.URL), nullVersion).MustRun(t, client, "init", "-no-color"); strings.Contains(out, reason) {
			t.Errorf("the network mirror protocol has warnings now:\n%s", out)
		}
	})
	browser := newChromium(t)
	t.Run("page", func(t *testing.T) {
		b := browser.tab(t)
		b.withoutScripts()
		provider, mod := root(gateway)+"p/"+world.Null, root(gateway)+"m/"+vpc
		b.open(root(gateway))
		b.reloadUntilFilled()
		b.wantText("null 3.2.4 deprecated", "vpc/aws 1.0.0 deprecated")
		b.open(provider)
		b.wantText("Deprecated: "+reason, "3.2.4 signed", "3.2.3 signed", "deprecated "+reason, "Last use", " ago, through this gateway")
		b.open(provider + "/3.2.3")
		b.wantText("Deprecated: "+reason, "Last use None through this gateway since 20")
		b.open(mod)
		b.wantText("Deprecated: it moved to <i>acme</i>", "Last use None through this gateway since 20")
		clients.Must(t, gateway.Hangup())
		waitFor(t, gateway, "settings have been read again and are in force", 1)
		ws := s.workspace(modulesBlock(gateway))
		clients.Must(t, ws.WriteConfig(fmt.Sprintf("module \"a\" {\n  source  = %q\n  version = \"1.0.0\"\n  name    = \"a\"\n}\n", vpc)))
		ws.MustRun(t, clients.Terraform(t), "get", "-no-color")

		b = browser.tab(t)
		b.open(root(gateway))
		b.reloadUntilFilled()
		b.audit("deprecated-front")
		for name, page := range map[string]string{"deprecated-provider": provider, "deprecated-module": mod} {
			b.open(page)
			b.wantText("Last use", " ago, through this gateway")
			if title := eval[string](b, `document.title`); strings.Contains(title, "injected") {
				t.Errorf("a reason runs a script: %s", title)
			}
			if n := eval[int](b, `document.querySelectorAll('.notice *, .reason b, .reason script').length`); n != 0 {
				t.Errorf("%s: %d elements of a reason", name, n)
			}
			b.audit(name)
		}
		b.open(provider + "/3.2.3")
		b.audit("deprecated-unused")
	})
}
