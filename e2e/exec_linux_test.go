package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// started is a running exec.
type started struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

// startExec starts exec with a shell script as its command. It returns when the script has printed "ready". Exec is in a
// session of its own. Its standard input is the controlling terminal of the session, unless it is nil.
func (s *scene) startExec(script string, terminal *os.File) *started {
	s.t.Helper()
	cmd := s.ws.Command(s.t.Context(), s.bridge, "exec", "--data", s.data, "--", "sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal != nil}
	if terminal != nil {
		cmd.Stdin = terminal
	}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	clients.Must(s.t, err)
	clients.Must(s.t, cmd.Start())
	out := &started{s.t, cmd, bufio.NewReader(stdout)}
	if line, err := out.stdout.ReadString('\n'); line != "ready\n" {
		s.t.Fatalf("the script prints %q: %v", line, err)
	}
	return out
}

// signal sends a signal to exec alone.
func (s *started) signal(signal syscall.Signal) {
	s.t.Helper()
	clients.Must(s.t, s.cmd.Process.Signal(signal))
}

// line returns the next line that the script prints.
func (s *started) line() string {
	s.t.Helper()
	line, err := s.stdout.ReadString('\n')
	clients.Must(s.t, err)
	return strings.TrimSuffix(line, "\n")
}

// wantStatus waits until exec has exited.
func (s *started) wantStatus(status int) {
	s.t.Helper()
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Errorf("exec exits with %d, want %d", got, status)
	}
}

// counting is a script that counts interrupts. On SIGUSR1 it prints their number, and exits with status 9.
const counting = `n=0; trap 'n=$((n+1)); echo interrupted' INT; trap 'echo $n; kill $sleep; exit 9' USR1
sleep 60 >/dev/null & sleep=$!; echo ready; while :; do wait $sleep; done`

// TestExecSignals shows that exec passes each signal on to its command, and waits for the command to end.
func TestExecSignals(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, signal := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
	} {
		if ossignal.Ignored(signal) {
			continue // a shell cannot trap a signal that it is started without, such as HUP below nohup
		}
		t.Run(name, func(t *testing.T) {
			e := s.startExec(fmt.Sprintf(`trap 'echo passed on; kill $sleep; exit 9' %s; sleep 60 >/dev/null & sleep=$!; echo ready; wait`, name), nil)
			e.signal(signal)
			if line := e.line(); line != "passed on" {
				t.Errorf("the script prints %q", line)
			}
			e.wantStatus(9)
		})
	}
	t.Run("ignored", func(t *testing.T) {
		e := s.startExec(`trap '' TERM; `+counting, nil)
		e.signal(syscall.SIGTERM)
		e.signal(syscall.SIGINT)
		if line := e.line(); line != "interrupted" {
			t.Errorf("after a signal that it ignores, the script prints %q", line)
		}
		e.signal(syscall.SIGUSR1)
		e.wantStatus(9)
	})
	wantNoFile(t, s.ws)
}

// TestExecInterruptedOnce shows that an interrupt of exec's process group reaches the command once, both with and
// without a terminal. Terraform would end by force at a second interrupt.
func TestExecInterruptedOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	controller, terminal := openTerminal(t)
	for name, tc := range map[string]struct {
		terminal  *os.File
		interrupt func(*started) error
	}{
		"terminal": {terminal, func(*started) error { _, err := controller.WriteString("\x03"); return err }},
		"group":    {nil, func(e *started) error { return syscall.Kill(-e.cmd.Process.Pid, syscall.SIGINT) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := s.startExec(counting, tc.terminal)
			clients.Must(t, tc.interrupt(e))
			if line := e.line(); line != "interrupted" {
				t.Fatalf("the script prints %q", line)
			}
			e.signal(syscall.SIGUSR1) // exec passes signals on in order
			if line := e.line(); line != "1" {
				t.Errorf("%s interrupts", line)
			}
			e.wantStatus(9)
		})
	}
}

// openTerminal returns both ends of a pseudoterminal.
func openTerminal(t *testing.T) (controller, terminal *os.File) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	clients.Must(t, err)
	t.Cleanup(func() { controller.Close() })
	clients.Must(t, unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	clients.Must(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	clients.Must(t, err)
	t.Cleanup(func() { terminal.Close() })
	return controller, terminal
}

// TestExecKilled shows that the command ends if exec is killed, and that the next exec removes the file that the
// killed one left behind.
func TestExecKilled(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.startExec(`trap '' TERM INT HUP; echo ready; exec sleep 600`, nil)
	other := s.startExec(counting, nil)
	clients.Must(t, e.cmd.Process.Kill())
	if _, err := io.Copy(io.Discard, e.stdout); err != nil { // the end of the command closes its standard output
		t.Fatal(err)
	}
	_ = e.cmd.Wait()
	if got := s.files(); got != 2 {
		t.Errorf("%d files before the next exec, want 2", got)
	}
	s.ws.MustRun(t, s.bridge, "exec", "--data", s.data, "--", "true")
	if got := s.files(); got != 1 {
		t.Errorf("%d files after the next exec, want the one of the running exec", got)
	}
	other.signal(syscall.SIGUSR1)
	other.wantStatus(9)
	wantNoFile(t, s.ws)
}

// files returns the number of exec's private files.
func (s *scene) files() int {
	s.t.Helper()
	left, err := os.ReadDir(filepath.Join(s.ws.Home, execFolder))
	clients.Must(s.t, err)
	return len(left)
}
