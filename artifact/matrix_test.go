package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
)

// read reads the version that a case asks for.
func read(ctx context.Context, w *approvals.World) (*artifact.Version, error) {
	switch a := w.Address.(type) {
	case provider.Address:
		return artifact.Read(ctx, w.Repo(), a, w.Version)
	case module.Address:
		return artifact.ReadZip(ctx, w.Repo(), a, w.Version)
	}
	panic("another kind")
}

// TestApprovals shows the verdict on each row of the matrix.
func TestApprovals(t *testing.T) {
	shared := approvals.NewShared(t)
	for _, c := range approvals.Cases() {
		t.Run(c.Name, func(t *testing.T) { decide(t, shared, approvals.Serve(t, loopback.For(t).Truth, ""), c) })
	}
}

// TestApprovalsWithoutAPI shows the same with distribution, which has no referrers API.
func TestApprovalsWithoutAPI(t *testing.T) {
	testkit.LeaveToAll(t)
	distribution, err := registry.For(t, registry.Options{}).Handler()
	if err != nil {
		t.Fatal(err)
	}
	shared := approvals.NewShared(t)
	for i, c := range approvals.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			decide(t, shared, approvals.Serve(t, distribution, fmt.Sprintf("case%d/", i)), c)
		})
	}
}

// decide checks the verdict on one row.
func decide(t *testing.T, shared *approvals.Shared, places approvals.Places, c approvals.Case) {
	if c.Cosign {
		clients.Program(t, "cosign")
	}
	w := approvals.NewWorld(t, shared, places, c)
	if c.Change != nil {
		c.Change(w)
	}
	policy := approvals.Policy(t, c.Blocks(w))
	w.Intercept(c.Answer)
	defer w.Intercept(nil)
	ctx := t.Context()
	v, err := read(ctx, w)
	if c.Hangs {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
	}
	var verdict approval.Verdict
	if err == nil {
		verdict, err = artifact.CheckApprovals(ctx, w.Repo(), policy, v, w.Address, w.Version)
	}
	got, reason := approvals.Approved, ""
	switch refused := verdict.Err(); {
	case errors.Is(err, artifact.ErrForeign):
		got, reason = approvals.Foreign, err.Error()
	case err != nil:
		got, reason = approvals.Unavailable, err.Error()
	case refused != nil:
		var missing *approval.NotApproved
		if !errors.As(refused, &missing) || !errors.Is(refused, approval.ErrNotApproved) {
			t.Fatalf("%T", refused)
		}
		got, reason = approvals.NotApproved, missing.Missing[0].Reason
	}
	if got != c.Want || !strings.Contains(reason, c.Reason) || len(verdict.Reported()) != c.Reported {
		t.Errorf("%s (%s), %d reported, want %s (%s), %d reported", got, reason, len(verdict.Reported()), c.Want, c.Reason, c.Reported)
	}
}
