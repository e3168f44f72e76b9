package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
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

// TestDeniedDigests shows that a rule with a digest denies exactly the manifest with that digest.
func TestDeniedDigests(t *testing.T) {
	d, other := digest.FromString("a"), digest.FromString("b")
	c := mustParse(t, fmt.Sprintf(`gateway {
  deny = ["registry.acme.example/acme/*@%s", { match = "registry.acme.example/Platform/net/aws@%s", reason = "it opens port 22" }]
}`, d, d), machine{})
	widget, net := provider.MustParseAddress("registry.acme.example/acme/widget"), module.MustParseAddress("registry.acme.example/platform/Net/aws")
	v := provider.MustParseVersion("1.0.0")
	for _, tc := range []struct {
		of     subject.Address
		digest digest.Digest
		denied bool
		reason string
	}{{widget, d, true, ""}, {widget, other, false, ""}, {widget, "", false, ""}, {net, d, true, "it opens port 22"}, {net, other, false, ""}} {
		if reason, denied := c.Gateway.Denies(tc.of, v, tc.digest); denied != tc.denied || reason != tc.reason {
			t.Errorf("%s %s: %q, %t", tc.of, tc.digest, reason, denied)
		}
	}
}

// TestTrustedRootTooLarge shows that a trusted root has at most 1 MiB.
func TestTrustedRootTooLarge(t *testing.T) {
	const text = `trust "*/*/*" {
  require "ci" {
    issuer       = "https://issuer.example"
    identity     = "ci@acme.example"
    trusted_root = "root.json"
  }
}`
	m := machine{files: map[string]string{testDir + "/root.json": strings.Repeat(" ", 1<<20+1)}}
	if _, err := Parse(m.environment(), testFile, []byte(text)); err == nil || !strings.Contains(err.Error(), "more than 1 MiB") {
		t.Errorf("%v", err)
	}
}

// TestDeprecate shows that deprecate takes the objects of deny, and that each needs a reason.
func TestDeprecate(t *testing.T) {
	const deprecate = `[{ match = "a.example/b/c@< 2.0.0", reason = "use 2.x" }, { match = "a.example/b/*/*", reason = "moved" }]`
	c := mustParse(t, "gateway {\n  deprecate = "+deprecate+"\n}\n", machine{})
	for text, want := range map[string]string{"a.example/b/c@1.0.0": "use 2.x", "a.example/b/c@2.0.0": "", "a.example/b/d@1.0.0": "", "a.example/b/d/aws@1.0.0": "moved"} {
		q, err := query.ParseEither(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Gateway.Deprecates(q.Address, q.Version); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if _, denied := c.Gateway.Denies(q.Address, q.Version, ""); denied {
			t.Errorf("%s is denied", text)
		}
	}
	if shown := string(c.Effective(Surroundings{}).HCL()); !strings.Contains(shown, `deprecate        = [{ match = "a.example/b/c@< 2.0.0", reason = "use 2.x"`) {
		t.Errorf("%s", shown)
	}
	for _, element := range []string{`"a.example/b/c"`, `{ match = "a.example/b/c" }`} {
		if _, err := parse("gateway {\n  deprecate = ["+element+"]\n}\n", machine{}); err == nil || !strings.Contains(err.Error(), "has no reason") {
			t.Errorf("%s: %v", element, err)
		}
	}
	byDigest := fmt.Sprintf("gateway {\n  deprecate = [{ match = \"a.example/b/c@%s\", reason = \"moved\" }]\n}\n", digest.FromString("a"))
	if _, err := parse(byDigest, machine{}); err == nil || !strings.Contains(err.Error(), "names a digest") {
		t.Errorf("%s: %v", byDigest, err)
	}
}
