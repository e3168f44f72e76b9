package main

import (
	"fmt"
	"testing"

	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/templates"
)

// TestRepositoriesToExamine shows which providers' repositories doctor examines first.
func TestRepositoriesToExamine(t *testing.T) {
	template := func(text string, include ...string) *templates.Template {
		sel, err := selector(provider.ParsePattern, include, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := templates.Parse(text, sel)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	set := templates.Set{
		template("one.example/fixed/${type}", "a.example/acme/*"),
		template("two.example/${namespace}/${type}", "b.example/*/*"),
		template("one.example/all/${hostname}/${namespace}/${type}", "*/*/*"),
		template("one.example/never/${type}", "b.example/acme/*"),
	}
	const example = "registry.opentofu.org/hashicorp/null"
	for name, tc := range map[string]struct {
		configured []string
		only       ociaddr.Registry
		want       []string
	}{
		"nothing configured": {nil, "", []string{"a.example/acme/null", "b.example/hashicorp/null", example}},
		"one registry":       {nil, "two.example", []string{"b.example/hashicorp/null"}},
		"every project before others": {[]string{"b.example/x/one", "b.example/x/two", "b.example/y/one", "c.example/z/one"}, "",
			[]string{"b.example/x/one", "b.example/y/one", "c.example/z/one", "a.example/acme/null", "b.example/x/two"}},
		"each repository once":      {[]string{"c.example/z/one", "c.example/z/one"}, "two.example", []string{"b.example/hashicorp/null"}},
		"a port has no repository":  {[]string{"c.example:8443/z/one"}, "", []string{"c.example:8443/z/one", "a.example/acme/null", "b.example/hashicorp/null", example}},
		"and is in no one registry": {[]string{"c.example:8443/z/one"}, "one.example", []string{"a.example/acme/null", example}},
	} {
		t.Run(name, func(t *testing.T) {
			var configured []provider.Address
			for _, s := range tc.configured {
				configured = append(configured, provider.MustParseAddress(s))
			}
			got, shadowed := repositoriesToExamine(set, configured, tc.only)
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if len(shadowed) != 1 || shadowed[0] != set[3] {
				t.Errorf("shadowed: %v", shadowed)
			}
		})
	}
}
