package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// Patterns diagnoses the patterns of require blocks, deny and deprecate. A pattern that matches nothing may be mistyped, and then has
// no effect.
type Patterns struct {
	Rules []PatternRule
	// Pulls reports whether pull-through may fetch what a pattern matches. Such a pattern has an effect although nothing that is
	// stored matches it. If Pulls is nil, there is no pull-through.
	Pulls func(subject.Pattern) bool
	// Known returns the addresses of a kind that are stored, and those that the configuration names. An error means that more may
	// be stored.
	Known func(context.Context, subject.Kind) ([]subject.Address, error)
}

// PatternRule is one pattern in the configuration.
type PatternRule struct {
	Name    string // of the block or argument, such as deny
	Pattern subject.Pattern
}

// patternsTimeout is the maximum time for listing the stored providers and modules.
const patternsTimeout = 30 * time.Second

// Examine finds the patterns that match nothing. It returns nil if there are no patterns.
func (x Patterns) Examine(ctx context.Context) *Report {
	if len(x.Rules) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patternsTimeout)
	defer cancel()
	r := &Report{Subject: "patterns"}
	for _, kind := range subject.Kinds {
		var names []string
		patterns := map[string][]subject.Pattern{}
		for _, rule := range x.Rules {
			if rule.Pattern.Kind() != kind {
				continue
			}
			if patterns[rule.Name] == nil {
				names = append(names, rule.Name)
			}
			patterns[rule.Name] = append(patterns[rule.Name], rule.Pattern)
		}
		if len(names) == 0 {
			continue
		}
		known, err := x.Known(ctx, kind)
		for _, name := range names {
			r.patterns(name, kind, x.unmatched(patterns[name], known), len(known) > 0, err)
		}
	}
	return r
}

// unmatched returns the patterns that match no known address, without duplicates, by whether pull-through may fetch what they match.
func (x Patterns) unmatched(all []subject.Pattern, known []subject.Address) map[bool][]string {
	out := map[bool][]string{}
	for _, p := range all {
		pulled := x.Pulls != nil && x.Pulls(p)
		if text := p.String(); !slices.ContainsFunc(known, p.Covers) && !slices.Contains(out[pulled], text) {
			out[pulled] = append(out[pulled], text)
		}
	}
	return out
}

// patterns adds checks about the patterns of one kind in the named blocks or argument. byPulled are the result of unmatched. unlisted is
// the error of Known.
func (r *Report) patterns(name string, kind subject.Kind, byPulled map[bool][]string, anyKnown bool, unlisted error) {
	unmatched, pulled := byPulled[false], byPulled[true]
	if len(pulled) > 0 {
		r.skip(name, "", "no stored or configured %s matches %s, but pull-through may fetch one", kind, list(pulled))
	}
	switch {
	case len(unmatched) == 0 && len(pulled) > 0:
	case len(unmatched) == 0:
		r.ok(name, "each pattern for %s matches a stored or configured one", kind.Traits().Plural)
	case unlisted != nil:
		r.skip(name, "ocibridge list says which registries cannot list their repositories", "whether a %s matches %s is unknown: %v", kind, list(unmatched), unlisted)
	case !anyKnown:
		r.skip(name, "", "no %s is stored or configured yet, so nothing matches %s", kind, list(unmatched))
	default:
		r.warn(name, "correct the pattern if it is mistyped: it has no effect. It can stay if it is for what will be stored later",
			"no stored or configured %s matches %s", kind, list(unmatched))
	}
}
