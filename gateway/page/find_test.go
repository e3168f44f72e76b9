package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/gateway/access"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// inOrder checks that a page has texts in the given order.
func (a answer) inOrder(t *testing.T, texts ...string) {
	t.Helper()
	rest := a.text()
	for _, text := range texts {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			t.Errorf("no %q, or not in this order, in:\n%s", text, a.text())
			return
		}
		rest = after
	}
}

// TestOrderOfTheFrontPage shows both orders of the table: by host, namespace and name in natural order, and the last change
// first. The pages of one table keep the order and the page of the other.
func TestOrderOfTheFrontPage(t *testing.T) {
	b := newBench(t)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, name := range []string{"p10", "p2", "p1", "q"} {
		b.options.Configured = append(b.options.Configured, provider.MustParseAddress("a.example/acme/"+name))
	}
	b.options.Configured = append(b.options.Configured, widget, net)
	for i := range 30 {
		b.options.Configured = append(b.options.Configured, provider.MustParseAddress(fmt.Sprintf("elsewhere.example/z/t%d", i)))
	}
	b.origin.About("", "2026-03-04T05:06:07Z")
	b.push(widget, "1.0.0", true)
	b.options.Policy = func(provider.Address) trust.Policy { return trust.Policy{Keys: []string{b.signer.Fingerprint()}} }
	c := b.serve(nil)
	a := c.want("/", 200, "35 providers and 1 module", "Page 1 of 2")
	a.inOrder(t, "a.example/acme p1 p2 p10 q elsewhere.example/z t0 t1 t2 t3", "t10")
	c.want("/?providers=2", 200, "Page 2 of 2", "widget 1.0.0 1 2 ", "signed "+b.signer.Fingerprint()[24:]+" pinned key "+now.Format(time.DateOnly))
	a = c.want("/?order=newest", 200)
	a.inOrder(t, "Last change "+host+"/acme/widget 1.0.0", "a.example/acme/p1", "a.example/acme/p2", "Page 1 of 2")
	if !strings.Contains(a.body, `href="?order=newest&amp;providers=2#providers"`) {
		t.Errorf("no link to the next page:\n%s", a.body)
	}
}

// TestSearchForAKey shows that a search finds the providers that a key has signed, by its fingerprint in the forms in which
// people paste it, and by its ID.
func TestSearchForAKey(t *testing.T) {
	b := newBench(t)
	b.push(widget, "1.0.0", true)
	pinned := provider.MustParseAddress(host + "/acme/pinned")
	b.index(pinned, "1.0.0", artifact.Version{})
	b.options.Configured = []subject.Address{widget, pinned}
	fingerprint, other := b.signer.Fingerprint(), strings.Repeat("0123ABCD", 5)
	b.options.Policy = func(a provider.Address) trust.Policy {
		if a == pinned {
			return trust.Policy{Keys: []string{other}}
		}
		return trust.Policy{}
	}
	c := b.serve(nil)
	const whileTyping = "/search?suggest&q="
	c.want(whileTyping+fingerprint, 200, "Press Enter to search for the key") // nobody has read any signature yet
	for _, query := range []string{fingerprint, strings.ToLower(fingerprint), "0x" + fingerprint, fingerprint[24:], fingerprint[:20] + " " + fingerprint[20:]} {
		if a := c.want(escaped(query), 200, "1 provider signed with this key", widget.String()); a.has("acme/pinned") {
			t.Errorf("%s finds a provider of another key", query)
		}
	}
	c.want(escaped(other), 200, "1 provider signed with this key", pinned.String())
	c.want(whileTyping+fingerprint, 200, widget.String(), "1 provider")
	c.want(escaped(strings.Repeat("F", 40)), 200, "This key signed no newest version")
	c.want(escaped(fingerprint[32:]), 200, "No known provider") // anybody can make a key with a given 32-bit ID
}

// TestSuggestions shows that the answers to a search while typing are few, cause no request to the registry, and neither show
// what the client may not read nor make a browser prompt for a token.
func TestSuggestions(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.options.Configured = append(b.options.Configured, provider.MustParseAddress(fmt.Sprintf("%s/acme/p%d", host, i)))
	}
	b.options.Configured = append(b.options.Configured, provider.MustParseAddress(host+"/secret/p1"))
	control := access.New(access.Options{Tokens: []access.Token{token("acme", "acme-token", host+"/acme/*")}})
	c := b.serve(control)
	suggest := func(query string) (out struct {
		Found []struct{ Kind, Address, Page string }
		Total string
	}) {
		a := c.want("/search?suggest&q="+url.QueryEscape(query), 200)
		b.must(json.Unmarshal([]byte(a.body), &out))
		return out
	}
	if a := c.want("/search?suggest&q=p", http.StatusUnauthorized); a.header.Get("WWW-Authenticate") != "" || strings.Contains(a.body, host) {
		t.Errorf("without a token: %v %s", a.header, a.body)
	}
	c.authorization = "Bearer acme-token"
	b.registry.Reset()
	if got := suggest("p1"); len(got.Found) != 8 || got.Total != "11 providers" || got.Found[0].Address != host+"/acme/p1" || got.Found[1].Address != host+"/acme/p10" {
		t.Errorf("p1: %+v", got)
	}
	if got := suggest("secret"); len(got.Found) != 0 {
		t.Errorf("secret: %+v", got)
	}
	for query, want := range map[string]string{
		`provider = { source = "` + host + `/acme/p3" version = "~> 1" }`:                        "p/" + host + "/acme/p3",
		"HTTP://registry.terraform.io/providers/acme/vpc/1.2.3":                                  "p/registry.terraform.io/acme/vpc/1.2.3",
		host + "/acme/p3 v1.2.3":                                                                 "p/" + host + "/acme/p3/1.2.3",
		"https://app.terraform.io/app/acme/registry/modules/private/acme/vpc/aws/1.2.3":          "m/app.terraform.io/acme/vpc/aws/1.2.3",
		"https://tfe.acme.example/app/x/registry/modules/public/acme/vpc/aws/1.2.3":              "m/registry.terraform.io/acme/vpc/aws/1.2.3",
		"https://app.terraform.io/app/acme/registry/providers/private/acme/widget/latest/foo":    "p/app.terraform.io/acme/widget",
		"https://app.terraform.io/app/acme/registry/providers/public/hashicorp/aws/6.1.0/docs?x": "p/registry.terraform.io/hashicorp/aws/6.1.0",
		"https://search.opentofu.org/module/acme/vpc/aws/v1.2.3":                                 "m/registry.opentofu.org/acme/vpc/aws/1.2.3",
	} {
		if got := suggest(query); len(got.Found) != 1 || got.Found[0].Page != want {
			t.Errorf("%q: %+v, want %s", query, got, want)
		}
	}
	if n := len(b.registry.Requests()); n != 0 {
		t.Errorf("%d requests to the registry", n)
	}
}

// TestTwins shows that the pages of a provider at both public registries link to each other, if both are known.
func TestTwins(t *testing.T) {
	b := newBench(t)
	terraform, opentofu := provider.MustParseAddress("registry.terraform.io/acme/widget"), provider.MustParseAddress("registry.opentofu.org/acme/widget")
	b.index(terraform, "1.0.0", artifact.Version{})
	b.index(opentofu, "1.0.0", artifact.Version{})
	b.options.Configured = []subject.Address{terraform}
	c := b.serve(nil)
	if a := c.want("/p/"+terraform.Path(), 200); a.has("The same provider") {
		t.Error("a provider that is not known is linked")
	}
	c.want("/p/"+opentofu.Path(), 200, "See also The same provider for Terraform")
	c.want("/p/"+terraform.Path(), 200, "See also The same provider for OpenTofu")
}
