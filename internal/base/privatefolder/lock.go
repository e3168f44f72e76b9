package privatefolder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrLocked means that another process holds a lock for too long.
var ErrLocked = errors.New("another process has locked it")

// lockInterval is the time between two attempts to lock a file.
const lockInterval = 5 * time.Millisecond

// Lock opens a file and locks it against all other callers, in this process and in others. It
// creates the file if it is missing. It fails with [ErrLocked] if the file stays locked for the
// given time. The lock ends when the caller closes the file, and when the process exits. Nobody
// may remove the file, because two processes could then lock different files of the same name.
func Lock(name string, within time.Duration) (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	f, err := LockUntil(ctx, name)
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("%s: %w for %s", name, ErrLocked, within)
	}
	return f, err
}

// LockUntil is like [Lock], but waits until ctx ends. It tries at least once. The error then wraps
// [ErrLocked] and the cause of ctx.
func LockUntil(ctx context.Context, name string) (*os.File, error) {
	for {
		f, err := tryLock(name)
		if !errors.Is(err, ErrLocked) {
			return f, err
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrLocked, context.Cause(ctx))
		}
	}
}
