package clients

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/testkit"
)

// ToolsVariable is the environment variable that says which tools the tests must have:
//
//   - not set: tests use the tools that are there. A test whose tool is missing is skipped, so that "go test ./..."
//     passes with Go and Git alone.
//   - "required": a test whose tool is missing fails.
//   - names, separated by commas: a test fails if one of these tools is missing. A test that needs another tool is
//     skipped, even if that tool is there.
const ToolsVariable = "OCIBRIDGE_TOOLS"

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
