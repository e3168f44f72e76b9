// Package testkit has what the packages below this one share, such as the type TB.
//
// The packages below provide tests and the demo with real parts: OpenPGP signers, provider releases, an origin
// registry, certificates, the clients, and a stand-alone OCI registry. Their core functions return errors and do
// not use package testing, so that plain programs can use them too. Each package also has thin wrappers, mostly
// called For. A wrapper takes a [TB], ends the test on an error, and cleans up after the test.
//
// None of these packages is meant for production. Keys and certificates are temporary, and the servers trust
// their callers.
package testkit

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// TB is the part of [testing.TB] that the wrappers use.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	TempDir() string
}

// PartVariable is the environment variable that, if it is [AllParts], also runs the tests that call [LeaveToAll].
// internal/test/testrun sets it in the second part of the tests, which runs without the race detector.
const (
	PartVariable = "OCIBRIDGE_TESTS"
	AllParts     = "all"
)

// LeftToAll begins the message of a test that [LeaveToAll] skips.
const LeftToAll = "left to make test-all"

// RunsAll reports whether no test is left to "make test-all".
func RunsAll() bool { return os.Getenv(PartVariable) == AllParts }

// LeaveToAll skips a test, unless everything runs. "make test" and a plain "go test" leave four kinds of tests to "make
// test-all". The first measures memory or time, which the race detector would change. The second tries very many cases one
// after another. The third repeats for a module or another registry what is tested already. The fourth tests the project's
// own tools.
func LeaveToAll(tb TB) {
	tb.Helper()
	if !RunsAll() {
		tb.Skipf("%s: %s=%s runs it", LeftToAll, PartVariable, AllParts)
	}
}

// ToolsVariable is the environment variable with the programs that tests may use, see package clients. make always sets it.
const ToolsVariable = "OCIBRIDGE_TOOLS"

// RunsUnderMake reports whether make runs the tests, or everything runs.
func RunsUnderMake() bool { return os.Getenv(ToolsVariable) != "" || RunsAll() }

// LeaveToMake skips a test under a plain "go test ./...", which should end within three minutes.
func LeaveToMake(tb TB) {
	tb.Helper()
	if !RunsUnderMake() {
		tb.Skipf("left to make test: %s=%s runs it", PartVariable, AllParts)
	}
}

// WithoutRace skips a test under the race detector, which can find nothing in it: the program under test is another process, or
// the code under test runs in one goroutine. The second part runs the test.
func WithoutRace(tb TB) {
	tb.Helper()
	if raceDetector {
		tb.Skipf("%s: the race detector can find nothing in it", LeftToAll)
	}
}

// Number returns the number in an environment variable, or otherwise if the variable is empty.
func Number(tb TB, name string, otherwise uint64) uint64 {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}

// GitEnv returns an environment for Git: env without the variables and the configuration that would name another repository or
// change what Git does. A Git hook that runs tests sets such variables.
func GitEnv(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	return append(env, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
}
