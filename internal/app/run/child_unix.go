//go:build !windows

package run

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// passedOn returns the signals that a command gets if this process gets them.
func passedOn() (out []os.Signal) {
	for _, name := range systemOf(runtime.GOOS).signals {
		out = append(out, unix.SignalNum(name))
	}
	return out
}

// terminal is the controlling terminal of this process, or nil.
type terminal struct{ *os.File }

func controllingTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{f}
}

func (t *terminal) close() {
	if t != nil {
		t.Close()
	}
}

// sends reports whether the terminal itself sends a signal to the command. The terminal sends SIGWINCH, and the signals
// of its keys, to every process of the foreground group. This process must not pass such a signal on, because a second
// SIGINT would end Terraform by force.
func (t *terminal) sends(s os.Signal) bool {
	if t == nil || !systemOf(runtime.GOOS).isKey(unix.SignalName(s.(syscall.Signal))) {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(t.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// start starts a command. With a terminal, the command is in this process's group, so that job control works. Without
// one, the command has a group of its own. Otherwise, the command would get a signal for this process's group twice,
// because this process passes the signal on.
func start(cmd *exec.Cmd, t *terminal) (release func(), err error) {
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.Setpgid = t == nil
	return func() {}, cmd.Start()
}

// statusOf returns the exit status of a command, as in shells.
func statusOf(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return statusSignal + int(w.Signal())
	}
	return s.ExitCode()
}
