package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ocibridge/ocibridge/approval"
	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/approvals"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/loopback"
	"github.com/ocibridge/ocibridge/internal/test/testkit/registry"
)

// TestApprovals shows the verdict on each row of the matrix.
func TestApprovals(t *testing.T) { decideAll(t, loopback.For(t).Truth) }

// TestApprovalsWithoutAPI shows the same with distribution, which has no referrers API.
func TestApprovalsWithoutAPI(t *testing.T) {
	testkit.LeaveToAll(t)
	distribution, err := registry.For(t, registry.Options{}).Handler()
	if err != nil {
		t.Fatal(err)
	}
	decideAll(t, distribution)
}

func decideAll(t *testing.T, registry http.Handler) {
	shared, all := approvals.NewShared(t), approvals.NewRegistry(t, registry)
	for i, c := range approvals.Cases() {
		t.Run(c.Name, func(t *testing.T) { decide(t, shared, all.In(fmt.Sprintf("case%d", i)), c) })
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
	if c.Hangs {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
	}
	verdict, got, err := w.Decide(ctx, policy)
	reason := ""
	var missing *approval.NotApproved
	switch {
	case errors.As(err, &missing):
		reason = missing.Missing[0].Reason
	case err != nil:
		reason = err.Error()
	}
	if got == approvals.NotApproved && (missing == nil || !errors.Is(err, approval.ErrNotApproved)) {
		t.Fatalf("%T", err)
	}
	if got != c.Want || !strings.Contains(reason, c.Reason) || len(verdict.Reported()) != c.Reported {
		t.Errorf("%s (%s), %d reported, want %s (%s), %d reported", got, reason, len(verdict.Reported()), c.Want, c.Reason, c.Reported)
	}
}
