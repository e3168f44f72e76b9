//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package archives

import (
	"os"
	"time"
)

// longAbandoned is how long a file that is in use is written to at least once,
// with every stall and every resume that limits allow.
const longAbandoned = time.Hour

// lock marks a file as in use: here by being open, which keeps others from removing
// it, or by being written to.
func lock(*os.File) error { return nil }

// isAbandoned reports whether nobody has written to a file for long.
func isAbandoned(name string) bool {
	info, err := os.Stat(name)
	return err == nil && time.Since(info.ModTime()) > longAbandoned
}
