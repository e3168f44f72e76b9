package main

import (
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/registries/registry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher/reconcile"
)

// removals prints a line for each version in the plan, and for each referrer of the version. print
// is a method of p that prints a line.
func (p *progress) removals(print func(format string, args ...any), plan *reconcile.RemovePlan, referrers bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last provider.Address
	for _, r := range plan.Removals {
		if r.Provider != last {
			print("%s in %s", r.Provider, r.Repository)
			last = r.Provider
		}
		print("  - %s  %s, %s%s", r.Version, joined(r.Platforms, ", "), size(r.Size), keeps(r))
		referrerLines(print, r.Referrers, referrers)
	}
	for i, r := range plan.Modules {
		if i == 0 || r.Module != plan.Modules[i-1].Module {
			print("%s in %s", r.Module, r.Repository)
		}
		var tags []string
		for _, tag := range r.Tags {
			tags = append(tags, string(tag))
		}
		print("  - %s  tag %s, %s", r.Version, strings.Join(tags, ", "), size(r.Size))
		referrerLines(print, r.Referrers, referrers)
	}
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
			p.result("%s %s: removed %s, %s%s", r.Provider, r.Version, joined(r.Platforms, ", "), size(r.Size), keeps(r))
		} else {
			p.result("%s %s: removed, %s", r.Provider, r.Version, size(r.Size))
		}
	}
	for _, r := range out.Modules {
		p.result("%s %s: removed, %s", r.Module, r.Version, size(r.Size))
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
	return struct {
		DryRun         bool                       `json:"dry_run"`
		Plan           []*reconcile.Removal       `json:"plan"`
		Removed        []*reconcile.Removal       `json:"removed"`
		PlanModules    []*reconcile.ModuleRemoval `json:"plan_modules,omitempty"`
		RemovedModules []*reconcile.ModuleRemoval `json:"removed_modules,omitempty"`
		Freeable       int64                      `json:"freeable"` // in bytes
		Warnings       []string                   `json:"warnings,omitempty"`
		Failures       []failure                  `json:"failures"`
	}{
		dryRun, orEmpty(r.plan.Removals), orEmpty(r.outcome.Removed), r.plan.Modules, r.outcome.Modules, freeable,
		slices.Concat(r.plan.Warnings, r.outcome.Warnings), failureDocuments(r.outcome.Failures),
	}
}
