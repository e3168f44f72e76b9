package gateway_test

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/gateway/lastuse"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
)

// usageOf sends a request with a header, and returns what the log line of the request says about the use of a version.
func (b *bench) usageOf(c *client, method, path, header, value string) string {
	b.t.Helper()
	before := len(b.log.String())
	with := *c.http
	with.Transport = withHeader{header, value, c.http.Transport}
	(&client{c.t, c.s, &with}).do(method, path)
	line := b.log.String()[before:]
	if !strings.Contains(line, "msg=request") {
		b.t.Fatalf("%s %s: no line in the log", method, path)
	}
	return strings.Join(regexp.MustCompile(`\b(?:provider|module|version|sent)=\S+`).FindAllString(line, -1), " ")
}

// TestLogSaysWhichVersionIsUsed shows which lines of the log name a version, how much of a package was sent, and which requests
// count as uses.
func TestLogSaysWhichVersionIsUsed(t *testing.T) {
	b := newBench(t).modules()
	b.cache()
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: random(1000)})
	b.publishModule(netModule, "1.0.0", "v1.0.0")
	b.publishModule(otherModule, "1.0.0", "1.0.0")
	repo, err := ociaddr.ParseRepository("registry.example.com/acme/other")
	if err != nil {
		t.Fatal(err)
	}
	b.options.ModuleRepository = func(a module.Address) (ociaddr.Repository, bool) { return repo, a == otherModule }
	b.options.LastUses = lastuse.New()
	b.options.PublicURL = &url.URL{Scheme: "https", Host: host, Path: "/"}
	b.catalog(catalog.Options{})
	c := b.serve()
	const (
		ofWidget = "provider=registry.acme.example/acme/widget version=1.0.0"
		ofNet    = "module=registry.acme.example/acme/net/aws version=1.0.0"
		other    = "/v1/modules/acme/other/aws/1.0.0/download"
	)
	pkg := archivePath("1.0.0", linux)
	zip := relative(modulePrefix+"1.0.0/download", c.location(modulePrefix+"1.0.0/download"))
	lastUse := func() (last time.Time) {
		for _, of := range []subject.Address{widget, netModule, otherModule} {
			if at, _ := b.options.LastUses.Last(of, provider.MustParseVersion("1.0.0")); at.After(last) {
				last = at
			}
		}
		return last
	}
	etag := c.get(pkg).header.Get("Etag")
	for _, tt := range []struct{ name, method, path, header, value, want string }{
		{name: "list", path: prefix + "index.json"},
		{name: "description", path: prefix + "1.0.0.json", want: ofWidget},
		{name: "description from memory", path: prefix + "1.0.0.json", want: ofWidget},
		{name: "description of an absent version", path: prefix + "2.0.0.json"},
		{name: "package", path: pkg, want: ofWidget + " sent=whole"},
		{name: "package on the gateway's own host", path: strings.Replace(pkg, "/providers/"+host, "/v1/providers", 1), want: ofWidget + " sent=whole"},
		{name: "HEAD", method: http.MethodHead, path: pkg, want: ofWidget},
		{name: "known package", path: pkg, header: "If-None-Match", value: etag, want: ofWidget},
		{name: "first bytes", path: pkg, header: "Range", value: "bytes=0-99", want: ofWidget + " sent=part"},
		{name: "last bytes", path: pkg, header: "Range", value: "bytes=100-", want: ofWidget + " sent=end"},
		{name: "all bytes as a range", path: pkg, header: "Range", value: "bytes=0-", want: ofWidget + " sent=whole"},
		{name: "no bytes", path: pkg, header: "Range", value: "bytes=5000-", want: ofWidget},
		{name: "absent package", path: archivePath("2.0.0", linux)},
		{name: "versions of a module", path: modulePrefix + "versions"},
		{name: "location of a module", path: modulePrefix + "1.0.0/download", want: ofNet},
		{name: "details of a module", path: modulePrefix + "1.0.0"},
		{name: "zip of a module", path: zip, want: ofNet + " sent=whole"},
		{name: "location in the registry", path: other, want: "module=registry.acme.example/acme/other/aws version=1.0.0 sent=redirect"},
	} {
		before := lastUse()
		if got := b.usageOf(c, cmp.Or(tt.method, http.MethodGet), tt.path, cmp.Or(tt.header, "Accept"), tt.value); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if used, want := lastUse().After(before), tt.want != "" && tt.method == "" && tt.name != "no bytes"; used != want {
			t.Errorf("%s: remembered as a use: %t, want %t", tt.name, used, want)
		}
	}
}
