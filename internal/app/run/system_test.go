package run

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestSystems shows what differs between operating systems.
func TestSystems(t *testing.T) {
	const unixSignals = "[SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGWINCH]"
	for goos, want := range map[string]struct {
		signals, keys, killed string
	}{
		"linux":   {unixSignals, "[SIGINT SIGQUIT SIGWINCH]", "the command is killed, too"},
		"darwin":  {unixSignals, "[SIGINT SIGQUIT SIGWINCH]", "the command goes on without the gateway"},
		"freebsd": {unixSignals, "[SIGINT SIGQUIT SIGWINCH]", "the command goes on without the gateway"},
		"windows": {"[SIGINT SIGTERM]", "[SIGINT SIGTERM]", "the command is killed, too"},
	} {
		s := systemOf(goos)
		if fmt.Sprint(s.signals) != want.signals || fmt.Sprint(s.keys) != want.keys || !strings.Contains(IfKilled(goos), want.killed) {
			t.Errorf("%s: signals %v, keys %v; %s", goos, s.signals, s.keys, IfKilled(goos))
		}
		for _, signal := range s.signals {
			if s.isKey(signal) != slices.Contains(s.keys, signal) {
				t.Errorf("%s: isKey(%s) is %t", goos, signal, s.isKey(signal))
			}
		}
	}
}

// TestPassedOn shows that each name of a signal means a signal of this system.
func TestPassedOn(t *testing.T) {
	names, signals := systemOf(runtime.GOOS).signals, passedOn()
	if len(signals) != len(names) {
		t.Fatalf("%v for %v", signals, names)
	}
	for i, s := range signals {
		if fmt.Sprintf("%d", s) == "0" {
			t.Errorf("%s is no signal here", names[i])
		}
	}
}
