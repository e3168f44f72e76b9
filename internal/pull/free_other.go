//go:build !linux && !darwin && !freebsd && !windows

package pull

import "errors"

// Free returns how many bytes are free for this user on the disk of a folder.
func Free(string) (int64, error) { return 0, errors.ErrUnsupported }

// isFull reports whether an error says that there is no room left on a disk.
func isFull(error) bool { return false }
