package run

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// passedOn returns the signals that would end this process. [terminal.sends] reports that the
// console sends them to the command.
func passedOn() (out []os.Signal) {
	for _, name := range systemOf("windows").signals {
		out = append(out, signalsByName[name])
	}
	return out
}

// signalsByName are the signals that package os/signal has on Windows. [syscall.SIGTERM] means
// that the console closes, or that the user logs off.
var signalsByName = map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM}

// terminal is the console.
type terminal struct{}

func controllingTerminal() terminal { return terminal{} }

func (terminal) close() {}

func (terminal) sends(s os.Signal) bool {
	for name, signal := range signalsByName {
		if signal == s {
			return systemOf("windows").isKey(name)
		}
	}
	return false
}

// start starts a command in a job. Windows kills the command if this process is killed,
// because the job then ends.
func start(cmd *exec.Cmd, _ terminal) (release func(), err error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	release = func() {
		_ = limit(job, 0) // programs that the command left running go on
		_ = windows.CloseHandle(job)
	}
	if err := limit(job, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE); err != nil {
		release()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		release()
		return nil, err
	}
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(cmd.Process.Pid))
	if err == nil {
		err = errors.Join(windows.AssignProcessToJobObject(job, process), windows.CloseHandle(process))
	}
	if err != nil {
		return release, nil // the command has ended already, or is in a job that allows no other
	}
	return release, nil
}

// limit sets the limits of a job.
func limit(job windows.Handle, flags uint32) error {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = flags
	_, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

// statusOf returns the exit status of a command.
func statusOf(s *os.ProcessState) int { return s.ExitCode() }
