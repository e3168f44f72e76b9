package main

import (
	"strings"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// skip permits tests to be skipped on one platform.
type skip struct {
	Package string // in the project
	Test    string // a test with its subtests, or "*" for all tests of the package
	System  string // a GOOS
	Reason  string // the beginning of the test's message
}

// skips lists every skip that is not of a pass's own making. It has no entry for Linux, on which all tests run.
var skips = []skip{
	{"auth", "*", "windows", "the helper is a shell script"},
	{"auth/login", "*", "windows", "the helper is a shell script"},
	{"cmd/ocibridge", "TestScripts", "windows", "it is stopped by a signal"},
	{"internal/clients/cliconfig", "*", "windows", "the helper is a shell script"},
	{"internal/origins/modulezip", "TestRefusals", "windows", "no such file can be made"},
	{"internal/registries/embedded", "TestBlobIsDeletedWhileItIsRead", "windows", "an open file cannot be deleted"},
	{"internal/app/serve", "TestReload", "windows", "no symbolic links here"},
}

// permits reports whether the entry permits the skipped test.
func (s skip) permits(t test, system, reason string) bool {
	top, _, _ := strings.Cut(t.Name, "/")
	return s.Package == short(t.Package) && (s.Test == "*" || s.Test == top) && s.System == system && strings.HasPrefix(reason, s.Reason)
}

// cause is why a pass leaves a test to a later pass.
type cause string

const (
	lacksTool cause = "tool" // the pass does not have a tool
	leftToAll cause = "all"  // the test runs only in the second part, see [testkit.LeaveToAll]
)

// causeOf returns the cause of a skip, or "" if no pass may skip a test for this reason.
func causeOf(reason string) cause {
	switch {
	case strings.HasPrefix(reason, clients.Skipped):
		return lacksTool
	case strings.HasPrefix(reason, testkit.LeftToAll):
		return leftToAll
	}
	return ""
}
