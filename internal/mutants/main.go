// Command mutants takes guards away, one at a time, and shows that a test fails
// for each: that the test named in docs/threat-model.md does hold the promise. It
// changes no file: the compiler is given what a file would be.
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
)

const timeout = "5m"

func main() {
	only := flag.String("only", "", "run those alone whose file or test has this in it")
	table := flag.Bool("table", false, "print the table of docs/threat-model.md, and run nothing")
	flag.Parse()
	if *table {
		fmt.Print(tableOf(mutants))
		return
	}
	survived, n := 0, 0
	for _, m := range mutants {
		if !strings.Contains(m.file+" "+m.test, *only) {
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
	unsteady = "FAILS SO" // the test fails with the guard in place
)

// run runs the mutant's test, with the guard and without.
func (m mutant) run() (verdict string, err error) {
	if out, err := m.runTest(); err != nil {
		fmt.Fprintln(os.Stderr, out)
		return unsteady, nil
	}
	src, err := m.mutated()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(m.file)
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
	_, name := m.testName()
	switch {
	case err == nil:
		return alive, nil
	case strings.Contains(out, "--- FAIL: "+name), strings.HasPrefix(out, "panic: "), strings.Contains(out, "\npanic: "):
		return killed, nil // a panic in another goroutine ends the test without its name
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
	out, err := exec.Command("go", args...).CombinedOutput()
	return string(out), err
}

// mutated returns the file without the guard.
func (m mutant) mutated() (string, error) {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return "", fmt.Errorf("%q stands in %s %d times", m.old, m.file, n)
	}
	return strings.Replace(string(src), m.old, m.new, 1), nil
}

// tableOf returns the mutants as the document has them.
func tableOf(mutants []mutant) string {
	var out strings.Builder
	out.WriteString("| without looking at | in | fails |\n|---|---|---|\n")
	for _, m := range mutants {
		fmt.Fprintf(&out, "| %s | `%s` | `%s` |\n", m.guard, m.file, m.test)
	}
	return out.String()
}
