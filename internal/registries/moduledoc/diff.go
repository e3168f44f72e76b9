package moduledoc

import (
	"bytes"
	"slices"
	"strings"
)

// Change is one difference between the interfaces of two versions.
type Change struct {
	Kind   ChangeKind `json:"kind"`
	Output bool       `json:"output"` // it is about an output; otherwise about an input
	Name   string     `json:"name"`
	// Breaks reports whether callers can have to change their configuration: a new input is required, or an input or output is
	// gone, or an input has another type or is no longer optional.
	Breaks bool `json:"breaks"`
	// What says which arguments have changed, such as "default".
	What []string `json:"what,omitempty"`
}

// ChangeKind says what happened to an input or output.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// Diff returns what has changed from an older interface to a newer one, first what can break callers. Changed descriptions are
// not listed.
func Diff(older, newer *Interface) []Change {
	out := []Change{}
	for _, c := range pairs(older.Inputs, newer.Inputs, func(i Input) string { return i.Name }) {
		switch {
		case c.before == nil:
			out = append(out, Change{Kind: Added, Name: c.after.Name, Breaks: c.after.Required})
		case c.after == nil:
			out = append(out, Change{Kind: Removed, Name: c.before.Name, Breaks: true})
		default:
			if change := inputChange(c.before, c.after); len(change.What) > 0 {
				out = append(out, change)
			}
		}
	}
	for _, c := range pairs(older.Outputs, newer.Outputs, func(o Output) string { return o.Name }) {
		switch {
		case c.before == nil:
			out = append(out, Change{Kind: Added, Output: true, Name: c.after.Name})
		case c.after == nil:
			out = append(out, Change{Kind: Removed, Output: true, Name: c.before.Name, Breaks: true})
		default:
			change := Change{Kind: Changed, Output: true, Name: c.after.Name}
			change.add("sensitive", c.before.Sensitive != c.after.Sensitive, !c.before.Sensitive)
			change.add("ephemeral", c.before.Ephemeral != c.after.Ephemeral, !c.before.Ephemeral)
			change.add("deprecated", c.before.Deprecated != c.after.Deprecated, false)
			if len(change.What) > 0 {
				out = append(out, change)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int {
		if a.Breaks == b.Breaks {
			return 0
		}
		return map[bool]int{true: -1, false: 1}[a.Breaks]
	})
	return out
}

func inputChange(before, after *Input) Change {
	c := Change{Kind: Changed, Name: after.Name}
	c.add("type", !slices.Equal(strings.Fields(before.declared()), strings.Fields(after.declared())), after.declared() != "any")
	c.add("required", !before.Required && after.Required, true)
	c.add("optional", before.Required && !after.Required, false)
	c.add("default", !before.Required && !after.Required && (!bytes.Equal(before.Default, after.Default) || before.Expression != after.Expression), false)
	c.add("sensitive", before.Sensitive != after.Sensitive, false)
	c.add("nullable", before.Nullable != after.Nullable, before.Nullable)
	c.add("ephemeral", before.Ephemeral != after.Ephemeral, before.Ephemeral)
	c.add("deprecated", before.Deprecated != after.Deprecated, false)
	return c
}

// declared returns the type that callers must respect.
func (i *Input) declared() string {
	if i.inferred {
		return "any"
	}
	return i.Type
}

// add adds what has changed, if it has.
func (c *Change) add(what string, changed, breaks bool) {
	if changed {
		c.What = append(c.What, what)
		c.Breaks = c.Breaks || breaks
	}
}

// pair is an element of both of two lists, or of one of them.
type pair[T any] struct{ before, after *T }

// pairs returns the elements of the newer list and then those that only the older one has.
func pairs[T any](older, newer []T, name func(T) string) (out []pair[T]) {
	before := map[string]*T{}
	for i := range older {
		before[name(older[i])] = &older[i]
	}
	for i := range newer {
		n := name(newer[i])
		out = append(out, pair[T]{before[n], &newer[i]})
		delete(before, n)
	}
	for i := range older {
		if before[name(older[i])] != nil {
			out = append(out, pair[T]{&older[i], nil})
		}
	}
	return out
}
