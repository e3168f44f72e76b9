package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of "go test -json".
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build
	Test       string
	Elapsed    float64
	Output     string
}

// test names a test or a subtest.
type test struct{ Package, Name string }

// result is how a test or a package ended.
type result struct {
	Action string // "pass", "fail" or "skip"
	Took   time.Duration
	Reason string // why a test was skipped
}

// report reads the events of a run. It prints what "go test" prints without -json: one line for each package, and the
// output of failed tests. Several runs may add their events at the same time.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	tests    map[test]result   // of the current jobs
	packages map[string]result // of the current jobs
	output   map[test][]string // of tests that have not ended

	slowPackages, slowTests []row // of all passes
}

// row is a line of a table of what took long.
type row struct {
	name string
	took time.Duration
}

func newReport(out io.Writer) *report {
	r := &report{out: out}
	r.begin()
	return r
}

// begin forgets the results of the last jobs.
func (r *report) begin() {
	r.tests, r.packages, r.output = map[test]result{}, map[string]result{}, map[test][]string{}
}

// read reads all events. A line that is no event is printed. It calls ended after each package.
func (r *report) read(from io.Reader, ended func()) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF && line == "" {
			return nil
		} else if err != nil && err != io.EOF {
			return err
		}
		var e event
		isEvent := json.Unmarshal([]byte(line), &e) == nil && e.Action != ""
		r.mu.Lock()
		if isEvent {
			r.add(e)
		} else {
			fmt.Fprint(r.out, line)
		}
		r.mu.Unlock()
		if isEvent && e.Test == "" && e.ends() {
			ended()
		}
	}
}

// ends reports whether a test or a package has ended.
func (e event) ends() bool { return e.Action == "pass" || e.Action == "fail" || e.Action == "skip" }

// failed reports whether a package has failed.
func (r *report) failed(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packages[name].Action == "fail"
}

func (r *report) add(e event) {
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output":
		r.print(t, e.Output)
	case e.ends():
		took := time.Duration(e.Elapsed * float64(time.Second))
		if e.Test == "" {
			r.endPackage(e.Package, result{Action: e.Action, Took: took})
		} else {
			r.endTest(t, result{Action: e.Action, Took: took})
		}
	}
}

// print prints a package's output at once, and keeps a test's output until the test ends.
func (r *report) print(t test, text string) {
	switch {
	case t.Name != "":
		if !isFrame(text) {
			r.output[t] = append(r.output[t], text)
		}
	case text != "PASS\n" && !strings.HasSuffix(text, "[no tests to run]\n"):
		fmt.Fprint(r.out, text)
	}
}

// isFrame reports whether the text is a line with which "go test -v" frames the output of tests.
func isFrame(text string) bool {
	for _, frame := range []string{"=== RUN ", "=== PAUSE", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(text, frame) {
			return true
		}
	}
	return false
}

func (r *report) endTest(t test, res result) {
	if res.Action == "skip" {
		res.Reason = reason(r.output[t])
	}
	r.tests[t] = res
	if !strings.Contains(t.Name, "/") {
		r.slowTests = append(r.slowTests, row{short(t.Package) + " " + t.Name, res.Took})
	}
	if res.Action == "fail" {
		r.show(t)
	}
	delete(r.output, t)
}

// show prints the output of a test.
func (r *report) show(t test) {
	fmt.Fprint(r.out, strings.Join(r.output[t], ""))
	delete(r.output, t)
}

// endPackage also shows the tests that were running when a package failed, because it crashed or took too long.
func (r *report) endPackage(name string, res result) {
	r.packages[name] = res
	r.slowPackages = append(r.slowPackages, row{short(name), res.Took})
	if res.Action != "fail" {
		return
	}
	var running []test
	for t := range r.output {
		if t.Package == name {
			running = append(running, t)
		}
	}
	slices.SortFunc(running, func(a, b test) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range running {
		if _, ended := r.tests[t]; !ended {
			fmt.Fprintf(r.out, "--- did not end: %s\n", t.Name)
			r.tests[t] = result{Action: "fail"}
			r.show(t)
		}
	}
}

// position is where a test has written a message.
var position = regexp.MustCompile(`(?m)^ *\S+\.go:[0-9]+: `)

// reason returns the message of a skipped test: one with a cause if there is any, because a script goes on to write its log,
// or else the last message before the line that says that the test was skipped.
func reason(output []string) string {
	text, _, _ := strings.Cut(strings.Join(output, ""), "--- SKIP:")
	messages := position.Split(text, -1)
	if i := slices.IndexFunc(messages, func(m string) bool { return causeOf(m) != "" }); i >= 0 {
		return strings.TrimSpace(messages[i])
	}
	return strings.TrimSpace(messages[len(messages)-1])
}

// slowest returns a line for each of the n rows that took longest.
func slowest(rows []row, n int) string {
	rows = slices.SortedStableFunc(slices.Values(rows), func(a, b row) int { return int(b.took - a.took) })
	var out strings.Builder
	for _, row := range rows[:min(n, len(rows))] {
		fmt.Fprintf(&out, "%8.1f s  %s\n", row.took.Seconds(), row.name)
	}
	return out.String()
}

// short returns the path of a package in the project.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }
