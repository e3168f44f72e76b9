package serve

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ocibridge/ocibridge/internal/test/testkit/collected"
)

// listenAsManager listens on a socket, and sets NOTIFY_SOCKET as systemd does. It returns a
// function that waits for the next message and returns it.
func listenAsManager(t *testing.T) func() string {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // t.TempDir can be too long for the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

// TestManagerIsTold shows that reloads send the messages that Type=notify-reload requires.
func TestManagerIsTold(t *testing.T) {
	next := listenAsManager(t)
	r := newReloading(t, withToken(""))
	for config, status := range map[string]string{
		withToken("# more\n"): "STATUS=serving",
		"wrong":               "STATUS=serving by earlier settings: the new ones cannot be used",
	} {
		before := monotonic(daemon.SdNotifyMonotonicUsec())
		r.as(config)
		began := next()
		if at, ok := strings.CutPrefix(began, "RELOADING=1\n"); !ok || before < 0 || monotonic(at) < before {
			t.Errorf("at the beginning: %q", began)
		}
		if got, want := next(), "READY=1\n"+status; got != want {
			t.Errorf("at the end: %q, want %q", got, want)
		}
	}
}

// monotonic returns the time in an assignment to MONOTONIC_USEC. It returns -1 if the
// assignment is invalid.
func monotonic(assignment string) int64 {
	text, ok := strings.CutPrefix(strings.TrimSpace(assignment), "MONOTONIC_USEC=")
	usec, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return -1
	}
	return usec
}

// TestWatchdog shows that the process reports to the service manager if the variables
// request reports from this process. The process sends no reports if the variables request
// no reports, are invalid, or name another process.
func TestWatchdog(t *testing.T) {
	next := listenAsManager(t)
	m := manager{slog.New(slog.DiscardHandler)}
	for _, tt := range []struct{ usec, pid string }{{"", ""}, {"x", ""}, {"-5", ""}, {"20000", "1"}} {
		t.Setenv("WATCHDOG_USEC", tt.usec)
		t.Setenv("WATCHDOG_PID", tt.pid)
		m.keepAlive(t.Context()) // returns immediately
	}
	for _, pid := range []string{"", strconv.Itoa(os.Getpid())} {
		t.Setenv("WATCHDOG_USEC", "20000")
		t.Setenv("WATCHDOG_PID", pid)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.keepAlive(ctx) })
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("message %q, want WATCHDOG=1", got)
		}
		cancel()
		running.Wait()
	}
}

// TestNoServiceManager shows that nothing is logged if there is no service manager.
func TestNoServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	log := &collected.Text{}
	manager{slog.New(slog.NewTextHandler(log, nil))}.notify("READY=1")
	if n := log.Count("service manager"); n != 0 {
		t.Errorf("%d warnings", n)
	}
}
