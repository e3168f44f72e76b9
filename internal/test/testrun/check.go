package main

import (
	"fmt"
	"slices"
	"strings"
)

// check compares the results with the tests that had to run. It returns the skipped tests that another pass must run, and a
// line for each fault: a failed test, a test that did not run, and a skip for another reason than those that mayLeave and
// the table permit.
func check(r *report, tests chosen, system string, mayLeave ...cause) (left, []string) {
	rest := left{}
	var faults []string
	for _, name := range sortedKeys(tests) {
		missing := slices.DeleteFunc(slices.Clone(tests[name]), func(t string) bool { _, ran := r.tests[test{name, t}]; return ran })
		switch {
		case len(missing) > 0 && r.packages[name].Action == "fail":
			faults = append(faults, fmt.Sprintf("failed: %s: %d tests did not run", short(name), len(missing)))
		case len(missing) > 0:
			faults = append(faults, fmt.Sprintf("did not run: %s %s", short(name), strings.Join(missing, " ")))
		}
	}
	for t, res := range r.tests {
		switch {
		case res.Action == "fail" && !strings.Contains(t.Name, "/"):
			faults = append(faults, fmt.Sprintf("failed: %s %s", short(t.Package), t.Name))
		case res.Action == "skip":
			c := causeOf(res.Reason)
			switch {
			case slices.Contains(mayLeave, c):
				if rest[c] == nil {
					rest[c] = chosen{}
				}
				rest[c][t.Package] = append(rest[c][t.Package], t.Name)
			case !slices.ContainsFunc(skips, func(s skip) bool { return s.permits(t, system, res.Reason) }):
				faults = append(faults, fmt.Sprintf("skipped, and not listed in internal/test/testrun/skips.go: %s %s: %s", short(t.Package), t.Name, res.Reason))
			}
		}
	}
	for name, res := range r.packages {
		known := func(fault string) bool {
			return strings.HasPrefix(fault, "failed: "+short(name)+" ") || strings.HasPrefix(fault, "failed: "+short(name)+":")
		}
		if res.Action == "fail" && !slices.ContainsFunc(faults, known) {
			faults = append(faults, "failed: "+short(name))
		}
	}
	slices.Sort(faults)
	return rest, faults
}
