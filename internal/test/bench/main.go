// Command bench compares the gateway with servers that only send the same bytes. It also compares a push with
// the ORAS CLI. It prints one table of ratios. "make bench" runs it.
//
// All connections use TLS on the loopback interface, and are kept alive. The gateway is the built program,
// configured as in production: it has a registry, a cache, and a log file with a line for each request. Each
// server is a process of its own. All servers use the same certificate. A result is the median of five runs, or
// of fifteen runs for a package that is pulled through. Each run measures the servers one after another.
// Therefore other load on the machine affects all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ocibridge/ocibridge/internal/test/testkit/clients"
	"github.com/ocibridge/ocibridge/internal/test/testkit/world"
)

// timeLimit is the time limit for the whole benchmark.
const timeLimit = 30 * time.Minute

// runs is the number of runs of each comparison.
const runs = 5

func main() {
	if len(os.Args) > 1 && os.Args[1] == bareCommand {
		exit(serveBare(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == originCommand {
		exit(serveOrigin(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == gitCommand {
		exit(serveGit(os.Args[2:]))
	}
	packageMB := flag.Int("package", 10, "`megabytes` of each of the 12 packages that are pushed")
	only := flag.String("only", "init,store,modules,sync,documents,archives,approvals,versions,memory,unread,capacity,pages,usage,push,pull", "what to measure")
	before := flag.String("before", "", "the program `file` of an earlier build, which \"-only before\" compares with bin/ocibridge")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	exit(run(ctx, *packageMB, *before, strings.Split(*only, ",")))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// row is a line of the table.
type row struct {
	what    string
	figure  string // the gateway's result, in its own unit
	ratio   float64
	than    string // the thing with which the gateway is compared, or the constant nothing
	wanted  string // the target for ratio, or the constant nothing
	reached bool
	nginx   float64 // the ratio to nginx; 0 if nginx was not measured
}

// nothing marks a row without a target or a comparison.
const nothing = "-"

// bench contains the state that all benchmarks share.
type bench struct {
	*world.World
	ctx    context.Context
	bridge clients.Client
	ws     *clients.Workspace
	rows   []row
}

func run(ctx context.Context, packageMB int, earlier string, parts []string) error {
	dir, err := os.MkdirTemp("", "ocibridge-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := world.New(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	b := &bench{World: w, ctx: ctx}
	if b.bridge, err = clients.Bridge(); err != nil {
		return err
	}
	if b.ws, err = w.Workspace(""); err != nil {
		return err
	}
	b.ws.Timeout = timeLimit
	start := time.Now()
	before := load()
	for _, part := range parts {
		measure, ok := map[string]func() error{
			"documents": func() error { return b.speed(documents) },
			"archives":  func() error { return b.speed(archives) },
			"approvals": b.approvals,
			"before":    func() error { return b.before(earlier) },
			"versions":  b.versions,
			"memory":    b.memory,
			"unread":    b.unread,
			"capacity":  b.capacity,
			"pages":     b.pages,
			"usage":     b.usage,
			"push":      func() error { return b.push(packageMB) },
			"pull":      b.pull,
			"init":      b.inits,
			"store":     b.store,
			"modules":   b.modules,
			"sync":      b.sync,
		}[part]
		if !ok {
			return fmt.Errorf("there is no %q to measure", part)
		}
		b.say("%s ...", part)
		if err := measure(); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	b.print()
	fmt.Printf("\n%s, %s/%s, %d CPUs, %s. Load before: %s; it took %s.\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		time.Now().Format(time.DateOnly), before, time.Since(start).Round(time.Second))
	return nil
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// print prints the table.
func (b *bench) print() {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\t\tratio\tof\twanted\t\tof nginx")
	for _, r := range b.rows {
		verdict, nginx := "missed", "-"
		switch {
		case r.reached:
			verdict = "reached"
		case r.wanted == nothing:
			verdict = "-"
		}
		if r.nginx > 0 {
			nginx = fmt.Sprintf("%.2f", r.nginx)
		}
		ratio := nothing
		if r.than != nothing {
			ratio = fmt.Sprintf("%.2f", r.ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.figure, ratio, r.than, r.wanted, verdict, nginx)
	}
	t.Flush()
}

// load returns the load averages of the machine, or "" if the system does not provide them.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return "not known"
	}
	return strings.Join(fields[:3], " ")
}

// subdir creates a folder below the folder of the world, and returns its path.
func (b *bench) subdir(name string) (string, error) {
	dir := filepath.Join(b.Dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}
