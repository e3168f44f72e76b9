package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

var planSigns = map[pusher.Action]string{
	pusher.ActionPush: "+", pusher.ActionAdd: "~", pusher.ActionRepair: "!", pusher.ActionKeep: "=", pusher.ActionPrune: "-", pusher.ActionWait: ".",
}

// plan prints a line for each version in the plan, and the totals.
func (p *progress) plan(plan *pusher.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last provider.Address
	for _, s := range plan.Steps {
		if s.Provider != last {
			p.line("%s", s.Provider)
			last = s.Provider
		}
		switch note := ""; s.Action {
		case pusher.ActionWait:
			p.line("  %s %s  waits until %s", planSigns[s.Action], s.Version, s.Until.Local().Format(time.DateTime))
		default:
			switch {
			case s.FirstSync:
				note = ", does not wait: it was there at the first sync"
			case s.Action == pusher.ActionRepair:
				note = `, stored, and refused by verify = "required"`
			}
			p.line("  %s %s  %s, %s%s", planSigns[s.Action], s.Version, platforms(s.Platforms), size(s.Size), note)
		}
	}
	var parts []string
	for _, a := range []struct {
		action pusher.Action
		what   string
	}{
		{pusher.ActionPush, "to push"}, {pusher.ActionAdd, "to complete"}, {pusher.ActionRepair, "to repair"}, {pusher.ActionPrune, "to prune"},
		{pusher.ActionKeep, "in place"}, {pusher.ActionWait, "waiting"},
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
	p.line("Plan: %s", cmp.Or(strings.Join(parts, ", "), "nothing to do"))
	if plan.Unasked > 0 {
		p.line("%s no block asks for: --prune removes what is not kept for a pull-through", count(plan.Unasked, "version"))
	}
}

// platforms returns the names of the platforms, or their number if there are more than three.
func platforms(ps []provider.Platform) string {
	if len(ps) > 3 {
		return count(len(ps), "platform")
	}
	return cmp.Or(joined(ps, ", "), "no platform")
}

func (p *progress) pruned(steps []pusher.Step) {
	if p.quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range steps {
		p.line("%s %s: pruned, %s", s.Provider, s.Version, size(s.Size))
	}
}

// failures prints all failures if there are several. It does not print a single failure,
// because the command returns this failure as its error.
func (p *progress) failures(failures []pusher.Failure) {
	if len(failures) < 2 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range failures {
		fmt.Fprintf(p.err, "failed: %s\n", hint.OneLine(f.Err.Error()))
		if h := hint.Of(f.Err); h != "" {
			fmt.Fprintf(p.err, "  hint: %s\n", hint.OneLine(h))
		}
	}
}

// document returns the JSON output of sync. It contains the plan, the outcome and err.
func (r *syncRun) document(dryRun bool, err error) any {
	plan, outcome := r.plan, r.outcome
	return struct {
		DryRun   bool              `json:"dry_run"`
		Plan     []pusher.Step     `json:"plan"`
		Unasked  int               `json:"unasked,omitempty"`
		Results  []*pusher.Result  `json:"results"`
		Pruned   []pusher.Step     `json:"pruned"`
		Freeable int64             `json:"freeable,omitempty"` // in bytes
		Warnings []string          `json:"warnings,omitempty"`
		Failures []failure         `json:"failures"`
		Error    map[string]string `json:"error,omitempty"`
	}{
		DryRun: dryRun, Plan: orEmpty(plan.Steps), Unasked: plan.Unasked, Results: orEmpty(outcome.Results), Pruned: orEmpty(outcome.Pruned), Freeable: outcome.Freeable,
		Warnings: slices.Concat(plan.Warnings, outcome.Warnings), Failures: failureDocuments(outcome.Failures), Error: errorDocument(err),
	}
}

// failure is a failed provider or version in JSON output.
type failure struct {
	Provider provider.Address `json:"provider"`
	Version  provider.Version `json:"version,omitzero"`
	Message  string           `json:"message"`
	Hint     string           `json:"hint,omitempty"`
}

func failureDocuments(failures []pusher.Failure) []failure {
	out := []failure{}
	for _, f := range failures {
		out = append(out, failure{f.Provider, f.Version, f.Err.Error(), hint.Of(f.Err)})
	}
	return out
}
