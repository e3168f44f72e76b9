package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/opencontainers/go-digest"
	"github.com/zclconf/go-cty/cty"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
)

// kindDeny is the kind of the argument deny. Its elements are texts and objects.
const kindDeny = "list of PATTERN[@VERSIONS] or { match, reason }"

// kindDeprecate is the kind of the argument deprecate. Its elements are the objects of deny, with a reason.
const kindDeprecate = "list of { match, reason }"

// maxReason is the maximum length of a reason in bytes. Clients get it in errors.
const maxReason = 500

// Denies returns the reason why the gateway denies a version whose tag names the given manifest, or "" if the rule gives none. denied is
// false if no rule denies the version. If the manifest is "", rules that name a digest do not count.
func (g *Gateway) Denies(a subject.Address, v provider.Version, manifest digest.Digest) (reason string, denied bool) {
	rule, denied := catalog.FindDeny(g.Deny, a, v, manifest)
	return rule.Reason, denied
}

// Deprecates returns the reason why the gateway deprecates a version, or "" if it does not.
func (g *Gateway) Deprecates(a subject.Address, v provider.Version) (reason string) {
	rule, _ := catalog.FindDeny(g.Deprecate, a, v, "")
	return rule.Reason
}

// deny decodes the argument deny or deprecate into v, a list of [catalog.Deny]. It has the same results as
// [decoder.value].
func (d *decoder) deny(v reflect.Value, f Field, b *block, expr hcl.Expression) (shown any, ok bool) {
	list, diags := expr.Value(d.ctx)
	switch {
	case diags.HasErrors():
		d.incomplete = true
		d.invalidValue(f.Name, diags[0])
		return nil, false
	case list.IsNull():
		d.leftOut(v, f, b, expr.Range())
		return nil, false
	case !list.Type().IsTupleType() && !list.Type().IsListType():
		d.errorf(expr.Range(), f.Name, hint.New("a list is required", `write ["PATTERN@VERSIONS"], or [{ match = "PATTERN@VERSIONS", reason = "..." }]`))
		return nil, false
	}
	rules := []catalog.Deny{}
	for i, element := range list.AsValueSlice() {
		rule, err := denyElement(element)
		if err == nil && f.Kind == kindDeprecate {
			err = checkDeprecation(rule)
		}
		if err != nil {
			d.errorf(b.atElement(f.Name, i), f.Name, err)
			continue
		}
		rules = append(rules, rule)
	}
	v.Set(reflect.ValueOf(rules))
	return list, true
}

// checkDeprecation checks an element of deprecate.
func checkDeprecation(rule catalog.Deny) error {
	help := `write { match = "registry.acme.example/acme/widget@< 2.0.0", reason = "..." }`
	switch {
	case rule.Reason == "":
		return hint.New("an element has no reason", "%s", help)
	case rule.Digest != "":
		return hint.New("an element names a digest", "%s", help)
	}
	return nil
}

// denyElement parses one element of deny: a text, or an object with match and reason.
func denyElement(element cty.Value) (catalog.Deny, error) {
	text := func(v cty.Value) (string, bool) {
		if v.IsNull() || !v.Type().Equals(cty.String) {
			return "", false
		}
		return v.AsString(), true
	}
	if s, ok := text(element); ok {
		return parseDeny(s)
	}
	help := `write { match = "registry.acme.example/acme/widget@1.4.0", reason = "..." }`
	if element.IsNull() || !element.Type().IsObjectType() {
		return catalog.Deny{}, hint.New("an element is neither text nor an object", "%s", help)
	}
	for name, value := range element.AsValueMap() {
		if _, ok := text(value); !ok || name != "match" && name != "reason" {
			return catalog.Deny{}, hint.New(fmt.Sprintf("an element has the unknown or invalid attribute %.80q", name), "%s", help)
		}
	}
	if !element.Type().HasAttribute("match") {
		return catalog.Deny{}, hint.New("an element has no match", "%s", help)
	}
	rule, err := parseDeny(element.GetAttr("match").AsString())
	if err == nil && element.Type().HasAttribute("reason") {
		rule.Reason, err = parseReason(element.GetAttr("reason").AsString())
	}
	return rule, err
}

// parseReason checks a reason: a line of text.
func parseReason(s string) (string, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return "", errors.New("the reason is empty")
	case len(s) > maxReason:
		return "", hint.New(fmt.Sprintf("the reason has %d bytes, more than %d", len(s), maxReason), "shorten it, or refer to a page")
	case !isLine(s):
		return "", hint.New("the reason has a line break or another character that cannot be printed", "write one line of text")
	}
	return s, nil
}
