package subject_test

import (
	"testing"

	"github.com/opentofu/svchost"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// TestDisplayHost shows that hosts for people are those of svchost.
func TestDisplayHost(t *testing.T) {
	for _, name := range []string{"registry.opentofu.org", "Registry.Example:8443", "localhost", "127.0.0.1:5000", "испытание.com", "a-b.faß.example", "испытание.com:8443", "a--b.example"} {
		host, err := svchost.ForComparison(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := subject.DisplayHost(host), svchost.ForDisplay(string(host)); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// TestOverlap shows whether one address can match two patterns.
func TestOverlap(t *testing.T) {
	for _, tc := range []struct {
		p, other string
		want     bool
	}{
		{"*/*/*", "a.example/acme/widget", true},
		{"a.example/*/*", "a.example/acme/*", true},
		{"a.example/*/*", "b.example/acme/*", false},
		{"a.example/acme/*", "a.example/other/widget", false},
	} {
		p, other := provider.MustParsePattern(tc.p), provider.MustParsePattern(tc.other)
		if subject.Overlap(p, other) != tc.want || subject.Overlap(other, p) != tc.want {
			t.Errorf("%s and %s: want %t", p, other, tc.want)
		}
	}
	if !subject.Overlap(module.MustParsePattern("a.example/acme/*/*"), module.MustParsePattern("a.example/Acme/vpc/aws")) {
		t.Error("modules whose case differs")
	}
	if subject.Overlap(provider.MustParsePattern("*/*/*"), module.MustParsePattern("*/*/*/*")) {
		t.Error("a provider and a module")
	}
}
