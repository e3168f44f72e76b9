package files

import (
	"context"
	"io"
	"os"
)

// nonBlocking has no effect: Windows has no named pipes among its files.
const nonBlocking = 0

// canPoll reports whether this system can wait for a pipe with a deadline.
const canPoll = false

// newPipe is not called on this system.
func newPipe(context.Context, *os.File, bool) io.ReadCloser { return nil }
