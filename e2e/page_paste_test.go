package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// copied presses the copy button in a named section with the keyboard. It then reloads the page, and returns
// the content of the clipboard.
func copied(b *tab, section string) string {
	b.t.Helper()
	button := fmt.Sprintf(`section[aria-labelledby=%q] .code .copy`, section)
	eval[chromedp.Void](b, fmt.Sprintf(`document.getElementById('tab-%s')?.click()`, section))
	b.press(button, chromedp.Focus(chromedp.CSS(button)), chromedp.SendKeys(chromedp.CSS(button), "\r"))
	if !eval[bool](b, fmt.Sprintf(`document.activeElement === document.querySelector(%q)`, button)) {
		b.t.Errorf("%s loses the focus", button)
	}
	at := eval[string](b, `location.href`)
	b.open(at) // restores navigator.clipboard if a test has removed it
	return b.clipboard()
}

// TestPaste copies the configuration from the page, and pastes it into the files that the page names. It shows
// that clients can install. The clients need no other configuration.
func TestPaste(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	browser := newChromium(t)
	tofu, terraform := clients.Tofu(t), clients.Terraform(t)

	// install combines pieces of a CLI configuration with the requirement on the provider's page.
	install := func(b *tab, g *world.Gateway, client clients.Client, token string, sections ...string) {
		t.Helper()
		b.open(root(g))
		var config strings.Builder
		for _, section := range sections {
			config.WriteString(strings.ReplaceAll(copied(b, section), "TOKEN", token))
		}
		b.open(root(g) + "p/" + world.Null + "/" + nullVersion)
		ws := s.workspace("")
		clients.Must(t, ws.WriteCLIConfig(config.String()))
		clients.Must(t, ws.WriteConfig(copied(b, "use")+"resource \"null_resource\" \"example\" {}\n"))
		ws.MustRun(t, client, "init", "-no-color")
		if got := ws.MustLock(t)[world.Null].Version; got != nullVersion {
			t.Errorf("%s by %s locks %q", client.Name, config.String(), got)
		}
		wantLock(t, b, ws, client)
	}

	b := browser.tab(t)
	embedded := s.serve("--data", s.data)
	install(b, embedded, terraform, "", "terraform")
	install(b, embedded, tofu, "", "opentofu")
	install(b, embedded, tofu, "", "oci-mirror")

	alone := s.serve(s.config(strings.Replace(mirror(r.Host), "oci_mirror {\n", "oci_mirror {\n  include = [\""+world.Host+"/*/*\"]\n", 1)))
	install(b, alone, tofu, "", "opentofu")
	install(b, alone, tofu, "", "oci-mirror")
	install(b, alone, tofu, "", "host")
	install(b, alone, terraform, "", "host")

	asks := s.controlled("")
	b.open(strings.Replace(root(asks), "https://", "https://person:"+acmeToken+"@", 1) + "sign-in")
	install(b, asks, terraform, acmeToken, "terraform", "token")
	install(b, asks, tofu, acmeToken, "opentofu", "token")
	install(b, asks, tofu, acmeToken, "oci-mirror")
}
