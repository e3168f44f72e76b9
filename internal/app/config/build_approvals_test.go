package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
)

// TestDroppedRequirements shows that a trust block that exempts addresses from the requirements of another block causes a warning.
func TestDroppedRequirements(t *testing.T) {
	const require, report, keys = "require \"team\" {\n public_key = file(\"team.pub\")\n}", "require \"team\" {\n public_key = file(\"team.pub\")\n enforce = false\n}", `keys = ["C874011F0AB405110D02105534365D9472D7468F"]`
	m := machine{files: map[string]string{testDir + "/team.pub": string(approvals.NewKey(t, approvals.P256).PEM())}}
	for name, tc := range map[string]struct {
		first, in, second, in2 string
		at                     int // the number of the block with the warning; 0 means none
	}{
		"unsigned inside":                {"*/*/*", require, "a.example/acme/*", "allow_unsigned = true", 2},
		"keys inside":                    {"*/*/*", require, "a.example/acme/*", keys, 2},
		"only reported inside":           {"*/*/*", require, "a.example/acme/*", report, 2},
		"nothing inside":                 {"*/*/*", require, "a.example/acme/*", "", 2},
		"inside, and further up":         {"a.example/acme/*", "", "*/*/*", require, 1},
		"modules inside, in other case":  {"a.example/Acme/*/*", require, "a.example/acme/net/*", "", 2},
		"required inside, too":           {"*/*/*", require, "a.example/acme/*", require, 0},
		"required inside only":           {"*/*/*", "allow_unsigned = true", "a.example/acme/*", require, 0},
		"nothing in common":              {"a.example/*/*", require, "b.example/acme/*", "", 0},
		"providers and modules":          {"*/*/*", require, "a.example/acme/*/*", "", 0},
		"only reported in the wider one": {"*/*/*", report, "a.example/acme/*", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			src := fmt.Sprintf("trust %q {\n%s\n}\ntrust %q {\n%s\n}\n", tc.first, tc.in, tc.second, tc.in2)
			at := 0
			for _, w := range mustParse(t, src, m).Warnings {
				if w.Summary == "No approval is required" {
					at = strings.Count(strings.Join(strings.Split(src, "\n")[:w.Line], "\n"), "trust \"")
				}
			}
			if at != tc.at {
				t.Errorf("the warning is about block %d, want %d:\n%s", at, tc.at, src)
			}
		})
	}
}
