package pusher_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pgp"
	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
	"github.com/ocibridge/ocibridge/internal/test/testkit/recorder"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
	"github.com/ocibridge/ocibridge/trust"
)

// plan plans a push. It fails the test if the plan writes to the registry, or downloads a package.
func (b *bench) plan(platforms ...string) (*pusher.PushPlan, error) {
	b.T.Helper()
	r, err := b.Get(platforms...)
	if err != nil {
		return nil, err
	}
	writes, downloads := b.Registry.Count(recorder.Writes()), b.Origin.Count(recorder.Method("GET"), recorder.PathSuffix(".zip"))
	plan, err := pusher.New(b.Options).PlanPush(b.T.Context(), r)
	if n := b.Registry.Count(recorder.Writes()) - writes; n != 0 {
		b.T.Errorf("%d requests that write: %v", n, b.Registry.Requests(recorder.Writes()))
	}
	if n := b.Origin.Count(recorder.Method("GET"), recorder.PathSuffix(".zip")) - downloads; n != 0 {
		b.T.Errorf("%d packages downloaded", n)
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
		step := plan.Step
		var size int64
		for _, p := range changed {
			at := provider.MustParsePlatform(p)
			size += b.Release.Package(at.OS, at.Arch).Size
		}
		if got := fmt.Sprint(step.Platforms); step.Action != action || got != fmt.Sprint(changed) || step.Size != size {
			t.Errorf("%s: planned %+v, want %s of %v, %d bytes", what, step, action, changed, size)
		}
		r := b.MustPush(platforms...)
		var warnings []string
		for _, w := range r.Warnings {
			warnings = append(warnings, fmt.Sprintf("%s 1.0.0: %s", pushbench.Widget, w))
		}
		if r.Status != status || !slices.Equal(plan.Warnings, warnings) {
			t.Errorf("%s: pushed %s with the warnings %q, planned %q", what, r.Status, warnings, plan.Warnings)
		}
	}
	all := []string{"darwin_arm64", "linux_amd64", "windows_amd64"}
	check("a new version", pusher.ActionPush, pusher.Pushed, all[:1], all[0])
	check("missing platforms", pusher.ActionAdd, pusher.Completed, all[1:])
	check("everything in place", pusher.ActionKeep, pusher.Unchanged, all)
	b.Options.Force = true
	check("a forced push of the same packages", pusher.ActionKeep, pusher.Unchanged, all)

	// The publisher signs with another key.
	b.Options.Force = false
	b.Signer = pgp.For(t, "Acme, later")
	b.Release = b.Build("1.0.0", "content")
	b.Origin.Add(b.Release)
	check("other evidence", pusher.ActionKeep, pusher.Unchanged, all)
	b.Options.RefreshEvidence = true
	check("other evidence, refreshed", pusher.ActionReplace, pusher.Refreshed, []string{})

	// The publisher changes the packages.
	b.Options.RefreshEvidence = false
	b.Release = b.Build("1.0.0", "other content")
	b.Origin.Add(b.Release)
	_, planned := b.plan()
	_, pushed := b.Push()
	if !errors.Is(planned, pusher.ErrConflict) || planned.Error() != pushed.Error() {
		t.Errorf("a conflict: planned %v, pushed %v", planned, pushed)
	}
	b.Options.Force = true
	check("a conflict, forced", pusher.ActionReplace, pusher.Replaced, all)
	if plan, err := b.plan(all[0]); err != nil || plan.Action != pusher.ActionKeep {
		t.Errorf("after it: %+v, %v", plan, err)
	}
}

// TestPlanPushAddsEvidence shows that a plan names no platform if only the evidence is missing.
func TestPlanPushAddsEvidence(t *testing.T) {
	b := newBench(t)
	b.RefuseEvidence()
	b.MustPush()
	b.Registry.Intercept(nil)
	plan, err := b.plan()
	if err != nil || plan.Action != pusher.ActionAdd || len(plan.Platforms) != 0 || plan.Size != 0 {
		t.Errorf("planned %+v, %v", plan, err)
	}
	if r := b.MustPush(); r.Status != pusher.Completed {
		t.Errorf("pushed: %s", r.Status)
	}
}

// TestPlanPushVerifies shows that a plan refuses what a push refuses before it stores anything.
func TestPlanPushVerifies(t *testing.T) {
	b := newBench(t)
	b.sign(pgp.For(t, "Mallory"))
	_, planned := b.plan()
	_, pushed := b.Push()
	if !errors.Is(planned, trust.ErrSignature) || planned.Error() != pushed.Error() {
		t.Errorf("planned %v, pushed %v", planned, pushed)
	}
}
