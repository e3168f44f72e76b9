package approval

import (
	"context"
	"regexp"
	"time"

	"github.com/opencontainers/go-digest"
)

// HoldSlots takes every slot until release is called.
func HoldSlots() (release func()) {
	for range cap(slots) {
		slots <- struct{}{}
	}
	return func() {
		for range cap(slots) {
			<-slots
		}
	}
}

// CheckWithin is like Policy.Check, with another budget.
func CheckWithin(ctx context.Context, p *Policy, signed digest.Digest, sigs []Signature, budget time.Duration) (Verdict, error) {
	return p.checkWithin(ctx, signed, sigs, budget)
}

// Matches reports whether an identity matches a pattern, as both matchers see it.
func Matches(pattern, identity string) (matched, byExpression bool) {
	expression, err := regexp.Compile(identityPattern(pattern))
	return matches(pattern, identity), err == nil && expression.MatchString(identity)
}
