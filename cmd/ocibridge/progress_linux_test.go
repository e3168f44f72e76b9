package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// openTerminal opens a pseudo-terminal. What is written to the terminal can be read from the
// returned reader.
func openTerminal(t *testing.T) (tty *os.File, screen *bufio.Reader) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { master.Close() })
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { tty.Close() })
	must(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	return tty, bufio.NewReader(master)
}

// waitFor reads the screen until it has shown text. It returns what it has read.
func waitFor(t *testing.T, screen *bufio.Reader, text string) (seen string) {
	t.Helper()
	for !strings.Contains(seen, text) {
		r, _, err := screen.ReadRune()
		if err != nil {
			t.Fatalf("no %q on the screen, but %q: %v", text, seen, err)
		}
		seen += string(r)
	}
	return seen
}

// TestProgressOnTerminal shows that the progress of planning and of packages is on the
// terminal, with --output json, too, and that standard output has only results.
func TestProgressOnTerminal(t *testing.T) {
	tty, screen := openTerminal(t)
	for _, format := range []formatFlag{"text", "json"} {
		var stdout bytes.Buffer
		flags := &commonFlags{output: outputFlag{format}}
		p := flags.progress(&stdout, tty)
		planned, done := p.planning(3)
		a := provider.MustParseAddress(widgetHost + "/acme/widget")
		v, err := provider.ParseVersion("1.0.0")
		must(t, err)
		for range 7 {
			planned(a, v)
		}
		planned(a, provider.Version{})
		waitFor(t, screen, "1 of 3 providers, 7 versions")
		done()
		platform := provider.Platform{OS: "linux", Arch: "amd64"}
		p.Event(pusher.Event{Provider: a, Version: v, Platform: platform, Stage: pusher.StageFetch, Bytes: 5 << 20, Total: 10 << 20})
		waitFor(t, screen, "widget 1.0.0 linux_amd64")
		waitFor(t, screen, "of 10 MiB")
		if format == "text" {
			p.note("from\u0085\u202e here")
			if seen := waitFor(t, screen, " here"); !strings.Contains(seen, "from   here") {
				t.Errorf("a note above the bars: %q", seen)
			}
		}
		p.Done(&pusher.Result{Provider: a, Version: v, Status: pusher.Pushed})
		p.Close()
		want := ""
		if format == "text" {
			want = widgetHost + "/acme/widget 1.0.0: pushed, "
		}
		if got := stdout.String(); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: standard output %q", format, got)
		}
	}
}

// TestQuietOnTerminal shows that --quiet leaves out bars and summaries, and prints results and
// warnings.
func TestQuietOnTerminal(t *testing.T) {
	tty, screen := openTerminal(t)
	var stdout bytes.Buffer
	p := (&commonFlags{quiet: true, output: outputFlag{"text"}}).progress(&stdout, tty)
	if planned, done := p.planning(3); planned != nil {
		done()
		t.Error("planning is shown")
	}
	p.Event(pusher.Event{Stage: pusher.StageFetch, Total: 10})
	p.note("a note")
	p.summary("a summary")
	p.result("a result")
	p.Warn("careful\n\u0085now")
	p.Close()
	if line, err := screen.ReadString('\n'); err != nil || line != "warning: careful now\r\n" {
		t.Errorf("on the terminal: %q, %v", line, err)
	}
	if got := stdout.String(); got != "a result\n" {
		t.Errorf("standard output %q", got)
	}
}
