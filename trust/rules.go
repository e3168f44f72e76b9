package trust

import "github.com/ocibridge/ocibridge/provider"

// Rule is the policy for providers that match a pattern.
type Rule struct {
	Pattern provider.Pattern
	Policy  Policy
}

// Rules is the list of all policy rules.
type Rules []Rule

// For returns the policy of the most specific pattern that matches a provider, or the zero
// policy if no pattern matches. If several matching patterns are equally specific, the
// first rule applies. The policies of less specific patterns are not merged into the
// result.
func (rs Rules) For(a provider.Address) Policy {
	var best *Rule
	for i := range rs {
		if r := &rs[i]; r.Pattern.Matches(a) && (best == nil || r.Pattern.Parts() > best.Pattern.Parts()) {
			best = r
		}
	}
	if best == nil {
		return Policy{}
	}
	return best.Policy
}
