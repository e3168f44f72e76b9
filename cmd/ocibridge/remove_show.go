package main

import (
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// removals prints a line for each version in the plan, and for each referrer of the version. print
// is a method of p that prints a line.
func (p *progress) removals(print func(format string, args ...any), plan *reconcile.RemovePlan, referrers bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last subject.Address
	for _, r := range plan.Removals {
		if r.Subject != last {
			print("%s in %s", r.Subject, r.Repository)
			last = r.Subject
		}
		what := joined(r.Platforms, ", ")
		if len(r.Tags) > 0 {
			what = "tag " + joinedTags(r.Tags)
		}
		print("  - %s  %s, %s%s", r.Version, what, size(r.Size), keeps(r))
		referrerLines(print, r.Referrers, referrers)
	}
}

func joinedTags(tags []ociaddr.Tag) string {
	var out []string
	for _, t := range tags {
		out = append(out, string(t))
	}
	return strings.Join(out, ", ")
}

// referrerLines prints a line for each referrer of a removed version.
func referrerLines(print func(format string, args ...any), referrers []reconcile.Referrer, remove bool) {
	for _, ref := range referrers {
		what := ref.ArtifactType
		if ref.Tag != "" {
			what = "tag " + string(ref.Tag)
		}
		if what != "" {
			what = " (" + what + ")"
		}
		fate := "stays; --referrers removes it"
		if remove {
			fate = "is removed, unless another tag names it"
		}
		print("    referrer %s%s %s", ref.Digest, what, fate)
	}
}

// keeps names the platforms that stay. It returns "" if the whole version goes.
func keeps(r *reconcile.Removal) string {
	if len(r.Left) == 0 {
		return ""
	}
	return "; keeps " + joined(r.Left, ", ")
}

// removed prints a line for each version that was removed.
func (p *progress) removed(out *reconcile.RemoveOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range out.Removed {
		if len(r.Left) > 0 {
			p.result("%s %s: removed %s, %s%s", r.Subject, r.Version, joined(r.Platforms, ", "), size(r.Size), keeps(r))
		} else {
			p.result("%s %s: removed, %s", r.Subject, r.Version, size(r.Size))
		}
	}
}

// freeable prints how many bytes a garbage collection can free, and which one. It prints
// nothing if there are none.
func (p *progress) freeable(bytes int64, back *registry.Repositories) {
	if bytes == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if back.Embedded != nil {
		p.summary("ocibridge gc can free %s", size(bytes))
	} else {
		p.summary("The registry's garbage collection can free up to %s", size(bytes))
	}
}

// document returns the JSON output of remove. It contains the plan and the outcome.
func (r *removeRun) document(dryRun bool) any {
	freeable := r.outcome.Freeable
	if dryRun {
		freeable = r.plan.Freeable()
	}
	of := func(r *reconcile.Removal) subject.Address { return r.Subject }
	plan, removed := subject.ByKind(r.plan.Removals, of), subject.ByKind(r.outcome.Removed, of)
	return struct {
		DryRun         bool                 `json:"dry_run"`
		Plan           []*reconcile.Removal `json:"plan"`
		Removed        []*reconcile.Removal `json:"removed"`
		PlanModules    []*reconcile.Removal `json:"plan_modules,omitempty"`
		RemovedModules []*reconcile.Removal `json:"removed_modules,omitempty"`
		Freeable       int64                `json:"freeable"` // in bytes
		Warnings       []string             `json:"warnings,omitempty"`
		Failures       []failure            `json:"failures"`
	}{
		dryRun, orEmpty(plan[subject.Provider]), orEmpty(removed[subject.Provider]), plan[subject.Module], removed[subject.Module], freeable,
		slices.Concat(r.plan.Warnings, r.outcome.Warnings), failureDocuments(r.outcome.Failures),
	}
}
