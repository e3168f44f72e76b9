package pusher_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// plan plans a push. It fails the test if the plan writes to the registry, or downloads a package.
func (b *bench) plan(platforms ...string) (*pusher.Plan, error) {
	b.t.Helper()
	r, err := b.get(platforms...)
	if err != nil {
		return nil, err
	}
	writes, downloads := b.registry.Count(recorder.Writes()), b.origin.Count(recorder.Method("GET"), recorder.PathSuffix(".zip"))
	plan, err := pusher.New(b.options).PlanPush(b.t.Context(), r)
	if n := b.registry.Count(recorder.Writes()) - writes; n != 0 {
		b.t.Errorf("%d requests that write: %v", n, b.registry.Requests(recorder.Writes()))
	}
	if n := b.origin.Count(recorder.Method("GET"), recorder.PathSuffix(".zip")) - downloads; n != 0 {
		b.t.Errorf("%d packages downloaded", n)
	}
	return plan, err
}

// TestPlanPush shows that a plan predicts what a push does, and its warnings.
func TestPlanPush(t *testing.T) {
	b := newBench(t)
	check := func(what string, action pusher.Action, status pusher.Status, changed []string, platforms ...string) {
		t.Helper()
		plan, err := b.plan(platforms...)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		step := plan.Steps[0]
		var size int64
		for _, p := range changed {
			at := provider.MustParsePlatform(p)
			size += b.release.Package(at.OS, at.Arch).Size
		}
		if got := fmt.Sprint(step.Platforms); len(plan.Steps) != 1 || step.Action != action || got != fmt.Sprint(changed) || step.Size != size {
			t.Errorf("%s: planned %+v, want %s of %v, %d bytes", what, plan.Steps, action, changed, size)
		}
		r := b.mustPush(platforms...)
		var warnings []string
		for _, w := range r.Warnings {
			warnings = append(warnings, fmt.Sprintf("%s 1.0.0: %s", widget, w))
		}
		if r.Status != status || !slices.Equal(plan.Warnings, warnings) {
			t.Errorf("%s: pushed %s with the warnings %q, planned %q", what, r.Status, warnings, plan.Warnings)
		}
	}
	all := []string{"darwin_arm64", "linux_amd64", "windows_amd64"}
	check("a new version", pusher.ActionPush, pusher.Pushed, all[:1], all[0])
	check("missing platforms", pusher.ActionAdd, pusher.Completed, all[1:])
	check("everything in place", pusher.ActionKeep, pusher.Unchanged, all)
	b.options.Force = true
	check("a forced push of the same packages", pusher.ActionKeep, pusher.Unchanged, all)

	// The publisher signs with another key.
	b.options.Force = false
	b.signer = pgp.For(t, "Acme, later")
	b.release = b.build("1.0.0", "content")
	b.origin.Add(b.release)
	check("other evidence", pusher.ActionKeep, pusher.Unchanged, all)
	b.options.RefreshEvidence = true
	check("other evidence, refreshed", pusher.ActionReplace, pusher.Refreshed, []string{})

	// The publisher changes the packages.
	b.options.RefreshEvidence = false
	b.release = b.build("1.0.0", "other content")
	b.origin.Add(b.release)
	_, planned := b.plan()
	_, pushed := b.push()
	if !errors.Is(planned, pusher.ErrConflict) || planned.Error() != pushed.Error() {
		t.Errorf("a conflict: planned %v, pushed %v", planned, pushed)
	}
	b.options.Force = true
	check("a conflict, forced", pusher.ActionReplace, pusher.Replaced, all)
	if plan, err := b.plan(all[0]); err != nil || plan.Steps[0].Action != pusher.ActionKeep {
		t.Errorf("after it: %+v, %v", plan, err)
	}
}

// TestPlanPushAddsEvidence shows that a plan names no platform if only the evidence is missing.
func TestPlanPushAddsEvidence(t *testing.T) {
	b := newBench(t)
	b.refuseEvidence()
	b.mustPush()
	b.registry.Intercept(nil)
	plan, err := b.plan()
	if err != nil || plan.Steps[0].Action != pusher.ActionAdd || len(plan.Steps[0].Platforms) != 0 || plan.Steps[0].Size != 0 {
		t.Errorf("planned %+v, %v", plan, err)
	}
	if r := b.mustPush(); r.Status != pusher.Completed {
		t.Errorf("pushed: %s", r.Status)
	}
}

// TestPlanPushVerifies shows that a plan refuses what a push refuses before it stores anything.
func TestPlanPushVerifies(t *testing.T) {
	b := newBench(t)
	b.sign(pgp.For(t, "Mallory"))
	_, planned := b.plan()
	_, pushed := b.push()
	if !errors.Is(planned, trust.ErrSignature) || planned.Error() != pushed.Error() {
		t.Errorf("planned %v, pushed %v", planned, pushed)
	}
}
