package main

import (
	"slices"

	"github.com/ocibridge/ocibridge/internal/registry"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// removals prints a line for each version in the plan, and for each referrer of the version. print
// is a method of p that prints a line.
func (p *progress) removals(print func(format string, args ...any), plan *pusher.RemovePlan, referrers bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last provider.Address
	for _, r := range plan.Removals {
		if r.Provider != last {
			print("%s in %s", r.Provider, r.Repository)
			last = r.Provider
		}
		print("  - %s  %s, %s%s", r.Version, joined(r.Platforms, ", "), size(r.Size), keeps(r))
		for _, ref := range r.Referrers {
			what := ref.ArtifactType
			if ref.Tag != "" {
				what = "tag " + string(ref.Tag)
			}
			if what != "" {
				what = " (" + what + ")"
			}
			fate := "stays; --referrers removes it"
			if referrers {
				fate = "is removed"
			}
			print("    referrer %s%s %s", ref.Digest, what, fate)
		}
	}
}

// keeps names the platforms that stay. It returns "" if the whole version goes.
func keeps(r *pusher.Removal) string {
	if len(r.Left) == 0 {
		return ""
	}
	return "; keeps " + joined(r.Left, ", ")
}

// removed prints a line for each version that was removed.
func (p *progress) removed(removals []*pusher.Removal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range removals {
		if len(r.Left) > 0 {
			p.result("%s %s: removed %s, %s%s", r.Provider, r.Version, joined(r.Platforms, ", "), size(r.Size), keeps(r))
		} else {
			p.result("%s %s: removed, %s", r.Provider, r.Version, size(r.Size))
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
	return struct {
		DryRun   bool              `json:"dry_run"`
		Plan     []*pusher.Removal `json:"plan"`
		Removed  []*pusher.Removal `json:"removed"`
		Freeable int64             `json:"freeable"` // in bytes
		Warnings []string          `json:"warnings,omitempty"`
		Failures []failure         `json:"failures"`
	}{
		dryRun, orEmpty(r.plan.Removals), orEmpty(r.outcome.Removed), freeable,
		slices.Concat(r.plan.Warnings, r.outcome.Warnings), failureDocuments(r.outcome.Failures),
	}
}
