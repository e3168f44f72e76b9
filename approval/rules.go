package approval

import (
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Rule is the policy for the addresses that match a pattern. Every trust block makes a rule, also a block without
// requirements: its policy is nil then, and the rule exempts its addresses from the requirements of less specific patterns.
type Rule struct {
	Pattern subject.Pattern
	Policy  *Policy
}

// Rules is the list of all rules.
type Rules []Rule

// For returns the policy of the most specific pattern that matches an address, or nil if no pattern matches. If several
// matching patterns are equally specific, the first rule applies. Less specific rules are not merged into the result. So
// For always chooses the same trust block as trust.Rules.For, and that block alone says what its addresses need. It
// allocates nothing.
func (rs Rules) For(a subject.Address) *Policy {
	var best *Rule
	for i := range rs {
		if r := &rs[i]; r.Pattern.Covers(a) && (best == nil || r.Pattern.Parts() > best.Pattern.Parts()) {
			best = r
		}
	}
	if best == nil {
		return nil
	}
	return best.Policy
}
