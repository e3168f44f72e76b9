package gateway_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/provider"
)

// TestDeniedInTheEmbeddedRegistry shows that the embedded registry refuses requests for the tags of
// denied versions, however their paths are written. It omits these tags from lists.
func TestDeniedInTheEmbeddedRegistry(t *testing.T) {
	b := newBench(t)
	gadget := provider.MustParseAddress(host + "/acme/gadget")
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0+b.1"} {
		b.publish(widget, v, map[provider.Platform][]byte{linux: zip(t, linux)})
	}
	b.publish(gadget, "1.1.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	index, err := b.repo.Resolve(t.Context(), "1.1.0")
	if err == nil {
		err = b.repo.Tag(t.Context(), index, "ocibridge-part.1.1.0.linux_amd64")
	}
	if err != nil {
		t.Fatal(err)
	}
	var deny []catalog.Deny
	for _, text := range []string{"1.1.0", "2.0.0+b.1"} {
		versions, err := provider.ParseConstraint(text)
		if err != nil {
			t.Fatal(err)
		}
		deny = append(deny, catalog.Deny{Pattern: provider.MustParsePattern(widget.String()), Versions: versions})
	}
	deny[0].Reason = `it leaks "tokens"`
	b.catalog(catalog.Options{Deny: deny})
	b.options.Registry = b.registry.Truth
	c := b.serve()
	c.http.CheckRedirect = nil // follow redirects, as clients do
	const v2 = "/v2/" + host + "/acme/"
	for path, status := range map[string]int{
		"widget/manifests/1.0.0":                            200,
		"widget/manifests/1.1.0":                            451,
		"widget/manifests/%31.1.0":                          451,
		"widget//manifests/1.1.0":                           451,
		"widget/manifests/1.1.0/":                           451,
		"gadget/../widget/manifests/1.1.0":                  451,
		"gadget/%2e%2e/widget/manifests/1.1.0":              451,
		"widget%2Fmanifests/1.1.0":                          451,
		"widget/manifests/2.0.0_b.1":                        451,
		"widget/manifests/ocibridge-part.1.1.0.linux_amd64": 451,
		"gadget/manifests/1.1.0":                            200,
		"widget/manifests/" + string(index.Digest):          200,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			if a := c.do(method, v2+path); a.status != status {
				t.Errorf("%s %s: %d, want %d", method, path, a.status, status)
			}
		}
	}
	if a := c.get(v2 + "widget/manifests/1.1.0"); a.status != 451 || !strings.Contains(a.body, `"code":"DENIED","message":"this version is denied here: it leaks \"tokens\""`) {
		t.Errorf("%+v", a)
	}
	if a := c.get(v2 + "widget/tags/list"); a.body != `{"name":"`+host+`/acme/widget","tags":["1.0.0"]}` {
		t.Errorf("%+v", a)
	}
	// A list with several pages keeps its Link header.
	if a := c.get(v2 + "widget/tags/list?n=2"); !strings.Contains(a.body, `"tags":["1.0.0"]`) || a.header.Get("Link") == "" {
		t.Errorf("%+v", a)
	}
	if a := c.get(v2 + "gadget/tags/list"); !strings.Contains(a.body, `"tags":["1.1.0"]`) {
		t.Errorf("%+v", a)
	}
	if a := c.get(v2 + "absent/tags/list"); a.status != http.StatusNotFound || !strings.Contains(a.body, "NAME_UNKNOWN") {
		t.Errorf("%+v", a)
	}
}

// TestReasonOfADenial shows that clients and the log get the reason of the rule that denies a version. A rule with a
// reason has precedence over other rules.
func TestReasonOfADenial(t *testing.T) {
	b := newBench(t)
	b.publish(widget, "1.0.0", map[provider.Platform][]byte{linux: zip(t, linux)})
	pattern := provider.MustParsePattern(widget.String())
	for reason, body := range map[string]string{"": "this version is denied here\n", "<b>CVE-2026-1</b>": "this version is denied here: <b>CVE-2026-1</b>\n"} {
		b.catalog(catalog.Options{Deny: []catalog.Deny{{Pattern: pattern}, {Pattern: pattern, Reason: reason}, {Pattern: pattern}}})
		c := b.serve()
		for _, path := range []string{"/providers/" + widget.String() + "/1.0.0.json", "/hosts/" + host + "/v1/providers/acme/widget/1.0.0/download/linux/amd64"} {
			a := c.get(path)
			if a.status != 451 || a.body != body || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %+v", path, a)
			}
		}
	}
}

// TestDenialsAreWarnings shows that lists of versions warn of the versions that rules with a reason deny. A list without
// any other version has the denied versions, because clients ignore the warnings of an empty list.
func TestDenialsAreWarnings(t *testing.T) {
	p := newPublisher(newBench(t))
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0", "2.0.0"} {
		p.push(widget, v)
	}
	rule := func(pattern, versions, reason string) catalog.Deny {
		d := catalog.Deny{Pattern: provider.MustParsePattern(pattern), Reason: reason}
		if versions != "" {
			var err error
			if d.Versions, err = provider.ParseConstraint(versions); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	own, gadget := widget.String(), host+"/acme/gadget"
	var many []catalog.Deny
	for i := range 12 {
		many = append(many, rule(own, fmt.Sprintf("9.0.%d", i), "bad"))
	}
	list := func(deny []catalog.Deny, path string) (string, string) {
		p.options.Catalog = p.bench.catalog(catalog.Options{Deny: deny})
		a := p.serve().get(path)
		var got struct {
			Versions []struct{ Version string }
			Warnings []string
		}
		if a.status == http.StatusOK {
			if err := json.Unmarshal([]byte(a.body), &got); err != nil {
				t.Fatal(err)
			}
		}
		return fmt.Sprintf("%d %v %s", a.status, got.Versions, strings.Join(got.Warnings, "\n")), a.header.Get("ETag")
	}
	others := "{1.0.0} {1.1.0} {1.2.0} {1.3.0} {1.4.0} {1.5.0} {1.6.0}"
	for name, tc := range map[string]struct {
		deny []catalog.Deny
		path string // "": the list of widget
		want string
	}{
		"one version":              {deny: []catalog.Deny{rule(own, "2.0.0", "it leaks")}, want: "200 [" + others + "] 2.0.0 is denied here: it leaks"},
		"without a reason":         {deny: []catalog.Deny{rule(own, "2.0.0", "")}, want: "200 [" + others + "] "},
		"several versions":         {deny: []catalog.Deny{rule(host+"/acme/*", "< 2.0", "too old")}, want: "200 [{2.0.0}] 1.2.0, 1.3.0, 1.4.0, 1.5.0, 1.6.0 and 2 older are denied here: too old"},
		"the first reason counts":  {deny: []catalog.Deny{rule(own, "2.0.0", "a"), rule(own, "> 1.5", "b"), rule(own, "1.6.0", "c")}, want: "200 [" + strings.TrimSuffix(others, " {1.6.0}") + "] 2.0.0 is denied here: a\n1.6.0 is denied here: b"},
		"a removed version":        {deny: []catalog.Deny{rule(own, "3.0.0", "gone")}, want: "200 [" + others + " {2.0.0}] 3.0.0 is denied here: gone"},
		"a version that is not":    {deny: []catalog.Deny{rule("*/*/*", "3.0.0", "gone"), rule(own, "> 3", "gone"), rule(gadget, "1.0.0", "gone")}, want: "200 [" + others + " {2.0.0}] "},
		"every version":            {deny: []catalog.Deny{rule(own, ">= 1.0", "evil")}, want: "200 [" + others + " {2.0.0}] 1.3.0, 1.4.0, 1.5.0, 1.6.0, 2.0.0 and 3 older are denied here: evil"},
		"every version, no reason": {deny: []catalog.Deny{rule(own, "", "")}, want: "404 [] "},
		"the removed provider":     {deny: []catalog.Deny{rule(gadget, "1.0.0", "evil")}, path: "/hosts/" + host + "/v1/providers/acme/gadget/versions", want: "200 [{1.0.0}] 1.0.0 is denied here: evil"},
		"no provider":              {deny: []catalog.Deny{rule("*/*/*", "", "evil")}, path: "/hosts/" + host + "/v1/providers/acme/gadget/versions", want: "404 [] "},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := list(tc.deny, cmp.Or(tc.path, hostsPrefix+"versions")); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	if got, _ := list(many, hostsPrefix+"versions"); strings.Count(got, "is denied here: bad") != 10 {
		t.Errorf("%s", got)
	}
	_, a := list([]catalog.Deny{rule(own, "2.0.0", "a")}, hostsPrefix+"versions")
	if _, b := list([]catalog.Deny{rule(own, "2.0.0", "b")}, hostsPrefix+"versions"); a == b {
		t.Error("another reason has the same ETag")
	}
}

// TestDeprecated shows that a deprecated version is served, that its reason is a warning in the registry protocol's list, and
// that the network mirror's documents stay as they are.
func TestDeprecated(t *testing.T) {
	p := newPublisher(newBench(t))
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0"} {
		p.push(widget, v)
	}
	rule := func(versions, reason string) []catalog.Deny {
		set, err := provider.ParseConstraint(versions)
		if err != nil {
			t.Fatal(err)
		}
		return []catalog.Deny{{Pattern: provider.MustParsePattern("registry.acme.example/acme/*"), Versions: set, Reason: reason}}
	}
	p.catalog(catalog.Options{Deprecate: rule("< 2.0.0", "use 2.x"), Deny: rule("1.0.0", "it leaks")})
	c := p.serve()
	var list struct {
		Versions []struct{ Version string }
		Warnings []string
	}
	if err := json.Unmarshal([]byte(c.get(hostsPrefix+"versions").body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Versions) != 2 || fmt.Sprint(list.Warnings) != "[1.0.0 is denied here: it leaks 1.1.0 is deprecated here: use 2.x]" {
		t.Errorf("%+v", list)
	}
	for path, status := range map[string]int{prefix + "1.1.0.json": 200, prefix + "1.0.0.json": 451, hostsPrefix + "1.1.0/download/linux/amd64": 200} {
		if a := c.get(path); a.status != status || strings.Contains(a.body, "2.x") {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if a := c.get(prefix + "index.json"); a.body != `{"versions":{"1.1.0":{},"2.0.0":{}}}` {
		t.Errorf("%+v", a)
	}
}
