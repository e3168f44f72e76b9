package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

const (
	pageWidget   = world.Host + "/acme/widget"
	pageUnsigned = world.Host + "/tools/gauge"
	pagePublic   = "registry.opentofu.org/acme/public"
	// longNamespace, longType and longVersion are realistically long.
	longNamespace = "an-organisation-with-a-really-long-name-indeed-so-long"
	longType      = "provider-with-a-name-that-goes-on-and-on-and-on-for-ever"
	longVersion   = "1.0.0-alpha.20260101.very.long.name.that.goes.on.and.on"
)

// pageScene pushes the null provider, a provider with many versions, an unsigned provider, a provider of a public
// registry and a module into the embedded registry.
func pageScene(t *testing.T) *scene {
	s := newScene(t)
	s.Origin.About("https://code.acme.example/providers", "2026-03-04T05:06:07Z")
	args := []string{world.Null + "@" + nullVersion}
	small := func(namespace, typ, version string, signed bool) string {
		spec := release.Spec{Host: world.Host, Namespace: namespace, Type: typ, Version: version, Protocols: []string{"5.0", "6.0"}}
		if signed {
			spec.Signer = s.Signer
		}
		for _, p := range [][2]string{{"linux", "amd64"}, {"darwin", "arm64"}} {
			spec.Contents = append(spec.Contents, release.Content{OS: p[0], Arch: p[1], Files: map[string][]byte{
				"terraform-provider-" + typ + "_v" + version: []byte(p[0] + p[1] + version),
			}})
		}
		s.Origin.Add(release.For(t, spec))
		return world.Host + "/" + namespace + "/" + typ + "@" + version
	}
	for i := range 21 {
		args = append(args, small("acme", "widget", fmt.Sprintf("1.%d.0", i), true))
	}
	args = append(args, small("acme", "widget", "2.0.0-beta.1", true))
	args = append(args, small(longNamespace, longType, longVersion, true))
	s.push(args...)
	s.push("--allow-unsigned", small("tools", "gauge", "0.9.1", false))
	s.push("--allow-unsigned", "--release-dir", releaseFolder(t, pagePublic, "1.0.0"), "--as", pagePublic+"@1.0.0")
	for _, version := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@"+version, "--data", s.data)
	}
	return s
}

// releaseFolder returns a folder with an unsigned release of a provider for one platform.
func releaseFolder(t *testing.T, address, version string) string {
	t.Helper()
	parts := strings.Split(address, "/")
	rel := release.For(t, release.Spec{Host: parts[0], Namespace: parts[1], Type: parts[2], Version: version, Contents: []release.Content{
		{OS: "linux", Arch: "amd64", Files: map[string][]byte{"terraform-provider-" + parts[2] + "_v" + version: []byte("content")}},
	}})
	dir := t.TempDir()
	clients.Must(t, os.WriteFile(filepath.Join(dir, rel.Packages[0].Filename), rel.Packages[0].Data, 0o600))
	clients.Must(t, os.WriteFile(filepath.Join(dir, rel.SHA256SUMSName()), rel.SHA256SUMS, 0o600))
	return dir
}

// root returns the URL of a gateway's page.
func root(g *world.Gateway) string { return strings.TrimSuffix(g.URL, "providers/") }

// TestPage uses the page in a browser, as people do, and stores screenshots in bin/screenshots. axe-core audits
// every page, wide and narrow, light and dark.
func TestPage(t *testing.T) {
	t.Parallel()
	s := pageScene(t)
	open := s.serve("--data", s.data, s.config(fmt.Sprintf("trust %q {\n  keys = [%q]\n}\ngateway {\n  deny = [{ match = %q, reason = \"it deletes volumes\" }, %q]\n}\n",
		world.Null, s.Signer.Fingerprint(), pageWidget+"@1.19.0", vpc+"@1.1.0")))
	browser := newChromium(t)

	t.Run("front", func(t *testing.T) {
		b := browser.tab(t)
		if status := b.open(root(open)); status != http.StatusOK {
			t.Fatal(status)
		}
		b.reloadUntilFilled()
		host := authority(open)
		b.wantText("Providers and modules at " + host)
		wantSetup(b, open.URL, host+"/${hostname}/${namespace}/${type}", "trust_all_hashes = true",
			root(open)+"hosts/registry.opentofu.org/v1/providers/", "Terragrunt", root(open)+"hosts/registry.opentofu.org\"", "package-ecosystem: terraform", "runs-on: ubuntu-latest", "before_script:", "pulumi package add terraform-provider "+host+"/NAMESPACE/TYPE")
		b.wantText("5 providers and 1 module", "Newest first", "Provider Newest Versions Platforms Size Signed by Last change", "null 3.2.4 1 ", "widget 1.20.0 22 2 ", "signed "+s.Signer.Fingerprint()[24:],
			"gauge 0.9.1 1 2 ", "checksum only", "registry.opentofu.org/acme public 1.0.0 1 1 ",
			"Modules Module Newest Versions Size Last change registry.acme.example/platform vpc/aws 1.2.0 3 ")
		b.audit("front")
	})
	t.Run("copy", func(t *testing.T) {
		b := browser.tab(t)
		b.open(root(open))
		press := func(button string) { t.Helper(); b.press(button, chromedp.Click(chromedp.CSS(button))) }
		press(`section[aria-labelledby=terraform] .copy`)
		if got, want := b.clipboard(), world.NetworkMirror(open.URL); got != want {
			t.Errorf("copied %q, want %q", got, want)
		}
		if got := eval[string](b, `document.querySelector('main > [role=status]').textContent`); got != "Copied configuration for Terraform" {
			t.Errorf("a screen reader hears %q", got)
		}
		b.picture("copied")
		b.open(root(open) + "p/" + world.Null)
		press(`[aria-labelledby=use] .copy`)
		if got := b.clipboard(); !strings.Contains(got, world.Null) || !strings.Contains(got, `version = "~> 3.2"`) {
			t.Errorf("copied %q", got)
		}
		b.do(chromedp.Click(chromedp.CSS(`.hashes summary`)))
		press(`[data-copy="zh hash of linux_amd64"] .copy`)
		if got, want := b.clipboard(), zipHashOf(t, s.null, "linux", "amd64"); got != want {
			t.Errorf("copied %q, want %q", got, want)
		}
		// Over plain HTTP, scripts cannot access the clipboard.
		b.open(root(open))
		eval[chromedp.Void](b, `void Object.defineProperty(navigator, 'clipboard', {value: undefined})`)
		if got, want := copied(b, "opentofu"), strings.Replace(world.NetworkMirror(open.URL), "url =", "url              =", 1); !strings.HasPrefix(got, strings.TrimSuffix(want, "  }\n}\n")) {
			t.Errorf("copied %q, want %q", got, want)
		}
	})
	t.Run("search", func(t *testing.T) {
		b := browser.tab(t)
		b.open(root(open))
		b.reloadUntilFilled()
		searchFor(b, "Example/ACME/")
		b.wantText("2 providers whose address matches", world.Null, pageWidget)
		b.audit("search")
		searchFor(b, "nothing-like-it")
		b.wantText("No known provider or module has a matching address.")
		searchFor(b, `<script>alert(1)</script>"'`)
		b.wantText(`<script>alert(1)</script>"'`)
		searchFor(b, "hashicorp/null")
		b.wantText("registry.opentofu.org/hashicorp/null", "registry.terraform.io/hashicorp/null")
		searchFor(b, "gauge")
		b.wantText("1 provider whose address matches", pageUnsigned+" 0.9.1 1 2 ")
		searchFor(b, "vpc")
		b.wantText("1 module whose address matches", vpc+" 1.2.0 3 ")
		b.audit("search-module")
		searchFor(b, "random")
		b.wantText("No known provider or module has a matching address.", "registry.opentofu.org/hashicorp/random")
		b.audit("search-guess")
		searchFor(b, world.Null)
		if got, want := eval[string](b, `location.href`), root(open)+"p/"+world.Null; got != want {
			t.Errorf("an exact address leads to %s, want %s", got, want)
		}
	})
	t.Run("provider", func(t *testing.T) {
		b := browser.tab(t)
		b.open(root(open) + "p/" + world.Null)
		b.wantText("3.2.4 newest signed pinned key", s.Signer.Fingerprint(), zipHashOf(t, s.null, "linux", "amd64"), "h1:",
			"terraform-provider-null_3.2.4_linux_amd64.zip", "linux_amd64", "newest",
			authority(open)+"/"+world.Null+":3.2.4", `version = "~> 3.2"`, "Source address "+world.Null,
			"Published 4 March 2026", "Source code https://code.acme.example/providers")
		wantFiles(b, s.CA, s.null)
		b.audit("provider")
		b.open(root(open) + "p/" + pageWidget)
		b.wantText("1.20.0 newest signed", "Page 1 of 2", "Each has packages for darwin_arm64, linux_amd64.", "2.0.0-beta.1 signed 2026-03-04", "1.19.0 denied it deletes volumes")
		b.audit("versions")
		b.do(chromedp.Click(chromedp.CSS(`a[rel=next]`)), chromedp.WaitReady(chromedp.CSS(`a[rel=prev]`)))
		b.wantText("Page 2 of 2", "1.0.0 signed")
		b.open(root(open) + "p/" + pageUnsigned)
		b.wantText("0.9.1 newest checksum only")
		b.audit("provider-unsigned")
		b.open(root(open) + "p/" + pagePublic)
		b.wantText("Source in OpenTofu acme/public", "Source in Terraform "+pagePublic)
		b.audit("provider-public")
		b.open(root(open) + "p/" + world.Host + "/" + longNamespace + "/" + longType + "/" + longVersion)
		b.audit("long-names")
	})
	t.Run("module", func(t *testing.T) { testModulePage(t, browser.tab(t), s, root(open)) })
	t.Run("filter", func(t *testing.T) { testFilter(t, browser.tab(t), root(open)+"p/"+pageWidget) })
	t.Run("order", func(t *testing.T) { testOrder(t, browser.tab(t), root(open)+"p/"+pageWidget) })
	t.Run("without scripts", func(t *testing.T) {
		b := browser.tab(t)
		b.withoutScripts()
		b.open(root(open))
		if n := eval[int](b, `document.querySelectorAll('button.copy').length`); n != 0 {
			t.Errorf("%d buttons that do nothing", n)
		}
		b.wantText(open.URL)
		b.do(chromedp.Click(chromedp.CSS(`label[for=tab-opentofu]`)))
		b.wantText("trust_all_hashes = true")
		b.open(root(open) + "?#terragrunt")
		b.wantText("or ~/.terraformrc", "Terraform then installs every provider")
		searchFor(b, world.Null)
		b.wantText("signed pinned key", zipHashOf(t, s.null, "linux", "amd64"))
		b.picture("without-scripts")
	})
	t.Run("not found", func(t *testing.T) {
		b := browser.tab(t)
		for path, want := range map[string]struct {
			status int64
			text   string
		}{
			"p/" + world.Host + "/acme/absent": {404, "There is no such provider"},
			"p/" + world.Null + "/9.9.9":       {404, "There is no such version"},
			"p/" + pageWidget + "/1.19.0":      {451, "This version is denied"},
			"elsewhere":                        {404, "There is no such page"},
		} {
			if status := b.open(root(open) + path); status != want.status {
				t.Errorf("%s: %d", path, status)
			}
			b.wantText(want.text)
		}
		b.open(root(open) + "p/" + world.Host + "/acme/absent")
		b.audit("not-found")
	})
	t.Run("registry trouble", func(t *testing.T) {
		broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "down", http.StatusServiceUnavailable)
		}))
		t.Cleanup(broken.Close)
		g := s.serve(s.config(mirror(strings.TrimPrefix(broken.URL, "http://"))))
		b := browser.tab(t)
		if status := b.open(root(g) + "p/" + world.Null); status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
			t.Errorf("status %d", status)
		}
		b.wantText("This does not mean that the provider does not exist")
		b.audit("trouble")
		b.open(root(g) + "search?q=null")
		b.wantText("search for a whole address") // it does not matter whether the registry's list is late or refused
	})
	t.Run("access", func(t *testing.T) {
		g := s.controlled("")
		b := browser.tab(t)
		if status := b.open(root(g)); status != http.StatusOK {
			t.Errorf("the front: %d", status)
		}
		b.wantText("Your token decides which providers and modules you may read", "Sign in")
		wantSetup(b, "replace the word TOKEN with it")
		if strings.Contains(b.text(), world.Host) {
			t.Errorf("users without a token see providers:\n%s", b.text())
		}
		b.audit("locked")
		for _, path := range []string{"search?q=null", "p/" + world.Null, "sign-in"} {
			if status, challenge := challenged(t, s, root(g)+path); status != http.StatusUnauthorized || !strings.HasPrefix(challenge, "Basic ") {
				t.Errorf("%s: %d, %q", path, status, challenge)
			}
		}
		b.open(strings.Replace(root(g), "https://", "https://person:"+acmeToken+"@", 1) + "sign-in")
		b.open(root(g)) // the page after a sign-in
		b.reloadUntilFilled()
		b.wantText("Signed in with token acme", "null 3.2.4", "widget 1.20.0")
		if strings.Contains(b.text(), "gauge") {
			t.Errorf("a provider of others is listed:\n%s", b.text())
		}
		if status := b.open(root(g) + "p/" + world.Null); status != http.StatusOK {
			t.Errorf("one's own provider: %d", status)
		}
		wantFiles(b, s.CA, s.null)
		b.picture("signed-in")
		for _, path := range []string{"p/" + pageUnsigned, "p/" + world.Host + "/tools/absent"} {
			if status := b.open(root(g) + path); status != http.StatusForbidden {
				t.Errorf("%s: %d", path, status)
			}
			b.wantText("Not allowed", "token acme")
		}
		b.audit("not-allowed")
		wantNoSecrets(t, g)
	})
}

// reloadUntilFilled reloads the page until its tables have all versions: on a busy machine, the first page does not wait for
// all of them.
func (b *tab) reloadUntilFilled() {
	b.t.Helper()
	for range 50 {
		if eval[bool](b, `[...document.querySelectorAll('.subjects td.newest')].every(e => e.innerText !== '')`) {
			return
		}
		b.open(eval[string](b, `location.href`))
	}
	b.t.Errorf("%s: versions are missing", eval[string](b, `location.href`))
}

// wantSetup checks the texts in all tabs of the client setup.
func wantSetup(b *tab, texts ...string) {
	b.t.Helper()
	got := eval[string](b, `document.querySelector('.tabs').textContent`)
	for _, want := range texts {
		if !strings.Contains(got, want) {
			b.t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

// searchFor types a query into the search box of a page.
func searchFor(b *tab, query string) {
	b.t.Helper()
	eval[chromedp.Void](b, `document.querySelector('#q').value = ''`)
	b.do(chromedp.SendKeys(chromedp.CSS(`#q`), query))
	if _, err := chromedp.RunResponse(b.ctx, chromedp.Submit(chromedp.CSS(`#q`))); err != nil {
		b.t.Fatal(err)
	}
}

// zipHashOf returns the zh: hash of a release's package for a platform.
func zipHashOf(t *testing.T, r *release.Release, os, arch string) string {
	t.Helper()
	for _, p := range r.Packages {
		if p.OS == os && p.Arch == arch {
			return "zh:" + p.SHA256
		}
	}
	t.Fatalf("no package for %s_%s", os, arch)
	return ""
}

// challenged sends a request without credentials, and returns the status and the challenge.
func challenged(t *testing.T, s *scene, url string) (status int, challenge string) {
	t.Helper()
	resp, err := s.CA.HTTPClient().Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("WWW-Authenticate")
}
