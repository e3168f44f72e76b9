package gateway_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// TestRegistryMethods shows that the response to HEAD has the same status and headers as the response to
// GET. Other methods are not allowed.
func TestRegistryMethods(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.options.PublicURL = parseURL(t, "https://"+host+"/")
	c := p.serve()
	const own = "/v1/providers/acme/widget/"
	sums := "1.0.0/checksums/" + r.SHA256SUMSName()
	archive := "1.0.0/linux_amd64/" + r.Package("linux", "amd64").Filename
	for _, path := range []string{
		"/.well-known/terraform.json", "/hosts/" + host + "/.well-known/terraform.json", own + "1.0.0", hostsPrefix + "1.0.0", own + "versions", hostsPrefix + "versions", own + "1.0.0/download/linux/amd64", hostsPrefix + "1.0.0/download/linux/amd64",
		own + sums, hostsPrefix + sums, hostsPrefix + sums + ".sig", own + archive, hostsPrefix + archive,
	} {
		get, head := c.get(path), c.do(http.MethodHead, path)
		get.header.Del("Date")
		get.header.Del("X-Request-Id")
		head.header.Del("Date")
		head.header.Del("X-Request-Id")
		if get.status != http.StatusOK || head.status != http.StatusOK || head.body != "" || !reflect.DeepEqual(get.header, head.header) {
			t.Errorf("%s:\nGET  %d %v\nHEAD %d %v", path, get.status, get.header, head.status, head.header)
		}
		if get.header.Get("Content-Length") != fmt.Sprint(len(get.body)) || get.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v for %d bytes", path, get.header, len(get.body))
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			if a := c.do(method, path); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %+v", method, path, a)
			}
		}
	}
	if a := c.get(hostsPrefix + sums); !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || a.header.Get("ETag") == "" {
		t.Errorf("%v", a.header)
	}
	if a := c.get(hostsPrefix + sums + ".sig"); a.header.Get("Content-Type") != "application/pgp-signature" {
		t.Errorf("%v", a.header)
	}
}

// TestRegistryPathsThatLeadNowhere shows that malformed paths get 404 or 400. They cause neither a
// redirect nor a request to the registry.
func TestRegistryPathsThatLeadNowhere(t *testing.T) {
	p := newPublisher(newBench(t))
	r := p.push(widget, "1.0.0")
	p.options.PublicURL = parseURL(t, "https://"+host+"/")
	c := p.serve()
	p.registry.Reset()
	archive := r.Package("linux", "amd64").Filename
	const base = "/hosts/" + host + "/v1/providers/"
	for what, path := range map[string]string{
		"two slashes":                     base + "/acme/widget/versions",
		"two slashes before":              "//hosts/" + host + "/v1/providers/acme/widget/versions",
		"no host":                         "/hosts//v1/providers/acme/widget/versions",
		"climbing out of the host":        "/hosts/../v1/providers/acme/widget/versions",
		"climbing, encoded":               "/hosts/%2e%2e/v1/providers/acme/widget/versions",
		"climbing as a namespace":         base + "../widget/versions",
		"climbing as a version":           hostsPrefix + "../download/linux/amd64",
		"climbing as a platform":          hostsPrefix + "1.0.0/download/../amd64",
		"climbing from checksums":         hostsPrefix + "1.0.0/checksums/..%2f..%2fversions",
		"climbing in own":                 "/v1/providers/../widget/versions",
		"encoded slash after the host":    "/hosts/" + host + "%2fv1/providers/acme/widget/versions",
		"encoded slash in the host":       "/hosts/" + host + "%2fx/v1/providers/acme/widget/versions",
		"encoded slash in a namespace":    base + "acme%2fwidget/versions",
		"encoded slash in own":            "/v1/providers/acme%2fwidget/versions",
		"encoded slash in a platform":     hostsPrefix + "1.0.0/download/linux%2famd64",
		"encoded slash in a version":      hostsPrefix + "1.0.0%2fdownload/linux/amd64",
		"NUL":                             hostsPrefix + "1.0.0%00/download/linux/amd64",
		"NUL in the host":                 "/hosts/" + host + "%00/v1/providers/acme/widget/versions",
		"backslash":                       base + `acme\widget/versions`,
		"host in upper case":              "/hosts/Registry.acme.example/v1/providers/acme/widget/versions",
		"host with a user":                "/hosts/user@" + host + "/v1/providers/acme/widget/versions",
		"host with a scheme":              "/hosts/https:/" + host + "/v1/providers/acme/widget/versions",
		"host with the default port":      "/hosts/" + host + ":443/v1/providers/acme/widget/versions",
		"host with a port that is none":   "/hosts/" + host + ":x/v1/providers/acme/widget/versions",
		"host in Unicode, upper case":     "/hosts/Испытание.com/v1/providers/acme/widget/versions",
		"host that is no Punycode":        "/hosts/xn--a/v1/providers/acme/widget/versions",
		"host that is an IPv6 address":    "/hosts/[::1]/v1/providers/acme/widget/versions",
		"namespace in upper case":         base + "Acme/widget/versions",
		"legacy namespace":                base + "-/widget/versions",
		"no type":                         base + "acme//versions",
		"no version":                      hostsPrefix + "download/linux/amd64",
		"version with a v":                hostsPrefix + "v1.0.0/download/linux/amd64",
		"version of two numbers":          hostsPrefix + "1.0/download/linux/amd64",
		"version as its tag":              hostsPrefix + "1.0.0_b/download/linux/amd64",
		"version with a large number":     hostsPrefix + "9223372036854775808.0.0/download/linux/amd64",
		"version that is a tag":           hostsPrefix + "latest/download/linux/amd64",
		"platform in upper case":          hostsPrefix + "1.0.0/download/Linux/amd64",
		"platform with two underscores":   hostsPrefix + "1.0.0/download/linux_amd64_v3/x_y",
		"joined path, encoded slash":      hostsPrefix + "1.0.0/download/linux_amd64%2f" + archive,
		"joined path, encoded in a name":  base + "acme%2fwidget/1.0.0/download/linux_amd64/" + archive,
		"joined twice":                    hostsPrefix + "1.0.0/download/download/linux_amd64/" + archive,
		"platform with a NUL":             hostsPrefix + "1.0.0/download/linux%00/amd64",
		"platform of one part":            hostsPrefix + "1.0.0/download/linux",
		"platform of three parts":         hostsPrefix + "1.0.0/download/linux/amd64/v3",
		"platform that is empty":          hostsPrefix + "1.0.0/download//amd64",
		"platform that is very long":      hostsPrefix + "1.0.0/download/linux/" + strings.Repeat("a", 9000),
		"download as a platform":          hostsPrefix + "1.0.0/download/" + archive,
		"checksums with a blank":          hostsPrefix + "1.0.0/checksums/a%20b",
		"checksums without a name":        hostsPrefix + "1.0.0/checksums/",
		"below checksums":                 hostsPrefix + "1.0.0/checksums/" + r.SHA256SUMSName() + "/x",
		"slash after versions":            hostsPrefix + "versions/",
		"versions in upper case":          hostsPrefix + "Versions",
		"service without a provider":      base,
		"another version of the service":  "/hosts/" + host + "/v2/providers/acme/widget/versions",
		"host within own":                 "/v1/providers/" + host + "/acme/widget/versions",
		"discovery of no host":            "/hosts/a_b/.well-known/terraform.json",
		"discovery with an encoded slash": "/hosts/" + host + "%2f.well-known/terraform.json",
		"discovery below v1":              "/hosts/" + host + "/v1/.well-known/terraform.json",
		"a version that is none":          hostsPrefix + "1.0",
		"a version with a slash":          hostsPrefix + "1.0.0/",
		"discovery in upper case":         "/.Well-Known/terraform.json",
		"semicolon":                       hostsPrefix + "versions;x=y",
	} {
		resp := c.getRaw(path)
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: GET %s is answered %d", what, path, resp.StatusCode)
		}
		if l := resp.Header.Get("Location"); l != "" {
			t.Errorf("%s: GET %s leads to %s", what, path, l)
		}
	}
	if n := p.registry.Count(); n != 0 {
		t.Errorf("%d requests to the registry: %v", n, p.registry.Requests())
	}
}
