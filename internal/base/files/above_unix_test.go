//go:build !windows

package files

import "testing"

// TestIsOwner shows which owners of a file are trusted.
func TestIsOwner(t *testing.T) {
	for _, tc := range []struct {
		owner, user, root int
		want              bool
	}{
		{1000, 1000, 0, true},
		{0, 1000, 0, true},
		{1001, 1000, 0, false},
		{1000, 0, 0, false}, // the checkout of another user, in a container of root
		{65534, 1000, 65534, true},
		{65534, 1000, 0, false},
	} {
		if got := isOwner(tc.owner, tc.user, tc.root); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
