package origin_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestProtocolsOfPlatforms shows the warning about a version whose platforms have different
// protocols or none.
func TestProtocolsOfPlatforms(t *testing.T) {
	five, both, turned := []any{"5.0"}, []any{"5.0", "6.0"}, []any{"6.0", "5.0"}
	for name, tc := range map[string]struct {
		listed string // the protocols in the list of versions
		linux  []any  // the first platform is darwin_arm64
		others []any
		want   string // the protocols that are stored
		warns  string // the warning; "" means none
	}{
		"same":                        {`["5.0"]`, five, five, "[5.0]", ""},
		"same in another order":       {`[]`, turned, both, "[5.0 6.0]", ""},
		"listed alone":                {`["5.0"]`, nil, nil, "[5.0]", ""},
		"listed, or given the same":   {`["5.0"]`, nil, five, "[5.0]", ""},
		"different":                   {`["5.0"]`, both, five, "[5.0]", "different protocols: darwin_arm64 has 5.0, which count for all; linux_amd64 has 5.0, 6.0"},
		"different from the list":     {`["6.0"]`, nil, five, "[5.0]", "linux_amd64 has 6.0"},
		"one without, nothing listed": {`[]`, nil, five, "[5.0]", "linux_amd64 has none"},
		"none":                        {`[]`, nil, nil, "[]", "gives no protocols"},
		"none that is one":            {`["x"]`, []any{"v5"}, []any{"v5"}, "[]", "gives no protocols"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			list := `{"versions":[{"version":"1.0.0","protocols":` + tc.listed + `,"platforms":[{"os":"linux","arch":"amd64"},{"os":"darwin","arch":"arm64"}]}]}`
			b.alterWith(list, func(m map[string]any) {
				m["protocols"] = tc.others
				if m["os"] == "linux" {
					m["protocols"] = tc.linux
				}
			})
			r := b.mustGet()
			if got := fmt.Sprint(r.Protocols); got != tc.want {
				t.Errorf("protocols %s", got)
			}
			if said := strings.Join(r.Warnings, "; "); !strings.Contains(said, tc.warns) || tc.warns == "" && said != "" {
				t.Errorf("warnings %q", said)
			}
		})
	}
}
