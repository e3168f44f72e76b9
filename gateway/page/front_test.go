package page_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/gateway/page"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// TestFrontNamesWhatIsServed shows that the heading and the title of the front page name what the gateway has.
func TestFrontNamesWhatIsServed(t *testing.T) {
	for name, tc := range map[string]struct {
		providers, modules bool
		want               string
	}{
		"providers": {true, false, "Providers at gateway.example"},
		"modules":   {false, true, "Modules at gateway.example"},
		"both":      {true, true, "Providers and modules at gateway.example"},
		"nothing":   {false, false, "Providers and modules at gateway.example"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).modules()
			if tc.providers {
				b.index(widget, "1.0.0", artifact.Version{})
				b.options.Configured = append(b.options.Configured, widget)
			}
			if tc.modules {
				b.pushModule(net, "1.0.0", "1.0.0", "")
				b.options.Configured = append(b.options.Configured, net)
			}
			if text := b.serve(nil).get("/").text(); !strings.HasPrefix(text, tc.want+" · ocibridge") || strings.Count(text, tc.want) != 2 {
				t.Errorf("%s is not the title and the heading:\n%s", tc.want, text)
			}
		})
	}
	b := newBench(t)
	b.options.Configured = []subject.Address{widget}
	b.serve(access.New(access.Options{})).want("/", 200, "Providers and modules at gateway.example") // what there is takes a token
}

// TestModulesTab shows that the set-up says how clients get modules, also where no address of a module can name the gateway.
func TestModulesTab(t *testing.T) {
	b := newBench(t)
	setup := page.Setup{Terraform: "a mirror"}
	b.options.Setup = func(string, bool, []svchost.Hostname, []svchost.Hostname) page.Setup { return setup }
	c := b.serve(nil)
	c.want("/", 200, "Modules No address of a module can name this gateway, because that takes a host name with a dot, and no path.", "clients need a host block for that name").lacks(t, "need no configuration", "*.tf")
	setup.Module = "module block"
	c.want("/", 200, "own host name need no configuration", "*.tf module block").lacks(t, "No address of a module")
}

// TestCA shows that everyone can download the certificate of the gateway's own CA, and that other gateways offer none.
func TestCA(t *testing.T) {
	const link, path = `<a href="./assets/ca.pem" download="ca.pem">`, "/assets/ca.pem"
	b := newBench(t)
	if a := b.serve(nil).want("/", 200, "If a private CA signed"); strings.Contains(a.body, "ca.pem") {
		t.Errorf("a CA, although there is none:\n%s", a.body)
	}
	b.serve(nil).want(path, http.StatusNotFound)
	b.options.CA = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	for _, control := range []*access.Control{nil, access.New(access.Options{})} {
		c := b.serve(control)
		if a := c.want("/", 200, "A CA of this gateway’s own signed its certificate", "compare the two files"); !strings.Contains(a.body, link) {
			t.Errorf("no link:\n%s", a.body)
		}
		if a := c.want(path, 200); a.body != string(b.options.CA) || a.header.Get("Content-Type") != "application/x-pem-file" {
			t.Errorf("%v %q", a.header, a.body)
		}
	}
}
