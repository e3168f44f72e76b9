package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestDenyRefused shows that an invalid element of deny is an error that says where it is and how to write it.
func TestDenyRefused(t *testing.T) {
	for element, want := range map[string]string{
		`3`:                                     "neither text nor an object",
		`null`:                                  "neither text nor an object",
		`{ reason = "late" }`:                   "no match",
		`{ match = null }`:                      "the unknown or invalid attribute",
		`{ match = "a.example/b/c", why = "" }`: "the unknown or invalid attribute \"why\"",
		`{ match = "b/c" }`:                     "b/c",
		`{ match = "a.example/b/c@x" }`:         "x",
		`{ match = "a.example/b/*/d" }`:         "Invalid module pattern",
		`"a.example/b/c/d/e@1.0.0"`:             "it must have three parts for providers, or four parts for modules",
		`"*"`:                                   "Write HOSTNAME/NAMESPACE/TYPE or HOSTNAME/NAMESPACE/NAME/SYSTEM",
		`{ match = "a.example/b/c", reason = " " }`:                               "The reason is empty",
		`{ match = "a.example/b/c", reason = "a\nb" }`:                            "a line break",
		`{ match = "a.example/b/c", reason = "a\u202eb" }`:                        "a line break",
		`{ match = "a.example/b/c", reason = "` + strings.Repeat("x", 501) + `"}`: "501 bytes, more than 500",
	} {
		t.Run(element[:min(len(element), 60)], func(t *testing.T) {
			_, err := parse(fmt.Sprintf("gateway {\n  deny = [\n    \"a.example/b/ok\",\n    %s,\n  ]\n}\n", element), machine{})
			var invalid *Error
			if !errors.As(err, &invalid) || len(invalid.Diagnostics) != 1 {
				t.Fatalf("%v", err)
			}
			if d := invalid.Diagnostics[0]; !strings.Contains(d.Detail, want) || d.Line != 4 {
				t.Errorf("%+v, want %q", d, want)
			}
		})
	}
	if _, err := parse("gateway {\n  deny = \"a.example/b/c\"\n}\n", machine{}); err == nil || !strings.Contains(err.Error(), "A list is required") {
		t.Errorf("%v", err)
	}
	if c := mustParse(t, "gateway {\n  deny = null\n}\n", machine{}); c.Gateway.Deny != nil {
		t.Errorf("%+v", c.Gateway.Deny)
	}
}

// TestEffectiveDeny shows that the output of the settings in force is valid syntax for deny.
func TestEffectiveDeny(t *testing.T) {
	const deny = `["a.example/b/c", { match = "a.example/b/d@1.0.0", reason = "late" }]`
	c := mustParse(t, "gateway {\n  deny = "+deny+"\n}\n", machine{})
	if shown := string(c.Effective(Surroundings{}).HCL()); !strings.Contains(shown, deny) {
		t.Errorf("%s", shown)
	}
}
