package run

import "slices"

// system is what depends on the operating system.
type system struct {
	// signals are the names of the signals that exec passes on to its command.
	signals []string
	// keys are those of the signals that the terminal sends to the command itself, if exec has
	// one and is in its foreground.
	keys []string
	// endsWithExec is set if the system kills the command once exec is killed.
	endsWithExec bool
}

// systemOf returns what holds on an operating system, which is a value of runtime.GOOS.
func systemOf(goos string) system {
	if goos == "windows" {
		// Only these would end exec. Each process of the console gets them from Windows itself.
		return system{signals: []string{"SIGINT", "SIGTERM"}, keys: []string{"SIGINT", "SIGTERM"}, endsWithExec: true}
	}
	return system{
		signals:      []string{"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"},
		keys:         []string{"SIGINT", "SIGQUIT", "SIGWINCH"},
		endsWithExec: goos == "linux", // by PR_SET_PDEATHSIG, which other Unix systems lack
	}
}

// isKey reports whether the terminal sends a signal itself.
func (s system) isKey(signal string) bool { return slices.Contains(s.keys, signal) }

// IfKilled returns a sentence that says what becomes of a command if exec is killed on an
// operating system, which is a value of runtime.GOOS.
func IfKilled(goos string) string {
	if systemOf(goos).endsWithExec {
		return "If exec itself is killed (kill -9), the command is killed, too."
	}
	return "If exec itself is killed (kill -9), the command goes on without the gateway."
}
