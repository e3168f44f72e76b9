// Command testrun runs the tests of the project for make, in two parts. It reads "go test -json", so that no test is left out
// unseen.
//
// The first part, "make test", consists of the packages' tests and of the scenes: the end-to-end tests whose doc comment
// has a line //testrun:scene. It has only some tools. It leaves the tests and subtests that need another tool, and those that
// call testkit.LeaveToAll, to the second part.
//
// With -race, the first part runs a package's tests under the race detector if the package or its tests start goroutines or
// servers. A test whose program is another process is left to the second part (testkit.WithoutRace).
//
// The second part, "make test-all", consists of everything else: what the first part has left, the other end-to-end tests,
// the tests of the deployment files, and those of modules below tools/. All tools are there. It runs without the race detector,
// and with cgo off, as the program is built.
//
// A run fails if a test fails, if a test that "go test -list" prints did not run, or if a test is skipped for a reason that is
// not in the table of skips.go. It prints what "go test" prints, then the slowest packages and tests, and then the faults.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

const module = "github.com/ocibridge/ocibridge"

// slowestShown is how many slow packages and tests a run prints.
const slowestShown = 10

func main() {
	race := flag.Bool("race", false, "run the tests of packages under the race detector")
	tools := flag.String("tools", "", "the tools of the first part, separated by commas")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: testrun [-race] [-tools NAMES] test|all [FLAGS OF GO TEST]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || flag.Arg(0) != "test" && flag.Arg(0) != "all" {
		flag.Usage()
		os.Exit(2)
	}
	r := &run{race: *race, tools: *tools, flags: flag.Args()[1:], report: newReport(os.Stdout)}
	if err := r.do(flag.Arg(0)); err != nil {
		fmt.Fprintf(os.Stderr, "testrun: %v\n", err)
		os.Exit(1)
	}
}

// run is a run of one part, or of both.
type run struct {
	race   bool
	tools  string
	flags  []string
	report *report
	faults []string
}

func (r *run) do(part string) error {
	state := sourceState()
	rec, there := readRecord(state)
	if part == "test" || !there || rec.Race != r.race {
		err := removeRecord()
		if err != nil {
			return err
		}
		if rec, err = r.first(); err != nil {
			return err
		}
		// "make test-all" runs a first part again that had faults.
		if rec.State = state; len(r.faults) == 0 {
			if err := rec.write(); err != nil {
				return err
			}
		}
	} else {
		fmt.Fprintln(r.report.out, "make test has run on these sources: only the rest runs now.")
	}
	if part == "all" {
		if err := r.second(rec); err != nil {
			return err
		}
		if err := removeRecord(); err != nil {
			return err
		}
	}
	return r.finish()
}

// finish prints the slowest packages and tests, and the faults.
func (r *run) finish() error {
	fmt.Fprintf(r.report.out, "\nThe slowest packages:\n%s\nThe slowest tests:\n%s", slowest(r.report.slowPackages, slowestShown), slowest(r.report.slowTests, slowestShown))
	if len(r.faults) > 0 {
		fmt.Fprintf(r.report.out, "\nFAIL\n  %s\n", strings.Join(r.faults, "\n  "))
		return errors.New("the tests did not pass")
	}
	return nil
}

// isUnit reports whether the first part runs all tests of the package.
func isUnit(name string) bool {
	return strings.HasPrefix(name, module) && !slices.Contains([]string{"e2e", "deploy"}, short(name))
}

// split returns the tests of both parts. The second part also runs what the first one leaves.
func split(all []declared) (units, scenes, others chosen) {
	units, scenes, others = chosen{}, chosen{}, chosen{}
	for _, d := range all {
		if isUnit(d.Package) {
			units[d.Package] = d.Tests
			continue
		}
		for _, t := range d.Tests {
			to := others
			if slices.Contains(d.Scenes, t) {
				to = scenes
			}
			to[d.Package] = append(to[d.Package], t)
		}
	}
	return units, scenes, others
}

// first runs the first part. It returns what it leaves to the second part.
func (r *run) first() (record, error) {
	p := pass{Race: r.race, Tools: r.tools, Flags: r.flags}
	all, err := listTests(".", p.buildFlags())
	if err != nil {
		return record{}, err
	}
	units, scenes, _ := split(all)
	rest := chosen{} // without the race detector
	if p.Race {
		units, rest = separate(all, units)
	}
	rest.add(scenes)
	jobs := p.jobs(all, units)
	p.Race = false
	if err := runJobs(".", append(jobs, p.jobs(all, rest)...), r.report); err != nil {
		return record{}, err
	}
	rest.add(units)
	rec := record{Race: r.race, Left: r.check(rest, lacksTool, leftToAll)}
	fmt.Fprintf(r.report.out, "\n%s\n", rec.Left.summary())
	return rec, nil
}

// second runs everything that the first part does not, given what the first part left, without the race detector.
func (r *run) second(rec record) error {
	p := pass{All: true, Tools: "required", Flags: r.flags}
	all, err := listTests(".", p.buildFlags())
	if err != nil {
		return err
	}
	tests := chosen{}
	for _, more := range rec.Left {
		tests.add(more)
	}
	_, _, others := split(all)
	tests.add(others)
	if err := runJobs(".", p.jobs(all, tests), r.report); err != nil {
		return err
	}
	r.check(tests)
	return r.release(p)
}

// release runs the tests of the module that builds releases.
func (r *run) release(p pass) error {
	const dir = "tools/release"
	all, err := listTests(dir, p.buildFlags())
	if err != nil {
		return err
	}
	tests := chosen{}
	for _, d := range all {
		tests[d.Package] = d.Tests
	}
	if err := runJobs(dir, p.jobs(all, tests), r.report); err != nil {
		return err
	}
	r.check(tests)
	return nil
}

// check checks the results of tests, and keeps the faults.
func (r *run) check(tests chosen, mayLeave ...cause) left {
	rest, faults := check(r.report, tests, runtime.GOOS, mayLeave...)
	r.faults = append(r.faults, faults...)
	return rest
}
