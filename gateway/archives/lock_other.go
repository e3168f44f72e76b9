//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package archives

import (
	"os"
	"time"
)

// longAbandoned is after how long without a write a file is not in use. It is longer than
// all stalls and resumes that Limits allow.
const longAbandoned = time.Hour

// newFile creates a file, which must not exist.
func newFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// lock marks a file as in use. Here, each write does that.
func lock(*os.File) error { return nil }

// isAbandoned reports whether no process has written to a file for long.
func isAbandoned(name string) bool {
	info, err := os.Stat(name)
	return err == nil && time.Since(info.ModTime()) > longAbandoned
}
