// Package leaks detects leaks of a package's tests: goroutines and, on systems that list them, open files and
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

// Main runs the tests of a package, and fails if anything leaks. A package that starts goroutines has
//
//	func TestMain(m *testing.M) { leaks.Main(m) }
func Main(m *testing.M) { os.Exit(M{m}.Run()) }

// M is for a package with its own TestMain: its Run does the same.
type M struct{ *testing.M }

// Run runs the tests, and returns the status to exit with.
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

// patience is how long goroutines may take to end on a busy machine: a server alone lingers for half a second
// with a client that it has refused.
const patience = 10 * time.Second

func check(before map[string]string) error {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t.CloseIdleConnections() // which all tests share
	}
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err = left(before); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// left returns the leaks as an error.
func left(before map[string]string) error {
	// distribution, in the embedded registry, has one goroutine for events that it never ends.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/docker/go-events.(*Broadcaster).run")); err != nil {
		return fmt.Errorf("goroutines are left when the tests are done: %w", err)
	}
	after := open()
	maps.DeleteFunc(after, func(fd, what string) bool { return before[fd] == what })
	if left := slices.Sorted(maps.Values(after)); len(left) > 0 {
		return fmt.Errorf("%d files and connections are left open when the tests are done:\n%s", len(left), strings.Join(left, "\n"))
	}
	return nil
}

// open returns the open files by descriptor; it is empty without /proc.
func open() map[string]string {
	out := map[string]string{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return out
	}
	for _, fd := range fds {
		switch what, err := os.Readlink(fd); {
		case err != nil: // the folder itself
		case strings.HasPrefix(what, "anon_inode:"), strings.HasPrefix(what, "pipe:"), strings.HasPrefix(what, "/dev/"):
			// Ignore the runtime's own files, and the output of go test.
		default:
			out[fd] = what
		}
	}
	return out
}
