package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestProviderDocsInRegistry pushes a release with the documentation of a real provider to a real registry. Clients install it, with
// the same lock files as without documentation. A copy to a bundle and back keeps the index.
func TestProviderDocsInRegistry(t *testing.T) { forEachProgram(t, testProviderDocsInRegistry) }

func testProviderDocsInRegistry(t *testing.T, program registry.Program) {
	s := newScene(t)
	docs, err := clients.ProviderDocs()
	clients.Must(t, err)
	r, other := s.tlsRegistryOf(program), s.tlsRegistry()
	flags := s.releaseFolder()
	install := func(from *registry.Registry) (locks []string) {
		t.Helper()
		gateway := s.serve("--template", template(from))
		oci := "provider_installation {\n  oci_mirror {\n    repository_template = \"" + template(from) + "\"\n    include = [\"registry.acme.example/*/*\"]\n  }\n}\n"
		for _, how := range []struct {
			client clients.Client
			config string
		}{{clients.Tofu(t), oci}, {clients.Tofu(t), world.NetworkMirror(gateway.URL)}, {clients.Terraform(t), world.NetworkMirror(gateway.URL)}} {
			ws := s.ownUser(how.config)
			ws.MustRun(t, how.client, "init", "-no-color")
			lock, err := os.ReadFile(filepath.Join(ws.Dir, ".terraform.lock.hcl"))
			clients.Must(t, err)
			locks = append(locks, string(lock))
		}
		return locks
	}
	s.pushTo(r, flags...)
	before := install(r)
	if out := s.pushTo(r, append(flags, "--docs", docs)...); !strings.Contains(out, ": completed, 3 platforms, documentation, signed by") {
		t.Errorf("push --docs: %s", out)
	}
	after := install(r)
	for i := range before {
		if after[i] != before[i] {
			t.Errorf("with documentation, the lock file is\n%s\nwithout\n%s", after[i], before[i])
		}
	}
	if out := s.mustRun("inspect", "--template", template(r), ownNull+"@"+nullVersion); !strings.Contains(out, "docs        ") {
		t.Errorf("inspect: %s", out)
	}
	s.mustRun("verify", "--packages", "--template", template(r), ownNull)

	want := s.digests("copy", "--from", template(r), "--to", "oci-archive:"+filepath.Join(t.TempDir(), "a.tar"), ownNull)
	file := "oci-archive:" + filepath.Join(t.TempDir(), "providers.tar")
	wantSame(t, "the bundle", s.copied("--from", template(r), "--to", file, ownNull), want)
	wantSame(t, "back from the bundle", s.copied("--from", file, "--to", template(other), ownNull), want)
	s.mustRun("verify", "--packages", "--template", template(other), ownNull)
	body := string(s.wait(root(s.serve("--template", template(other))) + "p/" + ownNull + "/" + nullVersion + "?doc=index"))
	if !strings.Contains(body, "Documentation") && !strings.Contains(body, "Overview") {
		t.Errorf("the page: %s", body)
	}
	s.mustRun("remove", "--template", template(other), ownNull+"@"+nullVersion)
}

// TestProviderDocs shows the documentation of a provider in a browser, and audits the pages. No text of the documentation runs.
func TestProviderDocs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	docs, err := clients.ProviderDocs()
	clients.Must(t, err)
	dir := t.TempDir()
	clients.Must(t, os.CopyFS(dir, os.DirFS(docs)))
	for name, text := range map[string]string{
		"guides/evil.md": "---\npage_title: \"<script>document.title = 'injected'</script>\"\nsubcategory: \"<img src=x onerror=alert(1)>\"\n---\n" + manualReadme,
		"data-sources/a_name_that_is_so_long_that_it_does_not_fit_on_the_screen_of_a_phone_at_all_not_even_in_two_lines.md": "---\nsubcategory: \"Clock & Calendar\"\n---\n~> **Note:** [offset](../resources/offset.md#schema)\n",
	} {
		at := filepath.Join(dir, filepath.FromSlash(name))
		clients.Must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)))
	}
	s.push(append(s.releaseFolder(), "--docs", dir)...)
	g := s.serve("--data", s.data)
	browser := newChromium(t)
	at := root(g) + "p/" + ownNull

	t.Run("pages", func(t *testing.T) {
		b := browser.tab(t)
		b.open(at)
		b.wantText("Documentation", "Resources 4", "Functions", "Overview")
		b.audit("provider-docs-list")
		b.open(at + "/" + nullVersion + "?doc=index")
		b.wantText("Overview", "The publisher’s signature does not cover it")
		b.audit("provider-docs-overview")
		b.open(at + "/" + nullVersion + "?doc=resources/offset")
		b.wantText("time_offset Resource", "Schema")
		b.audit("provider-docs-resource")
		b.open(at + "/" + nullVersion + "?doc=guides/evil")
		b.wantText("<script>document.title = 'injected'</script>", "Creates a network with subnets")
		if title := eval[string](b, `document.title`); strings.HasPrefix(title, "injected") {
			t.Errorf("the documentation runs a script: %s", title)
		}
		if n := eval[int](b, `document.querySelectorAll('main img, main iframe, main script, main [onclick], main [style]').length`); n != 0 {
			t.Errorf("%d elements that load or run something", n)
		}
		b.audit("provider-docs-evil")
		b.open(at + "?doc=data-sources/a_name_that_is_so_long_that_it_does_not_fit_on_the_screen_of_a_phone_at_all_not_even_in_two_lines")
		b.audit("provider-docs-long")
		b.do(chromedp.Click(chromedp.CSS(`.prose a[href^="?doc="]`)), chromedp.WaitReady(chromedp.CSS(`.docs a[aria-current][href*="offset"]`)))
		b.wantText("time_offset Resource")
	})
	t.Run("without scripts", func(t *testing.T) {
		b := browser.tab(t)
		b.withoutScripts()
		b.open(at + "?doc=resources/offset")
		b.wantText("time_offset Resource", "Schema")
	})
}
