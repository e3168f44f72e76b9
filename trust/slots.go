package trust

import (
	"context"
	"fmt"
	"runtime"
)

// slots bounds how many releases the process verifies concurrently. Half of the CPUs remain
// free for other requests.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// begin waits for a slot until ctx ends. The caller must call end after the verification.
func begin(ctx context.Context) (end func(), err error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

// ended returns an error if ctx has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify signatures: %w", err)
	}
	return nil
}
