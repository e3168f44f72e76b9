package howto

import "os/exec"

// runGroup runs a command. Windows has no process groups to kill.
func runGroup(cmd *exec.Cmd) error { return cmd.Run() }
