//go:build !windows

package howto

import (
	"os/exec"
	"syscall"
)

// runGroup runs a command in a process group of its own, and then kills what is left of the group.
func runGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	if err := cmd.Start(); err != nil {
		return err
	}
	defer kill()
	return cmd.Wait()
}
