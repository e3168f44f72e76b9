package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// Exit statuses as in shells. The first two mean that the command did not run.
const (
	statusNotRunnable = 126
	statusNotFound    = 127
	// statusSignal is added to the number of the signal that ended a command.
	statusSignal = 128
)

// StatusError means that a command did not run.
type StatusError struct {
	error
	Status int // the exit status, as in shells
}

// Unwrap returns the wrapped error, which carries the hint.
func (e *StatusError) Unwrap() error { return e.error }

// find returns the path of a command's program.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", notRun(name, err)
	}
	return path, nil
}

// notRun returns the error for a command that could not be started.
func notRun(name string, err error) error {
	switch {
	case errors.Is(err, exec.ErrDot):
		return &StatusError{hint.New(fmt.Sprintf("%s is found only in this folder, which PATH names", name), "name it by its path, such as ./%s", name), statusNotRunnable}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &StatusError{hint.New(fmt.Sprintf("%s: no such command", name), "check its name, and whether it is in a folder of PATH"), statusNotFound}
	}
	return &StatusError{hint.Wrap(fmt.Errorf("%s does not run: %w", name, err), "is it a program for this machine, and may you run it?"), statusNotRunnable}
}

// runChild runs a command until it ends, and returns its exit status. It passes signals on to the command.
func runChild(cmd *exec.Cmd) (int, error) {
	// On Linux, the command ends together with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn() {
		if !signal.Ignored(s) { // under nohup, SIGHUP is ignored, and the command inherits this setting
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	terminal := controllingTerminal()
	defer terminal.close()
	release, err := start(cmd, terminal)
	if err != nil {
		return 0, notRun(cmd.Args[0], err)
	}
	defer release()
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if !terminal.sends(s) {
					_ = cmd.Process.Signal(s) // an error means that the command has just ended
				}
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return statusOf(cmd.ProcessState), nil
}

// system describes the signals of an operating system, and how it treats the command when exec is killed.
type system struct {
	signals      []string // the names of the signals that exec passes on to its command
	keys         []string // those of the signals that the terminal itself sends to the command if exec is in the foreground
	endsWithExec bool     // the system kills the command once exec is killed
}

// systemOf describes an operating system. goos is a value of runtime.GOOS.
func systemOf(goos string) system {
	if goos == "windows" {
		// Only these signals would end exec. Windows itself sends them to each process of the console.
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

// IfKilled returns a sentence about what happens to a command if its exec is killed. goos is a value of runtime.GOOS.
func IfKilled(goos string) string {
	if systemOf(goos).endsWithExec {
		return "If exec itself is killed (kill -9), the command is killed, too."
	}
	return "If exec itself is killed (kill -9), the command goes on without the gateway."
}
