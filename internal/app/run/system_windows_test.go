package run

import (
	"os"
	"syscall"
	"testing"
)

// TestConsole shows that this process passes on no signal that the console sends to the command.
func TestConsole(t *testing.T) {
	for signal, want := range map[os.Signal]bool{os.Interrupt: true, syscall.SIGTERM: true, syscall.SIGHUP: false} {
		if got := controllingTerminal().sends(signal); got != want {
			t.Errorf("%s: %t, want %t", signal, got, want)
		}
	}
}
