package files

import (
	"slices"
	"testing"
)

// TestAboveEndsAtAFileSystem shows that the search does not leave the file system.
func TestAboveEndsAtAFileSystem(t *testing.T) {
	if got := Above("/proc/self/fd"); len(got) == 0 || slices.Contains(got, "/") {
		t.Errorf("%q", got)
	}
}
