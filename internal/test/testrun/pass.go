package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
)

// productTags choose the resolver and the user database of the program, which is built without cgo. The race detector
// needs cgo.
const productTags = "netgo,osusergo"

// pass is one mode in which tests run.
type pass struct {
	Race  bool
	All   bool     // whether tests run that call testkit.LeaveToAll
	Tools string   // the value of OCIBRIDGE_TOOLS
	Flags []string // of "go test"
}

// buildFlags returns the flags that choose the files of packages.
func (p pass) buildFlags() []string {
	if p.Race {
		return []string{"-race", "-tags", productTags}
	}
	return nil
}

// moduleEnv returns the environment of the go command in a module, with these build flags. Modules below tools/ are not
// part of a workspace.
func moduleEnv(dir string, flags []string) []string {
	cgo := "CGO_ENABLED=0"
	if slices.Contains(flags, "-race") {
		cgo = "CGO_ENABLED=1"
	}
	env := append(os.Environ(), cgo)
	if dir != "." {
		env = append(env, "GOWORK=off")
	}
	return env
}

// chosen maps packages to the tests and subtests that a pass runs.
type chosen map[string][]string

// job is a command of a pass.
type job struct {
	pass
	command
}

// jobs returns the jobs that run the chosen tests.
func (p pass) jobs(all []declared, tests chosen) []job {
	var out []job
	for _, c := range commands(all, tests) {
		out = append(out, job{p, c})
	}
	return out
}

// atOnce is how many jobs run at the same time: the tests of e2e wait most of the time, and those of the packages compute.
const atOnce = 2

// runJobs runs jobs in one module, and adds their results to the report. Failed tests are in the report. A job begins when the one
// before it has tested a package: at the same time, both would compile the packages that they share.
func runJobs(dir string, jobs []job, r *report) error {
	var running errgroup.Group
	running.SetLimit(atOnce)
	r.begin()
	for _, j := range jobs {
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		running.Go(func() error {
			defer begin()
			return j.test(dir, r, begin)
		})
		<-begun
	}
	return running.Wait()
}

// command is a run of "go test": packages, and the pattern of their tests. "" means all tests.
type command struct {
	packages []string
	pattern  string
}

// slowFirst are the packages whose tests take longest. They start first, so that none of them runs alone at the end.
var slowFirst = []string{"e2e", "internal/test/faults", "gateway", "pusher/reconcile", "pusher", "internal/origins/pull", "cmd/ocibridge", "gateway/archives", "gateway/catalog", "artifact", "internal/test/testrun"}

// commands returns few commands that together run exactly the chosen tests. Packages share a command if no pattern for one
// of them matches a test of another one that is not chosen.
func commands(all []declared, tests chosen) []command {
	type group struct {
		members []declared
		names   []string
	}
	var whole command
	var groups []group
	for _, d := range all {
		names := tests[d.Package]
		if len(names) == 0 {
			continue
		}
		if slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(d.Tests))) {
			whole.packages = append(whole.packages, d.Package)
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool {
			for _, m := range append(g.members, d) {
				if collides(m, tests[m.Package], append(slices.Clone(g.names), names...)) {
					return false
				}
			}
			return true
		})
		if i < 0 {
			groups, i = append(groups, group{}), len(groups)
		}
		groups[i].members, groups[i].names = append(groups[i].members, d), append(groups[i].names, names...)
	}
	var out []command
	if whole.packages != nil {
		out = append(out, whole)
	}
	for _, g := range groups {
		c := command{pattern: pattern(g.names)}
		for _, m := range g.members {
			c.packages = append(c.packages, m.Package)
		}
		out = append(out, c)
	}
	for _, c := range out {
		slices.SortStableFunc(c.packages, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	}
	return out
}

// rank returns the place of a package in slowFirst, or the one behind all if it is not there.
func rank(name string) int {
	if i := slices.Index(slowFirst, short(name)); i >= 0 {
		return i
	}
	return len(slowFirst)
}

// collides reports whether names contain a test of the package, or a subtest of such a test, that is not chosen.
func collides(d declared, chosen, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains(d.Tests, top(name)) && !slices.Contains(chosen, name)
	})
}

// top returns the name of the test that contains a subtest.
func top(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}

// pattern returns the value of -run that matches exactly the named tests.
func pattern(names []string) string {
	slices.Sort(names)
	var out []string
	for _, name := range slices.Compact(names) {
		parts := strings.Split(name, "/")
		for i, part := range parts {
			parts[i] = "^" + regexp.QuoteMeta(part) + "$"
		}
		out = append(out, strings.Join(parts, "/"))
	}
	return strings.Join(out, "|")
}

// test runs one command. It returns an error if the command cannot run, or if it fails without a failed package. It calls ended after
// each package.
func (j job) test(dir string, r *report, ended func()) error {
	p, c := j.pass, j.command
	args := slices.Concat([]string{"test", "-json"}, p.buildFlags(), p.Flags)
	if c.pattern != "" {
		args = append(args, "-run", c.pattern)
	}
	cmd := exec.Command("go", append(args, c.packages...)...)
	env := append(moduleEnv(dir, p.buildFlags()), clients.ToolsVariable+"="+p.Tools, clients.BuiltVariable+"=1", testkit.PartVariable+"=")
	if p.Race {
		env = append(env, "GORACE=atexit_sleep_ms=0") // else each process sleeps for a second before it ends
	}
	if p.All {
		env = append(env, testkit.PartVariable+"="+testkit.AllParts)
	}
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = r.read(out, ended)
	failed := cmd.Wait()
	if err != nil {
		return fmt.Errorf("read the events of go test: %w", err)
	}
	if failed != nil && !slices.ContainsFunc(c.packages, r.failed) {
		return fmt.Errorf("go test: %w", failed)
	}
	return nil
}
