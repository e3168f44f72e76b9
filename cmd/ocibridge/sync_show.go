package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

var planSigns = map[pusher.Action]string{
	pusher.ActionPush: "+", pusher.ActionAdd: "~", pusher.ActionRepair: "!", pusher.ActionPrune: "-", pusher.ActionWait: ".", pusher.ActionReplace: "!",
}

// dryRun prints the totals, and a line for each version that the plan changes, or that waits because it is too young.
func (p *progress) dryRun(plan *reconcile.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last subject.Address
	for _, s := range plan.Steps {
		if s.Action == pusher.ActionKeep {
			continue
		}
		if s.Subject != last {
			p.result("%s", s.Subject)
			last = s.Subject
		}
		if s.Action == pusher.ActionWait {
			p.result("  %s %s  waits until %s", planSigns[s.Action], s.Version, s.Until.Local().Format(time.DateTime))
			continue
		}
		contents, note := fmt.Sprintf("%s, %s", platforms(s.Platforms), size(s.Size)), ""
		if !subject.TraitsOf(s.Subject).Packages {
			contents = size(s.Size)
		}
		if len(s.Platforms) == 0 && (s.Action == pusher.ActionAdd || s.Action == pusher.ActionReplace) {
			contents = "evidence"
		}
		switch {
		case s.FirstSync:
			note = ", does not wait: it was there at the first sync"
		case s.Action == pusher.ActionRepair:
			note = `, stored, and refused by verify = "required"`
		case s.Action == pusher.ActionReplace:
			note = ", replaces what is stored"
		}
		p.result("  %s %s  %s%s", planSigns[s.Action], s.Version, contents, note)
	}
	p.summary("Plan: %s", planTotals(plan))
	for _, line := range unasked(plan) {
		p.summary("%s", line)
	}
}

// planTotals returns the number and the size of the versions in a plan, by action.
func planTotals(plan *reconcile.Plan) string {
	var parts []string
	for _, a := range []struct {
		action pusher.Action
		what   string
	}{
		{pusher.ActionPush, "to push"}, {pusher.ActionAdd, "to complete"}, {pusher.ActionRepair, "to repair"}, {pusher.ActionReplace, "to replace"},
		{pusher.ActionPrune, "to prune"}, {pusher.ActionKeep, "in place"}, {pusher.ActionWait, "waiting"},
	} {
		n, bytes := plan.Count(a.action)
		switch {
		case n == 0:
		case a.action == pusher.ActionWait:
			parts = append(parts, fmt.Sprintf("%d %s", n, a.what))
		default:
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, a.what, size(bytes)))
		}
	}
	if n := len(plan.Failures); n > 0 {
		parts = append(parts, count(n, "failure"))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing to do")
}

// unasked returns a line about the versions that no block selects and that --prune would remove, and
// a line about those that it keeps.
func unasked(plan *reconcile.Plan) (lines []string) {
	if n := plan.Unasked - plan.Kept; n > 0 {
		lines = append(lines, count(n, "version")+" that no block selects: --prune removes such versions")
	}
	if n := plan.Kept; n > 0 {
		lines = append(lines, count(n, "version")+" that no block selects: --prune keeps versions that pull_through covers. To prune them, name their providers and modules in exclude of the pull_through block")
	}
	return lines
}

// changes returns the number of versions that a plan changes.
func changes(plan *reconcile.Plan) int {
	kept, _ := plan.Count(pusher.ActionKeep)
	waiting, _ := plan.Count(pusher.ActionWait)
	return len(plan.Steps) - kept - waiting
}

// synced prints the summary of a sync, even if the sync was interrupted.
func (p *progress) synced(run *syncRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.summary("Sync: %s", run.totals())
}

// totals returns the number of versions with each outcome.
func (r *syncRun) totals() string {
	type version struct {
		subject.Address
		provider.Version
	}
	by, done := map[string]int{}, map[version]bool{}
	add := func(what string, a subject.Address, v provider.Version) {
		if at := (version{a, v}); !done[at] {
			done[at] = true
			by[what]++
		}
	}
	for _, f := range r.outcome.Failures {
		add("failed", f.Subject, f.Version)
	}
	for _, result := range r.outcome.Results {
		add(string(result.Status), result.Subject, result.Version)
	}
	for _, s := range r.outcome.Pruned {
		add("pruned", s.Subject, s.Version)
	}
	for _, s := range r.plan.Steps {
		switch s.Action {
		case pusher.ActionKeep:
			add(string(pusher.Unchanged), s.Subject, s.Version)
		case pusher.ActionWait:
			add("waiting", s.Subject, s.Version)
		default:
			add("not done", s.Subject, s.Version)
		}
	}
	return totals(by)
}

// totals returns the number of versions with each status or other outcome.
func totals(by map[string]int) string {
	by["in place"] = by[string(pusher.Unchanged)]
	var parts []string
	for _, what := range []string{
		string(pusher.Pushed), string(pusher.Completed), string(pusher.Replaced), string(pusher.Refreshed), string(pusher.Rehashed), string(pusher.Repaired),
		"pruned", "in place", "waiting", "failed", "not done",
	} {
		if n := by[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing to do")
}

// platforms returns the names of the platforms, or their number if there are more than three.
func platforms(ps []provider.Platform) string {
	if len(ps) > 3 {
		return count(len(ps), "platform")
	}
	return cmp.Or(joined(ps, ", "), "no platform")
}

func (p *progress) pruned(steps []reconcile.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range steps {
		p.result("%s %s: pruned, %s", s.Subject, s.Version, size(s.Size))
	}
}

// failures prints all failures if there are several. It does not print a single failure,
// because the command returns this failure as its error.
func (p *progress) failures(failures []reconcile.Failure) {
	if len(failures) < 2 || p.json {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range failures {
		message(p.stderr, "failed", "%s", f.Err.Error())
		if h := hint.Of(f.Err); h != "" {
			message(p.stderr, "  hint", "%s", h)
		}
	}
}

// document returns the JSON output of sync. It contains the plan and the outcome.
func (r *syncRun) document(dryRun bool) any {
	plan, outcome := r.plan, r.outcome
	return struct {
		DryRun   bool             `json:"dry_run"`
		Plan     []reconcile.Step `json:"plan"`
		Unasked  int              `json:"unasked,omitempty"`
		Results  []*pusher.Result `json:"results"`
		Pruned   []reconcile.Step `json:"pruned"`
		Freeable int64            `json:"freeable,omitempty"` // in bytes
		Warnings []string         `json:"warnings,omitempty"`
		Failures []failure        `json:"failures"`
		Missing  []missingSource  `json:"missing,omitempty"`
	}{
		DryRun: dryRun, Plan: orEmpty(plan.Steps), Unasked: plan.Unasked, Results: orEmpty(outcome.Results), Pruned: orEmpty(outcome.Pruned), Freeable: outcome.Freeable,
		Warnings: slices.Concat(plan.Warnings, outcome.Warnings), Failures: failureDocuments(outcome.Failures), Missing: r.missing,
	}
}

// failure is a failed provider, module or version in JSON output. MarshalJSON adds the address as a member that is named
// after its kind.
type failure struct {
	subject subject.Address  // may be nil
	Version provider.Version `json:"version,omitzero"`
	Message string           `json:"message"`
	Hint    string           `json:"hint,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (f failure) MarshalJSON() ([]byte, error) {
	type others failure
	if f.subject == nil {
		return json.Marshal(others(f))
	}
	return document.Join(subject.Member(f.subject), others(f))
}

func failureDocuments(failures []reconcile.Failure) []failure {
	out := []failure{}
	for _, f := range failures {
		out = append(out, failure{f.Subject, f.Version, f.Err.Error(), hint.Of(f.Err)})
	}
	return out
}
