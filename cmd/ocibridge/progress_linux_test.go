package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/pusher"
)

// openTerminal opens a pseudo-terminal with the given width. What is written to the terminal can
// be read from the returned reader.
func openTerminal(t *testing.T, width uint16) (tty *os.File, screen *bufio.Reader) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0) // O_NONBLOCK allows a deadline
	must(t, err)
	t.Cleanup(func() { master.Close() })
	must(t, master.SetReadDeadline(time.Now().Add(time.Minute)))
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { tty.Close() })
	must(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: width}))
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

// TestErrorOnTerminal shows that the lines of an error and of its hint end between words on a
// terminal, and nowhere in a command line. A terminal that does not say how wide it is has 80
// columns.
func TestErrorOnTerminal(t *testing.T) {
	hideTestVariables(t)
	t.Chdir(t.TempDir())
	t.Setenv("TF_CLI_CONFIG_FILE", "")
	t.Setenv("HOME", t.TempDir())
	const wide = "error: no key to check the release's signature with\n" +
		"hint: add --public-key FILE, as gpg --armor --export KEYID writes it, or\n" +
		"  accept its checksums alone with --allow-unsigned, or with\n" +
		"  allow_unsigned = true in a trust block\n"
	for width, want := range map[uint16]string{
		80: wide,
		0:  wide,
		40: "error: no key to check the release's\n  signature with\n" +
			"hint: add --public-key FILE, as\n  gpg --armor --export KEYID writes it,\n" +
			"  or accept its checksums alone with\n  --allow-unsigned, or with\n" +
			"  allow_unsigned = true in a trust block\n",
	} {
		tty, screen := openTerminal(t, width)
		args := []string{"push", "--release-dir", ".", "--as", widgetHost + "/acme/widget@1.0.0"}
		if status := execute(t.Context(), args, tty, tty); status != exitUsage {
			t.Errorf("exit status %d", status)
		}
		seen := waitFor(t, screen, "trust block\r\n")
		if got := strings.ReplaceAll(seen, "\r\n", "\n"); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}

// TestTopicOnTerminal shows that a terminal gets a formatted page, from the pager that PAGER names
// or, if it names none, without a pager.
func TestTopicOnTerminal(t *testing.T) {
	hideTestVariables(t)
	t.Setenv("NO_COLOR", "")
	for pager, want := range map[string]string{
		"sed s/^/paged:/": "paged:\x1b[1;4mOutput: streams, exit statuses and JSON\x1b[0m\r\npaged:\r\n",
		"cat":             "\x1b[1;4mOutput: streams, exit statuses and JSON\x1b[0m\r\n\r\n",
		"":                "\x1b[1;4mOutput: streams, exit statuses and JSON\x1b[0m\r\n\r\n",
	} {
		t.Setenv("PAGER", pager)
		tty, screen := openTerminal(t, 80)
		ended := make(chan int)
		go func() { ended <- execute(t.Context(), []string{"help", "output"}, tty, tty) }()
		if seen := waitFor(t, screen, "no JSON"); !strings.HasPrefix(seen, want) {
			t.Errorf("PAGER=%s: %.200q", pager, seen)
		}
		if status := <-ended; status != 0 {
			t.Errorf("PAGER=%s: exit status %d", pager, status)
		}
	}
}

// TestProgressOnTerminal shows that the progress of planning and of packages is on the
// terminal, with --output json, too, and that standard output has only results.
func TestProgressOnTerminal(t *testing.T) {
	tty, screen := openTerminal(t, 120)
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
		waitFor(t, screen, "1 of 3 blocks, 7 versions")
		done()
		platform := provider.Platform{OS: "linux", Arch: "amd64"}
		p.Event(pusher.Event{Subject: a, Version: v, Platform: platform, Stage: pusher.StageFetch, Bytes: 5 << 20, Total: 10 << 20})
		waitFor(t, screen, "widget 1.0.0 linux_amd64")
		waitFor(t, screen, "25% of   10 MiB")
		m := module.MustParseAddress(widgetHost + "/acme/vpc/aws")
		p.Event(pusher.Event{Subject: m, Version: v, Stage: pusher.StageFetch, Total: -1})
		p.Event(pusher.Event{Subject: m, Version: v, Stage: pusher.StageFetch, Bytes: 30 << 10, Total: -1})
		waitFor(t, screen, "vpc 1.0.0")
		waitFor(t, screen, "30 KiB")
		p.Event(pusher.Event{Subject: m, Version: v, Stage: pusher.StageFetched, Total: -1})
		if len(p.live) != 1 {
			t.Errorf("%d bars", len(p.live))
		}
		if format == "text" {
			p.note("from\u0085\u202e here")
			if seen := waitFor(t, screen, " here"); !strings.Contains(seen, "from   here") {
				t.Errorf("a note above the bars: %q", seen)
			}
		}
		p.Done(&pusher.Result{Subject: a, Version: v, Status: pusher.Pushed})
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

// TestBarsOnTerminal shows that the bars of packages begin and end in the same columns, and that no
// line is longer than the terminal is wide. After a second, a bar has the speed and the time left.
func TestBarsOnTerminal(t *testing.T) {
	tty, screen := openTerminal(t, 80)
	p := (&commonFlags{output: outputFlag{"text"}}).progress(io.Discard, tty)
	start, elapsed := time.Now(), atomic.Int64{}
	p.now = func() time.Time { return start.Add(time.Duration(elapsed.Load())) }
	v, err := provider.ParseVersion("10.20.30")
	must(t, err)
	event := func(typ, platform string, bytes, total int) {
		a := provider.MustParseAddress(widgetHost + "/acme/" + typ)
		p.Event(pusher.Event{Subject: a, Version: v, Platform: provider.MustParsePlatform(platform), Stage: pusher.StageFetch, Bytes: bytes, Total: int64(total)})
	}
	event("null", "linux_386", 1<<20, 10<<20)
	event("google-beta", "windows_amd64", 0, 700<<20)
	event("widget-with-a-very-long-name", "windows_amd64", 0, 12)
	elapsed.Store(int64(4 * time.Second))
	event("null", "linux_386", 1<<20, 10<<20)
	waitFor(t, screen, " 10% of   10 MiB  256 KiB/s  0:36 left\r\n")
	var lines []string
	for line := range strings.SplitSeq(escapes.ReplaceAllString(waitFor(t, screen, " 10% of"), ""), "\r\n") {
		lines = append(lines, line)
	}
	want := []string{
		"google-beta 10.…30 windows_amd64 [------]   0% of  700 MiB                      ",
		"widget-with-a-v…30 windows_amd64 [------]   0% of     12 B                      ",
		"null 10.20.30 linux_386          [>-----]  10% of",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range want {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	p.Close()
}

// TestBarText shows what a bar says about its package.
func TestBarText(t *testing.T) {
	for _, tt := range []struct {
		done    float64
		bytes   int64
		elapsed time.Duration
		want    string
	}{
		{0, 1023 << 10, 0, "  0% of 1023 KiB                      "},
		{0.5, 100 << 20, time.Second / 2, " 50% of  100 MiB                      "},
		{0.5, 100 << 20, 5 * time.Second, " 50% of  100 MiB   10 MiB/s  0:05 left"},
		{0.001, 1 << 30, 3 * time.Second, "  0% of 1024 MiB  349 KiB/s 49:57 left"},
		{0.001, 100 << 20, time.Minute, "  0% of  100 MiB    1 KiB/s  16 h left"},
		{1, 12, time.Minute, "100% of     12 B      0 B/s  0:00 left"},
		{0.5, -1, time.Minute, "size unknown"},
	} {
		if got := barText(tt.done, tt.bytes, tt.elapsed); got != tt.want {
			t.Errorf("%v of %d after %s: %q, want %q", tt.done, tt.bytes, tt.elapsed, got, tt.want)
		}
	}
}

// escapes matches the codes that move the cursor.
var escapes = regexp.MustCompile("\x1b\\[[0-9]*[A-Za-z]")

// TestQuietOnTerminal shows that --quiet leaves out bars and summaries, and prints results and
// warnings.
func TestQuietOnTerminal(t *testing.T) {
	tty, screen := openTerminal(t, 120)
	var stdout bytes.Buffer
	p := (&commonFlags{quiet: true, output: outputFlag{"text"}}).progress(&stdout, tty)
	if planned, done := p.planning(3); planned != nil {
		done()
		t.Error("planning is shown")
	}
	p.Event(pusher.Event{Subject: provider.MustParseAddress("registry.acme.example/acme/widget"), Stage: pusher.StageFetch, Total: 10})
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
