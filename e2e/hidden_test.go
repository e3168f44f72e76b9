package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// TestPageOfAStoppedRegistry shows in a browser that no page hides what the gateway knows while its registry is stopped.
func TestPageOfAStoppedRegistry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	cache := filepath.Join(t.TempDir(), "cache")
	config := s.config(mirror(r.Host) + fmt.Sprintf("module_mirror {\n  repository_template = %q\n}\n", moduleTemplate(r)) + fmt.Sprintf("gateway {\n  tag_ttl = \"0s\"\n  cache {\n    directory = %q\n  }\n}\n", cache))
	s.mustRun("module", "push", s.moduleFolder(), "--as", vpc+"@"+moduleVersion, config)
	g := s.serve(config)
	empty := s.serve(s.config(mirror(r.Host))) // it has read nothing before the registry stops
	browser := newChromium(t)
	b := browser.tab(t)
	paths := map[string]string{"front": "", "search": "search?q=example", "provider": "p/" + world.Null, "module": "m/" + vpc}
	for name, path := range paths {
		if status := b.open(root(g) + path); status != http.StatusOK {
			t.Fatalf("%s: %d", name, status)
		}
		wantNoText(b, "The registry cannot", "The registry has")
	}
	r.Stop()
	for _, when := range []string{"stopped", "restarted"} {
		b.open(root(g) + "p/" + world.Null)
		waitFor(t, g, "the registry is unavailable: serving its last good answer", 1) // the gateway repeats its requests first
		for name, path := range paths {
			if status := b.open(root(g) + path); status != http.StatusOK {
				t.Errorf("%s, %s: %d", when, name, status)
			}
			b.wantText("The registry cannot answer now. This page shows its last answers, from", "ago.")
			wantNoText(b, "are known yet", "No known provider")
			switch name {
			case "front", "search":
				b.wantText("null "+nullVersion, "vpc/aws ", moduleVersion)
				wantNoText(b, "not known now")
			default:
				b.wantText("Use it")
			}
			b.audit("stopped-" + name)
		}
		clients.Must(t, g.Stop())
		g = s.serve(config)
	}
	for _, path := range []string{"", "search", "search?q=null"} {
		b.open(root(empty) + path)
		wantNoText(b, "are known yet")
	}
	b.open(root(empty))
	b.audit("stopped-empty")
	b.withoutScripts()
	b.open(root(g))
	b.wantText("This page shows its last answers, from")
}

// TestPageOfAFailingCatalog shows that pages say when only the registry's catalog fails. Single providers are still found.
func TestPageOfAFailingCatalog(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	r := s.tlsRegistry()
	s.pushTo(r, world.Null+"@"+nullVersion)
	handler, err := r.Handler()
	clients.Must(t, err)
	var fails atomic.Bool
	fails.Store(true)
	seen := recorder.New(handler)
	seen.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if !fails.Load() || !strings.HasSuffix(req.URL.Path, "/_catalog") {
			return false
		}
		http.Error(w, "down", http.StatusInternalServerError)
		return true
	})
	front := httptest.NewServer(seen)
	t.Cleanup(front.Close)
	g := s.serve(s.config(mirror(strings.TrimPrefix(front.URL, "http://"))))
	b := newChromium(t).tab(t)
	b.open(root(g) + "p/" + world.Null)
	b.wantText("Use it")
	wantNoText(b, "The registry has failed")
	b.open(root(g) + "search")
	b.wantText(world.Null, " its list of repositories") // the gateway repeats the request, so the list may only be late
	waitFor(t, g, "the page cannot list", 1)
	for _, path := range []string{"search?q=null", "search", ""} {
		b.open(root(g) + path)
		b.wantText("The registry has failed to send its list of repositories", "null "+nullVersion)
		wantNoText(b, "are known yet", "cannot answer")
	}
	b.open(root(g))
	b.audit("catalog-fails")
}

// TestCommandOfThePage runs the commands that the page prints for what is missing, and copies one of them.
func TestCommandOfThePage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	public := s.publicModules()
	zip, err := release.Zip(map[string][]byte{"main.tf": []byte("output \"x\" { value = 1 }\n")})
	clients.Must(t, err)
	public.archives["/files/dns.zip"] = zip
	public.publish("dns", "1.2.0", "https://HOST/files/dns.zip")
	g := s.serve("--data", s.data, s.config("gateway {\n  public_url = \"https://own.example/\"\n  tag_ttl = \"0s\"\n}\n"))
	at := "https://localhost" + g.Address[strings.LastIndex(strings.TrimSuffix(g.Address, "/"), ":"):]
	at = strings.TrimSuffix(at, "/") + "/"
	b := newChromium(t).tab(t)
	const ownModule = "own.example/platform/vpc/aws"
	for _, tc := range []struct{ page, command, folder string }{
		{"p/" + world.Null, "ocibridge push '" + world.Null + "@>= 0'", s.ws.Dir},
		{"m/" + publicHost + "/platform/dns/aws", "ocibridge module push '" + publicHost + "/platform/dns/aws@>= 0'", s.ws.Dir},
		{"m/" + ownModule, "ocibridge module push . --as " + ownModule + "@1.0.0", s.moduleFolder()},
		{"p/own.example/acme/widget", "ocibridge push --release-dir dist --public-key release-key.asc --as own.example/acme/widget@1.0.0", ""},
		{"p/" + world.Null + "/9.9.9", "ocibridge push " + world.Null + "@9.9.9", ""},
	} {
		if status := b.open(at + tc.page); status != http.StatusNotFound {
			t.Errorf("%s: %d\n%s", tc.page, status, b.text())
			continue
		}
		b.press(`.message .copy`, chromedp.Click(chromedp.CSS(`.message .copy`)))
		command := strings.TrimSpace(b.clipboard())
		if command != tc.command {
			t.Errorf("%s: copied %q, want %q", tc.page, command, tc.command)
		}
		b.audit("add-" + strings.NewReplacer("/", "-", ".", "-").Replace(tc.page))
		if tc.folder == "" {
			continue
		}
		s.ws.Env["PATH"] = filepath.Dir(s.bridge.Path) + ":" + os.Getenv("PATH")
		s.ws.MustRun(t, clients.Client{Name: "sh", Path: "/bin/sh"}, "-c", fmt.Sprintf("cd '%s' && %s --data '%s'", tc.folder, command, s.data))
		if status := b.open(at + tc.page); status != http.StatusOK {
			t.Errorf("%s after %s: %d\n%s", tc.page, command, status, b.text())
		}
	}
}

// TestUnknownPath shows that an unknown path is a page for browsers, and plain text for programs. Both have the status 404.
func TestUnknownPath(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	g := s.serve("--data", s.data)
	b := newChromium(t).tab(t)
	for _, path := range []string{"foo", "foo/bar", world.Null + "/index.json"} {
		if status := b.open(root(g) + path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
		b.wantText("There is no such page")
	}
	b.audit("unknown-path")
	resp, err := s.CA.HTTPClient().Get(root(g) + "foo")
	clients.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("a program gets %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
}

// TestClientsWithAWrongMirrorURL shows that clients whose network_mirror block has a wrong URL print the right one, and install
// nothing by another method.
func TestClientsWithAWrongMirrorURL(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.push(world.Null + "@" + nullVersion)
	g := s.serve("--data", s.data)
	both(t, func(t *testing.T, client clients.Client) {
		for name, wrong := range map[string]string{"no /providers/": root(g), "no slash": strings.TrimSuffix(g.URL, "/"), "another path": root(g) + "mirror/"} {
			config := strings.Replace(world.NetworkMirror(wrong), "  }\n}", "  }\n  direct {}\n}", 1)
			out := s.user(config, nullVersion).MustFail(t, client, "init", "-no-color")
			if !strings.Contains(out, "write-the-url-as:"+g.URL) {
				t.Errorf("%s: no %s in\n%s", name, g.URL, out)
			}
		}
	})
	waitFor(t, g, "hint=\"write it as url = \\\""+g.URL, 1)
}

func wantNoText(b *tab, texts ...string) {
	b.t.Helper()
	got := strings.Join(strings.Fields(b.text()), " ")
	for _, text := range texts {
		if strings.Contains(got, text) {
			b.t.Errorf("%s: %q in:\n%s", eval[string](b, `location.href`), text, got)
		}
	}
}
