package pull

import (
	"fmt"
	"testing"

	"github.com/ocibridge/ocibridge/pusher"
)

// TestApprovedVersionIsNotRetried shows that a push is not retried if the version is approved: it would fail again.
func TestApprovedVersionIsNotRetried(t *testing.T) {
	err := fmt.Errorf("acme/widget 1.0.0: %w", pusher.ErrApproved)
	if !isFinal(err) || !isModuleRefused(err) || !isStorage(err) {
		t.Errorf("final %v, refused %v, of the registry %v", isFinal(err), isModuleRefused(err), isStorage(err))
	}
}
