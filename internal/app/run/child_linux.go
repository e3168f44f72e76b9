package run

import "syscall"

// attributes lets the kernel kill the command if this process is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
