package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/internal/app/doctor"
	"github.com/ocibridge/ocibridge/internal/base/subject"
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
			var configured []subject.Address
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

// TestReportText shows that lines of a report end at the width of the terminal.
func TestReportText(t *testing.T) {
	long := strings.Repeat("some words ", 20)
	reports := []*doctor.Report{{Subject: "s", Checks: []doctor.Check{{Name: "token", Status: doctor.Fail, Detail: long, Hint: long}}}}
	plain := func(word string) string { return fmt.Sprintf("%-8s", word) }
	for _, width := range []int{40, 80, 120} {
		for line := range strings.SplitSeq(reportText(reports, width, plain), "\n") {
			if n := utf8.RuneCountInString(line); n > max(width, 27+minWrapped) {
				t.Errorf("width %d: %d characters in %q", width, n, line)
			}
		}
	}
	if got := strings.Count(reportText(reports, 0, plain), "\n"); got != 3 {
		t.Errorf("%d lines without a terminal, want 3", got)
	}
	if got := reportText(reports, 80, plain); !strings.Contains(got, "\n"+strings.Repeat(" ", 27)+"some words") {
		t.Errorf("the text is not in its column:\n%s", got)
	}
}
