package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/test/testkit/release"
)

// openModules makes the gateway use a new catalog of modules with the given folder, as after a restart, and returns a
// client. An answer is current for ttl, and with -1 every request revalidates it.
func (b *bench) openModules(folder string, ttl time.Duration) *client {
	b.t.Helper()
	if b.options.Catalog != nil {
		b.options.Catalog.Close()
	}
	var err error
	if b.options.Catalog, err = catalog.New(catalog.Options{Repository: b.options.Repository, Directory: folder, TagTTL: ttl, StaleIfError: time.Hour}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.options.Catalog.Close() })
	return b.serve()
}

// asked returns the requests for tags and manifests since the last call, without the part of the path that all share.
func (b *bench) asked() []string {
	out := []string{}
	for _, r := range b.registry.Requests() {
		_, what, _ := strings.Cut(r.Path, netModule.Path()+"/")
		out = append(out, r.Method+" "+what)
	}
	b.registry.Reset()
	return out
}

// zipOf returns the zip of a version that a client downloads.
func (c *client) zipOf(version string) string {
	c.t.Helper()
	document := modulePrefix + version + "/download"
	a := c.get(relative(document, c.location(document)))
	if a.status != http.StatusOK {
		c.t.Fatalf("%s: %+v", version, a)
	}
	return a.body
}

// TestWrongNotFoundOfModuleTag shows that the tag with a leading v is not read while the list of tags has the exact tag,
// even if the registry or a proxy says that the exact tag is absent.
func TestWrongNotFoundOfModuleTag(t *testing.T) {
	document := modulePrefix + "1.0.0/download"
	for name, listed := range map[string]bool{"with a cached list": true, "without a list": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			exact := b.publishModule(netModule, "1.0.0", "1.0.0")
			other, err := release.Zip(map[string][]byte{"main.tf": []byte("other content")})
			if err != nil {
				t.Fatal(err)
			}
			b.storeModule(netModule, "1.0.0", "v1.0.0", other)
			lie := func(w http.ResponseWriter, r *http.Request) bool {
				wrong := strings.HasSuffix(r.URL.Path, "/manifests/1.0.0")
				if wrong {
					w.WriteHeader(http.StatusNotFound)
				}
				return wrong
			}
			b.registry.Intercept(lie)
			folder := t.TempDir()
			c := b.openModules(folder, -1)
			if listed {
				c.get(modulePrefix + "versions")
			}
			if a := c.get(document); a.status != http.StatusBadGateway {
				t.Errorf("a wrong 404: %+v", a)
			}
			b.registry.Intercept(nil)
			if got := c.zipOf("1.0.0"); got != string(exact) {
				t.Errorf("the zip is not the one of the exact tag: %q", got)
			}
			b.registry.Intercept(lie)
			for what, c := range map[string]*client{"stale": c, "stale after a restart": b.openModules(folder, -1)} {
				if got := c.zipOf("1.0.0"); got != string(exact) {
					t.Errorf("%s: the zip is not the one of the exact tag: %q", what, got)
				}
			}
		})
	}
}

// TestRequestsForTagWithLeadingV shows which requests a version costs whose only tag has a leading v, and that the exact
// tag takes precedence as soon as it exists.
func TestRequestsForTagWithLeadingV(t *testing.T) {
	const list, head = "GET tags/list", "HEAD manifests/v1.0.0"
	document := modulePrefix + "1.0.0/download"
	b := newBench(t).modules()
	b.publishModule(netModule, "1.0.0", "v1.0.0")
	folder := t.TempDir()
	c := b.openModules(folder, -1)
	b.asked()
	expect := func(step string, want ...string) {
		t.Helper()
		c.location(document)
		if got := b.asked(); !slices.Equal(got, want) {
			t.Errorf("%s: the requests %q, want %q", step, got, want)
		}
	}
	expect("first, without a list", "GET manifests/1.0.0", list, "GET manifests/v1.0.0")
	expect("revalidation", list, head)
	c = b.openModules(folder, -1)
	expect("revalidation after a restart", list, head)
	folder = t.TempDir()
	c = b.openModules(folder, -1)
	c.get(modulePrefix + "versions")
	b.asked()
	c = b.openModules(folder, time.Hour)
	c.get(modulePrefix + "versions")
	expect("first, with a list from disk", "GET manifests/v1.0.0")
	c = b.openModules(folder, -1)

	content, err := release.Zip(map[string][]byte{"main.tf": []byte("other content")})
	if err != nil {
		t.Fatal(err)
	}
	b.storeModule(netModule, "1.0.0", "1.0.0", content)
	b.asked()
	expect("the exact tag exists", list, "GET manifests/1.0.0")
	expect("revalidation of the exact tag", "HEAD manifests/1.0.0")
	if got := c.zipOf("1.0.0"); got != string(content) {
		t.Errorf("the zip is not the one of the exact tag: %q", got)
	}
}

// TestTagWithLeadingVGoesAway shows that a version stays available if its manifest moves to the exact tag, and is absent
// only if the list has neither tag.
func TestTagWithLeadingVGoesAway(t *testing.T) {
	b := newBench(t).modules()
	content := b.publishModule(netModule, "1.0.0", "v1.0.0")
	b.publishModule(netModule, "1.1.0", "1.1.0")
	c := b.openModules("", -1)
	c.zipOf("1.0.0")
	b.publishModule(netModule, "1.0.0", "1.0.0") // the same manifest
	gone := func(tags ...string) {
		b.registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			for _, tag := range tags {
				if strings.HasSuffix(r.URL.Path, "/manifests/"+tag) {
					respond(http.StatusNotFound, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no"}]}`)(w, r)
					return true
				}
			}
			listed := strings.HasSuffix(r.URL.Path, "/tags/list")
			if listed {
				list := `{"tags":["1.0.0","1.1.0"]}`
				if len(tags) > 1 {
					list = `{"tags":["1.1.0"]}`
				}
				respond(http.StatusOK, "application/json", list)(w, r)
			}
			return listed
		})
	}
	gone("v1.0.0")
	if got := c.zipOf("1.0.0"); got != string(content) {
		t.Errorf("%q", got)
	}
	b.asked()
	c.location(modulePrefix + "1.0.0/download")
	if got := b.asked(); !slices.Equal(got, []string{"HEAD manifests/1.0.0"}) {
		t.Errorf("revalidation: the requests %q", got)
	}
	gone("v1.0.0", "1.0.0")
	if a := c.get(modulePrefix + "1.0.0/download"); a.status != http.StatusNotFound {
		t.Errorf("neither tag is there: %+v", a)
	}
}
