package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/ocibridge/ocibridge/gateway"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// getRaw sends a GET request with exactly the given path. An http.Client might normalise the path.
func (c *client) getRaw(path string) *http.Response {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.s.Listener.Addr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n\r\n", path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.t.Fatalf("GET %q: %v", path, err)
	}
	resp.Body.Close()
	return resp
}

// TestMalformedPaths shows that malformed paths get 404 or 400. They cause neither a redirect nor a request to
// the registry.
func TestMalformedPaths(t *testing.T) {
	b := newBench(t).modules()
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	b.publishModule(netModule, "1.0.0", "1.0.0")
	c := b.serve()
	for _, path := range []string{prefix + "index.json", modulePrefix + "versions"} {
		if resp := c.getRaw(path); resp.StatusCode != http.StatusOK {
			t.Fatalf("the right path %s is answered %d", path, resp.StatusCode)
		}
	}
	b.registry.Reset()
	const name = "terraform-provider-widget_1.0.0_linux_amd64.zip"
	for what, path := range map[string]string{
		"two slashes at the start":         "//providers/" + host + "/acme/widget/index.json",
		"two slashes after the mirror":     "/providers//" + host + "/acme/widget/index.json",
		"two slashes in the address":       "/providers/" + host + "//acme/widget/index.json",
		"two slashes before the document":  prefix + "/index.json",
		"climbing out":                     prefix + "../../../../index.json",
		"climbing and coming back":         prefix + "../widget/index.json",
		"climbing, encoded":                prefix + "%2e%2e/widget/index.json",
		"climbing as a namespace":          "/providers/" + host + "/%2e%2e/widget/index.json",
		"climbing as a namespace, plainly": "/providers/" + host + "/../widget/index.json",
		"climbing as a version":            prefix + "..json",
		"climbing as an archive":           prefix + "1.0.0/linux_amd64/..%2f..%2findex.json",
		"a dot":                            prefix + "./index.json",
		"encoded slash for a slash":        "/providers/" + host + "%2Facme/widget/index.json",
		"encoded slash in the mirror":      "/providers%2F" + host + "/acme/widget/index.json",
		"encoded slash before an archive":  prefix + "1.0.0%2flinux_amd64%2f" + name,
		"encoded slash twice":              "/providers/" + host + "%252Facme/widget/index.json",
		"encoded slash in a name":          prefix + "1.0.0/linux_amd64/x%2F" + name,
		"NUL":                              prefix + "1.0.0%00.json",
		"NUL in the address":               "/providers/" + host + "/acme/widget%00/index.json",
		"backslash":                        "/providers/" + host + `/acme\widget/index.json`,
		"backslash in a part":              "/providers/" + host + `/acme/wid\get/index.json`,
		"backslash, encoded":               "/providers/" + host + "/acme%5Cwidget/x/index.json",
		"newline":                          prefix + "1.0.0%0a.json",
		"not UTF-8":                        "/providers/" + host + "/acme/wid%ffget/index.json",
		"blank":                            prefix + "%201.0.0.json",
		"suffix twice":                     prefix + "1.0.0.json.json",
		"suffix in upper case":             prefix + "1.0.0.JSON",
		"suffix alone":                     prefix + ".json",
		"index twice":                      prefix + "index.json.json",
		"index in upper case":              prefix + "INDEX.json",
		"host in upper case":               "/providers/Registry.acme.example/acme/widget/index.json",
		"namespace in upper case":          "/providers/" + host + "/Acme/widget/index.json",
		"type in upper case":               "/providers/" + host + "/acme/Widget/1.0.0.json",
		"host in Unicode, in upper case":   "/providers/Испытание.com/acme/widget/index.json",
		"host in Unicode, in part":         "/providers/испытание.xn--80akhbyknj4f/acme/widget/index.json",
		"host in Unicode, not UTF-8":       "/providers/%d0%b8%d1.com/acme/widget/index.json",
		"host in Unicode, encoded twice":   "/providers/" + url.PathEscape(url.PathEscape("испытание.com")) + "/acme/widget/index.json",
		"host in Unicode, default port":    "/providers/испытание.com:443/acme/widget/index.json",
		"host that is no Punycode":         "/providers/xn--a/acme/widget/index.json",
		"host with the default port":       "/providers/" + host + ":443/acme/widget/index.json",
		"host with a port that is none":    "/providers/" + host + ":port/acme/widget/index.json",
		"host with a user":                 "/providers/user@" + host + "/acme/widget/index.json",
		"no namespace":                     "/providers/" + host + "//widget/index.json",
		"legacy namespace":                 "/providers/" + host + "/-/widget/index.json",
		"version with a v":                 prefix + "v1.0.0.json",
		"version of two numbers":           prefix + "1.0.json",
		"version of four numbers":          prefix + "1.0.0.0.json",
		"version with leading zeros":       prefix + "01.0.0.json",
		"version with a large number":      prefix + "9223372036854775808.0.0.json",
		"version in words":                 prefix + "latest.json",
		"version as its tag":               prefix + "1.0.0_build.json",
		"version that is a digest":         prefix + "sha256:" + strings.Repeat("0", 64) + ".json",
		"version that is very long":        prefix + "1.0.0-" + strings.Repeat("a", 5000) + ".json",
		"archive's version with a v":       prefix + "v1.0.0/linux_amd64/" + name,
		"archive's platform in upper case": prefix + "1.0.0/Linux_amd64/" + name,
		"archive's platform of one part":   prefix + "1.0.0/linux/" + name,
		"archive's name with a blank":      prefix + "1.0.0/linux_amd64/terraform%20" + name,
		"archive without a name":           prefix + "1.0.0/linux_amd64/",
		"path below an archive":            prefix + "1.0.0/linux_amd64/" + name + "/x",
		"semicolon":                        prefix + "1.0.0;x=y.json",
		"other document of the address":    prefix + "index.html",
		"escape that is none":              prefix + "%zz.json",

		"module: two slashes":              "/hosts/" + host + "/v1/modules//acme/net/aws/versions",
		"module: climbing":                 modulePrefix + "../aws/versions",
		"module: climbing, encoded":        modulePrefix + "%2e%2e/aws/versions",
		"module: climbing as a version":    modulePrefix + "../download",
		"module: encoded slash":            "/hosts/" + host + "/v1/modules/acme%2Fnet/x/aws/versions",
		"module: encoded slash in a part":  "/hosts/" + host + "/v1/modules/acme/net%2Faws/aws/versions",
		"module: encoded slash in a zip":   modulePrefix + "1.0.0/x%2Fnet-1.0.0.zip",
		"module: encoded slash twice":      "/hosts/" + host + "/v1/modules/acme/net%252Faws/aws/versions",
		"module: NUL":                      "/hosts/" + host + "/v1/modules/acme/net%00/aws/versions",
		"module: backslash":                "/hosts/" + host + `/v1/modules/acme/n\et/aws/versions`,
		"module: newline":                  modulePrefix + "1.0.0%0a/download",
		"module: not UTF-8":                "/hosts/" + host + "/v1/modules/acme/n%ffet/aws/versions",
		"module: system in upper case":     "/hosts/" + host + "/v1/modules/acme/net/AWS/versions",
		"module: host in upper case":       "/hosts/Registry.acme.example/v1/modules/acme/net/aws/versions",
		"module: host with a user":         "/hosts/user@" + host + "/v1/modules/acme/net/aws/versions",
		"module: host with a default port": "/hosts/" + host + ":443/v1/modules/acme/net/aws/versions",
		"module: version with a v":         modulePrefix + "v1.0.0/download",
		"module: version as its tag":       modulePrefix + "1.0.0_build/download",
		"module: version that is a digest": modulePrefix + "sha256:" + strings.Repeat("0", 64) + "/download",
		"module: version that is long":     modulePrefix + "1.0.0-" + strings.Repeat("a", 5000) + "/download",
		"module: path below a zip":         modulePrefix + "1.0.0/net-1.0.0.zip/x",
		"module: long name":                "/hosts/" + host + "/v1/modules/acme/" + strings.Repeat("a", 5000) + "/aws/versions",
	} {
		resp := c.getRaw(path)
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: GET %s is answered %d", what, path, resp.StatusCode)
		}
		if l := resp.Header.Get("Location"); l != "" {
			t.Errorf("%s: GET %s leads to %s", what, path, l)
		}
	}
	if n := b.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry: %v", n, b.registry.Requests())
	}
}

// TestUnicodeHost shows that a hostname in a path may be in Punycode or in Unicode. Clients write Punycode, and
// people write Unicode.
func TestUnicodeHost(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(provider.MustParseAddress("испытание.com/acme/widget"), "1.0.0")
	c := p.serve()
	for _, path := range []string{"/providers/%s/acme/widget/index.json", "/providers/%s/acme/widget/1.0.0.json", "/hosts/%s/v1/providers/acme/widget/versions", "/hosts/%s/.well-known/terraform.json", "/hosts/%s/v1/providers/acme/widget/1.0.0/download/linux/amd64"} {
		want := c.get(fmt.Sprintf(path, "xn--80akhbyknj4f.com"))
		if want.status != http.StatusOK || want.body == noArchives {
			t.Fatalf("%s: %+v", path, want)
		}
		if got := c.get(fmt.Sprintf(path, url.PathEscape("испытание.com"))); got.status != http.StatusOK || got.body != want.body {
			t.Errorf("%s in Unicode: %+v, want %s", path, got, want.body)
		}
		if resp := c.getRaw(fmt.Sprintf(path, "испытание.com")); resp.StatusCode != http.StatusOK {
			t.Errorf("%s in Unicode, not encoded: status %d", path, resp.StatusCode)
		}
	}
	if p.registry.Count(recorder.PathContains("xn--80akhbyknj4f.com")) != p.registry.Count() {
		t.Errorf("requests to the registry: %v", p.registry.Requests())
	}
}

// TestNamespaceWithUnderscore shows that both protocols serve providers whose namespace has an underscore.
// Terraform 1.16 accepts such namespaces.
func TestNamespaceWithUnderscore(t *testing.T) {
	p := newPublisher(newBench(t))
	p.push(provider.MustParseAddress(host+"/acme_corp/widget"), "1.0.0")
	c := p.serve()
	for _, path := range []string{"/providers/" + host + "/acme_corp/widget/1.0.0.json", "/hosts/" + host + "/v1/providers/acme_corp/widget/1.0.0/download/linux/amd64"} {
		if a := c.get(path); a.status != http.StatusOK || !strings.Contains(a.body, "terraform-provider-widget_1.0.0_linux_amd64.zip") {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

// TestNeedlessEscapesAreRead shows that a client gets the same document if characters in the path are escaped
// without need. Some proxies escape paths in this way.
func TestNeedlessEscapesAreRead(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0+build.5", map[provider.Platform][]byte{linux: zip(t, linux)})
	c := b.serve()
	for _, path := range []string{prefix + "1.0.0+build.5.json", prefix + "1.0.0%2Bbuild.5.json", prefix + "1.0.0%2bbuild%2E5%2Ejson", "/providers/" + host + "/%61cme/widget/1.0.0+build.5.json"} {
		if a := c.get(path); a.status != http.StatusOK || a.body == noArchives {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

// emptyStore is an empty repository that records the requested tags.
type emptyStore struct {
	catalog.Store
	tags []string
}

func (*emptyStore) Exists(context.Context, ocispec.Descriptor) (bool, error) { return false, nil }

func (s *emptyStore) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errdef.ErrNotFound
}

func (s *emptyStore) FetchReference(_ context.Context, ref string) (ocispec.Descriptor, io.ReadCloser, error) {
	s.tags = append(s.tags, ref)
	return ocispec.Descriptor{}, nil, errdef.ErrNotFound
}

func (s *emptyStore) Tags(context.Context, string, func([]string) error) error { return nil }

// FuzzPaths checks that a path causes a request to the registry only if it is the exact path of a resource. The
// only exception is the hostname, which may be in Punycode or in Unicode.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		prefix + "index.json", prefix + "1.0.0.json", prefix + "1.0.0-rc.1+b.json", archivePath("1.0.0", linux), "/healthz", "/v2/", "/", "*",
		hostsPrefix + "versions", hostsPrefix + "1.0.0/download/linux/amd64", hostsPrefix + "1.0.0/checksums/x", hostsPrefix + "1.0.0/linux_amd64/x.zip",
		"/v1/providers/acme/widget/versions", "/v1/providers/acme/widget/1.0.0/download/linux/amd64", "/.well-known/terraform.json", "/hosts/../v1/providers/acme/widget/versions",
		"/providers/xn--80akhbyknj4f.com/acme/widget/index.json", "/providers/%D0%B8%D1%81%D0%BF%D1%8B%D1%82%D0%B0%D0%BD%D0%B8%D0%B5.com/a_b/widget/index.json", "/providers/" + host + "/../widget/1.0.0.json", prefix + "1.0.0%2flinux_amd64%2fx.zip", prefix + "1.0.0.json.json",
	} {
		f.Add("GET", path)
	}
	for _, path := range []string{
		modulePrefix + "versions", modulePrefix + "1.0.0/download", modulePrefix + "1.0.0-rc.1+b/net-1.0.0.zip", "/v1/modules/acme/net/aws/versions", "/v1/modules/acme/net/aws/1.0.0/download",
		"/hosts/xn--80akhbyknj4f.com/v1/modules/Acme/a_b/aws/versions", "/hosts/" + host + "/v1/modules/acme%2fnet/aws/x/versions", "/hosts/" + host + "/v1/modules/../net/aws/1.0.0/download",
	} {
		f.Add("GET", path)
	}
	f.Add("POST", prefix+"index.json")
	f.Fuzz(func(t *testing.T, method, path string) {
		u, err := url.ParseRequestURI(path) // as net/http's server does
		if err != nil {
			return
		}
		var asked []provider.Address
		var modules []module.Address
		store := &emptyStore{}
		h := gateway.NewBacked(gateway.Backed{Options: gateway.Options{PublicURL: &url.URL{Scheme: "https", Host: "own.example"}}, Repository: func(_ context.Context, of subject.Address) (catalog.Store, error) {
			switch a := of.(type) {
			case provider.Address:
				asked = append(asked, a)
			case module.Address:
				modules = append(modules, a)
			}
			return store, nil
		}})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{Method: method, URL: u, RequestURI: path, Header: http.Header{}, Host: "gateway.example", Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1})
		if len(modules) > 0 {
			if modules = slices.Compact(modules); len(asked) > 0 || len(modules) != 1 || method != http.MethodGet && method != http.MethodHead || !isOfModule(u.Path, modules[0], store.tags) {
				t.Fatalf("%s %q asks for %v, %v and the tags %q", method, path, asked, modules, store.tags)
			}
			return
		}
		if len(asked) == 0 {
			document := (u.Path == "/healthz" || u.Path == "/.well-known/terraform.json") && w.Code == http.StatusOK
			if !document && w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %q is answered %d without the registry", method, path, w.Code)
			}
			return
		}
		if asked = slices.Compact(asked); len(asked) != 1 || method != http.MethodGet && method != http.MethodHead {
			t.Fatalf("%s %q asks for %v", method, path, asked)
		}
		rest, mirror, ok := below(u.Path, asked[0])
		if !ok {
			t.Fatalf("%q asks for %s", path, asked[0])
		}
		if len(store.tags) == 0 {
			if mirror && rest != "index.json" || !mirror && rest != "versions" {
				t.Fatalf("%q asks for the versions of %s", path, asked[0])
			}
			return
		}
		v, ok := ociaddr.Tag(store.tags[0]).Version()
		if !ok {
			t.Fatalf("%q asks for the tag %q", path, store.tags[0])
		}
		if !ofVersion(rest, v, mirror) {
			t.Fatalf("%q asks for %s %s", path, asked[0], v)
		}
	})
}

// isOfModule reports whether a path is the path of a document or of the zip of a module, for which the gateway reads the
// given tags, or lists the tags if it reads none.
func isOfModule(path string, a module.Address, tags []string) bool {
	service := "/v1/modules/" + a.Namespace() + "/" + a.Name() + "/" + a.System() + "/"
	shown, _, _ := strings.Cut(a.String(), "/")
	rest, ok := strings.CutPrefix(path, "/hosts/"+a.Hostname()+service)
	if !ok {
		rest, ok = strings.CutPrefix(path, "/hosts/"+shown+service)
	}
	if !ok && a.Hostname() == "own.example" {
		rest, ok = strings.CutPrefix(path, service)
	}
	if len(tags) == 0 {
		return ok && rest == "versions"
	}
	v, isVersion := ociaddr.Tag(tags[0]).Version()
	file, ofVersion := strings.CutPrefix(rest, v.String()+"/")
	return ok && isVersion && ofVersion && !strings.Contains(file, "/") && !slices.ContainsFunc(tags, func(tag string) bool { return strings.TrimPrefix(tag, "v") != tags[0] })
}

// below returns the part of a path that follows the path of a provider. mirror is true for a path of the
// network mirror, and false for a path of the provider registry protocol. ok is false if the path does not
// belong to the provider.
func below(path string, a provider.Address) (rest string, mirror, ok bool) {
	service := "/v1/providers/" + a.Namespace() + "/" + a.Type() + "/"
	shown, _, _ := strings.Cut(a.String(), "/")
	for _, host := range []string{a.Hostname(), shown} { // in Punycode and in Unicode
		if rest, ok = strings.CutPrefix(path, "/providers/"+host+"/"+a.Namespace()+"/"+a.Type()+"/"); ok {
			return rest, true, true
		}
		if rest, ok = strings.CutPrefix(path, "/hosts/"+host+service); ok {
			return rest, false, true
		}
	}
	rest, ok = strings.CutPrefix(path, service)
	return rest, false, ok && a.Hostname() == "own.example"
}

// ofVersion reports whether a path is the path of a document or a file of the version. rest is the part of the
// path that [below] returns.
func ofVersion(rest string, v provider.Version, mirror bool) bool {
	if mirror && rest == v.String()+".json" {
		return true
	}
	first, second, ok := strings.Cut(strings.TrimPrefix(rest, v.String()+"/"), "/")
	if !ok {
		return false
	}
	switch goos, arch, _ := strings.Cut(second, "/"); {
	case !mirror && first == "download":
		_, err := provider.NewPlatform(goos, arch)
		return err == nil
	case !mirror && first == "checksums":
		return provider.ValidFilename(second)
	}
	_, err := provider.ParsePlatform(first)
	return err == nil && provider.ValidFilename(second)
}
