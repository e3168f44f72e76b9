//go:build !linux && !windows

package run

import "syscall"

// attributes has no effect: if this process is killed, the command goes on. Only Linux can
// end a command together with its parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
