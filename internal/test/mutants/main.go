// Command mutants removes guards from the source, one at a time. For each guard, it runs the test that
// docs/explanation/threat-model.md names. This test must fail. The command does not change the source files, because it
// passes the changed source to the compiler as an overlay.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit"
)

const timeout = "5m"

func main() {
	only := flag.String("only", "", "run only the mutants whose package, function or test contains this text")
	table := flag.Bool("table", false, "print the table of docs/explanation/threat-model.md, and run nothing")
	flag.Parse()
	if *table {
		fmt.Print(tableOf(mutants))
		return
	}
	survived, n := 0, 0
	for _, m := range mutants {
		if !strings.Contains(m.in+" "+m.test, *only) {
			continue
		}
		n++
		start := time.Now()
		verdict, err := m.run()
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutants: %s: %v\n", m.guard, err)
			os.Exit(1)
		}
		if verdict != killed {
			survived++
		}
		fmt.Printf("%-9s %5.1f s  %-50s %s\n", verdict, time.Since(start).Seconds(), m.test, m.guard)
	}
	fmt.Printf("%d guards taken away, %d of them unnoticed\n", n, survived)
	if survived > 0 || n == 0 {
		os.Exit(1)
	}
}

const (
	killed   = "noticed"
	alive    = "UNNOTICED"
	unsteady = "FAILS SO" // the test fails even if the guard is in place
)

// run runs the mutant's test twice, with the guard and without it.
func (m mutant) run() (verdict string, err error) {
	if out, err := m.runTest(); err != nil {
		fmt.Fprintln(os.Stderr, out)
		return unsteady, nil
	}
	name, src, err := m.mutated()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	instead, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: instead}})
	if err == nil {
		err = os.WriteFile(overlay, replace, 0o600)
	}
	if err == nil {
		err = os.WriteFile(instead, []byte(src), 0o600)
	}
	if err != nil {
		return "", err
	}
	out, err := m.runTest("-overlay", overlay)
	_, test := m.testName()
	switch {
	case err == nil:
		return alive, nil
	case strings.Contains(out, "--- FAIL: "+test), strings.HasPrefix(out, "panic: "), strings.Contains(out, "\npanic: "):
		return killed, nil // after a panic in another goroutine, the output does not name the test
	}
	return "", fmt.Errorf("neither passes nor fails:\n%s", out)
}

func (m mutant) testName() (pkg, name string) {
	pkg, name, _ = strings.Cut(m.test, ".")
	return pkg, name
}

func (m mutant) runTest(args ...string) (string, error) {
	pkg, name := m.testName()
	args = append([]string{"test", "-vet=off", "-timeout", timeout, "-run", "^" + name + "$"}, append(args, "./"+pkg)...)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), testkit.PartVariable+"="+testkit.AllParts)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mutated returns the path of the file that contains the guard, and the file's source without the guard.
func (m mutant) mutated() (file, src string, err error) {
	file, src, from, to, err := find(m.in)
	if err != nil {
		return "", "", err
	}
	decl := src[from:to]
	if n := strings.Count(decl, m.old); n != 1 {
		return "", "", fmt.Errorf("%q occurs %d times in %s", m.old, n, m.in)
	}
	return file, src[:from] + strings.Replace(decl, m.old, m.new, 1) + src[to:], nil
}

// tableOf returns the table of mutants in docs/explanation/threat-model.md.
func tableOf(mutants []mutant) string {
	var out strings.Builder
	out.WriteString("| removed guard | in | failing test |\n|---|---|---|\n")
	for _, m := range mutants {
		fmt.Fprintf(&out, "| %s | `%s` | `%s` |\n", m.guard, m.in, m.test)
	}
	return out.String()
}
