package serve

import (
	"fmt"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/pull"
	"github.com/ocibridge/ocibridge/pusher"
)

// TestResultOfApprovedVersion shows that the metrics count a push that would change an approved version as a conflict.
func TestResultOfApprovedVersion(t *testing.T) {
	err := fmt.Errorf("acme/widget 1.0.0: %w", pusher.ErrApproved)
	if outcome, limit := resultOf(pull.Event{Kind: pull.Stored, Err: err}); outcome != "conflict" || limit != "" {
		t.Errorf("%q, %q", outcome, limit)
	}
}
