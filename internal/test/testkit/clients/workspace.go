package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

const (
	// DefaultTimeout is the time limit for one run of a client.
	DefaultTimeout = 2 * time.Minute

	// stopTimeout is how long an interrupted client may take to stop its providers. After that, it is killed.
	stopTimeout = 10 * time.Second
)

// A Workspace consists of the folders and the environment of a client. Its fields may be changed, but not while
// a client runs.
type Workspace struct {
	Dir  string // the working directory, with the configuration
	Home string // the home directory

	// Env contains additional environment variables. They override the variables that every client gets: PATH,
	// HOME, TF_CLI_CONFIG_FILE, CHECKPOINT_DISABLE and TF_IN_AUTOMATION.
	Env map[string]string

	// Timeout is the time limit for each run. Zero means [DefaultTimeout].
	Timeout time.Duration
}

// NewWorkspace creates a workspace below dir. It has no configuration, and an empty CLI configuration.
func NewWorkspace(dir string) (*Workspace, error) {
	w := &Workspace{
		Dir:  filepath.Join(dir, "work"),
		Home: filepath.Join(dir, "home"),
		Env:  map[string]string{},
	}
	for _, d := range []string{w.Dir, w.Home} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	return w, w.WriteCLIConfig("")
}

// For is like [NewWorkspace], but fails the test if there is an error, in a folder that is removed when the test ends.
func For(tb testkit.TB) *Workspace {
	tb.Helper()
	w, err := NewWorkspace(tb.TempDir())
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return w
}

// TrustCA makes clients trust the certificate authorities in a PEM file, by setting SSL_CERT_FILE. Clients then
// no longer trust the authorities in the machine's own file, but still trust those in the machine's folders.
func (w *Workspace) TrustCA(file string) { w.Env["SSL_CERT_FILE"] = file }

// CLIConfigPath returns the path of the CLI configuration.
func (w *Workspace) CLIConfigPath() string { return filepath.Join(w.Home, "cli.tfrc") }

// WriteCLIConfig writes the CLI configuration, which users keep in .tofurc or .terraformrc.
func (w *Workspace) WriteCLIConfig(config string) error {
	return os.WriteFile(w.CLIConfigPath(), []byte(config), 0o600)
}

// WriteConfig writes main.tf.
func (w *Workspace) WriteConfig(config string) error {
	return os.WriteFile(filepath.Join(w.Dir, "main.tf"), []byte(config), 0o644)
}

// Clean removes everything that clients have written to the workspace: installed providers, the lock file and
// the state.
func (w *Workspace) Clean() error {
	for _, name := range []string{".terraform", LockFileName, "terraform.tfstate", "terraform.tfstate.backup"} {
		if err := os.RemoveAll(filepath.Join(w.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// An ExitError means that the run of a client failed.
type ExitError struct {
	Command string // the client and its arguments
	Output  string // standard output and standard error, as they were written
	Err     error  // an [*exec.ExitError], or the reason why there is no exit status
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: %v\n%s", e.Command, e.Err, e.Output)
}

func (e *ExitError) Unwrap() error { return e.Err }

// Run runs a client. It returns standard output and standard error as one text. If the run fails, the error is
// an [*ExitError]. After a timeout, the error also wraps [context.DeadlineExceeded].
func (w *Workspace) Run(c Client, args ...string) (string, error) {
	var output bytes.Buffer
	err := w.run(c, args, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr = &output, &output
	})
	if err != nil {
		err = &ExitError{command(c, args), output.String(), err}
	}
	return output.String(), err
}

// Stdout is like [Workspace.Run], but for output in JSON or another format for programs. It returns only standard output.
func (w *Workspace) Stdout(c Client, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := w.run(c, args, func(cmd *exec.Cmd) {
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
	})
	if err != nil {
		err = &ExitError{command(c, args), stdout.String() + stderr.String(), err}
	}
	return stdout.Bytes(), err
}

// Command returns a client's command, with the folder and the environment of the workspace. The caller starts
// the command. When ctx ends, the command is interrupted. If it does not stop then, it is killed.
func (w *Workspace) Command(ctx context.Context, c Client, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, args...)
	cmd.Dir = w.Dir
	cmd.Env = w.environ()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTimeout
	return cmd
}

func (w *Workspace) run(c Client, args []string, redirect func(*exec.Cmd)) error {
	timeout := w.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := w.Command(ctx, c, args...)
	redirect(cmd)
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		return errors.Join(fmt.Errorf("not done after %v", timeout), ctx.Err(), err)
	}
	return err
}

func command(c Client, args []string) string {
	return strings.Join(append([]string{c.Name}, args...), " ")
}

// environ returns the environment of a client, sorted.
func (w *Workspace) environ() []string {
	env := map[string]string{
		"PATH":               os.Getenv("PATH"),
		"HOME":               w.Home,
		"TF_CLI_CONFIG_FILE": w.CLIConfigPath(),
		"CHECKPOINT_DISABLE": "1",
		"TF_IN_AUTOMATION":   "1",
	}
	maps.Copy(env, w.Env)
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// MustRun runs a client, and returns its output. It ends the test if the run fails.
func (w *Workspace) MustRun(tb testkit.TB, c Client, args ...string) string {
	tb.Helper()
	output, err := w.Run(c, args...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return output
}

// MustFail runs a client, and returns its output. It ends the test unless the client exits with an error.
func (w *Workspace) MustFail(tb testkit.TB, c Client, args ...string) string {
	tb.Helper()
	output, err := w.Run(c, args...)
	if err == nil {
		tb.Fatalf("%s: succeeded, but should have failed:\n%s", command(c, args), output)
	}
	if exit := new(exec.ExitError); !errors.As(err, &exit) || errors.Is(err, context.DeadlineExceeded) {
		tb.Fatalf("%v", err)
	}
	return output
}

// MustLock is like [Workspace.Lock], but fails the test if there is an error.
func (w *Workspace) MustLock(tb testkit.TB) map[string]Locked {
	tb.Helper()
	lock, err := w.Lock()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return lock
}
