//go:build !windows

package pull

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isFull reports whether err means that a disk or the user's quota is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
