package cost

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// childVariable is the environment variable with the arguments of a child.
const childVariable = "OCIBRIDGE_COST_CHILD"

// Child is what a run of a test's own program as a child costs. The child prints it.
type Child struct {
	CPU       time.Duration // of its function, of the user and of the system
	Reference time.Duration // the CPU time of the fixed work of [reference] in the same child, directly afterwards
	Resident  int64         // the maximum of its resident memory, in bytes
	Said      string        // the text of the error of its function; "" if there was none
}

// InChild runs f with the arguments of [OfChild], and ends the process, if OfChild has started it. Call it first in TestMain.
func InChild(f func(args []string) error) {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var out Child
	before := cpu()
	if err := f(strings.Split(text, "\n")); err != nil {
		out.Said = err.Error()
	}
	out.CPU = cpu() - before
	status, err := os.ReadFile("/proc/self/status")
	if m := resident.FindSubmatch(status); err == nil && m != nil {
		kib, _ := strconv.ParseInt(string(m[1]), 10, 64)
		out.Resident = kib << 10
	}
	debug.FreeOSMemory()
	before = cpu()
	if err := reference(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out.Reference = cpu() - before
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

var resident = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// reference does a fixed amount of the work that an honest package causes: it parses configuration, compresses it, and writes and
// reads small files. How long that takes says how fast the machine is at the moment.
func reference() error {
	var text bytes.Buffer
	for i := range 200 {
		fmt.Fprintf(&text, "resource \"aws_instance\" \"i%d\" {\n  ami = var.ami[%d]\n  tags = merge(local.tags, { Name = \"${var.name}-%d\" })\n}\n\n", i, i, i)
	}
	dir, err := os.MkdirTemp("", "reference-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for range 4 {
		if _, diags := hclsyntax.ParseConfig(text.Bytes(), "main.tf", hcl.InitialPos); diags.HasErrors() {
			return diags
		}
		z := gzip.NewWriter(io.Discard)
		for range 10 {
			if _, err := z.Write(text.Bytes()); err != nil {
				return err
			}
		}
		if err := z.Close(); err != nil {
			return err
		}
	}
	for i := range 1500 {
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(name, text.Bytes()[:100], 0o600); err != nil {
			return err
		}
		if _, err := os.ReadFile(name); err != nil {
			return err
		}
	}
	return nil
}

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
	var c Child
	if err := json.Unmarshal(out, &c); err != nil || c.Resident == 0 || c.Reference == 0 {
		t.Fatalf("the child printed %q: %v", out, err)
	}
	return c
}

// The most that a package of a module may cost, beside what a small one does. The memory is also that of a document.
const (
	mostResident = 64 << 20
	// mostPerMegabyte is the CPU time for each megabyte, in units of [Child].Reference. It is 2 s where the reference takes 100 ms.
	mostPerMegabyte = 20
)

// CheckPackage fails the test if the package that a child has fetched cost too much: more than 64 MiB of resident memory, or more
// than 2 s of CPU time for each megabyte of received bytes. A slow or busy machine may take longer, in proportion to the
// reference. The cost of a child that fetches a small package is subtracted.
func (c Child) CheckPackage(t *testing.T, small Child, received int) {
	t.Helper()
	memory := c.Resident - small.Resident
	most := mostPerMegabyte * max(float64(received)/1e6, 1)
	took := float64(c.CPU) / float64(c.Reference)
	t.Logf("%d bytes: %v of CPU time, %.1f of %.1f times the %v of the reference, %d MiB of memory: %.150s", received, c.CPU.Round(time.Millisecond), took, most,
		c.Reference.Round(time.Millisecond), memory>>20, fmt.Sprintf("%q", c.Said))
	if took > most || memory > mostResident {
		t.Error("too much")
	}
}

// mostOfDocument is the maximum CPU time to read a document, beside that for a small one.
const mostOfDocument = time.Second

// CheckDocument fails the test if the document that a child has read cost more than 64 MiB of resident memory, or more than 1 s of
// CPU time. The cost of a child that reads a small document is subtracted.
func (c Child) CheckDocument(t *testing.T, name string, small Child) {
	t.Helper()
	cpu, memory := c.CPU-small.CPU, c.Resident-small.Resident
	t.Logf("%s: %v of CPU time, %.1f MiB of memory: %.150s", name, cpu.Round(time.Millisecond), float64(memory)/(1<<20), fmt.Sprintf("%q", c.Said))
	if cpu > mostOfDocument || memory > mostResident {
		t.Errorf("%s: too much", name)
	}
}
