package cost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// childVariable is the environment variable with the arguments of a child.
const childVariable = "OCIBRIDGE_COST_CHILD"

// Child is what a run of a test's own program as a child costs.
type Child struct {
	CPU      time.Duration // of the user and of the system
	Resident int64         // the maximum of its resident memory, in bytes
	Said     string        // the text of the error of the child's function; "" if there was none
}

// report is what a child prints.
type report struct {
	Resident int64
	Said     string
}

// InChild runs f with the arguments of [OfChild], and ends the process, if OfChild has started it. Call it first in TestMain.
func InChild(f func(args []string) error) {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var out report
	if err := f(strings.Split(text, "\n")); err != nil {
		out.Said = err.Error()
	}
	status, err := os.ReadFile("/proc/self/status")
	if m := resident.FindSubmatch(status); err == nil && m != nil {
		kib, _ := strconv.ParseInt(string(m[1]), 10, 64)
		out.Resident = kib << 10
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

var resident = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// OfChild measures what a child costs that calls f of [InChild] with the given arguments. It needs /proc.
func OfChild(t *testing.T, args ...string) Child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join(args, "\n"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the child: %v: %s", err, stderr.String())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil || r.Resident == 0 {
		t.Fatalf("the child printed %q: %v", out, err)
	}
	return Child{cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), r.Resident, r.Said}
}

// The most that a package of a module may cost, beside what a small one does.
const (
	mostResident    = 64 << 20
	mostPerMegabyte = 2 * time.Second
)

// CheckPackage fails the test if the package that a child has fetched cost too much: more than 64 MiB of resident memory, or more
// than 2 s of CPU time for each megabyte of received bytes. The cost of a child that fetches a small package is subtracted.
func (c Child) CheckPackage(t *testing.T, name string, small Child, received int) {
	t.Helper()
	cpu, memory := c.CPU-small.CPU, c.Resident-small.Resident
	t.Logf("%s: %d bytes: %v of CPU time, %d MiB of memory: %.150s", name, received, cpu.Round(time.Millisecond), memory>>20, fmt.Sprintf("%q", c.Said))
	megabytes := max(float64(received)/1e6, 1)
	if cpu > time.Duration(megabytes*float64(mostPerMegabyte)) || memory > mostResident {
		t.Errorf("%s: too much", name)
	}
}
