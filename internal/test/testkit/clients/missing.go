package clients

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

// ToolsVariable is the environment variable that says which tools the tests must have:
//
//   - not set: tests use the tools that are there. A test whose tool is missing is skipped, so that "go test ./..."
//     passes with Go and Git alone.
//   - "required": a test whose tool is missing fails.
//   - names, separated by commas: a test fails if one of these tools is missing. A test that needs another tool is
//     skipped, even if that tool is there.
const ToolsVariable = testkit.ToolsVariable

// allRequired is the value of [ToolsVariable] under which no tool may be missing.
const allRequired = "required"

// Skipped begins the message of a test that is skipped because a tool is missing. The name of the tool follows.
const Skipped = "not run without "

// Missing is the error of a tool that does not exist, or that the tests must not use.
type Missing struct {
	Tool string
	Err  error
}

func (m *Missing) Error() string { return m.Err.Error() }
func (m *Missing) Unwrap() error { return m.Err }

// notAllowed is the exit code of [NotAllowed].
const notAllowed = 77

// NotAllowed ends a process that a test has started in namespaces of its own, and that may not mount file systems there.
func NotAllowed(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(notAllowed)
}

// RunInNamespaces runs a process in namespaces of its own, and returns its output. The error is a [Missing] error if this
// machine does not allow such a process, or not what it does there: see [NotAllowed].
func RunInNamespaces(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if err == nil {
		if err = cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != notAllowed {
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out.String())
			}
			return out.String(), err
		}
	}
	return out.String(), &Missing{"namespaces", fmt.Errorf("run it as root, or let users have namespaces: %w\n%s", err, out.String())}
}

// offered returns a [Missing] error if the environment lists the tools of the tests, without this one.
func offered(tool string) error {
	listed := os.Getenv(ToolsVariable)
	if listed == "" || listed == allRequired || slices.Contains(strings.Split(listed, ","), tool) {
		return nil
	}
	return &Missing{tool, fmt.Errorf("%s=%s does not list %s", ToolsVariable, listed, tool)}
}

// required reports whether a test fails if the tool is missing.
func required(tool string) bool {
	listed := os.Getenv(ToolsVariable)
	return listed == allRequired || slices.Contains(strings.Split(listed, ","), tool)
}

// Must ends the test if err is not nil. If the reason is a [Missing] tool that is not required, the test is skipped.
// Otherwise, the test fails.
func Must(tb testkit.TB, err error) {
	tb.Helper()
	if err == nil {
		return
	}
	if missing := new(Missing); errors.As(err, &missing) && !required(missing.Tool) {
		tb.Skipf("%s%s: %v", Skipped, missing.Tool, err)
	}
	tb.Fatalf("%v", err)
}
