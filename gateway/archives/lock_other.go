//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package archives

import (
	"os"
	"time"
)

// longAbandoned is how long a file that is in use is written to at least once,
// with every stall and every resume that limits allow.
const longAbandoned = time.Hour

// newFile makes a file that is not there yet.
func newFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// lock marks a file as in use: here it is by being written to.
func lock(*os.File) error { return nil }

// isAbandoned reports whether nobody has written to a file for long.
func isAbandoned(name string) bool {
	info, err := os.Stat(name)
	return err == nil && time.Since(info.ModTime()) > longAbandoned
}
