package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestFrontPage uses the tables, the search while typing and the tabs of the front page in a browser, and the provider
// page's links between the two public registries.
func TestFrontPage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	for i, address := range []string{"registry.acme.example/acme/p2", "registry.acme.example/acme/p10", "registry.terraform.io/acme/twin", "registry.opentofu.org/acme/twin"} {
		version := fmt.Sprintf("1.%d.0", i)
		s.push("--allow-unsigned", "--release-dir", releaseFolder(t, address, version), "--as", address+"@"+version)
	}
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@1.0.0", "--data", s.data)
	g := s.serve("--data", s.data)
	browser := newChromium(t)

	t.Run("table", func(t *testing.T) {
		b := browser.tab(t)
		b.withoutScripts()
		b.open(root(g))
		b.reloadUntilFilled()
		b.wantText("5 providers and 1 module", "registry.acme.example/acme null 3.2.4 1 3", "p2 1.0.0 1 1 ", "p10 1.1.0 1 1", "signed "+s.Signer.Fingerprint()[24:])
		column := func(class string) []int {
			return eval[[]int](b, fmt.Sprintf(`[...new Set([...document.querySelectorAll('.subjects tr:not(.group) .%s')].map(e => Math.round(e.getBoundingClientRect().left)))]`, class))
		}
		for _, class := range []string{"newest", "date", "size"} {
			if at := column(class); len(at) != 1 {
				t.Errorf("the column %s begins at %v", class, at)
			}
		}
		newest := func(want string) {
			t.Helper()
			got := ""
			for range 50 { // the page's list of repositories is a second old
				b.open(root(g) + "?order=newest")
				if got = eval[string](b, `document.querySelector('.subjects tbody tr').innerText`); strings.HasPrefix(got, want) {
					return
				}
			}
			t.Errorf("the last change is %q, want %q", got, want)
		}
		newest("registry.opentofu.org/acme/twin\t1.3.0\t1\t")
		s.push("--allow-unsigned", "--release-dir", releaseFolder(t, "registry.acme.example/acme/p2", "1.9.0"), "--as", "registry.acme.example/acme/p2@1.9.0")
		newest("registry.acme.example/acme/p2\t1.9.0\t2\t")
		b.wantText("In the order of the last push where it is known, or else of the publication. Providers")
		b = browser.tab(t)
		b.open(root(g) + "?order=newest")
		b.audit("front-newest")
	})
	t.Run("typing", func(t *testing.T) {
		b := browser.tab(t)
		b.open(root(g))
		b.do(chromedp.KeyEvent("/"))
		if !eval[bool](b, `document.activeElement === document.querySelector('#q')`) {
			t.Error("/ does not lead to the search box")
		}
		found := func(query string, want ...string) {
			t.Helper()
			eval[chromedp.Void](b, `document.querySelector('#q').value = ''`)
			b.do(chromedp.SendKeys(chromedp.CSS(`#q`), query))
			got := eval[string](b, fmt.Sprintf(`(async () => {
  const read = () => [...document.querySelectorAll('.suggestions:not([hidden]) a')].map(a => a.innerText).join('|')
  for (let i = 0; i < 500 && read() !== %[1]q; i++) await new Promise(done => setTimeout(done, 20))
  return read()
})()`, strings.Join(want, "|")))
			if got != strings.Join(want, "|") {
				t.Errorf("%q suggests %q, want %q", query, got, want)
			}
		}
		found("twin", "registry.opentofu.org/acme/twin", "registry.terraform.io/acme/twin")
		b.audit("suggestions")
		found("aws", vpc+" module")
		found("https://registry.terraform.io/providers/acme/twin/1.2.0/docs", "registry.terraform.io/acme/twin 1.2.0")
		found("twin", "registry.opentofu.org/acme/twin", "registry.terraform.io/acme/twin")
		b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
		if got := eval[string](b, `document.activeElement.innerText`); got != "registry.terraform.io/acme/twin" {
			t.Errorf("two arrows lead to %q", got)
		}
		if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
			t.Fatal(err)
		}
		b.wantText("1.2.0 newest checksum only", "The same provider for OpenTofu")
		b.do(chromedp.Click(chromedp.CSS(`dd a[href$="registry.opentofu.org/acme/twin"]`)), chromedp.WaitReady(chromedp.CSS(`dd a[href$="registry.terraform.io/acme/twin"]`)))
		b.wantText("1.3.0 newest", "The same provider for Terraform")
		b.audit("twin")
		searchFor(b, s.Signer.Fingerprint())
		b.wantText("1 provider signed with this key", world.Null)
		b.audit("search-key")
		searchFor(b, strings.Repeat("0123ABCD", 5))
		b.wantText("This key signed no newest version")
	})
	t.Run("tabs", func(t *testing.T) {
		b := browser.tab(t)
		b.open(root(g))
		b.wantText("Terraform then installs every provider")
		if high := eval[int](b, `document.documentElement.scrollHeight`); high > 2200 {
			t.Errorf("the page is %d pixels high", high)
		}
		b.do(chromedp.Click(chromedp.CSS(`label[for=tab-opentofu]`)))
		b.wantText("trust_all_hashes = true")
		b.open(root(g)) // the browser remembers the client
		b.wantText("trust_all_hashes = true")
		b.audit("tabs")
		b.open(root(g) + "?#host")
		b.wantText("this gateway answers for the registries themselves")
	})
	t.Run("phone", func(t *testing.T) {
		b := browser.tab(t)
		b.phone()
		if status := b.open(root(g) + "p/" + world.Null); status != http.StatusOK {
			t.Fatal(status)
		}
		// A line of a name ends where a word ends: no text box of a piece of a name is broken.
		if broken := eval[[]string](b, `[...document.querySelectorAll('h1, .packages .file')].flatMap(e => {
  const texts = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), out = []
  while (texts.nextNode()) {
    const range = document.createRange()
    range.selectNodeContents(texts.currentNode)
    if (texts.currentNode.data.trim() && new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) out.push(texts.currentNode.data)
  }
  return out.filter(text => !/[ -]/.test(text.trim()))
})`); len(broken) > 0 {
			t.Errorf("broken words: %q", broken)
		}
	})
}
