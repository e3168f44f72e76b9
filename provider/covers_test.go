package provider_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// TestCovers shows that a pattern matches no address of the other kind: a pattern for all providers must not select modules.
func TestCovers(t *testing.T) {
	widget, vpc := provider.MustParseAddress("registry.acme.example/acme/widget"), module.MustParseAddress("registry.acme.example/acme/widget/aws")
	for _, tc := range []struct {
		pattern        subject.Pattern
		widget, module bool
	}{
		{provider.MustParsePattern("*/*/*"), true, false},
		{widget.Pattern(), true, false},
		{module.MustParsePattern("*/*/*/*"), false, true},
		{vpc.Pattern(), false, true},
		{provider.MustParsePattern("registry.acme.example/other/*"), false, false},
		{module.MustParsePattern("registry.acme.example/other/*/*"), false, false},
	} {
		if tc.pattern.Covers(widget) != tc.widget || tc.pattern.Covers(vpc) != tc.module {
			t.Errorf("%v: the provider %t, the module %t", tc.pattern, tc.pattern.Covers(widget), tc.pattern.Covers(vpc))
		}
	}
}
