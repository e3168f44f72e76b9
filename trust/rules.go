package trust

import "github.com/ocibridge/ocibridge/provider"

// Rule is the policy for the providers that a pattern matches.
type Rule struct {
	Pattern provider.Pattern
	Policy  Policy
}

// Rules say for every provider what is accepted.
type Rules []Rule

// For returns the policy of the most specific pattern that matches a provider, the
// first of several alike, and the zero policy if none does. Policies of less
// specific patterns add nothing to it.
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
