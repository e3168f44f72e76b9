package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/tlsca"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// download fetches the file behind a link of the page, without the browser's credentials.
func download(b *tab, ca *tlsca.CA, name string) []byte {
	b.t.Helper()
	url := eval[string](b, fmt.Sprintf(`document.querySelector('a[download=%q]').href`, name))
	resp, err := ca.HTTPClient().Get(url)
	clients.Must(b.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	clients.Must(b.t, err)
	if resp.StatusCode != http.StatusOK {
		b.t.Errorf("%s: %s: %s", url, resp.Status, data)
	}
	return data
}

// wantFiles checks the downloads on the page of a release's version.
func wantFiles(b *tab, ca *tlsca.CA, r *release.Release) {
	b.t.Helper()
	for _, p := range r.Packages {
		if sum := fmt.Sprintf("%x", sha256.Sum256(download(b, ca, p.Filename))); sum != p.SHA256 {
			b.t.Errorf("%s has the sum %s, want %s", p.Filename, sum, p.SHA256)
		}
	}
	if got := download(b, ca, r.SHA256SUMSName()); !bytes.Equal(got, r.SHA256SUMS) {
		b.t.Errorf("the checksum document is %q, want %q", got, r.SHA256SUMS)
	}
	if got := download(b, ca, r.SHA256SUMSName()+".sig"); !bytes.Equal(got, r.Signature) {
		b.t.Errorf("the signature is %q, want %q", got, r.Signature)
	}
	keys := string(download(b, ca, fmt.Sprintf("terraform-provider-%s_%s_keys.asc", r.Type, r.Version)))
	if got, want := strings.TrimSpace(keys), strings.TrimSpace(r.Keys[0].ASCIIArmor); got != want {
		b.t.Errorf("the keys are %q, want %q", got, want)
	}
}

// testModulePage opens the page of the module that pageScene has pushed, and its denied version.
func testModulePage(t *testing.T, b *tab, s *scene, root string) {
	b.open(root + "m/" + vpc)
	host := strings.TrimSuffix(strings.TrimPrefix(root, "https://"), "/")
	b.wantText("1.2.0 module newest", `source = "`+vpc+`"`, `version = "~> 1.2"`, `source = "oci://`+host+"/modules/"+vpc+`?tag=1.2.0"`,
		`"modules.v1" = "https://`+host+`/hosts/registry.acme.example/v1/modules/"`, "h1:", "1.1.0 denied", "Nobody signs modules", host+"/modules/"+vpc+":1.2.0")
	digest := eval[string](b, `document.querySelector('[data-copy="digest of the zip"] code').textContent`)
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(download(b, s.CA, "vpc-1.2.0.zip"))); got != digest {
		t.Errorf("the zip has the digest %s, want %s", got, digest)
	}
	b.press(`[aria-labelledby=use] .copy`, chromedp.Click(chromedp.CSS(`[aria-labelledby=use] .copy`)))
	if got := b.clipboard(); !strings.HasPrefix(got, "module \"vpc\" {\n  source  = ") {
		t.Errorf("copied %q", got)
	}
	b.audit("module")
	if status := b.open(root + "m/" + vpc + "/1.1.0"); status != http.StatusUnavailableForLegalReasons {
		t.Errorf("a denied version: %d", status)
	}
	b.wantText("This version is denied")
	if status := b.open(root + "m/" + world.Host + "/acme/absent/aws"); status != http.StatusNotFound {
		t.Errorf("an absent module: %d", status)
	}
	b.wantText("There is no such module")
	b.audit("module-absent")
}

// testFilter filters the versions of pageWidget.
func testFilter(t *testing.T, b *tab, page string) {
	filter := func(text string, want ...string) {
		t.Helper()
		eval[chromedp.Void](b, `document.querySelector('#filter').value = ''`)
		b.do(chromedp.SendKeys(chromedp.CSS(`#filter`), text))
		if _, err := chromedp.RunResponse(b.ctx, chromedp.Submit(chromedp.CSS(`#filter`))); err != nil {
			t.Fatal(err)
		}
		b.wantText(want...)
	}
	b.open(page)
	filter("1.2", "2 of 22 versions match", "1.20.0 signed", "1.2.0 signed")
	b.audit("filter")
	filter("beta", "1 of 22 versions match", "2.0.0-beta.1 signed")
	filter("~> 1.18", "3 of 22 versions match", "1.19.0 denied")
	filter("< 99", "21 of 22 versions match", "Page 1 of 2")
	b.do(chromedp.Click(chromedp.CSS(`a[rel=next]`)), chromedp.WaitReady(chromedp.CSS(`a[rel=prev]`)))
	b.wantText("21 of 22 versions match", "Page 2 of 2", "1.0.0 signed")
	filter("~> one", "This is not a version constraint")
	b.audit("filter-refused")
}

// testOrder checks that the versions come before the packages on a phone, and beside them on a desktop.
func testOrder(t *testing.T, b *tab, page string) {
	b.open(page)
	top := func(class string) int {
		return eval[int](b, fmt.Sprintf(`Math.round(document.querySelector(%q).getBoundingClientRect().top)`, class))
	}
	b.phone()
	if use, versions, details := top(".overview"), top(".versions"), top(".details"); use >= versions || versions >= details {
		t.Errorf("on a phone, the overview is at %d, the versions at %d, the details at %d", use, versions, details)
	}
	b.desktop()
	if use, versions := top(".overview"), top(".versions"); use != versions {
		t.Errorf("on a desktop, the overview is at %d, the versions at %d", use, versions)
	}
}

// wantLock pastes the block of the lock file from the page, and checks that a client accepts the block unchanged.
func wantLock(t *testing.T, b *tab, ws *clients.Workspace, client clients.Client) {
	t.Helper()
	clients.Must(t, ws.Clean())
	clients.Must(t, os.WriteFile(filepath.Join(ws.Dir, clients.LockFileName), []byte(copied(b, "lock")), 0o644))
	ws.MustRun(t, client, "init", "-no-color", "-lockfile=readonly")
	if got := ws.MustLock(t)[world.Null].Version; got != nullVersion {
		t.Errorf("%s has locked %q", client.Name, got)
	}
}
