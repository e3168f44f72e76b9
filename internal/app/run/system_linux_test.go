package run

import (
	"syscall"
	"testing"
)

// TestEndsWithExec shows that a command is started in the way that systemOf promises for Linux.
func TestEndsWithExec(t *testing.T) {
	if !systemOf("linux").endsWithExec || attributes().Pdeathsig != syscall.SIGKILL {
		t.Errorf("%+v", attributes())
	}
}
