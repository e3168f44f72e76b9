// Package leaks detects what a package's tests leak: goroutines and, on systems with /proc, open files and
// connections.
package leaks

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, and fails if anything leaks. A package that starts goroutines declares:
//
//	func TestMain(m *testing.M) { leaks.Main(m) }
func Main(m *testing.M) { os.Exit(M{m}.Run()) }

// M replaces *testing.M in a package that needs its own TestMain. Its method Run also checks for leaks.
type M struct{ *testing.M }

// Run runs the tests, and returns the exit status.
func (m M) Run() int {
	before := open()
	status := m.M.Run()
	if status == 0 {
		if err := check(before); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	return status
}

// patience is how long goroutines may take to end on a busy machine. A server that has refused a client already
// needs half a second to close the connection.
const patience = 10 * time.Second

func check(before map[string]string) error {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t.CloseIdleConnections() // all tests share the idle connections
	}
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err = left(before); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// left returns an error that lists the current leaks, or nil if there are none.
func left(before map[string]string) error {
	// The embedded registry uses distribution, which never stops its goroutine for events.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/docker/go-events.(*Broadcaster).run")); err != nil {
		return fmt.Errorf("goroutines still run after the tests: %w", err)
	}
	after := open()
	maps.DeleteFunc(after, func(fd, what string) bool { return before[fd] == what })
	if left := slices.Sorted(maps.Values(after)); len(left) > 0 {
		return fmt.Errorf("%d files and connections are still open after the tests:\n%s", len(left), strings.Join(left, "\n"))
	}
	return nil
}

// open returns the open file descriptors: it maps the path of each to its target. The map is empty on systems
// without /proc.
func open() map[string]string {
	out := map[string]string{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return out
	}
	for _, fd := range fds {
		switch what, err := os.Readlink(fd); {
		case err != nil: // the descriptor of /proc/self/fd, which is closed by now
		case strings.HasPrefix(what, "anon_inode:"), strings.HasPrefix(what, "pipe:"), strings.HasPrefix(what, "/dev/"):
			// Ignore the runtime's own files, and the output of go test.
		default:
			out[fd] = what
		}
	}
	return out
}
