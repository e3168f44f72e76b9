package trust

import (
	"context"
	"fmt"
	"runtime"
)

// slots limits the number of releases that the process verifies concurrently. It is half
// the number of CPUs, so that the other half remains free for other requests.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// acquireSlot waits for a slot. It returns an error if ctx ends first. The caller must
// call release when the verification is complete.
func acquireSlot(ctx context.Context) (release func(), err error) {
	if err := contextErr(ctx); err != nil {
		return nil, err
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, contextErr(ctx)
	}
}

// contextErr returns an error that wraps the error of ctx if ctx has ended, and nil
// otherwise.
func contextErr(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify signatures: %w", err)
	}
	return nil
}
