package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// chromium is one headless browser. Its tabs share nothing but the browser's process.
type chromium struct {
	t    *testing.T
	ctx  context.Context
	axe  string // the source of axe-core
	shot string // folder of screenshots
}

func newChromium(t *testing.T) *chromium {
	t.Helper()
	path := clients.Program(t, "chromium").Path
	root, err := clients.Root()
	clients.Must(t, err)
	axe, err := os.ReadFile(clients.Axe(t))
	clients.Must(t, err)
	c := &chromium{t: t, axe: string(axe), shot: filepath.Join(root, "bin", "screenshots")}
	clients.Must(t, os.MkdirAll(c.shot, 0o755))
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors,
		chromedp.WSURLReadTimeout(startTimeout),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true),
		// The browser connects only to this machine.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost"),
	)
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	c.ctx = ctx
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return c
}

// tab is a tab with its own credentials and storage.
type tab struct {
	*chromium
	t   *testing.T
	ctx context.Context
}

// startTimeout is the maximum time for the start of the browser. tabTimeout is the maximum time for all work in
// a tab. Both are long enough for a busy machine. On an idle machine, the slowest tab takes half a minute.
const startTimeout, tabTimeout = 2 * time.Minute, 10 * time.Minute

func (c *chromium) tab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	out := &tab{c, t, ctx}
	out.do()
	bounded, stop := context.WithTimeout(ctx, tabTimeout)
	t.Cleanup(stop)
	out.ctx = bounded
	call(out, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	out.desktop()
	return out
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates an expression in the page. The page's content security policy does not apply to the
// expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression[:min(len(expression), 200)], err)
	}
	return v
}

// open opens a page, and returns the HTTP status.
func (b *tab) open(url string) int64 {
	b.t.Helper()
	resp, err := chromedp.Run(b.ctx, chromedp.NavigateResponse(url))
	if err != nil {
		b.t.Fatalf("%s: %v", url, err)
	}
	return resp.Status
}

func (b *tab) desktop() { b.do(chromedp.EmulateViewport(1280, 860)) }

// phone makes the tab as narrow as a small phone.
func (b *tab) phone() {
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch))
}

// scheme sets the color scheme, light or dark.
func (b *tab) scheme(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

func (b *tab) withoutScripts() {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// press presses a copy button with the given actions, and waits until the button confirms the copy. The
// confirmation lasts only two seconds, so code in the page watches for it.
func (b *tab) press(button string, how ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	eval[chromedp.Void](b, fmt.Sprintf(`void (window.pressed = new Promise(done => {
  const button = document.querySelector(%q)
  new MutationObserver(() => done(button.getAttribute('aria-label'))).observe(button, {attributeFilter: ['aria-label']})
}))`, button))
	b.do(how...)
	if got := eval[string](b, `window.pressed`); !strings.HasPrefix(got, "Copied ") {
		b.t.Errorf("%s says %q", button, got)
	}
}

// clipboard returns the content of the clipboard.
func (b *tab) clipboard() string {
	b.t.Helper()
	_, err := chromedp.CallBrowser(b.ctx, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "clipboard-read"}, Setting: browser.PermissionSettingGranted,
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
	})
	clients.Must(b.t, err)
	return eval[string](b, `navigator.clipboard.readText()`)
}

// text returns the visible text of a page.
func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, `document.body.innerText`)
}

func (b *tab) wantText(texts ...string) {
	b.t.Helper()
	got := strings.Join(strings.Fields(b.text()), " ")
	for _, want := range texts {
		if !strings.Contains(got, want) {
			b.t.Errorf("%s: no %q in:\n%s", eval[string](b, `location.href`), want, got)
		}
	}
}

// picture saves a screenshot of the whole page.
func (b *tab) picture(name string) {
	b.t.Helper()
	data, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	clients.Must(b.t, err)
	clients.Must(b.t, os.WriteFile(filepath.Join(b.shot, name+".png"), data, 0o644))
}

// audit shows the page in both widths and both color schemes, saves a screenshot of each, and runs axe-core. Two of the four
// pairs suffice: no style depends on the width and the scheme together, and no element is visible in one width alone. The second
// pair has the same elements, so that only the rules about colors and scrolling can find more there.
func (b *tab) audit(name string) {
	b.t.Helper()
	if !eval[bool](b, `typeof window.axe !== 'undefined'`) {
		eval[chromedp.Void](b, b.axe+"\n;undefined")
	}
	for _, look := range []struct {
		width, scheme string
		set           func()
		rules         string // all if it is empty
	}{{"desktop", "light", b.desktop, ""}, {"phone", "dark", b.phone, ", runOnly: ['color-contrast', 'link-in-text-block', 'scrollable-region-focusable']"}} {
		look.set()
		b.scheme(look.scheme)
		where := fmt.Sprintf("%s-%s-%s", name, look.width, look.scheme)
		for _, v := range eval[[]string](b, fmt.Sprintf(runAxe, look.rules)) {
			b.t.Errorf("%s: %s", where, v)
		}
		if wide := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
			b.t.Errorf("%s: the page is %d pixels too wide", where, wide)
		}
		b.picture(where)
	}
	b.desktop()
	b.scheme("light")
}

// runAxe is the format of a script that returns axe-core's findings, with one line for each finding.
const runAxe = `axe.run({resultTypes: ['violations']%s}).then(r => r.violations.map(v =>
  v.id + ': ' + v.help + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join('; ')))`

// call sends a command to the tab.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}
